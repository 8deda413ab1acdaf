// A std::map in an object: stored, reopened, or built again on the ordinary heap.
//
// map keep|reopen|rebuild STORE ENTRIES
#include <evermap.hpp>
#include <map>

#include "common.hpp"

static const std::uint64_t LOOKUPS = 1000;

using Pair = std::pair<const std::uint64_t, std::uint64_t>;
using Less = std::less<std::uint64_t>;
using Kept = std::map<std::uint64_t, std::uint64_t, Less, evermap::allocator<Pair>>;
using Plain = std::map<std::uint64_t, std::uint64_t>;

// Unordered keys without duplicates: the finaliser of splitmix64. (Multiples of one odd number are
// so
// evenly spaced that each is inserted near one that is still in the processor's cache.)
static std::uint64_t key_of(std::uint64_t number) {
    std::uint64_t key = number * 0x9E3779B97F4A7C15u;
    key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9u;
    key = (key ^ (key >> 27)) * 0x94D049BB133111EBu;
    return key ^ (key >> 31);
}

template <class Map> static void fill(Map &map, std::uint64_t entries) {
    for (std::uint64_t n = 0; n < entries; ++n) map.emplace(key_of(n), n);
}

template <class Map> static void look_up(const Map &map, std::uint64_t entries) {
    for (std::uint64_t n = 0; n < LOOKUPS; ++n) {
        std::uint64_t number = n * 7919 % entries;
        auto found = map.find(key_of(number));
        if (found == map.end() || found->second != number) fail("an entry is missing");
    }
}

int main(int count, char **words) {
    auto start = Clock::now();
    if (count != 4) fail("usage: map keep|reopen|rebuild STORE ENTRIES");
    std::uint64_t entries = std::strtoull(words[3], nullptr, 10);
    std::string verb = words[1];
    if (verb == "rebuild") {
        Plain map;
        fill(map, entries);
        look_up(map, entries);
        std::printf("us %f\n", us_since(start));
        std::fflush(stdout);
        // Freeing the map is not measured.
        std::_Exit(0);
    }
    if (verb == "reopen") {
        evermap::store store(words[2]);
        auto snapshot = store.read("map");
        look_up(*snapshot.root<Kept>(), entries);
        std::printf("us %f\n", us_since(start));
        return 0;
    }
    auto store = evermap::store::create(words[2]);
    store.create_object("map");
    auto session = store.write("map");
    Kept *map = session.make<Kept>();
    fill(*map, entries);
    session.set_root(map);
    session.commit();
    std::printf("us %f\n", us_since(start));
}
