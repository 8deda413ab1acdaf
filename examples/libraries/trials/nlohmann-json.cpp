// hooks: the allocator is a template argument, made anew at each use. Built from JSON.
#include "trial.hpp"

#include <nlohmann/json.hpp>

template <typename T> struct Allocator {
    using value_type = T;
    Allocator() = default;
    template <typename U> Allocator(const Allocator<U> &) {}
    T *allocate(size_t count) { return static_cast<T *>(keep_malloc(count * sizeof(T))); }
    void deallocate(T *block, size_t) { keep_free(block); }
    template <typename U> bool operator==(const Allocator<U> &) const { return true; }
    template <typename U> bool operator!=(const Allocator<U> &) const { return false; }
};

using String = std::basic_string<char, std::char_traits<char>, Allocator<char>>;
using Json = nlohmann::basic_json<std::map, std::vector, String, bool, int64_t, uint64_t, double,
                                  Allocator>;

static void *parse(const char *text, size_t size_bytes) {
    return new (keep_malloc(sizeof(Json))) Json(Json::parse(text, text + size_bytes));
}

static void walk(const void *tree, struct answer *answer) {
    for (const Json &item : (*static_cast<const Json *>(tree))["items"]) {
        answer_text(answer, item["name"].get_ref<const String &>().c_str());
        answer_number(answer, item["price"].get<double>());
        answer_number(answer, static_cast<double>(item["tags"].size()));
    }
}

TRIAL("nlohmann-json");
