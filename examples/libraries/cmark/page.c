/*
 * A Markdown document of cmark in an object.
 *
 * cmark_parser_new_with_mem() takes an allocator, a struct of three functions, and every node
 * stores the address of that struct. So the struct is in the object, too. It points to functions of
 * the process that built the tree, which have other addresses in the next process. Reading does not
 * call them. To change the tree (or to render it, which allocates), a program opens it for writing
 * and first stores its own functions in the struct.
 */
#include "../keep.h"

#include <cmark.h>
#include <stdio.h>
#include <string.h>

struct page {
    cmark_mem functions;
    cmark_node *document;
};

static const cmark_mem here = {keep_calloc, keep_realloc, keep_free};

static const char *library(void) {
    static char name[32];
    snprintf(name, sizeof name, "cmark %s", cmark_version_string());
    return name;
}

static void *parse(const char *text, size_t size_bytes) {
    struct page *page = keep_malloc(sizeof *page);
    if (page == NULL) return NULL;
    page->functions = here;
    cmark_parser *parser = cmark_parser_new_with_mem(CMARK_OPT_DEFAULT, &page->functions);
    cmark_parser_feed(parser, text, size_bytes);
    page->document = cmark_parser_finish(parser);
    cmark_parser_free(parser);
    return page;
}

static void answer_text(struct answer *answer, const char *text) {
    if (text != NULL) answer_node(answer, text, strlen(text));
}

static cmark_node *next_in_document(cmark_node *node) {
    if (cmark_node_first_child(node) != NULL) return cmark_node_first_child(node);
    while (node != NULL && cmark_node_next(node) == NULL) node = cmark_node_parent(node);
    return node == NULL ? NULL : cmark_node_next(node);
}

/* A cmark_iter would do the same, but it allocates by the functions in the object. */
static void walk(const void *tree, struct answer *answer) {
    cmark_node *node = ((const struct page *)tree)->document;
    for (; node != NULL; node = next_in_document(node)) {
        answer_text(answer, cmark_node_get_type_string(node));
        answer_text(answer, cmark_node_get_literal(node));
        answer_text(answer, cmark_node_get_url(node));
        answer_text(answer, cmark_node_get_title(node));
        answer_text(answer, cmark_node_get_fence_info(node));
    }
}

/* The number of nodes of a type: "heading", "link". */
static size_t find(const void *tree, const char *question) {
    cmark_node *node = ((const struct page *)tree)->document;
    size_t found = 0;
    for (; node != NULL; node = next_in_document(node))
        found += strcmp(cmark_node_get_type_string(node), question) == 0;
    return found;
}

static void *add(void *tree) {
    struct page *page = tree;
    page->functions = here;
    cmark_node *text = cmark_node_new_with_mem(CMARK_NODE_TEXT, &page->functions);
    cmark_node *paragraph = cmark_node_new_with_mem(CMARK_NODE_PARAGRAPH, &page->functions);
    cmark_node_set_literal(text, "Added by another process.");
    cmark_node_append_child(paragraph, text);
    cmark_node_append_child(page->document, paragraph);
    return page;
}

static void drop(void *tree) {
    struct page *page = tree;
    page->functions = here;
    cmark_node_free(page->document);
    keep_free(page);
}

const struct example example = {library, parse, walk, find, add, drop};
