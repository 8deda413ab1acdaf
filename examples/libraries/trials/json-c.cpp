// hooks: none, malloc() is interposed. Built from JSON. Looks members up by name.
#include "trial.hpp"

#include <json-c/json.h>

static void *parse(const char *text, size_t) { return json_tokener_parse(text); }

static void walk(const void *tree, struct answer *answer) {
    json_object *items = json_object_object_get((json_object *)tree, "items");
    for (size_t i = 0; i < json_object_array_length(items); i++) {
        json_object *item = json_object_array_get_idx(items, i);
        answer_text(answer, json_object_get_string(json_object_object_get(item, "name")));
        answer_number(answer, json_object_get_double(json_object_object_get(item, "price")));
    }
}

TRIAL("json-c");
