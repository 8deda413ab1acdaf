/*
 * Uses every function of the headers about stores and checks its documented behaviour. Built with
 * sanitizers, which watch the memory accesses of the library and of this program.
 *
 *     every_function STORE    (EVERMAP_STORE names another one)
 */
#define _DEFAULT_SOURCE
#include "check.h"

#include <fastio.h>
#include <fcntl.h>
#include <nvheap.h>
#include <unistd.h>

struct node {
    struct node *next;
    uint64_t value;
};

static bool collect(const char *name, void *context)
{
    char *names = context;
    strcat(strcat(names, name), " ");
    return strcmp(name, "last") != 0;
}

static bool count(const em_finding *finding, void *context)
{
    CHECK(finding->size >= sizeof(em_finding));
    CHECK(finding->severity <= EM_UNCHECKED && finding->file != NULL && finding->what != NULL);
    CHECK(finding->found != NULL && finding->expected != NULL && finding->remedy != NULL);
    ++*(int *)context;
    return true;
}

static void errors_and_versions(void)
{
    char version[32];
    sprintf(version, "%d.%d.%d", EM_VERSION_MAJOR, EM_VERSION_MINOR, EM_VERSION_PATCH);
    CHECK(strcmp(em_version(), version) == 0);
    CHECK(em_last_error() == EM_OK && strcmp(em_last_error_message(), "") == 0);
    CHECK(strcmp(em_status_name(EM_OK), "EM_OK") == 0);
    CHECK(strcmp(em_status_name(EM_DAMAGED), "EM_DAMAGED") == 0);
    CHECK(strcmp(em_status_name((em_status)77), "unknown status") == 0);
    em_store *store = NULL;
    REFUSED(em_store_open("/nonexistent/store", NULL, &store), EM_NO_STORE, "create one there");
    CHECK(errno == ENOENT && store == NULL);
    em_clear_error();
    CHECK(em_last_error() == EM_OK && strcmp(em_last_error_message(), "") == 0);
}

static void stores(const char *path)
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

static void objects(const char *path)
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

/* Report of an audit about one kind. */
struct told {
    uint32_t kind;
    uint64_t count;
    uint32_t severity;
    char path[64];
    int calls;
};

static bool keep(const em_audit_finding *finding, void *context)
{
    struct told *told = context;
    CHECK(finding->size >= sizeof(em_audit_finding) && finding->to != NULL && finding->count > 0);
    told->calls++;
    if (finding->kind != told->kind)
        return true;
    told->count = finding->count;
    told->severity = finding->severity;
    CHECK(finding->sample_count > 0 && finding->samples[0].address != 0);
    strncat(told->path, finding->samples[0].path, sizeof told->path - 1);
    return true;
}

static bool stop(const em_audit_finding *finding, void *context)
{
    (void)finding;
    ++*(int *)context;
    return false;
}

static void audits(const char *path)
{
    em_audit_report report = {.size = sizeof report};
    em_audit_options options = EM_AUDIT_OPTIONS_DEFAULT;
    OK(em_audit(path, "first", NULL, &report, NULL, NULL));
    CHECK(report.size == sizeof report && report.sequence > 0 && report.has_root != 0);
    CHECK(report.blocks == 1 && report.reached_blocks == 1 && report.reached_bytes == report.bytes);
    CHECK(report.damage == 0 && report.suspect == 0 && report.leaked_blocks == 0);
    CHECK(report.typing == EM_UNTYPED && report.doubt == EM_DOUBT_NONE && report.looked_at > 0);

    em_store *store;
    em_object *object;
    OK(em_store_open(path, NULL, &store));
    OK(em_object_open(store, "first", EM_WRITE, NULL, &object));
    struct node *root = em_root(object), *lost = em_calloc(object, 1, sizeof *lost);
    char *of_the_process = malloc(16);
    root->next = (struct node *)of_the_process;
    OK(em_commit(object, NULL));

    struct told foreign = {.kind = EM_AUDIT_FOREIGN}, leak = {.kind = EM_AUDIT_LEAK};
    options.samples = 2;
    options.memory_bytes = 1 << 20;
    options.process_id = (uint32_t)getpid();
    OK(em_audit(path, "first", &options, &report, keep, &foreign));
    CHECK(foreign.calls == 2 && foreign.count == 1 && foreign.severity == EM_DAMAGE);
    CHECK(strcmp(foreign.path, "root +0") == 0);
    CHECK(report.damage == 1 && report.leaked_blocks == 1 && report.leaked_heads == 1);
    CHECK(report.leaked_bytes >= sizeof *lost && report.doubt == EM_DOUBT_NO_POINTERS);
    OK(em_audit(path, "first", NULL, &report, keep, &leak));
    CHECK(leak.count == 1 && leak.severity == EM_SUSPECT);
    int calls = 0;
    OK(em_audit(path, "first", NULL, &report, stop, &calls));
    CHECK(calls == 1);
    root->next = NULL;
    em_free(object, lost);
    free(of_the_process);
    OK(em_commit(object, NULL));
    OK(em_object_close(object));
    OK(em_store_close(store));

    REFUSED(em_audit(path, "none", NULL, &report, NULL, NULL), EM_NOT_FOUND, "none");
    REFUSED(em_audit("/nonexistent", "x", NULL, &report, NULL, NULL), EM_NO_STORE, "/nonexistent");
    REFUSED(em_audit(path, "first", NULL, NULL, NULL, NULL), EM_INVALID_ARGUMENT, "NULL");
    options.process_id = 4000000000u;
    REFUSED(em_audit(path, "first", &options, &report, NULL, NULL), EM_INVALID_ARGUMENT, "process");
    /* A program built with an older header has a shorter struct. */
    report.size = 24;
    report.bytes = 77;
    OK(em_audit(path, "first", NULL, &report, NULL, NULL));
    CHECK(report.size == 24 && report.blocks == 1 && report.bytes == 77);
}

