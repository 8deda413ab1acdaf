/*
 * Calls every function with invalid handles: closed ones, NULL, one of the other kind, and random
 * values. Each returns EM_CLOSED, and nothing else happens.
 *
 *     use_after_close STORE
 */
#include "check.h"

static bool any_name(const char *name, void *context)
{
    (void)name;
    (void)context;
    return true;
}

static void with_object(em_object *o)
{
    char buffer[EM_DESCRIPTION_BUFFER_BYTES];
    uint8_t tag[EM_TAG_BYTES];
    bool flag;
    uint64_t bytes;
    em_object_info info = {.size = sizeof info};
    FAILS(em_malloc(o, 8), NULL, EM_CLOSED, "handle");
    FAILS(em_calloc(o, 1, 8), NULL, EM_CLOSED, "handle");
    FAILS(em_aligned_alloc(o, 64, 8), NULL, EM_CLOSED, "handle");
    FAILS(em_realloc(o, NULL, 8), NULL, EM_CLOSED, "handle");
    FAILS(em_realloc(o, buffer, 8), NULL, EM_CLOSED, "handle");
    REFUSED(em_try_free(o, buffer), EM_CLOSED, "handle");
    FAILS(em_usable_size(o, buffer), 0, EM_CLOSED, "handle");
    FAILS(em_contains(o, buffer, 1), false, EM_CLOSED, "handle");
    FAILS(em_root(o), NULL, EM_CLOSED, "handle");
    FAILS(em_root_size(o), 0, EM_CLOSED, "handle");
    REFUSED(em_root_tag(o, tag), EM_CLOSED, "handle");
    REFUSED(em_root_description(o, buffer, sizeof buffer), EM_CLOSED, "handle");
    REFUSED(em_set_root(o, NULL, 0, NULL, NULL), EM_CLOSED, "handle");
    FAILS(em_object_base(o), NULL, EM_CLOSED, "handle");
    REFUSED(em_patch(o, buffer, buffer, 1), EM_CLOSED, "handle");
    REFUSED(em_object_name(o, buffer, sizeof buffer), EM_CLOSED, "handle");
    REFUSED(em_commit(o, &flag), EM_CLOSED, "handle");
    REFUSED(em_rollback(o), EM_CLOSED, "handle");
    REFUSED(em_checkpoint(o, &flag), EM_CLOSED, "handle");
    REFUSED(em_sync(o), EM_CLOSED, "handle");
    REFUSED(em_refresh(o, &flag), EM_CLOSED, "handle");
    REFUSED(em_verified(o, &flag), EM_CLOSED, "handle");
    REFUSED(em_reserve(o, 8), EM_CLOSED, "handle");
    REFUSED(em_release(o, 8, &bytes), EM_CLOSED, "handle");
    REFUSED(em_shrink(o, &bytes), EM_CLOSED, "handle");
    REFUSED(em_info(o, &info), EM_CLOSED, "handle");
    FAILS(em_sequence(o), 0, EM_CLOSED, "handle");
    REFUSED(em_write_begin(o), EM_CLOSED, "handle");
    REFUSED(em_write_end(o), EM_CLOSED, "handle");
    REFUSED(em_read_lock(o), EM_CLOSED, "handle");
    REFUSED(em_read_unlock(o), EM_CLOSED, "handle");
    REFUSED(em_write_lock(o), EM_CLOSED, "handle");
    REFUSED(em_write_unlock(o), EM_CLOSED, "handle");
    REFUSED(em_expect_foreign(o, buffer, 8), EM_CLOSED, "handle");
    REFUSED(em_register_code(o), EM_CLOSED, "handle");
    REFUSED(em_forget_code(o), EM_CLOSED, "handle");
    REFUSED(em_object_close(o), EM_CLOSED, "handle");
}

static void with_store(em_store *s)
{
    char buffer[EM_NAME_BUFFER_BYTES];
    em_object *object = NULL;
    bool flag;
    REFUSED(em_store_list(s, any_name, NULL), EM_CLOSED, "handle");
    REFUSED(em_store_contains(s, "x", &flag), EM_CLOSED, "handle");
    REFUSED(em_store_remove(s, "x"), EM_CLOSED, "handle");
    REFUSED(em_store_rename(s, "x", "y"), EM_CLOSED, "handle");
    REFUSED(em_store_object_at(s, &flag, buffer, sizeof buffer), EM_CLOSED, "handle");
    REFUSED(em_object_create(s, "x"), EM_CLOSED, "handle");
    REFUSED(em_object_open(s, "x", EM_WRITE, NULL, &object), EM_CLOSED, "handle");
    REFUSED(em_store_close(s), EM_CLOSED, "handle");
    CHECK(object == NULL);
}

