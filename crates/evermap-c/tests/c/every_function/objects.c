/* Objects: the heap, the root, commits and room. */
#include "parts.h"

static void heap(em_object *object)
{
    char *block = em_malloc(object, 100);
    CHECK(block != NULL && em_usable_size(object, block) >= 100);
    memset(block, 7, em_usable_size(object, block));
    CHECK(em_usable_size(object, block + 1) == 0 && em_usable_size(object, NULL) == 0);
    CHECK(em_object_of(block) == object && em_contains(object, block, 100));
    CHECK(!em_contains(object, &block, 1) && em_object_of(&block) == NULL);

    /* A size of zero gives a distinct block with a distinct address. */
    char *zero = em_malloc(object, 0), *other = em_calloc(object, 0, 8);
    CHECK(zero != NULL && other != NULL && zero != other);
    em_free(object, zero);
    OK(em_try_free(object, other));
    em_free(object, NULL);
    OK(em_try_free(object, NULL));

    char *zeros = em_calloc(object, 10, 10);
    for (int i = 0; i < 100; i++)
        CHECK(zeros[i] == 0);
    char *aligned = em_aligned_alloc(object, 4096, 10);
    CHECK(aligned != NULL && (uintptr_t)aligned % 4096 == 0);

    block = em_realloc(object, block, 1000000);
    CHECK(block != NULL && block[0] == 7 && block[99] == 7);
    CHECK(em_usable_size(object, block) >= 1000000 && em_contains(object, block, 1000000));
    memset(block, 9, 1000000);
    CHECK(em_object_of(block + 999999) == object);
    block = em_realloc(object, block, 0);
    CHECK(block != NULL);
    char *made = em_realloc(object, NULL, 50);
    CHECK(made != NULL);
    em_free(object, made);
    em_free(object, block);
    em_free(object, zeros);
    em_free(object, aligned);

    /* Sizes and alignments that no object can provide. */
    uint64_t before = em_sequence(object);
    FAILS(em_malloc(object, (size_t)1 << 60), NULL, EM_BAD_ALLOCATION, "1152921504606846976");
    CHECK(errno == ENOMEM);
    FAILS(em_malloc(object, SIZE_MAX), NULL, EM_BAD_ALLOCATION, "larger");
    FAILS(em_calloc(object, (size_t)1 << 33, (size_t)1 << 33), NULL, EM_BAD_ALLOCATION, "larger");
    FAILS(em_aligned_alloc(object, 48, 8), NULL, EM_BAD_ALLOCATION, "power of two");
    FAILS(em_aligned_alloc(object, 0, 8), NULL, EM_BAD_ALLOCATION, "power of two");
    made = em_malloc(object, 64);
    FAILS(em_realloc(object, made, (size_t)1 << 60), NULL, EM_BAD_ALLOCATION, "larger");
    CHECK(em_usable_size(object, made) >= 64);
    OK(em_try_free(object, made));
    REFUSED(em_try_free(object, made), EM_INVALID_FREE, "not an allocated block");
    REFUSED(em_try_free(object, &before), EM_INVALID_FREE, "not an allocated block");
    CHECK(em_sequence(object) == before);
}

static void root_and_commits(em_object *object)
{
    static const uint8_t tag[EM_TAG_BYTES] = "list of numbers";
    uint8_t found[EM_TAG_BYTES];
    char text[EM_DESCRIPTION_BUFFER_BYTES];
    CHECK(em_root(object) == NULL && em_root_size(object) == 0);
    struct node *node = em_calloc(object, 1, sizeof *node);
    CHECK(node != NULL);
    node->value = 1;
    REFUSED(em_set_root(object, node, 1000000, NULL, NULL), EM_BAD_ROOT, "1000000");
    REFUSED(em_set_root(object, &node, 8, NULL, NULL), EM_BAD_ROOT, "not an allocated block");
    OK(em_set_root(object, node, sizeof *node, tag, "numbers"));
    CHECK(em_root(object) == node);
    OK(em_rollback(object));
    CHECK(em_root(object) == NULL);

    node = em_calloc(object, 1, sizeof *node);
    node->value = 1;
    OK(em_set_root(object, node, sizeof *node, tag, "numbers"));
    bool changed = false;
    OK(em_commit(object, &changed));
    CHECK(changed && em_sequence(object) > 0);
    OK(em_commit(object, &changed));
    CHECK(!changed);
    OK(em_commit(object, NULL));
    node->value = 2;
    OK(em_rollback(object));
    CHECK(node->value == 1 && em_root(object) == node && em_root_size(object) == sizeof *node);
    OK(em_root_tag(object, found));
    CHECK(memcmp(found, tag, sizeof found) == 0);
    OK(em_root_description(object, text, sizeof text));
    CHECK(strcmp(text, "numbers") == 0);
    OK(em_root_description(object, text, 4));
    CHECK(strcmp(text, "num") == 0);

    bool done = false;
    OK(em_checkpoint(object, &done));
    CHECK(done);
    OK(em_checkpoint(object, NULL));
    OK(em_sync(object));
    OK(em_verified(object, &done));

    /* A freed root is not committed. */
    void *freed = em_malloc(object, 32);
    OK(em_set_root(object, freed, 32, NULL, NULL));
    em_free(object, freed);
    REFUSED(em_commit(object, NULL), EM_BAD_ROOT, "not an allocated block");
    OK(em_rollback(object));
    CHECK(em_root(object) == node);
}

