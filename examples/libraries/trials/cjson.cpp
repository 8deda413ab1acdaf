// hooks: cJSON_InitHooks(), malloc and free. Built from JSON.
#include "trial.hpp"

#include <cjson/cJSON.h>

static void *parse(const char *text, size_t size_bytes) {
    cJSON_Hooks hooks = {keep_malloc, keep_free};
    cJSON_InitHooks(&hooks);
    return cJSON_ParseWithLength(text, size_bytes);
}

static void walk_value(const cJSON *value, struct answer *answer) {
    answer_text(answer, value->string);
    answer_text(answer, value->valuestring);
    answer_number(answer, value->valuedouble);
    const cJSON *child;
    cJSON_ArrayForEach(child, value) walk_value(child, answer);
}

static void walk(const void *tree, struct answer *answer) {
    const cJSON *value = static_cast<const cJSON *>(tree);
    walk_value(value, answer);
    answer_number(answer, cJSON_GetArraySize(cJSON_GetObjectItem(value, "items")));
}

TRIAL("cjson");
