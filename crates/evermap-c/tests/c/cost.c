/*
 * The cost of a call in addition to the Rust heap's, for callgrind:
 *
 *     valgrind --tool=callgrind --dump-instr=no ./cost STORE
 *
 * Valgrind does not support the addresses of the default window, so the store uses a lower one.
 */
#include "check.h"

int main(int arguments, char **argument)
{
    enum { BLOCKS = 100000 };
    static void *block[BLOCKS];
    CHECK(arguments == 2);
    em_store *store;
    em_object *object;
    em_store_options options = EM_STORE_OPTIONS_DEFAULT;
    options.window_base = (uint64_t)0x80000000000;
    options.window_end = (uint64_t)0x100000000000;
    options.arena_bytes = (uint64_t)4 << 30;
    options.arena_registry = "";
    OK(em_store_create(argument[1], &options, &store));
    OK(em_object_create(store, "object"));
    OK(em_object_open(store, "object", EM_WRITE, NULL, &object));
    for (int i = 0; i < BLOCKS; i++)
        CHECK((block[i] = em_malloc(object, 64)) != NULL);
    for (int i = 0; i < BLOCKS; i++)
        CHECK(em_object_of(block[i]) == object);
    for (int i = 0; i < BLOCKS; i++)
        em_free(object, block[i]);
    OK(em_commit(object, NULL));
    OK(em_object_close(object));
    OK(em_store_close(store));
    puts("measured");
    return 0;
}
