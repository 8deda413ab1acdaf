/*
 * A stray store to a protected object.
 *
 *     protected STORE make         an object with a number in it, 1
 *     protected STORE stray WAY    changes it in a scope, without a commit, and outside of one
 *     protected STORE look         prints it
 */
#define _DEFAULT_SOURCE
#include "check.h"

#include <signal.h>
#include <unistd.h>

static uint64_t *volatile number;

/* Ends the program, with 42 if the fault was the stray store. */
static void caught(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    _exit(info->si_addr == (void *)number ? 42 : 43);
}

int main(int arguments, char **argument)
{
    CHECK(arguments >= 3);
    em_store *store;
    em_object *object;
    em_write_options options = EM_WRITE_OPTIONS_DEFAULT;
    em_prepare_keys();
    OK(em_store_open_or_create(argument[1], NULL, &store));
    if (strcmp(argument[2], "make") == 0) {
        OK(em_object_create(store, "object"));
        OK(em_object_open(store, "object", EM_WRITE, NULL, &object));
        number = em_malloc(object, sizeof *number);
        *number = 1;
        OK(em_set_root(object, number, sizeof *number, NULL, "a number"));
        OK(em_commit(object, NULL));
    } else if (strcmp(argument[2], "look") == 0) {
        OK(em_object_open(store, "object", EM_READ, NULL, &object));
        printf("%d\n", (int)*(uint64_t *)em_root(object));
    } else {
        options.protection = (uint32_t)atoi(argument[3]);
        OK(em_object_open(store, "object", EM_WRITE, &options, &object));
        number = em_root(object);
        struct sigaction action;
        memset(&action, 0, sizeof action);
        action.sa_sigaction = caught;
        action.sa_flags = SA_SIGINFO;
        CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
        OK(em_write_begin(object));
        *number = 2;
        OK(em_write_end(object));
        *number = 3;
        CHECK(em_commit(object, NULL) == EM_OK && options.protection == EM_PROTECTION_OFF);
    }
    OK(em_object_close(object));
    OK(em_store_close(store));
    return 0;
}
