/* A journal: the layout of an object that programs in Rust, C++ and C share. Plain structs and raw
 * pointers, in C, with the same members in every language. */
#ifndef EVERMAP_TESTS_JOURNAL_H
#define EVERMAP_TESTS_JOURNAL_H

#include <stdint.h>

#define JOURNAL_TAG "example journal" /* 15 letters and a zero byte */

struct journal_entry {
    struct journal_entry *next; /* NULL in the last one */
    uint64_t number;
    const char *text; /* a block of its own, ends with a zero byte */
};

struct journal {
    struct journal_entry *first;
    struct journal_entry *last;
    uint64_t entries;
};

#endif
