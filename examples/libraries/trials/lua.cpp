// hooks: lua_newstate(). A state with a table of the words of a text, one of whose values is an
// empty table.
#include "trial.hpp"

#include <lua.hpp>

static void *allocate(void *, void *block, size_t, size_t size) {
    if (size != 0) return keep_realloc(block, size);
    keep_free(block);
    return nullptr;
}

static void *parse(const char *text, size_t size_bytes) {
    lua_State *state = lua_newstate(allocate, nullptr);
    lua_newtable(state);
    each_word(text, size_bytes, [&](const std::string &word) {
        lua_newtable(state);
        lua_setfield(state, -2, word.c_str());
    });
    lua_setglobal(state, "words");
    // A lua_State begins inside of its block, and a root is a block of its own.
    auto **root = static_cast<lua_State **>(keep_malloc(sizeof(lua_State *)));
    *root = state;
    return root;
}

static void walk(const void *tree, struct answer *answer) {
    auto *state = *static_cast<lua_State *const *>(tree);
    lua_getglobal(state, "words");
    lua_getfield(state, -1, "persistent");
    answer_number(answer, lua_istable(state, -1));
    lua_getfield(state, -1, "nothing");
    answer_number(answer, lua_isnil(state, -1));
}

TRIAL("lua");
