/*
 * Checks a store and prints each finding and the result of em_check.
 *
 *     check_store STORE
 */
#include "check.h"

static bool print(const em_finding *finding, void *context)
{
    ++*(int *)context;
    printf("%u|%s|%s|%s|%s|%s|%s\n", finding->severity, finding->file,
           finding->object == NULL ? "(no name)" : finding->object, finding->what, finding->found,
           finding->expected, finding->remedy);
    return false; /* the first is enough */
}

int main(int arguments, char **argument)
{
    int calls = 0;
    CHECK(arguments == 2);
    em_status status = em_check(argument[1], print, &calls);
    CHECK(calls <= 1);
    printf("%s\n%s\n", em_status_name(status), em_last_error_message());
    return 0;
}
