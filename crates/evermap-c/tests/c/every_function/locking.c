/* Write protection, and objects that threads share. */
#include "parts.h"

void protection(const char *path)
{
    em_store *store;
    em_object *object;
    em_write_options options = EM_WRITE_OPTIONS_DEFAULT;
    em_object_info info = {.size = sizeof info};
    em_prepare_keys(); /* whether there are keys is the machine's business */
    OK(em_store_open(path, NULL, &store));
    options.protection = 9;
    REFUSED(em_object_open(store, "renamed", EM_WRITE, &options, &object), EM_INVALID_ARGUMENT,
            "em_protection");
    for (uint32_t way = EM_PROTECTION_OFF; way <= EM_PROTECTION_KEYS; way++) {
        options.protection = way;
        OK(em_object_open(store, "renamed", EM_WRITE, &options, &object));
        OK(em_info(object, &info));
        CHECK(way == EM_PROTECTION_KEYS ? info.protection >= EM_PROTECTION_PAGES
                                        : info.protection == way);
        /* The library's functions need no scope. */
        struct node *root = em_calloc(object, 1, sizeof *root);
        char *more = em_malloc(object, 8 << 20);
        CHECK(root != NULL && more != NULL && em_object_of(more + (8 << 20) - 1) == object);
        CHECK(em_usable_size(object, root) >= sizeof *root);
        OK(em_set_root(object, root, sizeof *root, NULL, "protected"));
        more = em_realloc(object, more, 100);
        void *aligned = em_aligned_alloc(object, 64, 64);
        em_free(object, aligned);
        OK(em_try_free(object, more));
        OK(em_commit(object, NULL));
        OK(em_write_begin(object));
        OK(em_write_begin(object));
        root->value = 7 + way;
        OK(em_write_end(object));
        root->value++;
        OK(em_write_end(object));
        if (way != EM_PROTECTION_OFF)
            REFUSED(em_write_end(object), EM_INVALID_ARGUMENT, "em_write_begin");
        OK(em_commit(object, NULL));
        CHECK(root->value == 8 + way);
        OK(em_write_begin(object));
        root->value = 0;
        OK(em_write_end(object));
        OK(em_rollback(object));
        CHECK(root->value == 8 + way && em_root(object) == root);
        OK(em_reserve(object, 1 << 20));
        OK(em_release(object, 0, NULL));
        OK(em_shrink(object, NULL));
        OK(em_checkpoint(object, NULL));
        OK(em_sync(object));
        OK(em_set_root(object, NULL, 0, NULL, NULL));
        em_free(object, root);
        REFUSED(em_object_close(object), EM_UNCOMMITTED, "roll back");
        OK(em_rollback(object));
        OK(em_object_close(object));
    }
    OK(em_object_open(store, "renamed", EM_READ, NULL, &object));
    OK(em_info(object, &info));
    CHECK(info.protection == EM_PROTECTION_OFF);
    REFUSED(em_write_begin(object), EM_READ_ONLY, "for writing");
    REFUSED(em_write_end(object), EM_READ_ONLY, "for writing");
    OK(em_object_close(object));
    OK(em_store_close(store));
}

