// hooks: cmark_parser_new_with_mem(). Built from Markdown, and rendered to HTML, which allocates.
#include "trial.hpp"

#include <cmark.h>

static void *parse(const char *text, size_t size_bytes) {
    auto *functions = static_cast<cmark_mem *>(keep_malloc(sizeof(cmark_mem)));
    *functions = {keep_calloc, keep_realloc, keep_free};
    cmark_parser *parser = cmark_parser_new_with_mem(CMARK_OPT_DEFAULT, functions);
    cmark_parser_feed(parser, text, size_bytes);
    cmark_node *document = cmark_parser_finish(parser);
    cmark_parser_free(parser);
    return document;
}

static void walk(const void *tree, struct answer *answer) {
    auto *document = static_cast<cmark_node *>(const_cast<void *>(tree));
    answer_text(answer, cmark_render_html(document, CMARK_OPT_DEFAULT));
}

TRIAL("cmark-render");
