// hooks: GumboOptions. Built from HTML; the text is copied, because nodes point into it.
#include "trial.hpp"

#include <gumbo.h>

static void *parse(const char *text, size_t size_bytes) {
    auto *copy = static_cast<char *>(keep_malloc(size_bytes));
    std::memcpy(copy, text, size_bytes);
    GumboOptions options = kGumboDefaultOptions;
    options.allocator = [](void *, size_t size) { return keep_malloc(size); };
    options.deallocator = [](void *, void *block) { keep_free(block); };
    return gumbo_parse_with_options(&options, copy, size_bytes);
}

static void walk_node(const GumboNode *node, struct answer *answer) {
    const GumboVector *children = nullptr;
    if (node->type == GUMBO_NODE_DOCUMENT) {
        answer_text(answer, node->v.document.name);
        answer_text(answer, node->v.document.public_identifier);
        children = &node->v.document.children;
    } else if (node->type == GUMBO_NODE_ELEMENT) {
        answer_text(answer, gumbo_normalized_tagname(node->v.element.tag));
        const GumboAttribute *kind = gumbo_get_attribute(&node->v.element.attributes, "kind");
        if (kind != nullptr) answer_text(answer, kind->value);
        children = &node->v.element.children;
    } else {
        answer_text(answer, node->v.text.text);
    }
    for (unsigned i = 0; children != nullptr && i < children->length; i++)
        walk_node(static_cast<const GumboNode *>(children->data[i]), answer);
}

static void walk(const void *tree, struct answer *answer) {
    walk_node(static_cast<const GumboOutput *>(tree)->document, answer);
}

TRIAL("gumbo");
