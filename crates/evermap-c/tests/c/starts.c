/*
 * Programs that are started with arguments and commands that lie in an object, by each available
 * function, while another thread commits.
 *
 *     starts    (EVERMAP_STORE names a new store)
 */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

/* QUIET: offset of the command without output after the other one. */
enum { ROUNDS = 20, BYTES = 100000, QUIET = 500 };

extern char **environ;

static em_object *object, *other;
static atomic_bool stop;

/* Succeeds if both texts are equal, as the shell and the kernel see them. */
static const char script[] = "test \"$0\" = \"$1\"";

static void ends_well(int status)
{
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void waits(pid_t child)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    ends_well(status);
}

static void start(const char *command, const char *script_there, char *one, char *two)
{
    char *const list[] = { "sh", "-c", (char *)script_there, one, two, NULL };
    pid_t child;
    /* The shell that these start gets its command from the object. */
    ends_well(system(command + QUIET));
    FILE *output = popen(command, "r");
    CHECK(output != NULL && fgetc(output) == 'y');
    ends_well(pclose(output));

    CHECK(posix_spawn(&child, "/bin/sh", NULL, NULL, list, environ) == 0);
    waits(child);
    CHECK(posix_spawnp(&child, "sh", NULL, NULL, list, environ) == 0);
    waits(child);
    if ((child = fork()) == 0) {
        execl("/bin/sh", "sh", "-c", script_there, one, two, (char *)NULL);
        _exit(9);
    }
    waits(child);
    if ((child = fork()) == 0) {
        execvpe("sh", list, environ);
        _exit(9);
    }
    waits(child);
    if ((child = vfork()) == 0) {
        execv("/bin/sh", list);
        _exit(9);
    }
    waits(child);
    /* A child that only reads, and ends by exit(), which runs handlers and flushes. */
    fflush(NULL);
    if ((child = fork()) == 0) {
        exit(strcmp(one, two) == 0 ? 0 : 9);
    }
    waits(child);
}

static void *commits(void *unused)
{
    unsigned long *words = em_root(other);
    for (unsigned long next = 1; !stop; next++) {
        for (int i = 0; i < 1000; i++) {
            words[i] = next;
        }
        OK(em_commit(other, NULL));
        OK(em_checkpoint(other, NULL));
    }
    return unused;
}

int main(void)
{
    em_store *store;
    pthread_t thread;
    OK(em_store_create(getenv("EVERMAP_STORE"), NULL, &store));
    OK(em_object_create(store, "object"));
    OK(em_object_create(store, "other"));
    OK(em_object_open(store, "object", EM_WRITE, NULL, &object));
    OK(em_object_open(store, "other", EM_WRITE, NULL, &other));
    OK(em_set_root(other, em_calloc(other, 1000, 8), 8000, NULL, NULL));
    char *old = em_calloc(object, BYTES, 1), *text = em_calloc(object, BYTES, 1);
    CHECK(old != NULL && text != NULL);
    OK(em_set_root(object, old, BYTES, NULL, NULL));
    OK(em_commit(object, NULL));
    CHECK(pthread_create(&thread, NULL, commits, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        /* In committed memory, and in uncommitted memory. */
        char *fresh = em_malloc(object, BYTES), *command = em_malloc(object, 1000);
        CHECK(fresh != NULL && command != NULL);
        snprintf(old, BYTES, "round %d", round);
        snprintf(fresh, BYTES, "round %d", round);
        strcpy(text, script);
        strcpy(command, "echo yes");
        strcpy(command + QUIET, "test yes = yes");
        start(command, text, old, fresh);
        if (round % 3 == 0) {
            OK(em_rollback(object));
        } else {
            em_free(object, fresh);
            em_free(object, command);
            OK(em_commit(object, NULL));
            OK(em_checkpoint(object, NULL));
        }
    }
    stop = true;
    CHECK(pthread_join(thread, NULL) == 0);
    OK(em_object_close(object));
    OK(em_object_close(other));
    OK(em_store_close(store));
    puts("programs got what lies in an object");
    return 0;
}