/* One thread with a shared object; shared.c has many. */
void sharing(const char *path)
{
    em_store *store;
    em_object *object, *again, *other;
    em_object_info info = {.size = sizeof info};
    em_write_options early = EM_WRITE_OPTIONS_DEFAULT;
    bool changed = false;
    OK(em_store_open(path, NULL, &store));
    OK(em_object_create(store, "shared"));
    early.protection = EM_PROTECTION_PAGES;
    REFUSED(em_object_open(store, "shared", EM_SHARE, &early, &object), EM_INVALID_ARGUMENT, "EM_SHARE");
    early.protection = EM_PROTECTION_OFF;
    OK(em_object_open(store, "shared", EM_SHARE, NULL, &object));
    /* Without a lock, everything is refused. */
    FAILS(em_malloc(object, 8), NULL, EM_NOT_LOCKED, "shared");
    REFUSED(em_set_root(object, NULL, 0, NULL, NULL), EM_NOT_LOCKED, "shared");
    REFUSED(em_commit(object, NULL), EM_NOT_LOCKED, "shared");
    REFUSED(em_rollback(object), EM_NOT_LOCKED, "shared");
    REFUSED(em_reserve(object, 1), EM_NOT_LOCKED, "shared");
    REFUSED(em_info(object, &info), EM_NOT_LOCKED, "shared");
    REFUSED(em_write_unlock(object), EM_NOT_LOCKED, "writes");
    REFUSED(em_read_unlock(object), EM_NOT_LOCKED, "reads");
    /* Handles of one object are equal; other options and modes are refused. */
    OK(em_object_open(store, "shared", EM_SHARE, NULL, &again));
    early.early_read = 1;
    REFUSED(em_object_open(store, "shared", EM_SHARE, &early, &other), EM_BUSY, "options");
    REFUSED(em_object_open(store, "shared", EM_READ, NULL, &other), EM_BUSY, "share");
    REFUSED(em_object_open(store, "shared", EM_WRITE, NULL, &other), EM_BUSY, "share");

    OK(em_write_lock(object));
    REFUSED(em_write_lock(again), EM_WOULD_DEADLOCK, "writes");
    REFUSED(em_read_lock(object), EM_WOULD_DEADLOCK, "writes");
    REFUSED(em_object_close(object), EM_BUSY, "locked");
    int *number = em_malloc(object, sizeof *number);
    CHECK(number != NULL && em_contains(object, number, sizeof *number));
    *number = 7;
    OK(em_set_root(object, number, sizeof *number, NULL, "a number"));
    REFUSED(em_write_unlock(object), EM_UNCOMMITTED, "commit them");
    OK(em_commit(again, &changed));
    CHECK(changed);
    OK(em_info(object, &info));
    CHECK(info.mode == EM_SHARE && em_sequence(object) == info.sequence);
    OK(em_verified(object, &changed));
    /* A store that no function was called for. */
    *number = 8;
    REFUSED(em_write_unlock(object), EM_UNCOMMITTED, "roll back");
    OK(em_rollback(object));
    CHECK(*number == 7);
    OK(em_reserve(object, 1 << 20));
    OK(em_release(object, 1, NULL));
    OK(em_shrink(object, NULL));
    OK(em_write_unlock(object));

    OK(em_read_lock(object));
    OK(em_read_lock(again));
    CHECK(em_root(object) == number && em_root(again) == number && *number == 7);
    REFUSED(em_write_lock(object), EM_WOULD_DEADLOCK, "reads");
    OK(em_read_unlock(again));
    OK(em_read_unlock(object));
    OK(em_checkpoint(object, NULL));
    OK(em_sync(object));
    OK(em_object_close(object));
    CHECK(*number == 7);
    OK(em_object_close(again));

    /* A commit with early_read lets readers in; the next store excludes them again. */
    OK(em_object_open(store, "shared", EM_SHARE, &early, &object));
    OK(em_write_lock(object));
    *(int *)em_root(object) = 9;
    OK(em_commit(object, NULL));
    OK(em_write_begin(object));
    *(int *)em_root(object) = 10;
    OK(em_write_end(object));
    OK(em_commit(object, NULL));
    OK(em_write_unlock(object));
    OK(em_object_close(object));

    /* A session with changes is not closed. */
    OK(em_object_open(store, "shared", EM_WRITE, NULL, &object));
    REFUSED(em_read_lock(object), EM_INVALID_ARGUMENT, "EM_SHARE");
    REFUSED(em_read_unlock(object), EM_INVALID_ARGUMENT, "EM_SHARE");
    REFUSED(em_write_lock(object), EM_INVALID_ARGUMENT, "EM_SHARE");
    REFUSED(em_write_unlock(object), EM_INVALID_ARGUMENT, "EM_SHARE");
    CHECK(*(int *)em_root(object) == 10);
    *(int *)em_root(object) = 11;
    REFUSED(em_object_close(object), EM_UNCOMMITTED, "roll back");
    OK(em_rollback(object));
    OK(em_set_root(object, NULL, 0, NULL, "no root"));
    REFUSED(em_object_close(object), EM_UNCOMMITTED, "commit them");
    OK(em_commit(object, NULL));
    CHECK(em_malloc(object, 100) != NULL);
    REFUSED(em_object_close(object), EM_UNCOMMITTED, "shared");
    OK(em_rollback(object));
    OK(em_object_close(object));
    OK(em_store_close(store));
}
