/*
 * nvheap.h - one persistent heap per application with named blocks, for guests in a sandbox.
 *
 * The heap is the application's object "nvheap". The host maps it into this program's memory at the
 * same address in every run. The first call opens it for writing, and creates it if it does not
 * exist. If another program is writing the heap, or the application may only read it, the first
 * call opens the last commit for reading instead. Then nvmalloc, nvfree, nvrelease and nvcommit
 * fail with EROFS, and nverror() returns the reason. A program that must write calls
 * nvprotect(NV_WRITE) first, which fails with EBUSY or EACCES instead. A program that only reads
 * calls nvprotect(NV_SNAPSHOT) first.
 *
 *     size_t size;
 *     long *runs = nvread("runs", &size);                  (NULL in the first run)
 *     if (runs == NULL)
 *         *(runs = nvmalloc("runs", sizeof *runs)) = 0;
 *     ++*runs;
 *     nvcommit();
 *
 * Blocks may contain pointers to each other. Uncommitted changes are lost when the program ends.
 *
 * Functions that return int return 0, or -1 and set errno. Functions that return a pointer return
 * NULL on error. nverror() returns the cause and the remedy. All functions may be called from any
 * thread; no thread may store to the heap's blocks during nvcommit(). (errno is not set in programs
 * with threads.)
 *
 * Link programs with -Wl,--global-base=1342177280, which leaves room for the heap below their data.
 * (With wasm-ld 19 add -Wl,--stack-first, so that a stack overflow traps. wasm-ld 14 ignores the
 * base if --stack-first is given.)
 *
 * The functions of the same names in the library for native programs behave the same. The heap's
 * root is a table of names that any program can read; its tag is "evermap.nvheap.1":
 *
 *     struct table { uint64_t names; uint64_t buckets; struct entry *bucket[]; };
 *     struct entry { struct entry *next; void *block; uint64_t size; uint64_t hash;
 *                    uint64_t name_bytes; char name[]; };
 *
 * `buckets` is a power of two and `hash` is FNV-1a (64 bits) of the name. An entry is in the list
 * that begins at bucket[hash % buckets]. `name` ends with a zero byte that `name_bytes` excludes.
 */
#ifndef EVERMAP_NVHEAP_H
#define EVERMAP_NVHEAP_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Levels for nvprotect(). */
enum {
    NV_SNAPSHOT = 1, /**< The last commit; stores are private to this run and discarded. */
    NV_WRITE = 3     /**< The heap itself. */
};

/** Allocates a block of `size` bytes with unspecified contents, aligned to 16. This and later runs
 * find it by `name` (1 to 255 bytes). A block without a name (NULL) is found only through your own
 * pointers; free it with nvrelease(). Errors: EEXIST, EROFS, EINVAL (the name), ENOMEM (no
 * addresses), EDQUOT (quota used up), ENOSPC, and the errors of opening the heap: EACCES, EBUSY,
 * EBADMSG (damaged), ENOEXEC (linked without room for the heap), EPROTOTYPE (the object is not such
 * a heap), EIO. */
void *nvmalloc(const char *name, size_t size);

/** Returns the block with this name, and stores its requested size in `size`, which may be NULL.
 * Errors: ENOENT, and the errors of opening the heap. */
void *nvread(const char *name, size_t *size);

/** Frees the block with this name, and removes the name. Errors: ENOENT, EROFS. */
int nvfree(const char *name);

/** Frees a block without a name; ignores NULL. Errors: EROFS, EINVAL (not an allocated block). */
int nvrelease(void *block);

/** Makes all changes to the heap since the last commit durable, all of them or none. Errors: EROFS,
 * ENOSPC (nothing was lost), EIO. */
int nvcommit(void);

/** Changes this run's level of the heap. NV_SNAPSHOT maps the last commit instead, which protects the
 * heap from code that should only read. NV_WRITE opens the heap for writing again. Each change
 * discards uncommitted stores and allocations; blocks of the last commit keep their addresses. Does
 * nothing if the heap is already open at this level. If it cannot be opened at this level, it is
 * opened again as by the first call. Errors: EINVAL, ENOENT (there is no heap yet), EACCES, EBUSY,
 * and the errors of opening. */
int nvprotect(int level);

/** Returns the message of the last error in this thread, valid until the next error. */
const char *nverror(void);

#ifdef __cplusplus
}
#endif

#endif /* EVERMAP_NVHEAP_H */
