// hooks: none, malloc() is interposed. Built from XML.
#include "trial.hpp"

#include <tinyxml2.h>

static void *parse(const char *text, size_t size_bytes) {
    auto *document = new tinyxml2::XMLDocument;
    return document->Parse(text, size_bytes) == tinyxml2::XML_SUCCESS ? document : nullptr;
}

static void walk_node(const tinyxml2::XMLNode *node, struct answer *answer) {
    answer_text(answer, node->Value());
    if (const tinyxml2::XMLElement *element = node->ToElement())
        answer_text(answer, element->Attribute("kind"));
    for (node = node->FirstChild(); node != nullptr; node = node->NextSibling())
        walk_node(node, answer);
}

static void walk(const void *tree, struct answer *answer) {
    walk_node(static_cast<const tinyxml2::XMLDocument *>(tree), answer);
}

TRIAL("tinyxml2");
