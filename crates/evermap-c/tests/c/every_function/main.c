/*
 * Uses every function of the headers about stores and checks its documented behaviour. Built with
 * sanitizers, which watch the memory accesses of the library and of this program.
 *
 *     every_function STORE    (EVERMAP_STORE names another one)
 */
#include "parts.h"

bool count(const em_finding *finding, void *context)
{
    CHECK(finding->size >= sizeof(em_finding));
    CHECK(finding->severity <= EM_UNCHECKED && finding->file != NULL && finding->what != NULL);
    CHECK(finding->found != NULL && finding->expected != NULL && finding->remedy != NULL);
    ++*(int *)context;
    return true;
}

static void errors_and_versions(void)
{
    char version[32];
    sprintf(version, "%d.%d.%d", EM_VERSION_MAJOR, EM_VERSION_MINOR, EM_VERSION_PATCH);
    CHECK(strcmp(em_version(), version) == 0);
    CHECK(em_last_error() == EM_OK && strcmp(em_last_error_message(), "") == 0);
    CHECK(strcmp(em_status_name(EM_OK), "EM_OK") == 0);
    CHECK(strcmp(em_status_name(EM_DAMAGED), "EM_DAMAGED") == 0);
    CHECK(strcmp(em_status_name((em_status)77), "unknown status") == 0);
    em_store *store = NULL;
    REFUSED(em_store_open("/nonexistent/store", NULL, &store), EM_NO_STORE, "create one there");
    CHECK(errno == ENOENT && store == NULL);
    em_clear_error();
    CHECK(em_last_error() == EM_OK && strcmp(em_last_error_message(), "") == 0);
}

int main(int arguments, char **argument)
{
    CHECK(arguments == 2);
    errors_and_versions();
    stores(argument[1]);
    objects(argument[1]);
    audits(argument[1]);
    copies_and_moves(argument[1]);
    protection(argument[1]);
    sharing(argument[1]);
    renamed_store(argument[1]);
    pointers_out(argument[1]);
    fast_io();
    nv_heap();
    puts("every function did what it promises");
    return 0;
}
