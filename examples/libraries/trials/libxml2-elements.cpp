// hooks: xmlMemSetup(). Built from XML. Reads the names of elements only, and contents: the names
// of texts and comments are strings of the library.
#include "trial.hpp"

#include <libxml/parser.h>

static void *parse(const char *text, size_t size_bytes) {
    xmlMemSetup(keep_free, keep_malloc, keep_realloc, keep_strdup);
    return xmlReadMemory(text, static_cast<int>(size_bytes), nullptr, "utf-8", 0);
}

static void walk_nodes(const xmlNode *node, struct answer *answer) {
    for (; node != nullptr; node = node->next) {
        if (node->type == XML_ELEMENT_NODE) {
            answer_text(answer, reinterpret_cast<const char *>(node->name));
            walk_nodes(node->children, answer);
        } else {
            answer_text(answer, reinterpret_cast<const char *>(node->content));
        }
    }
}

static void walk(const void *tree, struct answer *answer) {
    walk_nodes(static_cast<const xmlDoc *>(tree)->children, answer);
}

TRIAL("libxml2-elements");
