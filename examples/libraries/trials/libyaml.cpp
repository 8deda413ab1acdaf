// hooks: none, malloc() is interposed. A document of nodes; JSON is YAML.
#include "trial.hpp"

#include <yaml.h>

static void *parse(const char *text, size_t size_bytes) {
    auto *document = static_cast<yaml_document_t *>(keep_malloc(sizeof(yaml_document_t)));
    yaml_parser_t parser;
    yaml_parser_initialize(&parser);
    yaml_parser_set_input_string(&parser, reinterpret_cast<const unsigned char *>(text), size_bytes);
    int loaded = yaml_parser_load(&parser, document);
    yaml_parser_delete(&parser);
    return loaded ? document : nullptr;
}

static void walk(const void *tree, struct answer *answer) {
    auto *document = static_cast<yaml_document_t *>(const_cast<void *>(tree));
    for (int index = 1;; index++) {
        const yaml_node_t *node = yaml_document_get_node(document, index);
        if (node == nullptr) break;
        answer_text(answer, reinterpret_cast<const char *>(node->tag));
        if (node->type == YAML_SCALAR_NODE)
            answer_text(answer, reinterpret_cast<const char *>(node->data.scalar.value));
    }
}

TRIAL("libyaml");
