// hooks: none in the oldest package, malloc() is interposed. A set of numbers.
#include "trial.hpp"

#include <roaring/roaring.h>

static void *parse(const char *text, size_t size_bytes) {
    roaring_bitmap_t *set = roaring_bitmap_create();
    uint32_t last = 0;
    for (size_t i = 0; i < size_bytes; i++) {
        last = i % 1000 < 500 ? last + 1 : last + 7 * static_cast<unsigned char>(text[i]);
        roaring_bitmap_add(set, last);
    }
    roaring_bitmap_run_optimize(set);
    return set;
}

static void walk(const void *tree, struct answer *answer) {
    const auto *set = static_cast<const roaring_bitmap_t *>(tree);
    answer_number(answer, static_cast<double>(roaring_bitmap_get_cardinality(set)));
    answer_number(answer, static_cast<double>(roaring_bitmap_and_cardinality(set, set)));
    for (uint32_t number = 0; number < 100000; number += 7)
        answer_number(answer, roaring_bitmap_contains(set, number));
}

TRIAL("roaring");
