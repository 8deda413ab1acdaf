// hooks: xmlMemSetup(). Built from XML. Asks an XPath only.
#include "trial.hpp"

#include <libxml/parser.h>
#include <libxml/xpath.h>

static void *parse(const char *text, size_t size_bytes) {
    xmlMemSetup(keep_free, keep_malloc, keep_realloc, keep_strdup);
    return xmlReadMemory(text, static_cast<int>(size_bytes), nullptr, "utf-8", 0);
}

static void walk(const void *tree, struct answer *answer) {
    xmlXPathContext *context = xmlXPathNewContext(static_cast<xmlDoc *>(const_cast<void *>(tree)));
    const auto *question = reinterpret_cast<const xmlChar *>("//item[@kind='k3' and text()]");
    xmlXPathObject *found = xmlXPathEvalExpression(question, context);
    answer_number(answer, found->nodesetval->nodeNr);
}

TRIAL("libxml2-xpath");