static void arguments_that_are_missing(em_store *store, em_object *object)
{
    em_store_options short_options = EM_STORE_OPTIONS_DEFAULT;
    em_store *opened = NULL;
    bool flag;
    short_options.size = 0;
    REFUSED(em_store_open(NULL, NULL, &opened), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(em_store_open("x", NULL, NULL), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(em_store_open("x", &short_options, &opened), EM_INVALID_ARGUMENT, "size");
    short_options = (em_store_options)EM_STORE_OPTIONS_DEFAULT;
    short_options.verify = 9;
    REFUSED(em_store_open("x", &short_options, &opened), EM_INVALID_ARGUMENT, "em_verify");
    short_options.verify = 0;
    short_options.other_builds = 2;
    REFUSED(em_store_open("x", &short_options, &opened), EM_INVALID_ARGUMENT, "em_other_builds");
    short_options.other_builds = 0;
    em_write_options write = EM_WRITE_OPTIONS_DEFAULT;
    em_object *second;
    write.foreign_pointers = 3;
    REFUSED(em_object_open(store, "x", EM_WRITE, &write, &second), EM_INVALID_ARGUMENT,
            "em_foreign_pointers");
    write.foreign_pointers = 0;
    write.reserved = 1;
    REFUSED(em_object_open(store, "x", EM_WRITE, &write, &second), EM_INVALID_ARGUMENT, "reserved");
    short_options.window_base = 1;
    REFUSED(em_store_open("x", &short_options, &opened), EM_UNSUPPORTED, "window");
    short_options.window_base = 0;
    static const uint8_t zeros[EM_TAG_BYTES];
    short_options.application_key = zeros;
    REFUSED(em_store_open("x", &short_options, &opened), EM_INVALID_ARGUMENT, "zero");
    short_options.application = "x";
    REFUSED(em_store_open("x", &short_options, &opened), EM_INVALID_ARGUMENT, "both");
    REFUSED(em_store_list(store, NULL, NULL), EM_INVALID_ARGUMENT, "callback");
    REFUSED(em_store_contains(store, NULL, &flag), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(em_store_contains(store, "\xff", &flag), EM_INVALID_ARGUMENT, "UTF-8");
    REFUSED(em_store_contains(store, "x", NULL), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(em_object_open(store, "x", EM_READ, NULL, NULL), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(em_root_tag(object, NULL), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(em_info(object, NULL), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(em_verified(object, NULL), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(em_application_key(NULL, NULL), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(em_check(NULL, NULL, NULL), EM_INVALID_ARGUMENT, "NULL");
    CHECK(em_object_of(NULL) == NULL && opened == NULL);
}

/* There is room for many handles, up to a limit. */
static void more_than_there_is_room_for(em_store *store)
{
    enum { MAX = 1 << 14 };
    static em_object *open[MAX + 1];
    int count = 0;
    while (em_object_open(store, "object", EM_READ, NULL, &open[count]) == EM_OK)
        CHECK(++count <= MAX);
    CHECK(em_last_error() == EM_TOO_MANY_OPEN && count > MAX - 10);
    for (int i = 0; i < count; i++)
        OK(em_object_close(open[i]));
}

int main(int arguments, char **argument)
{
    CHECK(arguments == 2);
    em_store *store, *gone;
    em_object *object, *next, *last = NULL;
    with_object((em_object *)0x4000000000000000); /* as the first one will be */
    OK(em_store_create(argument[1], NULL, &store));
    OK(em_store_open(argument[1], NULL, &gone));
    OK(em_store_close(gone));
    OK(em_object_create(store, "object"));
    OK(em_object_open(store, "object", EM_WRITE, NULL, &object));
    arguments_that_are_missing(store, object);
    OK(em_object_close(object));
    with_object(object);
    /* Handles are not reused. */
    for (int i = 0; i < 100; i++) {
        OK(em_object_open(store, "object", i % 2 ? EM_READ : EM_WRITE, NULL, &next));
        CHECK(next != object && next != last);
        if (last != NULL)
            CHECK(em_object_close(last) == EM_CLOSED);
        OK(em_object_close(next));
        last = next;
    }
    more_than_there_is_room_for(store);
    OK(em_object_open(store, "object", EM_WRITE, NULL, &next));
    with_object(object);
    with_object(NULL);
    with_object((em_object *)store);
    with_object((em_object *)gone);
    with_object((em_object *)&store);
    with_object((em_object *)((uintptr_t)next | 1));
    with_object((em_object *)((uintptr_t)next + 16));
    with_object((em_object *)UINTPTR_MAX);
    with_store(gone);
    with_store(NULL);
    with_store((em_store *)next);
    with_store((em_store *)&next);
    with_store((em_store *)UINTPTR_MAX);
    /* The open handles are unaffected. */
    CHECK(em_malloc(next, 8) != NULL);
    OK(em_rollback(next));
    OK(em_object_close(next));
    OK(em_store_close(store));
    puts("only open handles are handles");
    return 0;
}
