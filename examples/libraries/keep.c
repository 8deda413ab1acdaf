/*
 * The program around each example:
 *
 *     PROGRAM parse FILE [QUESTION]          parse into ordinary memory, for comparison
 *     PROGRAM build STORE FILE [wait]        parse into an object and commit it; and stay until the
 *                                            input ends, for `evermap store audit`
 *     PROGRAM walk STORE [QUESTION]          open the object read-only and walk it
 *     PROGRAM find STORE QUESTION            open the object read-only and only ask
 *     PROGRAM walk-writable STORE            the same, in memory that the library may store to
 *     PROGRAM add STORE                      change the tree with the library, and commit
 *     PROGRAM drop STORE                     free the tree with the library, and commit
 *
 * Each prints lines of a name and a value; what ends with _us are microseconds.
 */
#include "keep.h"

#include <evermap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OBJECT_NAME "tree"

static em_store *store;
static em_object *object;
/* What the thread does; in another one, and inside of Evermap, memory is ordinary memory, also in a
 * program that interposes malloc(). */
static __thread enum { OUTSIDE, WALKING, CHANGING } doing;
static uint64_t allocations;

bool keep_allocates(void) { return doing == CHANGING; }

bool keep_has(const void *pointer) {
    if (doing == OUTSIDE) return false;
    int before = doing;
    doing = OUTSIDE;
    bool has = em_object_of(pointer) != NULL;
    doing = before;
    return has;
}

void *keep_malloc(size_t size_bytes) {
    allocations++;
    if (doing != CHANGING) return malloc(size_bytes);
    doing = OUTSIDE;
    void *block = em_malloc(object, size_bytes);
    doing = CHANGING;
    return block;
}

void *keep_calloc(size_t count, size_t size_bytes) {
    allocations++;
    if (doing != CHANGING) return calloc(count, size_bytes);
    doing = OUTSIDE;
    void *block = em_calloc(object, count, size_bytes);
    doing = CHANGING;
    return block;
}

void *keep_realloc(void *pointer, size_t size_bytes) {
    if (pointer == NULL) return keep_malloc(size_bytes);
    allocations++;
    if (!keep_has(pointer)) return realloc(pointer, size_bytes);
    int before = doing;
    doing = OUTSIDE;
    void *block = em_realloc(object, pointer, size_bytes);
    doing = before;
    return block;
}

void *keep_aligned_alloc(size_t alignment, size_t size_bytes) {
    allocations++;
    if (doing != CHANGING) return aligned_alloc(alignment, size_bytes);
    doing = OUTSIDE;
    void *block = em_aligned_alloc(object, alignment, size_bytes);
    doing = CHANGING;
    return block;
}

void keep_free(void *pointer) {
    if (pointer == NULL) return;
    allocations++;
    if (!keep_has(pointer)) {
        free(pointer);
        return;
    }
    int before = doing;
    doing = OUTSIDE;
    em_free(object, pointer);
    doing = before;
}

char *keep_strdup(const char *text) {
    char *copy = keep_malloc(strlen(text) + 1);
    return copy == NULL ? NULL : strcpy(copy, text);
}

void answer_node(struct answer *answer, const char *text, size_t size_bytes) {
    answer->nodes++;
    answer->bytes += size_bytes;
    for (size_t i = 0; i < size_bytes; i++) /* FNV-1a */
        answer->hash = (answer->hash ^ (unsigned char)text[i]) * 1099511628211u;
    answer->hash = (answer->hash ^ 0xff) * 1099511628211u;
}

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", example.library(), what);
    exit(1);
}

static void need(em_status status) {
    if (status != EM_OK) fail(em_last_error_message());
}

static char *read_file(const char *path, size_t *size_bytes) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) fail("cannot read the document");
    long size = ftell(file);
    rewind(file);
    char *text = malloc((size_t)size + 1);
    if (size < 0 || text == NULL || fread(text, 1, (size_t)size, file) != (size_t)size)
        fail("cannot read the document");
    fclose(file);
    text[size] = '\0';
    *size_bytes = (size_t)size;
    return text;
}

static void print_found(const void *tree, const char *question) {
    if (question == NULL || example.find == NULL) return;
    double start_us = now_us();
    doing = WALKING;
    size_t found = example.find(tree, question);
    doing = OUTSIDE;
    printf("find_us %.1f\n", now_us() - start_us);
    printf("found %zu\n", found);
}

static void print_answer(const void *tree) {
    struct answer answer = {0, 0, 14695981039346656037u};
    allocations = 0;
    double start_us = now_us();
    doing = WALKING;
    example.walk(tree, &answer);
    doing = OUTSIDE;
    printf("walk_us %.1f\n", now_us() - start_us);
    printf("walk_allocations %llu\n", (unsigned long long)allocations);
    printf("answer %llu nodes, %llu bytes, %016llx\n", (unsigned long long)answer.nodes,
           (unsigned long long)answer.bytes, (unsigned long long)answer.hash);
}

/* Opens the object and gives its tree, after making sure that this library built it: the next
 * version of the library may lay its nodes out differently. */
