// hooks: pcre2_general_context_create(). Compiled with the default character tables.
#include "trial.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

static void *parse(const char *, size_t) {
    pcre2_general_context *general = pcre2_general_context_create(
        [](size_t size, void *) { return keep_malloc(size); },
        [](void *block, void *) { keep_free(block); }, nullptr);
    pcre2_compile_context *context = pcre2_compile_context_create(general);
    int error;
    PCRE2_SIZE offset;
    return pcre2_compile((PCRE2_SPTR) "(?i)(\\w+)\\s+PERSIST", PCRE2_ZERO_TERMINATED, 0, &error,
                         &offset, context);
}

static void walk(const void *tree, struct answer *answer) {
    pcre2_match_data *match = pcre2_match_data_create(4, nullptr);
    const char *text = "objects persist";
    answer_number(answer, pcre2_match(static_cast<const pcre2_code *>(tree), (PCRE2_SPTR)text,
                                      std::strlen(text), 0, 0, match, nullptr));
    pcre2_match_data_free(match);
}

TRIAL("pcre2-default");
