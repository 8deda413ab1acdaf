// hooks: the allocator is a template argument. Built from JSON. As the example, but with pointers
// as RapidJSON has them by default: with flags in their upper 16 bits.
#include "trial.hpp"

#include <rapidjson/document.h>

struct Heap {
    static const bool kNeedFree = true;
    void *Malloc(size_t size) { return size == 0 ? nullptr : keep_malloc(size); }
    void *Realloc(void *block, size_t, size_t size) { return keep_realloc(block, size); }
    static void Free(void *block) { keep_free(block); }
};
using Value = rapidjson::GenericValue<rapidjson::UTF8<>, Heap>;
using Document = rapidjson::GenericDocument<rapidjson::UTF8<>, Heap>;

static void *parse(const char *text, size_t size_bytes) {
    Heap heap;
    Document document(&heap);
    document.Parse(text, size_bytes);
    auto *value = new (keep_malloc(sizeof(Value))) Value;
    value->Swap(document);
    return value;
}

static void walk(const void *tree, struct answer *answer) {
    for (const Value &item : (*static_cast<const Value *>(tree))["items"].GetArray()) {
        answer_text(answer, item["name"].GetString());
        answer_number(answer, item["price"].GetDouble());
    }
}

TRIAL("rapidjson-packed");
