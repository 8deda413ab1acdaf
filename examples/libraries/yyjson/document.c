/*
 * A JSON document of yyjson in an object.
 *
 * yyjson_read_opts() takes an allocator. A document is two blocks: its values, and the text that
 * its strings point into. It also stores the allocator, whose functions have other addresses in the
 * next process: before that process frees the document, it stores its own functions.
 */
#include "../keep.h"

#include <stdio.h>
#include <yyjson.h>

static const char *library(void) {
    static char name[32];
    snprintf(name, sizeof name, "yyjson %06x", (unsigned)yyjson_version());
    return name;
}

static void *allocate(void *context, size_t size) {
    (void)context;
    return keep_malloc(size);
}

static void *reallocate(void *context, void *block, size_t old_size, size_t size) {
    (void)context;
    (void)old_size;
    return keep_realloc(block, size);
}

static void release(void *context, void *block) {
    (void)context;
    keep_free(block);
}

static const yyjson_alc allocator = {allocate, reallocate, release, NULL};

static void *parse(const char *text, size_t size_bytes) {
    /* Without YYJSON_READ_INSITU the text is copied, and not changed: the cast adds nothing. */
    return yyjson_read_opts((char *)text, size_bytes, 0, &allocator, NULL);
}

static void walk_value(yyjson_val *value, struct answer *answer) {
    size_t index, count;
    yyjson_val *name, *element;
    if (yyjson_is_str(value)) {
        answer_node(answer, yyjson_get_str(value), yyjson_get_len(value));
    } else if (yyjson_is_num(value)) {
        double number = yyjson_get_num(value);
        answer_node(answer, (const char *)&number, sizeof number);
    } else if (yyjson_is_arr(value)) {
        answer_node(answer, "array", 5);
        yyjson_arr_foreach(value, index, count, element) walk_value(element, answer);
    } else if (yyjson_is_obj(value)) {
        answer_node(answer, "object", 6);
        yyjson_obj_foreach(value, index, count, name, element) {
            walk_value(name, answer);
            walk_value(element, answer);
        }
    } else {
        answer_node(answer, yyjson_is_true(value) ? "1" : yyjson_is_false(value) ? "0" : "-", 1);
    }
}

static void walk(const void *tree, struct answer *answer) {
    walk_value(yyjson_doc_get_root((yyjson_doc *)tree), answer);
}

/* The number of elements or members of what a JSON pointer ("/items/3/tags") leads to. */
static size_t find(const void *tree, const char *question) {
    yyjson_val *value = yyjson_doc_ptr_get((yyjson_doc *)tree, question);
    if (value == NULL) return 0;
    return yyjson_is_ctn(value) ? yyjson_get_len(value) : 1;
}

static void drop(void *tree) {
    yyjson_doc *document = tree;
    document->alc = allocator;
    yyjson_doc_free(document);
}

/* A yyjson_doc is never changed, so there is nothing to add. */
const struct example example = {library, parse, walk, find, NULL, drop};
