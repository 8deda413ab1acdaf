// hooks: uthash_malloc and uthash_free, macros. A table of words.
#include "trial.hpp"

#define uthash_malloc(size) keep_malloc(size)
#define uthash_free(block, size) keep_free(block)
#include <uthash.h>

struct Word {
    char *text;
    UT_hash_handle hh;
};

static void *parse(const char *text, size_t size_bytes) {
    Word *words = nullptr;
    each_word(text, size_bytes, [&](const std::string &word) {
        Word *entry;
        HASH_FIND_STR(words, word.c_str(), entry);
        if (entry != nullptr) return;
        entry = static_cast<Word *>(keep_calloc(1, sizeof(Word)));
        entry->text = keep_strdup(word.c_str());
        HASH_ADD_KEYPTR(hh, words, entry->text, std::strlen(entry->text), entry);
    });
    return words;
}

static void walk(const void *tree, struct answer *answer) {
    auto *words = static_cast<Word *>(const_cast<void *>(tree));
    for (Word *word = words; word != nullptr; word = static_cast<Word *>(word->hh.next))
        answer_text(answer, word->text);
    Word *found;
    HASH_FIND_STR(words, "persistent", found);
    answer_number(answer, found != nullptr);
}

TRIAL("uthash");
