// An XML document of pugixml in an object.
//
// pugixml gives every byte it needs to one pair of functions, and keeps no other state: nodes,
// attributes and its copy of the text lie in pages, and the first page lies inside the
// xml_document. So the xml_document has to lie in the object too: it is made there in place.
#include "../keep.h"

#include <cstring>
#include <new>
#include <pugixml.hpp>

#define TEXT_OF_1(number) #number
#define TEXT_OF(number) TEXT_OF_1(number)

// The version of the header; the shared library does not tell its own.
static const char *library() { return "pugixml " TEXT_OF(PUGIXML_VERSION); }

static void *parse(const char *text, size_t size_bytes) {
    pugi::set_memory_management_functions(keep_malloc, keep_free);
    auto *document = new (keep_malloc(sizeof(pugi::xml_document))) pugi::xml_document;
    // load_buffer() copies the text into the object; load_buffer_inplace() would point to ours.
    return document->load_buffer(text, size_bytes) ? document : nullptr;
}

// By siblings and parents rather than by recursion: documents can be deep.
static void walk(const void *tree, struct answer *answer) {
    const pugi::xml_node top = *static_cast<const pugi::xml_document *>(tree);
    for (pugi::xml_node node = top; node;) {
        answer_node(answer, node.name(), std::strlen(node.name()));
        answer_node(answer, node.value(), std::strlen(node.value()));
        for (pugi::xml_attribute attribute : node.attributes()) {
            answer_node(answer, attribute.name(), std::strlen(attribute.name()));
            answer_node(answer, attribute.value(), std::strlen(attribute.value()));
        }
        if (node.first_child()) {
            node = node.first_child();
            continue;
        }
        while (node && node != top && !node.next_sibling()) node = node.parent();
        node = node == top ? pugi::xml_node() : node.next_sibling();
    }
}

// An XPath. Its temporary memory is the process's own: the object is open for reading.
static size_t find(const void *tree, const char *question) {
    pugi::set_memory_management_functions(keep_malloc, keep_free);
    return static_cast<const pugi::xml_document *>(tree)->select_nodes(question).size();
}

static void *add(void *tree) {
    pugi::set_memory_management_functions(keep_malloc, keep_free);
    auto *document = static_cast<pugi::xml_document *>(tree);
    pugi::xml_node added = document->document_element().append_child("added");
    added.append_attribute("by").set_value("another process");
    return document;
}

static void drop(void *tree) {
    pugi::set_memory_management_functions(keep_malloc, keep_free);
    static_cast<pugi::xml_document *>(tree)->~xml_document();
    keep_free(tree);
}

const struct example example = {library, parse, walk, find, add, drop};
