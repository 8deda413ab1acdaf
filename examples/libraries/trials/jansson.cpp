// hooks: json_set_alloc_funcs(), malloc and free. Built from JSON. Looks members up by name.
#include "trial.hpp"

#include <jansson.h>

static void *parse(const char *text, size_t size_bytes) {
    json_set_alloc_funcs(keep_malloc, keep_free);
    return json_loadb(text, size_bytes, JSON_DECODE_ANY, nullptr);
}

static void walk(const void *tree, struct answer *answer) {
    size_t index;
    json_t *item;
    json_array_foreach(json_object_get(static_cast<const json_t *>(tree), "items"), index, item) {
        answer_text(answer, json_string_value(json_object_get(item, "name")));
        answer_number(answer, json_number_value(json_object_get(item, "price")));
        answer_number(answer, json_is_true(json_object_get(item, "ok")));
    }
}

TRIAL("jansson");
