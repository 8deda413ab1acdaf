// hooks: none, malloc() is interposed (with G_SLICE=always-malloc before GLib 2.76).
// A GHashTable of words, hashed by g_str_hash().
#include "trial.hpp"

#include <glib.h>

static void *parse(const char *text, size_t size_bytes) {
    GHashTable *words = g_hash_table_new(g_str_hash, g_str_equal);
    each_word(text, size_bytes, [&](const std::string &word) {
        g_hash_table_add(words, g_strdup(word.c_str()));
    });
    return words;
}

static void walk(const void *tree, struct answer *answer) {
    auto *words = static_cast<GHashTable *>(const_cast<void *>(tree));
    answer_number(answer, g_hash_table_size(words));
    answer_number(answer, g_hash_table_contains(words, "persistent"));
}

TRIAL("glib-hash");