static void room(em_object *object)
{
    em_object_info before = {.size = sizeof before}, after = {.size = sizeof after};
    OK(em_info(object, &before));
    OK(em_reserve(object, 32 << 20));
    OK(em_info(object, &after));
    CHECK(after.file_bytes >= before.file_bytes + (32 << 20) - 65536);
    char *block = em_malloc(object, 8 << 20);
    CHECK(block != NULL && em_object_of(block + (8 << 20) - 1) == object);
    memset(block, 1, 8 << 20);
    uint64_t given = 1;
    OK(em_release(object, 1 << 20, &given));
    CHECK(given == 1 << 20);
    em_free(object, block);
    OK(em_shrink(object, &given));
    CHECK(given >= 16 << 20);
    OK(em_release(object, 0, NULL));
    OK(em_shrink(object, NULL));
}

void objects(const char *path)
{
    em_store *store;
    em_object *object, *reader, *second;
    OK(em_store_open(path, NULL, &store));
    em_write_options options = EM_WRITE_OPTIONS_DEFAULT;
    options.durability = EM_DURABILITY_INTERVAL;
    REFUSED(em_object_open(store, "first", EM_WRITE, &options, &object), EM_INVALID_ARGUMENT,
            "interval");
    options.interval_ms = 20;
    options.log_bytes_max = 1 << 20;
    options.hot_bytes_max = 1 << 20;
    options.checkpoint_after_ms = 1000;
    options.when_log_full = EM_WHEN_LOG_FULL_REFUSE;
    options.log_full_pages = 1;
    OK(em_object_open(store, "first", EM_WRITE, &options, &object));
    REFUSED(em_object_open(store, "first", EM_WRITE, NULL, &second), EM_BUSY, "in this process");
    REFUSED(em_object_open(store, "first", EM_READ, NULL, &second), EM_BUSY, "in this process");
    REFUSED(em_object_open(store, "none", EM_READ, NULL, &second), EM_NOT_FOUND, "none");
    REFUSED(em_object_open(store, "first", (em_mode)9, NULL, &second), EM_INVALID_ARGUMENT,
            "em_mode");
    char name[EM_NAME_BUFFER_BYTES];
    REFUSED(em_patch(object, name, name, 8), EM_INVALID_ARGUMENT, "not open for reading");
    OK(em_object_name(object, name, sizeof name));
    CHECK(strcmp(name, "first") == 0);
    REFUSED(em_object_name(object, name, 3), EM_INVALID_ARGUMENT, "buffer");

    heap(object);
    root_and_commits(object);
    room(object);
    bool changed = true;
    OK(em_refresh(object, &changed));
    CHECK(!changed);

    struct node *root = em_root(object);
    OK(em_store_object_at(store, root, name, sizeof name));
    CHECK(strcmp(name, "first") == 0);
    REFUSED(em_store_object_at(store, &root, name, sizeof name), EM_NOT_FOUND, "no object");
    REFUSED(em_store_object_at(store, root, name, 2), EM_INVALID_ARGUMENT, "buffer");
    em_object_info info = {.size = sizeof info};
    OK(em_info(object, &info));
    CHECK(info.mode == EM_WRITE && strcmp(info.name, "first") == 0 && strlen(info.uuid) == 32);
    CHECK(info.root_bytes == sizeof *root && strcmp(info.root_description, "numbers") == 0);
    CHECK(info.base_address == (uintptr_t)em_object_base(object) && info.regions > 0 && info.blocks > 0);
    CHECK(info.sequence == em_sequence(object));
    /* A program built with an older header has a shorter struct. */
    em_object_info shorter;
    memset(&shorter, 0xee, sizeof shorter);
    shorter.size = 24;
    OK(em_info(object, &shorter));
    CHECK(shorter.file_bytes == info.file_bytes && shorter.base_address != info.base_address);
    shorter.size = 0;
    REFUSED(em_info(object, &shorter), EM_INVALID_ARGUMENT, "size");
    OK(em_object_close(object));

    OK(em_object_open(store, "first", EM_READ, NULL, &reader));
    OK(em_object_open(store, "first", EM_READ, NULL, &second));
    CHECK(em_root(reader) == root && root->value == 1 && reader != second);
    CHECK(em_object_of(root) == reader || em_object_of(root) == second);
    FAILS(em_malloc(reader, 10), NULL, EM_READ_ONLY, "for writing");
    REFUSED(em_commit(reader, NULL), EM_READ_ONLY, "for writing");
    OK(em_refresh(reader, &changed));
    CHECK(!changed);
    OK(em_verified(reader, &changed));
    OK(em_info(reader, &info));
    CHECK(info.mode == EM_READ);
    uint64_t seven = 7;
    OK(em_patch(reader, &root->value, &seven, sizeof seven));
    CHECK(root->value == 7);
    REFUSED(em_patch(reader, &seven, &seven, sizeof seven), EM_INVALID_ARGUMENT, "not in the object's data");
    REFUSED(em_patch(reader, root, NULL, 8), EM_INVALID_ARGUMENT, "NULL");
    OK(em_patch(reader, root, NULL, 0));
    seven = 1;
    OK(em_patch(second, &root->value, &seven, sizeof seven));
    OK(em_object_close(second));
    CHECK(em_object_of(root) == reader);
    OK(em_store_close(store));
    CHECK(root->value == 1); /* an object outlives its store's handle */
    OK(em_object_close(reader));
    CHECK(em_object_of(root) == NULL);
    int findings = 0;
    OK(em_check(path, count, &findings));
    CHECK(findings == 0);
    REFUSED(em_check("/nonexistent", NULL, NULL), EM_NO_STORE, "/nonexistent");
}
