// Elements with a member of every standard container, moved into every container of an object from
// values that were built outside of it, by every member function that takes one.
//
//     members STORE
//
// An element either arrives with all its memory in the object, or the call throws
// `invalid_argument` and leaves the container as it was. Afterwards the value outside can be used
// and destroyed, and the object has no block more than before.

#include "check.hpp"

#include <array>
#include <optional>
#include <queue>
#include <tuple>
#include <variant>

namespace {

using evermap::string;

constexpr const char* text = "a text that is longer than what a string keeps in itself";

// ---- Members. `fill` gives a member memory; a member is filled again after it was moved from.

void fill(string& s) { s = text; }
template <class T>
void fill(evermap::vector<T>& c) { c.resize(3); fill(c.back()); }
void fill(evermap::vector<bool>& c) { c.assign(100, true); }
template <class T>
void fill(evermap::deque<T>& c) { fill(c.emplace_back()); fill(c.emplace_front()); }
template <class T>
void fill(evermap::list<T>& c) { c.emplace_back(text); }
template <class T>
void fill(evermap::forward_list<T>& c) { c.emplace_front(text); }
template <class K>
void fill(evermap::set<K>& c) { c.emplace(text); }
template <class K>
void fill(evermap::multiset<K>& c) { c.emplace(text); }
template <class K>
void fill(evermap::unordered_set<K>& c) { c.emplace(text); }
template <class K>
void fill(evermap::unordered_multiset<K>& c) { c.emplace(text); }
template <class K, class V>
void fill(evermap::map<K, V>& c) { c.emplace(text, text); }
template <class K, class V>
void fill(evermap::multimap<K, V>& c) { c.emplace(text, text); }
template <class K, class V>
void fill(evermap::unordered_map<K, V>& c) { c.emplace(text, text); }
template <class K, class V>
void fill(evermap::unordered_multimap<K, V>& c) { c.emplace(text, text); }
template <class T, class C>
void fill(std::queue<T, C>& c) { c.emplace(text); }
template <class T, class C>
void fill(std::priority_queue<T, C>& c) { c.emplace(text); }
template <class T>
void fill(std::optional<T>& o) { o.emplace(); fill(*o); }
template <class A, class B>
void fill(std::variant<A, B>& v) { fill(v.template emplace<1>()); }
template <class A, class B>
void fill(std::pair<A, B>& p) { fill(p.second); }
template <class... T>
void fill(std::tuple<T...>& t) { fill(std::get<sizeof...(T) - 1>(t)); }
template <class T, std::size_t N>
void fill(std::array<T, N>& a) { fill(a.back()); }

/** An element that knows nothing of allocators. Two of one number are equal. */
template <class M>
struct element {
  int number = 0;
  string name;
  M member;
  friend bool operator<(const element& a, const element& b) { return a.number < b.number; }
  friend bool operator==(const element& a, const element& b) { return a.number == b.number; }
};

/** With a constructor that takes the member by value, and a move constructor that must not throw. */
template <class M>
struct declared {
  string name;
  M member;
  declared() = default;
  declared(string called, M given) : name(std::move(called)), member(std::move(given)) {}
  declared(const declared&) = default;
  declared(declared&&) noexcept = default;
  declared& operator=(const declared&) = default;
  declared& operator=(declared&&) = default;
  ~declared() = default;
};

struct hash {
  template <class M>
  std::size_t operator()(const element<M>& e) const { return static_cast<std::size_t>(e.number); }
};

// ---- Cases.

evermap::session* object = nullptr;
int cases = 0, refusals = 0;

enum class kind { bare, named, filled };
constexpr kind kinds[] = {kind::bare, kind::named, kind::filled};

template <class M>
element<M> outside(kind k) {
  element<M> made;
  made.number = 2;
  if (k == kind::named) {
    made.name = text;
  } else if (k == kind::filled) {
    fill(made.member);
  }
  return made;
}

template <class C>
std::size_t count(const C& c) { return static_cast<std::size_t>(std::distance(c.begin(), c.end())); }

template <class C, class T>
auto put(C& c, const T& value, int) -> decltype(c.insert(c.begin(), value), void()) { c.insert(c.begin(), value); }
template <class C, class T>
void put(C& c, const T& value, long) { c.push_front(value); }

// Assigning an optional or a variant constructs in place, without the container. docs/cpp.md: what
// is moved there has to have been built for the object.
template <class M>
constexpr bool assigns_in_place = false;
template <class T>
constexpr bool assigns_in_place<std::optional<T>> = true;
template <class... T>
constexpr bool assigns_in_place<std::variant<T...>> = true;

/** Runs `change` on a container of the object with one element. `one` says whether it adds one
 *  element: then a refusal changes nothing. */
template <class C, class M, class F>
void run(const char* what, bool one, F&& change) {
  for (const kind k : kinds) {
    const auto blocks = object->info().blocks;
    C* const c = object->make<C>();
    {
      const evermap::scope in_object(*object);
      if constexpr (std::is_same_v<typename C::value_type, element<M>>) {
        put(*c, outside<M>(k), 0);
      } else {
        c->emplace(std::piecewise_construct, std::forward_as_tuple(1), std::forward_as_tuple());
      }
    }
    element<M> value = outside<M>(k);
    bool refused = false;
    try {
      change(*c, value, k);
    } catch (const evermap::invalid_argument& why) {
      refused = true;
      CHECK(says(why.what(), "construct it in place"));
    } catch (const std::exception& failure) {
      std::cerr << what << ": " << failure.what() << "\n";
      std::exit(1);
    }
    refusals += refused;
    if (refused && one && count(*c) != 1) {
      std::cerr << what << ": refused, and the container has " << count(*c) << " elements\n";
      std::exit(1);
    }
    // What was moved from can be used.
    value.name = text;
    value.member = M();
    fill(value.member);
    ++cases;
    object->destroy(c);
    if (object->info().blocks != blocks) {
      std::cerr << what << ": " << object->info().blocks - blocks << " blocks are left\n";
      std::exit(1);
    }
  }
}

/** In this scope: `c` the container, `v` a value outside. `T(k)` is a temporary. */
#define RUN(what, one, ...)                                                              \
  run<C, M>(what, one, [](C& c, [[maybe_unused]] element<M>& v, [[maybe_unused]] kind k) { \
    __VA_ARGS__;                                                                         \
  })
#define RUN_ASSIGNING(...)                \
  if constexpr (!assigns_in_place<M>) { \
    RUN(__VA_ARGS__);                   \
  }
#define TEMPORARY outside<M>(k)

// vector, deque, list.
template <class C, class M>
void sequence() {
  RUN("push_back(temporary)", true, c.push_back(TEMPORARY));
  RUN("push_back(moved)", true, c.push_back(std::move(v)));
  RUN("push_back(const&)", true, c.push_back(v));
  RUN("emplace_back(temporary)", true, c.emplace_back(TEMPORARY));
  RUN_ASSIGNING("insert(begin, temporary)", true, c.insert(c.begin(), TEMPORARY));
  RUN_ASSIGNING("insert(middle, moved)", false, c.emplace_back(); c.emplace_back(); c.insert(std::next(c.begin()), std::move(v)));
  RUN_ASSIGNING("emplace(middle, temporary)", false, c.emplace_back(); c.emplace_back(); c.emplace(std::next(c.begin()), TEMPORARY));
  RUN("insert(range of the moved)", true, c.insert(c.end(), std::make_move_iterator(&v), std::make_move_iterator(&v + 1)));
  RUN("insert(list)", true, c.insert(c.end(), {TEMPORARY, TEMPORARY}));
  RUN_ASSIGNING("assign(range of the moved)", false, c.assign(std::make_move_iterator(&v), std::make_move_iterator(&v + 1)));
  RUN_ASSIGNING("= temporary of an element", true, c.front() = TEMPORARY);
  RUN_ASSIGNING("= moved container", false, C other; other.push_back(std::move(v)); c = std::move(other));
  RUN_ASSIGNING("swap of elements", false, using std::swap; swap(c.front(), v));
}

template <class C, class M>
void front() {
  RUN("push_front(temporary)", true, c.push_front(TEMPORARY));
  RUN("emplace_front(moved)", true, c.emplace_front(std::move(v)));
}

template <class C, class M>
void forward() {
  front<C, M>();
  RUN("insert_after(temporary)", true, c.insert_after(c.begin(), TEMPORARY));
  RUN("emplace_after(moved)", true, c.emplace_after(c.begin(), std::move(v)));
  RUN("insert_after(range of the moved)", true, c.insert_after(c.begin(), std::make_move_iterator(&v), std::make_move_iterator(&v + 1)));
  RUN_ASSIGNING("= moved container", false, C other; other.push_front(std::move(v)); c = std::move(other));
}

// Sets of elements. The one that is there has the same number, so it is taken out first.
template <class C, class M>
void keys() {
  RUN("insert(temporary)", false, c.clear(); c.insert(TEMPORARY));
  RUN("insert(hint, moved)", false, c.clear(); c.insert(c.begin(), std::move(v)));
  RUN("emplace(temporary)", false, c.clear(); c.emplace(TEMPORARY));
  RUN("emplace of what is there", false, c.emplace(TEMPORARY));
  RUN("emplace_hint(moved)", false, c.clear(); c.emplace_hint(c.begin(), std::move(v)));
  RUN_ASSIGNING("= moved container", false, C other; other.insert(std::move(v)); c = std::move(other));
}

// Maps to elements. Key 1 is there.
template <class C, class M>
void entries() {
  using pair = std::pair<const int, element<M>>;
  RUN("insert(pair)", true, c.insert(pair(2, TEMPORARY)));
  RUN("insert(hint, pair)", true, c.insert(c.begin(), pair(2, std::move(v))));
  RUN("insert(list)", true, c.insert({pair(2, v)}));
  RUN("emplace(key, temporary)", true, c.emplace(2, TEMPORARY));
  RUN("emplace(key, moved)", true, c.emplace(2, std::move(v)));
  RUN("emplace(key there, temporary)", false, c.emplace(1, TEMPORARY));
  RUN("emplace(piecewise)", true, c.emplace(std::piecewise_construct, std::forward_as_tuple(2), std::forward_as_tuple(std::move(v))));
  RUN("emplace_hint(key, moved)", true, c.emplace_hint(c.begin(), 2, std::move(v)));
  RUN_ASSIGNING("= moved container", false, C other; other.emplace(2, std::move(v)); c = std::move(other));
}

template <class C, class M>
void mapped() {
  RUN_ASSIGNING("[] = temporary", false, c[2] = TEMPORARY);
  RUN("try_emplace(temporary)", true, c.try_emplace(2, TEMPORARY));
  RUN("try_emplace(hint, moved)", true, c.try_emplace(c.begin(), 2, std::move(v)));
  RUN("insert_or_assign(new, temporary)", true, c.insert_or_assign(2, TEMPORARY));
  RUN_ASSIGNING("insert_or_assign(old, moved)", true, c.insert_or_assign(1, std::move(v)));
}

/** Elements in members of pairs, tuples and arrays, and by `make`. */
template <class M>
void nested() {
  for (const kind k : kinds) {
    const auto blocks = object->info().blocks;
    const auto tried = [](auto&& change) {
      try {
        change();
      } catch (const evermap::invalid_argument&) {
        ++refusals;
      }
      ++cases;
    };
    using T = element<M>;
    tried([&] { object->destroy(object->make<T>(TEMPORARY)); });
    tried([&] { object->destroy(object->make<std::pair<int, T>>(1, TEMPORARY)); });
    tried([&] { object->destroy(object->make<std::tuple<T, int>>(TEMPORARY, 1)); });
    tried([&] { object->destroy(object->make<std::array<T, 2>>(std::array<T, 2>{TEMPORARY, TEMPORARY})); });
    tried([&] { object->destroy(object->make<std::optional<T>>(TEMPORARY)); });
    using D = declared<M>;
    string name = k == kind::named ? text : "";
    tried([&] { object->destroy(object->make<D>(name, TEMPORARY.member)); });
    tried([&] { object->destroy(object->make<D>(D(name, TEMPORARY.member))); });
    auto* const all = object->make<evermap::vector<D>>();
    for (int i = 0; i < 5; ++i) {
      tried([&] { all->emplace_back(name, TEMPORARY.member); });
      tried([&] { all->push_back(D(name, TEMPORARY.member)); });
      all->emplace_back();
      fill(all->back().member);
    }
    object->destroy(all);
    CHECK(object->info().blocks == blocks);
  }
}

template <class M>
void usual() {
  using T = element<M>;
  sequence<evermap::vector<T>, M>();
  sequence<evermap::list<T>, M>();
  entries<evermap::map<int, T>, M>();
  nested<M>();
}

template <class M>
void every() {
  using T = element<M>;
  usual<M>();
  sequence<evermap::deque<T>, M>();
  front<evermap::deque<T>, M>();
  front<evermap::list<T>, M>();
  forward<evermap::forward_list<T>, M>();
  keys<evermap::set<T>, M>();
  keys<evermap::multiset<T>, M>();
  keys<evermap::unordered_set<T, hash>, M>();
  keys<evermap::unordered_multiset<T, hash>, M>();
  mapped<evermap::map<int, T>, M>();
  entries<evermap::multimap<int, T>, M>();
  entries<evermap::unordered_map<int, T>, M>();
  mapped<evermap::unordered_map<int, T>, M>();
  entries<evermap::unordered_multimap<int, T>, M>();
}

}  // namespace

