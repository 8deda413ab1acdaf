// hooks: JudyMalloc() and JudyFree(), which a program may define itself. A table of words.
#include "trial.hpp"

#include <Judy.h>

extern "C" {
Word_t JudyMalloc(Word_t words) { return (Word_t)keep_malloc(words * sizeof(Word_t)); }
Word_t JudyMallocVirtual(Word_t words) { return JudyMalloc(words); }
void JudyFree(void *block, Word_t) { keep_free(block); }
void JudyFreeVirtual(void *block, Word_t) { keep_free(block); }
}

static void *parse(const char *text, size_t size_bytes) {
    auto *table = static_cast<Pvoid_t *>(keep_calloc(1, sizeof(Pvoid_t)));
    each_word(text, size_bytes, [&](const std::string &word) {
        ++*(PWord_t)JudySLIns(table, (const uint8_t *)word.c_str(), PJE0);
    });
    return table;
}

static void walk(const void *tree, struct answer *answer) {
    Pvoid_t table = *static_cast<const Pvoid_t *>(tree);
    uint8_t word[1000] = "";
    PWord_t count = (PWord_t)JudySLFirst(table, word, PJE0);
    for (; count != nullptr; count = (PWord_t)JudySLNext(table, word, PJE0)) {
        answer_text(answer, reinterpret_cast<const char *>(word));
        answer_number(answer, static_cast<double>(*count));
    }
}

TRIAL("judy");