static bool add_up(const em_moved *moved, void *context)
{
    CHECK(moved->size >= sizeof(em_moved) && moved->object != NULL && moved->typing <= EM_UNTYPED);
    CHECK(moved->kind == EM_MOVED_BEGINNING && moved->samples[0].value != 0);
    *(uint64_t *)context += moved->count;
    return true;
}

static void copies_and_moves(const char *path)
{
    char copy[4096], other[4096], made[4096], file[4096];
    snprintf(copy, sizeof copy, "%s-copy", path);
    snprintf(other, sizeof other, "%s-other", path);
    snprintf(made, sizeof made, "%s-made", path);
    snprintf(file, sizeof file, "%s-file", path);
    /* A pointer that will be moved. */
    em_store *store;
    em_object *object;
    OK(em_store_open(path, NULL, &store));
    OK(em_object_open(store, "first", EM_WRITE, NULL, &object));
    struct node *root = em_root(object);
    root->next = em_calloc(object, 1, sizeof *root);
    root->next->value = 99;
    OK(em_commit(object, NULL));
    OK(em_object_close(object));
    OK(em_store_close(store));

    em_copy_options choice = EM_COPY_OPTIONS_DEFAULT;
    em_copy_report copied = {.size = sizeof copied};
    int findings = 0;
    OK(em_backup(path, copy, NULL, &copied, count, &findings));
    CHECK(copied.objects == 4 && copied.bytes > 0 && copied.findings == 0 && findings == 0);
    REFUSED(em_backup(path, copy, NULL, &copied, NULL, NULL), EM_STORE_EXISTS, copy);
    REFUSED(em_backup(path, made, NULL, NULL, NULL, NULL), EM_INVALID_ARGUMENT, "NULL");
    choice.unverified = 1;
    OK(em_backup(copy, other, &choice, &copied, NULL, NULL));
    REFUSED(em_restore(copy, other, &choice, &copied), EM_INVALID_ARGUMENT, "checked");
    choice.unverified = 0;
    REFUSED(em_restore(copy, other, NULL, &copied), EM_STORE_EXISTS, other);
    choice.replace = 1;
    REFUSED(em_backup(path, made, &choice, &copied, NULL, NULL), EM_INVALID_ARGUMENT, "replace");
    OK(em_restore(copy, other, &choice, &copied));
    CHECK(copied.objects == 4);
    REFUSED(em_restore("/nonexistent", made, NULL, &copied), EM_NO_STORE, "/nonexistent");

    em_rebase_options to = EM_REBASE_OPTIONS_DEFAULT;
    em_rebase_report moved = {.size = sizeof moved};
    uint64_t words = 0;
    REFUSED(em_rebase(path, NULL, &moved, NULL, NULL), EM_BUSY, "in use"); /* em_store_reserve() */
    to.dry_run = 1;
    to.samples = 3;
    OK(em_rebase(path, &to, &moved, add_up, &words));
    CHECK(words == 1 && moved.moved == 1 && moved.kept == 0 && moved.objects == 4);
    CHECK(moved.to == 0 && moved.from != 0 && moved.arenas == 1 && strcmp(moved.kept_in, "") == 0);
    to.dry_run = 0;
    to.to = 4096;
    REFUSED(em_rebase(copy, &to, &moved, NULL, NULL), EM_BAD_BASE, "1 GiB");
    /* The restored store is recorded at its addresses. */
    to.to = moved.from - ((uint64_t)1 << 30);
    REFUSED(em_rebase(copy, &to, &moved, NULL, NULL), EM_ADDRESS_TAKEN, other);
    to.dry_run = 1;
    to.force = 1;
    OK(em_rebase(copy, &to, &moved, NULL, NULL));
    CHECK(moved.met == 1 && moved.to == to.to);
    OK(em_rebase(copy, NULL, &moved, NULL, NULL));
    CHECK(moved.to != moved.from && moved.moved == 1 && moved.met == 0);
    CHECK(strncmp(moved.kept_in, "rebase-", 7) == 0);
    OK(em_rebase_undo(copy, false));
    REFUSED(em_rebase_undo(copy, true), EM_NOTHING_KEPT, "rebase-");
    OK(em_rebase(copy, NULL, &moved, NULL, NULL));

    em_export_options as = EM_EXPORT_OPTIONS_DEFAULT;
    em_export_report exported = {.size = sizeof exported};
    as.force = 1;
    int out = open(file, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(out >= 0);
    OK(em_export(path, "first", out, &as, &exported));
    CHECK(exported.pages > 0 && exported.pointers_elsewhere == 0 && exported.sequence > 0);
    CHECK(lseek(out, 0, SEEK_END) == (off_t)exported.bytes);
    REFUSED(em_export(path, "none", out, NULL, &exported), EM_NOT_FOUND, "none");
    REFUSED(em_export(path, "first", -1, NULL, &exported), EM_INVALID_ARGUMENT, "-1");

    em_import_options in = EM_IMPORT_OPTIONS_DEFAULT;
    em_import_report imported = {.size = sizeof imported};
    CHECK(lseek(out, 0, SEEK_SET) == 0);
    REFUSED(em_import(made, out, NULL, &imported), EM_NO_STORE, made);
    in.create = 1;
    in.name = "again";
    CHECK(lseek(out, 0, SEEK_SET) == 0);
    OK(em_import(made, out, &in, &imported));
    CHECK(strcmp(imported.name, "again") == 0 && strcmp(imported.old_name, "first") == 0);
    CHECK(imported.base_address != imported.old_base_address && imported.moved == 1);
    CHECK(imported.kept == 0 && imported.points_elsewhere == 0 && imported.file_bytes > 0);
    CHECK(lseek(out, 0, SEEK_SET) == 0);
    REFUSED(em_import(made, out, &in, &imported), EM_ALREADY_EXISTS, "again");
    CHECK(lseek(out, 100, SEEK_SET) == 100);
    REFUSED(em_import(made, out, &in, &imported), EM_FOREIGN, file); /* it knows the file's name */
    REFUSED(em_import(made, 12345, NULL, &imported), EM_INVALID_ARGUMENT, "12345");
    CHECK(close(out) == 0);
    OK(em_store_open(made, NULL, &store));
    OK(em_object_open(store, "again", EM_READ, NULL, &object));
    root = em_root(object);
    CHECK(em_contains(object, root->next, sizeof *root) && root->next->value == 99);
    OK(em_object_close(object));
    OK(em_store_close(store));
}

static void protection(const char *path)
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
static void sharing(const char *path)
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

/* A session whose store's directory is renamed commits changes and takes more addresses as before. */
static void renamed_store(const char *path)
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

static void note(const em_foreign_pointer *pointer, void *context)
{
    CHECK(pointer->size == sizeof *pointer && strcmp(pointer->object, "renamed") == 0);
    CHECK(strstr(pointer->message, pointer->into) != NULL);
    *(uint64_t *)context = pointer->address;
}

static void pointers_out(const char *path)
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

static void fast_io(void)
{
    CHECK(p_reserve() == 0);
    CHECK(p_create("list") == 0);
    FAILS(p_create("list"), -1, EM_ALREADY_EXISTS, "list");
    FAILS(p_malloc("list", 8), NULL, EM_CLOSED, "p_map");
    FAILS(p_map("none"), NULL, EM_NOT_FOUND, "none");
    char *first = p_map("list");
    CHECK(first != NULL && p_map("list") == first && p_map_readonly("list") == first);
    CHECK(get_prime_node("list") == NULL);
    struct node *node = p_malloc("list", sizeof *node);
    CHECK(node != NULL && (char *)node > first);
    node->value = 7;
    CHECK(set_prime_node("list", node) == 0 && get_prime_node("list") == node);
    FAILS(set_prime_node("list", (char *)node + 8), -1, EM_BAD_ROOT, "not an allocated block");
    p_free("list", p_malloc("list", 100));
    p_free("list", NULL);
    CHECK(p_commit("list") == 0);
    CHECK(p_extend("list", 4 << 20) == 0);
    CHECK(p_reduce("list", 1 << 20) == 0);
    FAILS(p_reduce("list", 1 << 30), -1, EM_OUT_OF_BOUNDS, "were asked for");
    node->value = 8;
    FAILS(p_delete("list"), -1, EM_BUSY, "list");
    CHECK(p_unmap("list") == 0);
    FAILS(p_unmap("list"), -1, EM_CLOSED, "p_map");

    CHECK(p_map_readonly("list") == first);
    CHECK(get_prime_node("list") == node && node->value == 8); /* unmapping committed */
    FAILS(p_malloc("list", 8), NULL, EM_READ_ONLY, "reading");
    FAILS(p_commit("list"), -1, EM_READ_ONLY, "reading");
    FAILS(p_extend("list", 8), -1, EM_READ_ONLY, "reading");
    FAILS(p_reduce("list", 8), -1, EM_READ_ONLY, "reading");
    CHECK(p_unmap("list") == 0);

    /* Closing the object by its handle has unmapped it. */
    CHECK(p_map("list") != NULL);
    OK(em_object_close(em_object_of(get_prime_node("list"))));
    FAILS(get_prime_node("list"), NULL, EM_CLOSED, "closed");
    CHECK(p_delete("list") == 0);
    FAILS(p_delete("list"), -1, EM_NOT_FOUND, "list");
}

static void nv_heap(void)
{
    size_t size = 0;
    FAILS(nvread("first", &size), NULL, EM_NOT_FOUND, "first");
    char *first = nvmalloc("first", 100);
    CHECK(first != NULL && nvread("first", &size) == first && size == 100);
    CHECK(nvread("first", NULL) == first);
    FAILS(nvmalloc("first", 1), NULL, EM_ALREADY_EXISTS, "first");
    FAILS(nvmalloc("", 1), NULL, EM_INVALID_NAME, "1 to 255");
    FAILS(nvmalloc("huge", (size_t)1 << 60), NULL, EM_BAD_ALLOCATION, "larger");
    strcpy(first, "kept");
    char *anonymous = nvmalloc(NULL, 50);
    CHECK(anonymous != NULL && anonymous != first);
    em_free(em_object_of(anonymous), anonymous);
    /* Enough names to enlarge the table several times. */
    for (int i = 0; i < 1000; i++) {
        char name[20];
        sprintf(name, "number %d", i);
        int *number = nvmalloc(name, sizeof *number);
        CHECK(number != NULL);
        *number = i;
    }
    for (int i = 0; i < 1000; i += 2) {
        char name[20];
        sprintf(name, "number %d", i);
        CHECK(nvfree(name) == 0);
        FAILS(nvfree(name), -1, EM_NOT_FOUND, name);
    }
    CHECK(nvcommit() == 0);
    for (int i = 1; i < 1000; i += 2) {
        char name[20];
        sprintf(name, "number %d", i);
        int *number = nvread(name, &size);
        CHECK(number != NULL && *number == i && size == sizeof *number);
    }
    /* The heap is an ordinary object, and opens again after its handle was closed. */
    OK(em_object_close(em_object_of(first)));
    CHECK(nvread("first", NULL) == first && strcmp(first, "kept") == 0);
}

int main(int arguments, char **argument)
{
    CHECK(arguments == 2);
    errors_and_versions();
    stores(argument[1]);
    objects(argument[1]);
    audits(argument[1]);
    copies_and_moves(argument[1]);
    protection(argument[1]);
    sharing(argument[1]);
    renamed_store(argument[1]);
    pointers_out(argument[1]);
    fast_io();
    nv_heap();
    puts("every function did what it promises");
    return 0;
}
