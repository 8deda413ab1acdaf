// hooks: none, malloc() is interposed. A trie of words.
#include "trial.hpp"

#include <marisa.h>

static void *parse(const char *text, size_t size_bytes) {
    marisa::Keyset words;
    each_word(text, size_bytes, [&](const std::string &word) { words.push_back(word.c_str()); });
    auto *trie = new marisa::Trie;
    trie->build(words);
    return trie;
}

static void walk(const void *tree, struct answer *answer) {
    const auto *trie = static_cast<const marisa::Trie *>(tree);
    answer_number(answer, static_cast<double>(trie->num_keys()));
    marisa::Agent agent;
    agent.set_query("per");
    while (trie->predictive_search(agent))
        answer_node(answer, agent.key().ptr(), agent.key().length());
}

TRIAL("marisa");
