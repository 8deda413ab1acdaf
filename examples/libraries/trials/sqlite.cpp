// hooks: sqlite3_config(SQLITE_CONFIG_MALLOC). A database in memory, filled with words.
#include "trial.hpp"

#include <sqlite3.h>

struct Header {
    size_t size;
    size_t unused;
};
static void *allocate(int size) {
    auto *header = static_cast<Header *>(keep_malloc(sizeof(Header) + static_cast<size_t>(size)));
    header->size = static_cast<size_t>(size);
    return header + 1;
}
static void release(void *block) { keep_free(static_cast<Header *>(block) - 1); }
static int size_of(void *block) {
    return static_cast<int>((static_cast<Header *>(block) - 1)->size);
}
static void *reallocate(void *block, int size) {
    auto *header = static_cast<Header *>(
        keep_realloc(static_cast<Header *>(block) - 1, sizeof(Header) + static_cast<size_t>(size)));
    header->size = static_cast<size_t>(size);
    return header + 1;
}
static int round_up(int size) { return (size + 7) & ~7; }
static int start(void *) { return SQLITE_OK; }
static void stop(void *) {}

static void set_up() {
    sqlite3_mem_methods methods = {allocate, release, reallocate, size_of,
                                   round_up, start,   stop,       nullptr};
    if (sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) != SQLITE_OK) std::abort();
}

static void *parse(const char *text, size_t size_bytes) {
    sqlite3 *database;
    sqlite3_stmt *insert;
    set_up();
    sqlite3_open(":memory:", &database);
    sqlite3_exec(database, "CREATE TABLE words (word TEXT)", nullptr, nullptr, nullptr);
    sqlite3_prepare_v2(database, "INSERT INTO words VALUES (?)", -1, &insert, nullptr);
    each_word(text, size_bytes, [&](const std::string &word) {
        sqlite3_bind_text(insert, 1, word.c_str(), -1, SQLITE_TRANSIENT);
        sqlite3_step(insert);
        sqlite3_reset(insert);
    });
    sqlite3_finalize(insert);
    auto **root = static_cast<sqlite3 **>(keep_malloc(sizeof(sqlite3 *)));
    *root = database;
    return root;
}

static void walk(const void *tree, struct answer *answer) {
    auto *database = *static_cast<sqlite3 *const *>(tree);
    sqlite3_stmt *select;
    if (sqlite3_prepare_v2(database, "SELECT word FROM words", -1, &select, nullptr) != SQLITE_OK)
        return;
    while (sqlite3_step(select) == SQLITE_ROW)
        answer_text(answer, reinterpret_cast<const char *>(sqlite3_column_text(select, 0)));
    sqlite3_finalize(select);
}

TRIAL("sqlite");
