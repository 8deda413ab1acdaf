/* Audit, backup, rebase, export and import. */
#include "parts.h"

#include <fcntl.h>
#include <unistd.h>

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

void audits(const char *path)
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

void copies_and_moves(const char *path)
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
