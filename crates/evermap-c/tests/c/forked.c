/*
 * What a forked child gets of its parent's objects: EM_FORKED, and an abort from em_free.
 *
 *     forked STORE    (EVERMAP_STORE names STORE)
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <fastio.h>
#include <nvheap.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static em_store *store;
static em_object *object;
static void *block;

static void refused(void)
{
    em_store *other;
    em_object *opened;
    bool flag;
    FAILS(em_malloc(object, 8), NULL, EM_FORKED, "forked");
    REFUSED(em_try_free(object, block), EM_FORKED, "forked");
    FAILS(em_usable_size(object, block), 0, EM_FORKED, "forked");
    FAILS(em_root(object), NULL, EM_FORKED, "forked");
    REFUSED(em_commit(object, NULL), EM_FORKED, "forked");
    REFUSED(em_rollback(object), EM_FORKED, "forked");
    REFUSED(em_object_close(object), EM_FORKED, "forked");
    REFUSED(em_store_contains(store, "object", &flag), EM_FORKED, "forked");
    REFUSED(em_store_close(store), EM_FORKED, "forked");
    REFUSED(em_store_open("x", NULL, &other), EM_FORKED, "forked");
    REFUSED(em_object_open(store, "object", EM_READ, NULL, &opened), EM_FORKED, "forked");
    REFUSED(em_check("x", NULL, NULL), EM_FORKED, "forked");
    REFUSED(em_write_begin(object), EM_FORKED, "forked");
    REFUSED(em_write_end(object), EM_FORKED, "forked");
    REFUSED(em_audit("x", "x", NULL, NULL, NULL, NULL), EM_FORKED, "forked");
    REFUSED(em_backup("x", "y", NULL, NULL, NULL, NULL), EM_FORKED, "forked");
    REFUSED(em_restore("x", "y", NULL, NULL), EM_FORKED, "forked");
    REFUSED(em_rebase("x", NULL, NULL, NULL, NULL), EM_FORKED, "forked");
    REFUSED(em_rebase_undo("x", false), EM_FORKED, "forked");
    REFUSED(em_export("x", "x", 1, NULL, NULL), EM_FORKED, "forked");
    REFUSED(em_import("x", 0, NULL, NULL), EM_FORKED, "forked");
    FAILS(p_map("object"), NULL, EM_FORKED, "forked");
    FAILS(p_malloc("mapped", 8), NULL, EM_FORKED, "forked");
    FAILS(nvmalloc(NULL, 8), NULL, EM_FORKED, "forked");
    FAILS(nvcommit(), -1, EM_FORKED, "forked");
    CHECK(em_object_of(block) == NULL);
}

static int child(void (*call)(void))
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        call();
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static void fork_again(void)
{
    refused();
    CHECK(child(refused) == 0);
}

static const char *path;

static void open_there(void)
{
    OK(em_store_create(path, NULL, &store));
    OK(em_object_create(store, "object"));
    OK(em_store_close(store));
}

static void free_there(void)
{
    em_free(object, block);
}

int main(int arguments, char **argument)
{
    CHECK(arguments == 2);
    /* A process that has not used the library yet has nothing to lose by forking. */
    path = argument[1];
    CHECK(child(open_there) == 0);
    OK(em_store_open(path, NULL, &store));
    OK(em_object_open(store, "object", EM_WRITE, NULL, &object));
    CHECK(p_create("mapped") == 0 && p_map("mapped") != NULL && p_malloc("mapped", 8) != NULL);
    block = em_malloc(object, 100);
    memset(block, 1, 100);
    OK(em_set_root(object, block, 100, NULL, NULL));
    OK(em_commit(object, NULL));

    CHECK(child(fork_again) == 0);
    int status = child(free_there);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);

    /* The parent is none the worse for it. */
    CHECK(em_malloc(object, 100) != NULL && ((char *)block)[99] == 1);
    OK(em_commit(object, NULL));
    OK(em_object_close(object));
    CHECK(p_unmap("mapped") == 0);
    OK(em_store_close(store));
    OK(em_check(argument[1], NULL, NULL));
    puts("a child has nothing of its parent's");
    return 0;
}
