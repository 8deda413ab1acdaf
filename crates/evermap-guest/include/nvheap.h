/*
 * nvheap.h - one persistent heap an application, and names for its blocks: for guests in a sandbox.
 *
 * The heap is the application's object "nvheap", which the host maps into this program's memory, at
 * the same address in every run. The first call opens it: for writing (it is made when it is not
 * there), or for reading its last commit while another program writes it, or when the application
 * may only read it (then nvmalloc, nvfree, nvrelease and nvcommit fail with EROFS, and nverror()
 * says which of the two it was). A program that must write calls nvprotect(NV_WRITE) first: it fails
 * with EBUSY or EACCES instead. One that only reads calls nvprotect(NV_SNAPSHOT) first.
 *
 *     size_t size;
 *     long *runs = nvread("runs", &size);                  (NULL in the first run)
 *     if (runs == NULL)
 *         *(runs = nvmalloc("runs", sizeof *runs)) = 0;
 *     ++*runs;
 *     nvcommit();
 *
 * Blocks may hold pointers to each other. What was not committed is forgotten when the program ends.
 *
 * Functions that return int give 0, or -1 with errno set; functions that return a pointer give NULL
 * then. nverror() says in words what was wrong and what to do. All may be called from any thread; no
 * thread may store to the heap's blocks during nvcommit(). (errno is not set in programs with
 * threads.)
 *
 * Programs are linked with -Wl,--global-base=1342177280, which leaves room for the heap below their
 * data. (With wasm-ld 19 also with -Wl,--stack-first: a stack that overflows then traps.
 * wasm-ld 14 ignores the base beside it.)
 *
 * The functions of these names in the library for native programs mean the same. The heap's root is
 * a table of names that any program can read; its tag is "evermap.nvheap.1":
 *
 *     struct table { uint64_t names; uint64_t buckets; struct entry *bucket[]; };
 *     struct entry { struct entry *next; void *block; uint64_t size; uint64_t hash;
 *                    uint64_t name_bytes; char name[]; };
 *
 * `buckets` is a power of two, `hash` is FNV-1a (64 bits) of the name, an entry is in the list
 * that begins at bucket[hash % buckets], and `name` ends with a zero byte that is not counted.
 */
#ifndef EVERMAP_NVHEAP_H
#define EVERMAP_NVHEAP_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Levels for nvprotect(). */
enum {
    NV_SNAPSHOT = 1, /**< The last commit; what is stored there is this run's own, and forgotten. */
    NV_WRITE = 3     /**< The heap itself. */
};

/** A block of `size` bytes with unspecified contents, aligned to 16, found by `name` (1 to 255
 * bytes) in this and later runs. With a NULL name, a block that nothing but your own pointers
 * finds; nvrelease() frees it. Errors: EEXIST, EROFS, EINVAL (the name), ENOMEM (no addresses),
 * EDQUOT (the application's are used up), ENOSPC, and those of opening the heap: EACCES, EBUSY,
 * EBADMSG (damaged), ENOEXEC (linked without room for the heap), EPROTOTYPE (the object is no such
 * heap), EIO. */
void *nvmalloc(const char *name, size_t size);

/** The block of a name; its size as asked for goes to `size`, which may be NULL. Errors: ENOENT,
 * and those of opening the heap. */
void *nvread(const char *name, size_t *size);

/** Frees the block of a name, and the name. Errors: ENOENT, EROFS. */
int nvfree(const char *name);

/** Frees a block that has no name; NULL is none. Errors: EROFS, EINVAL (it is no allocated block). */
int nvrelease(void *block);

/** Makes everything done to the heap since the last commit durable, all of it or nothing. Errors:
 * EROFS, ENOSPC (nothing was lost), EIO. */
int nvcommit(void);

/** Changes this run's level of the heap. NV_SNAPSHOT maps the last commit in its place: a safeguard
 * for code that should only read, whatever it stores. NV_WRITE asks for writing again. At either
 * change, stores and allocations that were not committed are forgotten; blocks of the last commit
 * stay where they are. Nothing happens when the heap is open at this level already. When it cannot be
 * opened at this level, it is opened again as by the first call. Errors: EINVAL, ENOENT (there is no
 * heap yet), EACCES, EBUSY, and those of opening. */
int nvprotect(int level);

/** What went wrong last in this thread, in words; good until something else does. */
const char *nverror(void);

#ifdef __cplusplus
}
#endif

#endif /* EVERMAP_NVHEAP_H */
