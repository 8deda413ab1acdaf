/*
 * A forked child can read and close its parent's objects. All other calls return EM_FORKED, and
 * em_free aborts.
 *
 *     forked STORE    (EVERMAP_STORE names STORE)
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <fastio.h>
#include <nvheap.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static em_store *store;
static em_object *object, *seen, *common; /* open for writing, for reading, and for threads */
static void *block;

static void refused(void)
{
    em_store *other;
    em_object *opened;
    bool flag;
    FAILS(em_malloc(object, 8), NULL, EM_FORKED, "forked");
    REFUSED(em_try_free(object, block), EM_FORKED, "forked");
    FAILS(em_usable_size(object, block), 0, EM_FORKED, "forked");
    REFUSED(em_commit(object, NULL), EM_FORKED, "forked");
    REFUSED(em_rollback(object), EM_FORKED, "forked");
    REFUSED(em_sync(object), EM_FORKED, "forked");
    REFUSED(em_checkpoint(object, NULL), EM_FORKED, "forked");
    REFUSED(em_reserve(object, 1), EM_FORKED, "forked");
    REFUSED(em_release(object, 1, NULL), EM_FORKED, "forked");
    REFUSED(em_shrink(object, NULL), EM_FORKED, "forked");
    REFUSED(em_refresh(seen, NULL), EM_FORKED, "forked");
    REFUSED(em_verified(seen, &flag), EM_FORKED, "forked");
    REFUSED(em_set_root(object, NULL, 0, NULL, NULL), EM_FORKED, "forked");
    em_object_info info = { .size = sizeof info };
    REFUSED(em_info(object, &info), EM_FORKED, "forked");
    REFUSED(em_store_contains(store, "object", &flag), EM_FORKED, "forked");
    REFUSED(em_store_close(store), EM_FORKED, "forked");
    REFUSED(em_store_open("x", NULL, &other), EM_FORKED, "forked");
    REFUSED(em_object_open(store, "object", EM_READ, NULL, &opened), EM_FORKED, "forked");
    REFUSED(em_check("x", NULL, NULL), EM_FORKED, "forked");
    REFUSED(em_write_begin(object), EM_FORKED, "forked");
    REFUSED(em_write_end(object), EM_FORKED, "forked");
    REFUSED(em_expect_foreign(object, block, 8), EM_FORKED, "forked");
    REFUSED(em_register_code(object), EM_FORKED, "forked");
    REFUSED(em_forget_code(object), EM_FORKED, "forked");
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
    REFUSED(em_write_lock(common), EM_FORKED, "forked");
    REFUSED(em_write_unlock(common), EM_FORKED, "forked");
    REFUSED(em_commit(common, NULL), EM_FORKED, "forked");
    REFUSED(em_checkpoint(common, NULL), EM_FORKED, "forked");
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

/* Reading works, and closing releases the child's own copy. */
static void allowed(void)
{
    char text[EM_NAME_BUFFER_BYTES];
    uint8_t tag[EM_TAG_BYTES];
    em_object_info info = { .size = sizeof info };
    CHECK(em_root(object) == block && em_root_size(object) == 100);
    CHECK(((char *)block)[99] == 1 && em_object_base(object) != NULL);
    CHECK(em_contains(object, block, 100) && !em_contains(object, &text, 1));
    CHECK(em_sequence(object) > 0);
    OK(em_object_name(object, text, sizeof text));
    CHECK(strcmp(text, "object") == 0);
    OK(em_root_tag(object, tag));
    OK(em_root_description(object, text, sizeof text));
    CHECK(*(int *)em_root(seen) == 7 && em_sequence(seen) > 0);
    OK(em_info(seen, &info));
    CHECK(strcmp(info.name, "seen") == 0);
    OK(em_read_lock(common));
    CHECK(*(int *)em_root(common) == 7 && em_root_size(common) == sizeof(int));
    OK(em_read_unlock(common));
    REFUSED(em_read_unlock(common), EM_NOT_LOCKED, "reads");
}

static void look_and_close(void)
{
    allowed();
    OK(em_object_close(object));
    OK(em_object_close(seen));
    OK(em_object_close(common));
    FAILS(em_root(object), NULL, EM_CLOSED, "not an open handle");
    REFUSED(em_object_close(seen), EM_CLOSED, "not an open handle");
}

static void fork_again(void)
{
    refused();
    allowed();
    CHECK(child(refused) == 0);
    CHECK(child(look_and_close) == 0);
    look_and_close();
}

static const char *path;

static void make_seven(const char *name)
{
    OK(em_object_create(store, name));
    OK(em_object_open(store, name, EM_WRITE, NULL, &seen));
    int *number = em_malloc(seen, sizeof *number);
    *number = 7;
    OK(em_set_root(seen, number, sizeof *number, NULL, NULL));
    OK(em_commit(seen, NULL));
    OK(em_object_close(seen));
}

static void open_there(void)
{
    OK(em_store_create(path, NULL, &store));
    OK(em_object_create(store, "object"));
    make_seven("seen");
    make_seven("common");
    OK(em_store_close(store));
}

static pthread_barrier_t locked, forked;

/* Stores to the object and locks it, while the other thread forks. */
static void *write_common(void *unused)
{
    OK(em_write_lock(common));
    *(int *)em_root(common) = 8;
    pthread_barrier_wait(&locked);
    pthread_barrier_wait(&forked);
    OK(em_rollback(common));
    OK(em_write_unlock(common));
    return unused;
}

static void read_what_is_written(void)
{
    alarm(20);
    REFUSED(em_read_lock(common), EM_FORKED, "forked");
    CHECK(em_root_size(common) == sizeof(int));
    OK(em_object_close(common));
}

static atomic_bool stop;

static void *commit_again_and_again(void *unused)
{
    for (unsigned char next = 1; !stop; next++) {
        memset(block, next, 99);
        OK(em_commit(object, NULL));
    }
    return unused;
}

/* Forks while another thread may be committing. */
static void fork_at_any_moment(void)
{
    alarm(20);
    CHECK(em_root(object) == block || em_last_error() == EM_BUSY);
    CHECK(((char *)block)[99] == 1 && em_contains(object, block, 100));
    CHECK(em_sequence(object) > 0 && em_object_base(object) != NULL);
    REFUSED(em_commit(object, NULL), EM_FORKED, "forked");
    OK(em_object_close(object));
    FAILS(em_root(object), NULL, EM_CLOSED, "not an open handle");
}

static void free_there(void)
{
    em_free(object, block);
}

int main(int arguments, char **argument)
{
    CHECK(arguments == 2);
    /* A process that has not used the library yet loses nothing by forking. */
    path = argument[1];
    CHECK(child(open_there) == 0);
    OK(em_store_open(path, NULL, &store));
    OK(em_object_open(store, "object", EM_WRITE, NULL, &object));
    OK(em_object_open(store, "seen", EM_READ, NULL, &seen));
    OK(em_object_open(store, "common", EM_SHARE, NULL, &common));
    CHECK(p_create("mapped") == 0 && p_map("mapped") != NULL && p_malloc("mapped", 8) != NULL);
    block = em_malloc(object, 100);
    memset(block, 1, 100);
    OK(em_set_root(object, block, 100, NULL, NULL));
    OK(em_commit(object, NULL));

    CHECK(child(fork_again) == 0);
    int status = child(free_there);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);

    pthread_t writer;
    CHECK(pthread_barrier_init(&locked, NULL, 2) == 0 && pthread_barrier_init(&forked, NULL, 2) == 0);
    CHECK(pthread_create(&writer, NULL, write_common, NULL) == 0);
    pthread_barrier_wait(&locked);
    status = child(read_what_is_written);
    pthread_barrier_wait(&forked);
    CHECK(pthread_join(writer, NULL) == 0 && status == 0);

    CHECK(pthread_create(&writer, NULL, commit_again_and_again, NULL) == 0);
    for (int i = 0; i < 200; i++) {
        CHECK(child(fork_at_any_moment) == 0);
    }
    stop = true;
    CHECK(pthread_join(writer, NULL) == 0);

    /* The parent is not affected. */
    OK(em_read_lock(common));
    CHECK(*(int *)em_root(common) == 7);
    OK(em_read_unlock(common));
    OK(em_object_close(common));
    CHECK(em_malloc(object, 100) != NULL && ((char *)block)[99] == 1);
    OK(em_commit(object, NULL));
    OK(em_object_close(object));
    CHECK(*(int *)em_root(seen) == 7);
    OK(em_object_close(seen));
    CHECK(p_unmap("mapped") == 0);
    OK(em_store_close(store));
    OK(em_check(argument[1], NULL, NULL));
    puts("a child reads what its parent had, and no more");
    return 0;
}
