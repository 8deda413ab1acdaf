/*
 * fastio.h - persistent objects by name, in a dozen calls.
 *
 * The vocabulary of papers on persistent memory, over evermap.h and in the same library. The store
 * is the directory that EVERMAP_STORE names; it is created if it does not exist, and stays open.
 * New objects belong to the application that EVERMAP_APPLICATION names, if it is set, and open for
 * that application only.
 *
 *     p_create("list");                                    (fails in the second run: it exists)
 *     if (p_map("list") == NULL)
 *         return fprintf(stderr, "%s\n", em_last_error_message()), 1;
 *     struct node *first = get_prime_node("list");         (NULL in the first run)
 *     struct node *node = p_malloc("list", sizeof *node);
 *     node->next = first;
 *     set_prime_node("list", node);
 *     p_unmap("list");                                     (commits)
 *
 * An object is "mapped" when p_map() or p_map_readonly() opened it in this process. Of the other
 * functions, only p_reserve, p_create and p_delete can do without: p_free aborts the program when
 * the object is not mapped, and the rest fail with EM_CLOSED.
 * An object's pointers are valid in every process, because it is mapped at the same addresses in
 * each.
 *
 * Functions that return int return 0, or -1 with errno set; functions that return a pointer return
 * NULL with errno set. em_last_error_message() of evermap.h returns the sentence with cause and
 * remedy, which perror() does not have. The rules for threads, fork and names are those of
 * evermap.h: many threads may call p_malloc and p_free at the same time; p_commit, p_unmap,
 * p_extend and p_reduce need exclusive use of their object (else EM_BUSY).
 */
#ifndef EVERMAP_FASTIO_H
#define EVERMAP_FASTIO_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Reserves the store's addresses for the life of the process, so that no other memory is mapped
 * there. Every other function does that too, at its first call. Errors: EM_INVALID_ARGUMENT
 * without EVERMAP_STORE; EM_ADDRESS_TAKEN, and the errors of em_store_open_or_create(). */
int p_reserve(void);

/** Creates an object with an empty heap, durably. It is not mapped. Errors: EM_ALREADY_EXISTS,
 * EM_INVALID_NAME, EM_DISK_FULL. */
int p_create(const char *name);

/** Removes an object, durably. Errors: EM_NOT_FOUND, EM_OTHER_APPLICATION; EM_BUSY when it is
 * mapped for writing, here or elsewhere. Readers keep their mapping. */
int p_delete(const char *name);

/** Maps an object: for writing when it has no other writer and its files are writable, otherwise
 * for reading its last commit. Returns its first address. The first page belongs to the library;
 * get_prime_node() returns the entry to the data. An object that is already mapped stays as it
 * is, even if for reading only. Errors: EM_NOT_FOUND, EM_OTHER_APPLICATION, EM_DAMAGED,
 * EM_ADDRESS_TAKEN. */
void *p_map(const char *name);

/** Maps an object for reading its last commit; a store to it is SIGSEGV. An object that is
 * already mapped stays as it is, even if for writing. Same errors as p_map(). */
void *p_map_readonly(const char *name);

/** Commits, if the object is mapped for writing, and unmaps it; pointers into it dangle. When
 * the commit fails, the object stays mapped. Errors: EM_CLOSED, and the errors of em_commit(). */
int p_unmap(const char *name);

/** Makes all changes of the object since the last commit durable, atomically. Errors:
 * EM_READ_ONLY, and the errors of em_commit(). */
int p_commit(const char *name);

/** Returns a block of `size` bytes in the object, aligned to 16, with unspecified contents; for
 * 0 bytes, a distinct block. Errors: EM_READ_ONLY, EM_BAD_ALLOCATION, EM_DISK_FULL,
 * EM_OUT_OF_ADDRESSES. */
void *p_malloc(const char *name, size_t size);

/** Frees a block of the object; NULL is ignored. A pointer that is not an allocated block of it,
 * or an object that is not mapped for writing, prints the cause on stderr and aborts. */
void p_free(const char *name, void *node);

/** Reserves addresses and disk space for a block of `bytes` bytes, or many smaller ones, durably
 * on return; they stay with the object. Commits the changes so far. Errors: EM_READ_ONLY,
 * EM_DISK_FULL, EM_OUT_OF_ADDRESSES. */
int p_extend(const char *name, size_t bytes);

/** Releases `bytes` bytes of the object's unused end, rounded down to whole pages, to the file
 * system, durably. Commits the changes so far. Errors: EM_OUT_OF_BOUNDS when fewer bytes were
 * unused there, or readers use them (the available ones were released); EM_READ_ONLY. */
int p_reduce(const char *name, size_t bytes);

/** Returns the object's root, from which all its data is reachable; NULL if there is none (errno
 * is unchanged) and on failure. */
void *get_prime_node(const char *name);

/** Makes a block of the object its root with the next commit; NULL for none. Errors: EM_BAD_ROOT
 * when it is not an allocated block, EM_READ_ONLY. */
int set_prime_node(const char *name, void *node);

#ifdef __cplusplus
}
#endif

#endif /* EVERMAP_FASTIO_H */
