// A JSON document of RapidJSON in an object.
//
// RapidJSON takes its allocators as template arguments. A document's values lie in the chunks of a
// pool; the pool, its chunks and the first value lie in the object. The rapidjson::Document itself
// stays outside: it is the parser, and keeps an allocator for its stack.
//
// Pointers whole: by default RapidJSON keeps flags in their upper 16 bits on x86-64. Such a tree
// would work as well, but `evermap store audit` and `evermap store rebase` could not see its
// pointers.
#define RAPIDJSON_48BITPOINTER_OPTIMIZATION 0

#include "../keep.h"

#include <new>
#include <rapidjson/document.h>
#include <rapidjson/pointer.h>

namespace {

struct ObjectHeap {
    static const bool kNeedFree = true;
    void *Malloc(size_t size) { return size == 0 ? nullptr : keep_malloc(size); }
    void *Realloc(void *block, size_t, size_t size) {
        if (size != 0) return keep_realloc(block, size);
        keep_free(block);
        return nullptr;
    }
    static void Free(void *block) { keep_free(block); }
};

using Pool = rapidjson::MemoryPoolAllocator<ObjectHeap>;
using Value = rapidjson::GenericValue<rapidjson::UTF8<>, Pool>;
using Document = rapidjson::GenericDocument<rapidjson::UTF8<>, Pool>;
using Pointer = rapidjson::GenericPointer<Value>;

struct Tree {
    static constexpr size_t chunk_bytes = 64 * 1024;
    ObjectHeap heap;
    Pool pool{chunk_bytes, &heap};
    Value value;
};

const char *library() { return "rapidjson " RAPIDJSON_VERSION_STRING ", whole pointers"; }

void *parse(const char *text, size_t size_bytes) {
    auto *tree = new (keep_malloc(sizeof(Tree))) Tree;
    Document document(&tree->pool);
    if (document.Parse(text, size_bytes).HasParseError()) return nullptr;
    tree->value.Swap(document);
    return tree;
}

void walk_value(const Value &value, struct answer *answer) {
    if (value.IsString()) {
        answer_node(answer, value.GetString(), value.GetStringLength());
    } else if (value.IsNumber()) {
        double number = value.GetDouble();
        answer_node(answer, reinterpret_cast<const char *>(&number), sizeof number);
    } else if (value.IsArray()) {
        answer_node(answer, "array", 5);
        for (const Value &element : value.GetArray()) walk_value(element, answer);
    } else if (value.IsObject()) {
        answer_node(answer, "object", 6);
        for (const auto &member : value.GetObject()) {
            walk_value(member.name, answer);
            walk_value(member.value, answer);
        }
    } else {
        answer_node(answer, value.IsTrue() ? "1" : value.IsFalse() ? "0" : "-", 1);
    }
}

void walk(const void *tree, struct answer *answer) {
    walk_value(static_cast<const Tree *>(tree)->value, answer);
}

// The number of elements or members of what a JSON pointer ("/items/3/tags") leads to.
size_t find(const void *tree, const char *question) {
    const Value *value = Pointer(question).Get(static_cast<const Tree *>(tree)->value);
    if (value == nullptr) return 0;
    return value->IsArray() ? value->Size() : value->IsObject() ? value->MemberCount() : 1;
}

void *add(void *pointer) {
    auto *tree = static_cast<Tree *>(pointer);
    // With the pool, or RapidJSON keeps the address of the literal: a string of this program.
    Value name("added", tree->pool);
    Value added("by another process", tree->pool);
    if (tree->value.IsObject()) tree->value.AddMember(name, added, tree->pool);
    return tree;
}

void drop(void *pointer) {
    auto *tree = static_cast<Tree *>(pointer);
    tree->~Tree();
    keep_free(tree);
}

} // namespace

const struct example example = {library, parse, walk, find, add, drop};
