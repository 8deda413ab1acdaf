/*
 * One process writes while another one reads: checks the results of both, and that the reader can
 * move to the writer's next commit.
 *
 *     two_processes    (EVERMAP_STORE and EVERMAP_APPLICATION)
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <fastio.h>
#include <nvheap.h>
#include <sys/wait.h>
#include <unistd.h>

static int to_writer[2], to_reader[2];

static void say(int *pipe_)
{
    CHECK(write(pipe_[1], "x", 1) == 1);
}

static void hear(int *pipe_)
{
    char c;
    CHECK(read(pipe_[0], &c, 1) == 1);
}

static void writer(void)
{
    CHECK(p_create("shared") == 0 && p_map("shared") != NULL);
    int *number = p_malloc("shared", sizeof *number);
    CHECK(number != NULL && set_prime_node("shared", number) == 0);
    *number = 1;
    CHECK(p_commit("shared") == 0);
    int *named = nvmalloc("number", sizeof *named);
    CHECK(named != NULL);
    *named = 1;
    CHECK(nvcommit() == 0);
    say(to_reader);
    hear(to_writer);
    *number = 2;
    CHECK(p_commit("shared") == 0);
    say(to_reader);
    hear(to_writer);
    *number = 3;
    CHECK(p_commit("shared") == 0);
    CHECK(p_unmap("shared") == 0);
    say(to_reader);
    exit(0);
}

static void reader(void)
{
    bool changed;
    em_store *store;
    em_object *first, *second;
    hear(to_reader);
    CHECK(p_map("shared") != NULL); /* for reading: another process writes */
    int *number = get_prime_node("shared");
    CHECK(number != NULL && *number == 1);
    FAILS(p_malloc("shared", 8), NULL, EM_READ_ONLY, "reading");
    FAILS(set_prime_node("shared", NULL), -1, EM_READ_ONLY, "reading");
    FAILS(p_delete("shared"), -1, EM_BUSY, "shared");
    CHECK(p_unmap("shared") == 0);
    int *named = nvread("number", NULL);
    CHECK(named != NULL && *named == 1);
    FAILS(nvmalloc("other", 8), NULL, EM_READ_ONLY, "in use");
    FAILS(nvmalloc(NULL, 8), NULL, EM_READ_ONLY, "in use");
    FAILS(nvfree("number"), -1, EM_READ_ONLY, "in use");
    FAILS(nvcommit(), -1, EM_READ_ONLY, "in use");

    em_store_options options = EM_STORE_OPTIONS_DEFAULT;
    options.application = getenv("EVERMAP_APPLICATION");
    OK(em_store_open(getenv("EVERMAP_STORE"), &options, &store));
    REFUSED(em_object_open(store, "shared", EM_WRITE, NULL, &first), EM_BUSY, "in use");
    OK(em_object_open(store, "shared", EM_READ, NULL, &first));
    OK(em_object_open(store, "shared", EM_READ, NULL, &second));
    uint64_t sequence = em_sequence(first);
    say(to_writer);
    hear(to_reader);
    CHECK(*number == 1); /* what is open stays what it is */
    REFUSED(em_refresh(first, &changed), EM_BUSY, "other handles");
    CHECK(*number == 1 && em_sequence(first) == sequence && em_object_of(number) != NULL);
    OK(em_object_close(second));
    OK(em_refresh(first, &changed));
    CHECK(changed && *number == 2 && em_sequence(first) > sequence);
    CHECK(em_object_of(number) == first && em_root(first) == number);
    OK(em_refresh(first, &changed));
    CHECK(!changed);
    say(to_writer);
    hear(to_reader);
    /* Another object has the name, and this process writes it. */
    OK(em_store_rename(store, "shared", "renamed"));
    OK(em_object_create(store, "shared"));
    OK(em_object_open(store, "shared", EM_WRITE, NULL, &second));
    REFUSED(em_refresh(first, &changed), EM_CLOSED, "the snapshot is closed");
    REFUSED(em_object_close(first), EM_CLOSED, "not an open handle");
    OK(em_object_close(second));
    OK(em_store_close(store));
}

int main(void)
{
    CHECK(pipe(to_writer) == 0 && pipe(to_reader) == 0);
    pid_t pid = fork(); /* before either uses the library */
    CHECK(pid >= 0);
    /* A failing process closes the pipe, which the other one notices. */
    close(pid == 0 ? to_writer[1] : to_reader[1]);
    close(pid == 0 ? to_reader[0] : to_writer[0]);
    if (pid == 0)
        writer();
    reader();
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    puts("a reader beside a writer");
    return 0;
}