static void *open_tree(const char *path, em_mode mode) {
    char built_by[EM_DESCRIPTION_BUFFER_BYTES];
    double start_us = now_us();
    need(em_store_open(path, NULL, &store));
    em_write_options options = EM_WRITE_OPTIONS_DEFAULT;
    options.foreign_pointers = EM_FOREIGN_ALLOW;
    need(em_object_open(store, OBJECT_NAME, mode, &options, &object));
    need(em_root_description(object, built_by, sizeof built_by));
    void *tree = em_root(object);
    printf("open_us %.1f\n", now_us() - start_us);
    if (tree == NULL) fail("the object has no tree");
    if (strcmp(built_by, example.library()) != 0) {
        fprintf(stderr, "built by %s, and this is %s: build it anew\n", built_by, example.library());
        exit(1);
    }
    return tree;
}

static void commit(void *tree) {
    double start_us = now_us();
    need(em_set_root(object, tree, tree == NULL ? 0 : 1, NULL, example.library()));
    need(em_commit(object, NULL));
    printf("commit_us %.1f\n", now_us() - start_us);
    em_object_info info = {.size = sizeof info};
    need(em_info(object, &info));
    printf("blocks %llu\n", (unsigned long long)info.blocks);
    printf("allocated_bytes %llu\n", (unsigned long long)info.allocated_bytes);
    printf("file_bytes %llu\n", (unsigned long long)info.file_bytes);
}

static void parse(const char *document, const char *question) {
    size_t size_bytes;
    char *text = read_file(document, &size_bytes);
    double start_us = now_us();
    void *tree = example.parse(text, size_bytes);
    printf("parse_us %.1f\n", now_us() - start_us);
    if (tree == NULL) fail("the library does not accept the document");
    print_answer(tree);
    print_found(tree, question);
}

static void walk(const char *path, em_mode mode, const char *question) {
    void *tree = open_tree(path, mode);
    print_answer(tree);
    print_found(tree, question);
}

/* Until the end of the input: `evermap store audit` can name what foreign pointers lead to as long as the
 * process lives that put them there. */
static void wait_for_audit(void) {
    fflush(stdout);
    while (getchar() != EOF) {
    }
}

static void build(const char *path, const char *document, bool stay) {
    size_t size_bytes;
    char *text = read_file(document, &size_bytes);
    need(em_store_open_or_create(path, NULL, &store));
    need(em_object_create(store, OBJECT_NAME));
    /* Which pointers of these libraries lead out of the object is known (docs/libraries.md): commits
     * need not report them, nor bind the object to this build. */
    em_write_options options = EM_WRITE_OPTIONS_DEFAULT;
    options.foreign_pointers = EM_FOREIGN_ALLOW;
    need(em_object_open(store, OBJECT_NAME, EM_WRITE, &options, &object));
    double start_us = now_us();
    doing = CHANGING;
    void *tree = example.parse(text, size_bytes);
    doing = OUTSIDE;
    printf("parse_us %.1f\n", now_us() - start_us);
    if (tree == NULL) fail("the library does not accept the document");
    commit(tree);
    if (stay) wait_for_audit();
}

static void add(const char *path) {
    void *tree = open_tree(path, EM_WRITE);
    doing = CHANGING;
    tree = example.add(tree);
    doing = OUTSIDE;
    commit(tree);
}

static void drop(const char *path) {
    void *tree = open_tree(path, EM_WRITE);
    doing = CHANGING;
    example.drop(tree);
    doing = OUTSIDE;
    commit(NULL);
}

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "";
    const char *first = count > 2 ? arguments[2] : NULL;
    const char *second = count > 3 ? arguments[3] : NULL;
    const char *third = count > 4 ? arguments[4] : NULL;
    printf("library %s\n", example.library());
    printf("program_at %p\n", (void *)(uintptr_t)&main);
    fflush(stdout);
    if (first == NULL)
        fail("say parse FILE, build STORE FILE, walk STORE, add STORE or drop STORE");
    else if (strcmp(mode, "parse") == 0)
        parse(first, second);
    else if (strcmp(mode, "build") == 0 && second != NULL)
        build(first, second, third != NULL && strcmp(third, "wait") == 0);
    else if (strcmp(mode, "walk") == 0)
        walk(first, EM_READ, second);
    else if (strcmp(mode, "find") == 0)
        print_found(open_tree(first, EM_READ), second);
    else if (strcmp(mode, "walk-writable") == 0)
        walk(first, EM_WRITE, second);
    else if (strcmp(mode, "add") == 0 && example.add != NULL)
        add(first);
    else if (strcmp(mode, "drop") == 0 && example.drop != NULL)
        drop(first);
    else
        fail("this example has no such mode");
    /* Some libraries store into what they only read, a cache say. That is forgotten. */
    if (object != NULL && strcmp(mode, "walk-writable") == 0) need(em_rollback(object));
    if (object != NULL) need(em_object_close(object));
    if (store != NULL) need(em_store_close(store));
    return 0;
}
