/*
 * malloc() and related functions for libraries without hooks: while the thread builds the tree,
 * they allocate in the object. Linked into the program, they override the C library's functions,
 * also for shared libraries. Memory that a library keeps for later use elsewhere in the process (a
 * cache, a pool, a lazily created table) is then in the object as well, which can cause failures.
 */
#include "../keep.h"

#include <errno.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *pointer, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *pointer);

void *malloc(size_t size) {
    return keep_allocates() ? keep_malloc(size) : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    return keep_allocates() ? keep_calloc(count, size) : __libc_calloc(count, size);
}

void *realloc(void *pointer, size_t size) {
    if (keep_has(pointer) || (pointer == NULL && keep_allocates()))
        return keep_realloc(pointer, size);
    return __libc_realloc(pointer, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    if (keep_allocates()) return keep_aligned_alloc(alignment, size);
    return __libc_memalign(alignment, size);
}

void *memalign(size_t alignment, size_t size) { return aligned_alloc(alignment, size); }

int posix_memalign(void **block, size_t alignment, size_t size) {
    *block = aligned_alloc(alignment, size);
    return *block == NULL ? ENOMEM : 0;
}

void free(void *pointer) {
    if (keep_has(pointer))
        keep_free(pointer);
    else
        __libc_free(pointer);
}
