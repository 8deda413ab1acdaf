/*
 * Threads with one object: many allocate at the same time, two commit at the same time, and one
 * closes it while others use it. Each call has exactly the documented results.
 *
 *     threads STORE
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static em_store *store;
static em_object *object;
static atomic_int turn, ended, committed, busy;

static void *allocate(void *context)
{
    enum { BLOCKS = 200 };
    static const size_t sizes[] = {8, 64, 200, 5000, 70000};
    unsigned char mark = (unsigned char)(uintptr_t)context;
    unsigned char *block[BLOCKS] = {NULL};
    for (int i = 0; i < 3000; i++) {
        int at = i * 7 % BLOCKS;
        size_t size = sizes[i % 5];
        if (block[at] != NULL) {
            CHECK(block[at][0] == mark && em_object_of(block[at]) == object);
            em_free(object, block[at]);
        }
        block[at] = em_malloc(object, size);
        CHECK(block[at] != NULL && em_usable_size(object, block[at]) >= size);
        memset(block[at], mark, size);
    }
    for (int i = 0; i < BLOCKS; i++)
        OK(em_try_free(object, block[i]));
    return NULL;
}

/* Waits for the other thread. */
static void meet(int meeting)
{
    atomic_fetch_add(&turn, 1);
    while (atomic_load(&turn) < 2 * meeting)
        sched_yield();
}

/* Both threads change something, wait for each other, and commit at the same moment. */
static void *commit(void *context)
{
    (void)context;
    for (int round = 0; round < 60; round++) {
        void *block = em_malloc(object, 5000);
        CHECK(block != NULL);
        memset(block, round, 5000);
        meet(2 * round + 1);
        em_status status = em_commit(object, NULL);
        CHECK(status == EM_OK || status == EM_BUSY);
        if (status == EM_BUSY)
            CHECK(strstr(em_last_error_message(), "another thread") != NULL);
        atomic_fetch_add(status == EM_OK ? &committed : &busy, 1);
        meet(2 * round + 2);
    }
    return NULL;
}

/* Allocates while another thread commits: it gets EM_BUSY, and nothing else happens. */
static void *allocate_all_the_time(void *context)
{
    while (!atomic_load(&ended)) {
        void *block = em_malloc(object, 64);
        em_status status = block == NULL ? em_last_error() : em_try_free(object, block);
        CHECK(status == EM_OK || status == EM_BUSY);
        atomic_fetch_add((atomic_int *)context, status == EM_BUSY);
    }
    return NULL;
}

static void commit_beside_allocation(void)
{
    static atomic_int refused;
    enum { BYTES = 4 << 20, ROUNDS_MAX = 200 };
    pthread_t thread;
    unsigned char *large = em_malloc(object, BYTES);
    CHECK(large != NULL);
    CHECK(pthread_create(&thread, NULL, allocate_all_the_time, &refused) == 0);
    int round = 0, commits = 0;
    for (; round < ROUNDS_MAX && (atomic_load(&refused) == 0 || commits == 0); round++) {
        memset(large, round, BYTES);
        em_status status = em_commit(object, NULL);
        CHECK(status == EM_OK || status == EM_BUSY);
        commits += status == EM_OK;
    }
    atomic_store(&ended, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(atomic_load(&refused) > 0 && commits > 0);
    em_free(object, large);
}

static void *use(void *base)
{
    for (;;) {
        if (!em_contains(object, base, 64)) {
            if (em_last_error() == EM_CLOSED)
                return NULL;
            CHECK(em_last_error() == EM_BUSY);
        }
        sched_yield();
    }
}

static void start_and_join(void *(*work)(void *), int threads)
{
    pthread_t thread[8];
    for (int i = 0; i < threads; i++)
        CHECK(pthread_create(&thread[i], NULL, work, (void *)(uintptr_t)(i + 1)) == 0);
    for (int i = 0; i < threads; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
}

int main(int arguments, char **argument)
{
    CHECK(arguments == 2);
    OK(em_store_create(argument[1], NULL, &store));
    OK(em_object_create(store, "object"));
    em_write_options options = EM_WRITE_OPTIONS_DEFAULT;
    options.durability = EM_DURABILITY_CLOSE;
    OK(em_object_open(store, "object", EM_WRITE, &options, &object));

    em_object_info before = {.size = sizeof before}, after = {.size = sizeof after};
    OK(em_info(object, &before));
    start_and_join(allocate, 4);
    OK(em_commit(object, NULL));
    OK(em_info(object, &after));
    CHECK(after.blocks == before.blocks);

    start_and_join(commit, 2);
    CHECK(atomic_load(&committed) >= 60 && atomic_load(&committed) + atomic_load(&busy) == 120);
    fprintf(stderr, "two threads: %d commits, %d times EM_BUSY\n", atomic_load(&committed),
            atomic_load(&busy));

    commit_beside_allocation();

    /* A close that would lose changes is refused; one during other threads' calls is busy. */
    REFUSED(em_object_close(object), EM_UNCOMMITTED, "commit them");
    OK(em_rollback(object));
    pthread_t user[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&user[i], NULL, use, em_object_base(object)) == 0);
    em_status status;
    while ((status = em_object_close(object)) == EM_BUSY)
        sched_yield();
    CHECK(status == EM_OK);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(user[i], NULL) == 0);
    OK(em_check(argument[1], NULL, NULL));
    OK(em_store_close(store));
    puts("threads got what they were promised");
    return 0;
}
