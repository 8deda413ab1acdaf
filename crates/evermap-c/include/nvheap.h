/*
 * nvheap.h - one persistent heap per application, and names for its blocks.
 *
 * The store is the directory that EVERMAP_STORE names; it is created if it does not exist. The
 * application is named by EVERMAP_APPLICATION, or else by the program's file name without
 * directories; its heap is the object "nvheap:APPLICATION", which only it can open. The first call
 * opens the heap: for writing, or for reading its last commit while another process writes it (then
 * nvmalloc, nvfree and nvcommit fail with EM_READ_ONLY, and the message names the writer). A
 * program that must write opens "nvheap:APPLICATION" with em_object_open() and EM_WRITE.
 *
 *     size_t size;
 *     long *runs = nvread("runs", &size);                  (NULL in the first run)
 *     if (runs == NULL)
 *         *(runs = nvmalloc("runs", sizeof *runs)) = 0;
 *     ++*runs;
 *     nvcommit();
 *
 * Blocks may hold pointers to each other: they lie at the same addresses in every process.
 * Uncommitted changes are lost when the process ends.
 *
 * Functions that return int return 0, or -1 with errno set; functions that return a pointer return
 * NULL with errno set. em_last_error_message() of evermap.h returns the sentence with cause and
 * remedy, which perror() does not have. All four may be called from any thread; no thread may store
 * to the heap's blocks during nvcommit(). In a forked child they fail with EM_FORKED; the blocks
 * can be read there, as they were at the fork. em_object_of() returns the heap's object for any of
 * its blocks.
 *
 * The heap's root is a table of names that any program can read; its tag is "evermap.nvheap.1":
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

/** Returns a block of `size` bytes with unspecified contents, aligned to 16, found by `name` (1
 * to 255 bytes) in this and later runs. With a NULL name, a block that is reachable only by the
 * program's own pointers; em_free(em_object_of(block), block) frees it. Errors:
 * EM_ALREADY_EXISTS, EM_READ_ONLY, EM_INVALID_NAME, EM_BAD_ALLOCATION, EM_DISK_FULL,
 * EM_OTHER_APPLICATION, and, without EVERMAP_STORE, EM_INVALID_ARGUMENT. */
void *nvmalloc(const char *name, size_t size);

/** Returns the block of a name; writes its requested size to `size`, which may be NULL. Errors:
 * EM_NOT_FOUND, and the errors of opening the heap. */
void *nvread(const char *name, size_t *size);

/** Frees the block of a name and removes the name. Errors: EM_NOT_FOUND, EM_READ_ONLY. */
int nvfree(const char *name);

/** Makes all changes of the heap since the last commit durable, atomically. Errors: as
 * em_commit(). */
int nvcommit(void);

#ifdef __cplusplus
}
#endif

#endif /* EVERMAP_NVHEAP_H */
