/*
 * Shared by the examples in this directory: a program that parses a document with a library into
 * an object of a store, and that walks it in another process. An example is a library's own calls
 * (struct example); keep.c has the rest. The library itself knows nothing of Evermap: it is given
 * keep_malloc() and its siblings as its allocator.
 */
#ifndef KEEP_H
#define KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a walk over everything found. Equal trees have equal answers. */
struct answer {
    uint64_t nodes;
    uint64_t bytes; /* of text */
    uint64_t hash;  /* of all texts, in the order of the walk */
};

/* Counts a node, with a text of its own or NULL. */
void answer_node(struct answer *answer, const char *text, size_t size_bytes);

struct example {
    /* Name and version, of the library that runs where it can tell, and what else the layout
     * depends on. An object whose root says something else was built by another library, and is
     * not walked. */
    const char *(*library)(void);
    /* Parses with keep_malloc(); the tree, as the first address of an allocated block, or NULL. */
    void *(*parse)(const char *text, size_t size_bytes);
    /* Visits all of the tree by the library's own functions. */
    void (*walk)(const void *tree, struct answer *answer);
    /* Asks one question of the tree: an XPath, a JSON pointer. NULL when there is no such thing. */
    size_t (*find)(const void *tree, const char *question);
    /* add: changes a tree that may come from another process, and returns its root, which may have
     * moved. drop: frees such a tree. NULL if the library cannot do it. */
    void *(*add)(void *tree);
    void (*drop)(void *tree);
};

/* Every program defines it. */
extern const struct example example;

/* malloc() and related functions: in the object while a tree is built, changed or dropped there,
 * otherwise in the C library. keep_free() frees blocks of both. */
void *keep_malloc(size_t size_bytes);
void *keep_calloc(size_t count, size_t size_bytes);
void *keep_realloc(void *pointer, size_t size_bytes);
void *keep_aligned_alloc(size_t alignment, size_t size_bytes);
void keep_free(void *pointer);
char *keep_strdup(const char *text);

/* For a program that interposes malloc(): is this thread building or changing the tree? Is this an
 * address of the object? (False where nothing of the library runs.) */
bool keep_allocates(void);
bool keep_has(const void *pointer);

#ifdef __cplusplus
}
#endif

#endif
