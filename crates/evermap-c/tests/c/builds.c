/* An object with a pointer to a function of this program.
 *
 *     builds STORE write|register|rollback|forget|call|look
 *
 * `rollback` registers the program's code, rolls back, and continues like `write`.
 *
 * Compiled with another BUILD, it is a different program with the same functions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#ifndef BUILD
#define BUILD 1
#endif

struct root {
    int (*answer)(void);
    const char *text;
};

#if BUILD != 1
/* Shifts the code that follows. */
int more(int number)
{
    printf("%d\n", number * BUILD);
    return number;
}
#endif

static int answer(void)
{
    return 42 + BUILD;
}

int main(int count, char **arguments)
{
    em_store *store;
    em_object *object;
    em_store_options options = EM_STORE_OPTIONS_DEFAULT;
    CHECK(count == 3);
    const char *verb = arguments[2];
    if (strcmp(verb, "look") == 0)
        options.other_builds = EM_OTHER_BUILDS_OPEN;
    OK(em_store_open_or_create(arguments[1], &options, &store));
    if (strcmp(verb, "call") == 0 || strcmp(verb, "look") == 0) {
        if (em_object_open(store, "code", EM_READ, NULL, &object) != EM_OK) {
            printf("%s: %s\n", em_status_name(em_last_error()), em_last_error_message());
            return 2;
        }
        struct root *root = em_root(object);
        CHECK(root != NULL && em_root_size(object) == sizeof *root);
        if (strcmp(verb, "call") == 0)
            printf("%d %s\n", root->answer(), root->text);
        OK(em_object_close(object));
        return 0;
    }
    em_status made = em_object_create(store, "code");
    CHECK(made == EM_OK || made == EM_ALREADY_EXISTS);
    OK(em_object_open(store, "code", EM_WRITE, NULL, &object));
    if (strcmp(verb, "forget") == 0) {
        struct root *root = em_root(object);
        memset(root, 0, sizeof *root);
        OK(em_forget_code(object));
    } else {
        struct root *root = em_calloc(object, 1, sizeof *root);
        CHECK(root != NULL);
        if (strcmp(verb, "register") == 0 && em_register_code(object) != EM_OK) {
            printf("%s: %s\n", em_status_name(em_last_error()), em_last_error_message());
            return 3;
        }
        if (strcmp(verb, "rollback") == 0) {
            OK(em_register_code(object));
            OK(em_rollback(object));
            root = em_calloc(object, 1, sizeof *root);
            CHECK(root != NULL);
        }
        root->answer = answer;
        root->text = "a literal";
        OK(em_set_root(object, root, sizeof *root, NULL, "a function"));
    }
    OK(em_commit(object, NULL));
    OK(em_object_close(object));
    OK(em_store_close(store));
    return 0;
}
