// Shared by the trials. A trial is a minimal example: a library, told or forced to put its tree
// into an object, and a walk with the library's functions. docs/libraries.md has the results.
#pragma once

#include "../keep.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

inline void answer_text(struct answer *answer, const char *text) {
    if (text != nullptr) answer_node(answer, text, std::strlen(text));
}

inline void answer_number(struct answer *answer, double number) {
    answer_node(answer, reinterpret_cast<const char *>(&number), sizeof number);
}

// The words of a text, one after the other: what trials of tables and sets are filled with.
template <typename Visit> void each_word(const char *text, size_t size_bytes, Visit visit) {
    const char *end = text + size_bytes;
    while (text < end) {
        size_t length = std::strcspn(text, " \n");
        if (length > 0) visit(std::string(text, length));
        text += length + 1;
    }
}

// Defines a trial with the name of its library. The test supplies the package's version.
#define TRIAL(name)                                                                                \
    const struct example example = {[]() -> const char * { return name; }, parse, walk, nullptr,   \
                                    nullptr, nullptr}
