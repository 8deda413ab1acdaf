/*
 * Threads that read and write one shared object: no reader sees a torn state, nor, by default, an
 * uncommitted one.
 *
 *     shared STORE
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

enum { READERS = 8, NUMBERS = 5000, COMMITS = 200 };

static em_object *object;
static atomic_int acknowledged, ended;

static void *read_on(void *early)
{
    while (!atomic_load(&ended)) {
        int before = atomic_load(&acknowledged);
        OK(em_read_lock(object));
        const int *numbers = em_root(object);
        int first = numbers[0];
        for (int i = 0; i < NUMBERS; i++)
            CHECK(numbers[i] == first);
        OK(em_read_unlock(object));
        CHECK(first >= before);
        CHECK(early != NULL || first <= atomic_load(&acknowledged));
    }
    return NULL;
}

static void run(em_store *store, const char *name, uint32_t early_read)
{
    em_write_options options = EM_WRITE_OPTIONS_DEFAULT;
    pthread_t readers[READERS];
    options.early_read = early_read;
    atomic_store(&acknowledged, 0);
    atomic_store(&ended, 0);
    OK(em_object_create(store, name));
    OK(em_object_open(store, name, EM_SHARE, &options, &object));
    OK(em_write_lock(object));
    int *numbers = em_calloc(object, NUMBERS, sizeof *numbers);
    CHECK(numbers != NULL);
    OK(em_set_root(object, numbers, NUMBERS * sizeof *numbers, NULL, "numbers"));
    OK(em_commit(object, NULL));
    OK(em_write_unlock(object));
    for (int i = 0; i < READERS; i++)
        CHECK(pthread_create(&readers[i], NULL, read_on, early_read ? object : NULL) == 0);
    for (int n = 1; n <= COMMITS; n++) {
        OK(em_write_lock(object));
        for (int i = 0; i < NUMBERS; i++)
            numbers[i] = n;
        if (n % 5 == 0) {
            OK(em_rollback(object));
            for (int i = 0; i < NUMBERS; i++)
                numbers[i] = n;
        }
        OK(em_commit(object, NULL));
        atomic_store(&acknowledged, n);
        OK(em_write_unlock(object));
    }
    REFUSED(em_read_unlock(object), EM_NOT_LOCKED, name);
    atomic_store(&ended, 1);
    for (int i = 0; i < READERS; i++)
        CHECK(pthread_join(readers[i], NULL) == 0);
    OK(em_object_close(object));
}

static void note(const em_foreign_pointer *pointer, void *told)
{
    /* The callback may call the library. */
    const void *address = (const void *)(uintptr_t)pointer->address;
    CHECK(em_object_of(address) == object && em_contains(object, address, sizeof address));
    CHECK(em_root(object) != NULL && em_sequence(object) > 0);
    ++*(int *)told;
}

/* Every call that commits reports foreign pointers, and em_object_of() knows the addresses. */
static void report(em_store *store)
{
    int local = 0, told = 0;
    const size_t step = 1 << 20;
    OK(em_object_create(store, "reports"));
    OK(em_object_open(store, "reports", EM_SHARE, NULL, &object));
    OK(em_write_lock(object));
    void **pointers = em_calloc(object, 4, sizeof *pointers);
    CHECK(pointers != NULL);
    OK(em_set_root(object, pointers, 4 * sizeof *pointers, NULL, "pointers"));
    OK(em_commit(object, NULL));
    em_on_foreign_pointer(note, &told);
    pointers[0] = &local;
    OK(em_commit(object, NULL));
    CHECK(told == 1);
    pointers[1] = &local;
    OK(em_reserve(object, 64 * step));
    CHECK(told == 2);
    const char *last = em_object_base(object);
    while (em_contains(object, last + step, 1))
        last += step;
    CHECK(em_object_of(last) == object);
    pointers[2] = &local;
    OK(em_release(object, 4096, NULL));
    CHECK(told == 3);
    pointers[3] = &local;
    OK(em_shrink(object, NULL));
    CHECK(told == 4);
    CHECK((em_object_of(last) == object) == em_contains(object, last, 1));
    OK(em_write_unlock(object));
    em_on_foreign_pointer(NULL, NULL);
    OK(em_object_close(object));
}

int main(int arguments, char **argument)
{
    em_store *store;
    CHECK(arguments == 2);
    OK(em_store_open_or_create(argument[1], NULL, &store));
    run(store, "acknowledged", 0);
    run(store, "early", 1);
    report(store);
    OK(em_store_close(store));
    puts("threads shared an object");
    return 0;
}
