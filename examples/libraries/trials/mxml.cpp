// hooks: none, malloc() is interposed. Built from XML.
#include "trial.hpp"

#include <mxml.h>

static void *parse(const char *text, size_t) {
    return mxmlLoadString(nullptr, text, MXML_OPAQUE_CALLBACK);
}

static void walk(const void *tree, struct answer *answer) {
    auto *top = static_cast<mxml_node_t *>(const_cast<void *>(tree));
    for (mxml_node_t *node = top; node != nullptr; node = mxmlWalkNext(node, top, MXML_DESCEND)) {
        answer_text(answer, mxmlGetElement(node));
        answer_text(answer, mxmlGetOpaque(node));
        if (mxmlGetType(node) == MXML_ELEMENT) answer_text(answer, mxmlElementGetAttr(node, "kind"));
    }
}

TRIAL("mxml");
