/* Shared by the test programs: a check that prints the failure and ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <evermap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                              \
    do {                                                                                         \
        if (!(what)) {                                                                           \
            fprintf(stderr, "%s:%d: not so: %s; last error: %s, %s\n", __FILE__, __LINE__, #what, \
                    em_status_name(em_last_error()), em_last_error_message());                   \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

#define OK(call) CHECK((call) == EM_OK)

/* Checks that the call returns its failure value, for this reason, with a message that contains
 * `text` and an errno. */
#define FAILS(call, failed, status, text)                       \
    do {                                                        \
        em_clear_error();                                       \
        errno = 0;                                              \
        CHECK((call) == (failed));                              \
        CHECK(errno != 0);                                      \
        CHECK(em_last_error() == (status));                     \
        CHECK(strstr(em_last_error_message(), (text)) != NULL); \
    } while (0)

/* Like FAILS, for a call that returns a status. */
#define REFUSED(call, status, text) FAILS(call, status, status, text)

#endif
