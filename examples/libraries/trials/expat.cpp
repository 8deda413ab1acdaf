// hooks: XML_ParserCreate_MM(). Expat has no tree; what can be kept is a parser in the middle of a
// document, whose rest another process parses.
#include "trial.hpp"

#include <expat.h>

static void XMLCALL on_element(void *user_data, const XML_Char *name, const XML_Char **) {
    answer_text(static_cast<struct answer *>(user_data), name);
}

static void *parse(const char *, size_t) {
    static const XML_Memory_Handling_Suite suite = {keep_malloc, keep_realloc, keep_free};
    XML_Parser parser = XML_ParserCreate_MM(nullptr, &suite, nullptr);
    struct answer unused = {0, 0, 0};
    XML_SetUserData(parser, &unused);
    XML_SetStartElementHandler(parser, on_element);
    XML_Parse(parser, "<items><item kind='k3'>", 23, 0);
    return parser;
}

static void walk(const void *tree, struct answer *answer) {
    auto parser = static_cast<XML_Parser>(const_cast<void *>(tree));
    XML_SetUserData(parser, answer);
    XML_SetStartElementHandler(parser, on_element);
    answer_number(answer, XML_Parse(parser, "<b/></item></items>", 19, 1));
}

TRIAL("expat");
