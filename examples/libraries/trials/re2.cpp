// hooks: none, malloc() is interposed. A compiled pattern.
#include "trial.hpp"

#include <re2/re2.h>

static void *parse(const char *, size_t) { return new RE2("(?i)name(\\d+)\\s+([a-z]+)"); }

static void walk(const void *tree, struct answer *answer) {
    std::string number, word;
    const RE2 &pattern = *static_cast<const RE2 *>(tree);
    answer_number(answer, RE2::PartialMatch("a NAME123 abc", pattern, &number, &word));
    answer_text(answer, number.c_str());
    answer_text(answer, word.c_str());
}

TRIAL("re2");
