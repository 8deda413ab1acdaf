/* Pointers that lead out of an object. */
#include "parts.h"

static void note(const em_foreign_pointer *pointer, void *context)
{
    CHECK(pointer->size == sizeof *pointer && strcmp(pointer->object, "renamed") == 0);
    CHECK(strstr(pointer->message, pointer->into) != NULL);
    *(uint64_t *)context = pointer->address;
}

void pointers_out(const char *path)
{
    em_store *store;
    em_object *object;
    uint64_t told = 0;
    int local = 1;
    OK(em_store_open(path, NULL, &store));
    em_on_foreign_pointer(note, &told);
    OK(em_object_open(store, "renamed", EM_WRITE, NULL, &object));
    void **pointers = em_calloc(object, 4, sizeof *pointers);
    CHECK(pointers != NULL);
    pointers[0] = &local;
    pointers[1] = &local;
    OK(em_expect_foreign(object, &pointers[1], sizeof *pointers));
    REFUSED(em_expect_foreign(object, &local, sizeof local), EM_INVALID_ARGUMENT, "not in the object's data");
    OK(em_commit(object, NULL));
    CHECK(told == (uint64_t)(size_t)&pointers[0]);
    OK(em_forget_code(object));
    em_free(object, pointers);
    OK(em_commit(object, NULL));
    OK(em_forget_code(object));
    OK(em_object_close(object));

    em_write_options options = EM_WRITE_OPTIONS_DEFAULT;
    options.foreign_pointers = EM_FOREIGN_REFUSE;
    OK(em_object_open(store, "renamed", EM_WRITE, &options, &object));
    pointers = em_calloc(object, 4, sizeof *pointers);
    pointers[2] = &local;
    REFUSED(em_commit(object, NULL), EM_FOREIGN_POINTER, "the stack of the main thread");
    REFUSED(em_object_close(object), EM_UNCOMMITTED, "roll back");
    OK(em_rollback(object));
    OK(em_object_close(object));

    /* Repeats the test with a shared object, which also requires the lock. */
    OK(em_object_open(store, "renamed", EM_SHARE, &options, &object));
    OK(em_write_lock(object));
    pointers = em_calloc(object, 4, sizeof *pointers);
    pointers[3] = &local;
    REFUSED(em_commit(object, NULL), EM_FOREIGN_POINTER, "the stack of the main thread");
    OK(em_rollback(object));
    OK(em_write_unlock(object));
    OK(em_object_close(object));
    OK(em_object_open(store, "renamed", EM_SHARE, NULL, &object));
    REFUSED(em_expect_foreign(object, em_object_base(object), 8), EM_NOT_LOCKED, "writes");
    REFUSED(em_register_code(object), EM_NOT_LOCKED, "writes");
    REFUSED(em_forget_code(object), EM_NOT_LOCKED, "writes");
    OK(em_write_lock(object));
    pointers = em_calloc(object, 4, sizeof *pointers);
    /* Different from the block's contents before it was freed, so that it is a change. */
    pointers[0] = pointers[1] = &told;
    OK(em_expect_foreign(object, &pointers[0], sizeof *pointers));
    told = 0;
    OK(em_commit(object, NULL));
    CHECK(told == (uint64_t)(size_t)&pointers[1]);
    em_free(object, pointers);
    OK(em_forget_code(object));
    OK(em_commit(object, NULL));
    OK(em_write_unlock(object));
    OK(em_object_close(object));
    OK(em_object_open(store, "renamed", EM_READ, NULL, &object));
    REFUSED(em_expect_foreign(object, em_object_base(object), 8), EM_READ_ONLY, "for writing");
    REFUSED(em_register_code(object), EM_READ_ONLY, "for writing");
    REFUSED(em_forget_code(object), EM_READ_ONLY, "for writing");
    OK(em_object_close(object));
    em_on_foreign_pointer(NULL, NULL);
    OK(em_store_close(store));
}
