// hooks: none, malloc() is interposed (with G_SLICE=always-malloc before GLib 2.76).
// A tree of GNode: words below their first letters.
#include "trial.hpp"

#include <glib.h>

static void *parse(const char *text, size_t size_bytes) {
    GNode *top = g_node_new(g_strdup(""));
    each_word(text, size_bytes, [&](const std::string &word) {
        GNode *letter = top->children;
        while (letter != nullptr && *static_cast<char *>(letter->data) != word[0])
            letter = letter->next;
        if (letter == nullptr)
            letter = g_node_append_data(top, g_strdup(word.substr(0, 1).c_str()));
        g_node_prepend_data(letter, g_strdup(word.c_str()));
    });
    return top;
}

static gboolean visit(GNode *node, gpointer answer) {
    answer_text(static_cast<struct answer *>(answer), static_cast<const char *>(node->data));
    return FALSE;
}

static void walk(const void *tree, struct answer *answer) {
    auto *top = static_cast<GNode *>(const_cast<void *>(tree));
    g_node_traverse(top, G_PRE_ORDER, G_TRAVERSE_ALL, -1, visit, answer);
}

TRIAL("glib-node");