int main(int count, char** arguments) {
  CHECK(count == 2);
  return run_reporting([&] {
    evermap::store store = evermap::store::open_or_create(arguments[1]);
    evermap::session session = store.write_or_create("members");
    object = &session;
    every<evermap::deque<string>>();
    usual<string>();
    usual<evermap::vector<string>>();
    usual<evermap::vector<bool>>();
    usual<evermap::list<string>>();
    usual<evermap::forward_list<string>>();
    usual<evermap::set<string>>();
    usual<evermap::multiset<string>>();
    usual<evermap::unordered_set<string>>();
    usual<evermap::unordered_multiset<string>>();
    usual<evermap::map<string, string>>();
    usual<evermap::multimap<string, string>>();
    usual<evermap::unordered_map<string, string>>();
    usual<evermap::unordered_multimap<string, string>>();
    usual<std::queue<string, evermap::deque<string>>>();
    usual<std::priority_queue<string, evermap::vector<string>>>();
    usual<std::optional<evermap::deque<string>>>();
    usual<std::variant<int, evermap::deque<string>>>();
    usual<std::tuple<int, evermap::deque<string>>>();
    usual<std::array<evermap::deque<string>, 2>>();
    usual<evermap::deque<evermap::deque<string>>>();
    session.commit();
    std::cout << cases << " cases, " << (refusals > 500 ? "many" : "few") << " refused\n";
  });
}
