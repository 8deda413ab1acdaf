/* Stores, and the objects in them. */
#include "parts.h"

static bool collect(const char *name, void *context)
{
    char *names = context;
    strcat(strcat(names, name), " ");
    return strcmp(name, "last") != 0;
}

void stores(const char *path)
{
    em_store *store, *again;
    em_store_options options = EM_STORE_OPTIONS_DEFAULT;
    options.arena_bytes = (uint64_t)8 << 30;
    options.window_base = (uint64_t)0x200000000000;
    options.window_end = (uint64_t)0x300000000000;
    options.busy_timeout_ms = 1;
    options.catalog_timeout_ms = 5000;
    options.verify = EM_VERIFY_BACKGROUND;
    options.arena_registry = "";
    OK(em_store_create(path, &options, &store));
    REFUSED(em_store_create(path, NULL, &again), EM_STORE_EXISTS, path);
    OK(em_store_open(path, NULL, &again));
    CHECK(again != store);
    OK(em_store_close(again));
    REFUSED(em_store_close(again), EM_CLOSED, "not an open handle");
    OK(em_store_open_or_create(path, NULL, &again));
    OK(em_store_close(again));
    OK(em_store_reserve(path));
    OK(em_store_reserve(path));

    OK(em_object_create(store, "first"));
    OK(em_object_create(store, "middle"));
    OK(em_object_create_sized(store, "last", 1 << 20));
    REFUSED(em_object_create_sized(store, "vast", UINT64_MAX), EM_OUT_OF_ADDRESSES, "");
    REFUSED(em_object_create_sized(store, "first", 4096), EM_ALREADY_EXISTS, "first");
    OK(em_object_create(store, "behind the last"));
    REFUSED(em_object_create(store, "first"), EM_ALREADY_EXISTS, "first");
    REFUSED(em_object_create(store, ""), EM_INVALID_NAME, "");
    REFUSED(em_object_create(store, "."), EM_INVALID_NAME, "directory");
    REFUSED(em_object_create(store, ".."), EM_INVALID_NAME, "directory");
    REFUSED(em_object_create(store, "a\nb"), EM_INVALID_NAME, "control character");
    char long_name[EM_NAME_BYTES_MAX + 2] = "";
    memset(long_name, 'n', EM_NAME_BYTES_MAX + 1);
    REFUSED(em_object_create(store, long_name), EM_INVALID_NAME, "255 bytes");
    /* Documents are named after their files. */
    const char *with_slashes[] = {"/", "a/b", "/a/../b", long_name + 1};
    for (int i = 0; i < 4; i++) {
        OK(em_object_create(store, with_slashes[i]));
        OK(em_store_remove(store, with_slashes[i]));
    }
    char names[1000] = "";
    OK(em_store_list(store, collect, names));
    CHECK(strcmp(names, "first middle last ") == 0);
    bool contains = false;
    OK(em_store_contains(store, "middle", &contains));
    CHECK(contains);
    OK(em_store_remove(store, "middle"));
    OK(em_store_contains(store, "middle", &contains));
    CHECK(!contains);
    REFUSED(em_store_remove(store, "middle"), EM_NOT_FOUND, "middle");
    OK(em_store_rename(store, "last", "renamed"));
    REFUSED(em_store_rename(store, "last", "x"), EM_NOT_FOUND, "last");

    uint8_t key[EM_TAG_BYTES];
    OK(em_application_key("player", key));
    em_store *by_name, *by_key;
    em_store_options application = EM_STORE_OPTIONS_DEFAULT;
    application.application = "player";
    OK(em_store_open(path, &application, &by_name));
    application.application = NULL;
    application.application_key = key;
    OK(em_store_open(path, &application, &by_key));
    OK(em_object_create(by_name, "the player's"));
    em_object *object;
    OK(em_object_open(by_key, "the player's", EM_READ, NULL, &object));
    OK(em_object_close(object));
    REFUSED(em_object_open(store, "the player's", EM_READ, NULL, &object), EM_OTHER_APPLICATION,
            "belongs to application");
    OK(em_store_close(by_name));
    OK(em_store_close(by_key));
    OK(em_store_close(store));
}

/* A session whose store's directory is renamed commits changes and takes more addresses as before. */
void renamed_store(const char *path)
{
    char elsewhere[1000];
    CHECK(snprintf(elsewhere, sizeof elsewhere, "%s.renamed", path) < (int)sizeof elsewhere);
    em_store *store;
    em_object *object;
    OK(em_store_open(path, NULL, &store));
    OK(em_object_create(store, "moving"));
    OK(em_object_open(store, "moving", EM_WRITE, NULL, &object));
    int *number = em_malloc(object, sizeof *number);
    *number = 1;
    OK(em_set_root(object, number, sizeof *number, NULL, "a number"));
    OK(em_commit(object, NULL));

    CHECK(rename(path, elsewhere) == 0);
    *number = 2;
    OK(em_commit(object, NULL));
    OK(em_reserve(object, 256 << 20));
    *number = 3;
    OK(em_commit(object, NULL));
    CHECK(rename(elsewhere, path) == 0);
    OK(em_commit(object, NULL));

    CHECK(rename(path, elsewhere) == 0);
    OK(em_reserve(object, 512 << 20));
    *number = 4;
    OK(em_rollback(object));
    CHECK(*number == 3);
    *number = 5;
    OK(em_commit(object, NULL));
    CHECK(rename(elsewhere, path) == 0);
    OK(em_object_close(object));
    OK(em_store_remove(store, "moving"));
    OK(em_store_close(store));
}
