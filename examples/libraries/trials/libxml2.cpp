// hooks: xmlMemSetup(). Built from XML. Asks an XPath, then reads names and contents.
#include "trial.hpp"

#include <libxml/parser.h>
#include <libxml/xpath.h>

static void *parse(const char *text, size_t size_bytes) {
    xmlMemSetup(keep_free, keep_malloc, keep_realloc, keep_strdup);
    return xmlReadMemory(text, static_cast<int>(size_bytes), nullptr, "utf-8", 0);
}

static void walk_nodes(const xmlNode *node, struct answer *answer) {
    for (; node != nullptr; node = node->next) {
        answer_text(answer, reinterpret_cast<const char *>(node->name));
        answer_text(answer, reinterpret_cast<const char *>(node->content));
        if (node->type == XML_ELEMENT_NODE) walk_nodes(node->children, answer);
    }
}

static void walk(const void *tree, struct answer *answer) {
    xmlDoc *document = static_cast<xmlDoc *>(const_cast<void *>(tree));
    walk_nodes(document->children, answer);
}

TRIAL("libxml2");
