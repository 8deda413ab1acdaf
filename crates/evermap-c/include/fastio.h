/*
 * fastio.h - persistent objects by name, in a dozen calls.
 *
 * The vocabulary of papers on persistent memory, over evermap.h and in the same library. The store
 * is the directory that EVERMAP_STORE names; it is made when it is not there, and stays open. What
 * is made belongs to the application that EVERMAP_APPLICATION names, if that is set, and opens for
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
 * An object is "mapped" when p_map() or p_map_readonly() opened it in this process; every function
 * but p_reserve, p_create, p_delete and the two needs that, and gives EM_CLOSED otherwise. An
 * object's pointers are good in every process, because it is mapped at the same addresses in each.
 *
 * Functions that return int give 0, or -1 with errno set; functions that return a pointer give
 * NULL then. em_last_error_message() of evermap.h is the sentence with cause and remedy, which perror()
 * does not have. Threads, fork and
 * what a name may be are as evermap.h says: p_malloc and p_free may be called by many threads at
 * once, p_commit, p_unmap, p_extend and p_reduce must be alone with their object (else EM_BUSY).
 */
#ifndef EVERMAP_FASTIO_H
#define EVERMAP_FASTIO_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Reserves the store's addresses for the life of the process, so that nothing else is put there;
 * every other function does that too, at its first call. Errors: EM_INVALID_ARGUMENT without
 * EVERMAP_STORE; EM_ADDRESS_TAKEN, and what em_store_open_or_create() returns. */
int p_reserve(void);

/** Makes an object with an empty heap, durably. It is not mapped then. Errors: EM_ALREADY_EXISTS,
 * EM_INVALID_NAME, EM_DISK_FULL. */
int p_create(const char *name);

/** Removes an object, durably. Errors: EM_NOT_FOUND, EM_OTHER_APPLICATION; EM_BUSY when it is
 * mapped for writing, here or elsewhere. Who reads it keeps what it has mapped. */
int p_delete(const char *name);

/** Maps an object: for writing when nobody else writes it and its files may be written, otherwise
 * for reading its last commit. Gives its first address. The first page is the library's own; what
 * is in the object is found by get_prime_node(). What is mapped already stays as it is.
 * Errors: EM_NOT_FOUND, EM_OTHER_APPLICATION, EM_DAMAGED, EM_ADDRESS_TAKEN. */
void *p_map(const char *name);

/** Maps an object for reading its last commit; a store to it is SIGSEGV. What is mapped already
 * stays as it is. Errors as above. */
void *p_map_readonly(const char *name);

/** Commits, if the object is mapped for writing, and ends its mapping; pointers into it dangle.
 * When the commit fails the object stays mapped. Errors: EM_CLOSED, and those of em_commit(). */
int p_unmap(const char *name);

/** Makes what was done to the object since the last commit durable, all of it or nothing. Errors:
 * EM_READ_ONLY, and those of em_commit(). */
int p_commit(const char *name);

/** A block of `size` bytes in the object, aligned to 16, with unspecified contents; of 0 bytes, a
 * block of its own. Errors: EM_READ_ONLY, EM_BAD_ALLOCATION, EM_DISK_FULL, EM_OUT_OF_ADDRESSES. */
void *p_malloc(const char *name, size_t size);

/** Frees a block of the object; NULL is nothing. A pointer that is no allocated block of it, or an
 * object that is not mapped for writing, prints what it is on stderr and aborts. */
void p_free(const char *name, void *node);

/** Makes room for a block of `bytes` bytes, or many that are smaller: addresses and file blocks,
 * durably on return; they stay with the object. Commits what was done so far. Errors: EM_READ_ONLY,
 * EM_DISK_FULL, EM_OUT_OF_ADDRESSES. */
int p_extend(const char *name, size_t bytes);

/** Gives `bytes` bytes of the object's unused end, rounded down to whole pages, back to the file
 * system, durably. Commits what was done so far. Errors: EM_OUT_OF_BOUNDS when fewer were unused
 * there, or readers use them (what could be given back was); EM_READ_ONLY. */
int p_reduce(const char *name, size_t bytes);

/** The object's root: where everything in it is found from; NULL for none (errno stays) and on
 * failure. */
void *get_prime_node(const char *name);

/** Makes a block of the object its root with the next commit; NULL for none. Errors: EM_BAD_ROOT
 * when it is no allocated block, EM_READ_ONLY. */
int set_prime_node(const char *name, void *node);

#ifdef __cplusplus
}
#endif

#endif /* EVERMAP_FASTIO_H */
