/*
 * Regular expressions of PCRE2, compiled once and kept.
 *
 * The file has a rule a line: a pattern, a tab, and a text that it is for. The object has the
 * compiled patterns. Two things to know:
 *
 * - A compiled pattern points to a table of character classes, and the default one lies in the
 *   library, at another address in the next process. pcre2_maketables() makes one in the object.
 * - It also keeps the functions it was allocated with. Matching does not call them. In another
 *   process pcre2_code_free() would: there its memory, a block, is given back directly.
 */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "../keep.h"

#include <pcre2.h>
#include <string.h>

struct rule {
    pcre2_code *code;
    char *text;
};

struct rules {
    size_t count;
    struct rule *rules;
    const uint8_t *classes;
};

static const char *library(void) {
    static char name[64] = "pcre2 ";
    pcre2_config(PCRE2_CONFIG_VERSION, name + strlen("pcre2 "));
    return name;
}

static void *allocate(size_t size, void *context) {
    (void)context;
    return keep_malloc(size);
}

static void release(void *block, void *context) {
    (void)context;
    keep_free(block);
}

static bool add_rule(struct rules *all, const char *pattern, size_t pattern_bytes,
                     const char *text, size_t text_bytes) {
    int error;
    PCRE2_SIZE offset;
    struct rule *rules = all->rules;
    if ((all->count & (all->count - 1)) == 0) /* full: 0, 1, 2, 4, 8... */
        rules = keep_realloc(rules, (2 * all->count + 1) * sizeof *rules);
    char *copy = keep_malloc(text_bytes + 1);
    if (rules == NULL || copy == NULL) return false;
    all->rules = rules;
    memcpy(copy, text, text_bytes);
    copy[text_bytes] = '\0';
    pcre2_general_context *general = pcre2_general_context_create(allocate, release, NULL);
    pcre2_compile_context *context = pcre2_compile_context_create(general);
    if (all->classes == NULL) all->classes = pcre2_maketables(general);
    pcre2_set_character_tables(context, all->classes);
    rules[all->count].text = copy;
    rules[all->count].code = pcre2_compile((PCRE2_SPTR)pattern, pattern_bytes, PCRE2_UTF, &error,
                                           &offset, context);
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    return rules[all->count++].code != NULL;
}

static void *parse(const char *file, size_t size_bytes) {
    struct rules *all = keep_calloc(1, sizeof *all);
    const char *end = file + size_bytes;
    while (all != NULL && file < end) {
        const char *line_end = memchr(file, '\n', (size_t)(end - file));
        if (line_end == NULL) line_end = end;
        const char *tab = memchr(file, '\t', (size_t)(line_end - file));
        if (tab == NULL) return NULL;
        const char *text = tab + 1;
        if (!add_rule(all, file, (size_t)(tab - file), text, (size_t)(line_end - text)))
            return NULL;
        file = line_end + 1;
    }
    return all;
}

/* Matches each rule with its own text: every compiled pattern is run. Memory for matching is the
 * process's own. */
static void walk(const void *tree, struct answer *answer) {
    const struct rules *all = tree;
    pcre2_match_data *match = pcre2_match_data_create(16, NULL);
    for (size_t i = 0; i < all->count; i++) {
        const char *text = all->rules[i].text;
        int groups = pcre2_match(all->rules[i].code, (PCRE2_SPTR)text, strlen(text), 0, 0, match,
                                 NULL);
        const PCRE2_SIZE *group = pcre2_get_ovector_pointer(match);
        for (int n = 0; n < groups; n++) {
            bool took_part = group[2 * n] != PCRE2_UNSET;
            answer_node(answer, took_part ? text + group[2 * n] : "",
                        took_part ? group[2 * n + 1] - group[2 * n] : 0);
        }
        answer_node(answer, groups > 0 ? "match" : "none", groups > 0 ? 5 : 4);
    }
    pcre2_match_data_free(match);
}

/* The number of rules that match a text. */
static size_t find(const void *tree, const char *question) {
    const struct rules *all = tree;
    size_t found = 0;
    pcre2_match_data *match = pcre2_match_data_create(16, NULL);
    for (size_t i = 0; i < all->count; i++)
        found += pcre2_match(all->rules[i].code, (PCRE2_SPTR)question, strlen(question), 0, 0,
                             match, NULL) > 0;
    pcre2_match_data_free(match);
    return found;
}

static void *add(void *tree) {
    const char *pattern = "added by (\\w+) process", *text = "a rule added by another process";
    return add_rule(tree, pattern, strlen(pattern), text, strlen(text)) ? tree : NULL;
}

static void drop(void *tree) {
    struct rules *all = tree;
    for (size_t i = 0; i < all->count; i++) {
        keep_free(all->rules[i].code);
        keep_free(all->rules[i].text);
    }
    keep_free(all->rules);
    keep_free((void *)all->classes);
    keep_free(all);
}

const struct example example = {library, parse, walk, find, add, drop};
