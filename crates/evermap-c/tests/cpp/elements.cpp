// Every member function of a standard container that creates elements, with elements whose texts
// are longer than what a string keeps in itself, built by the caller outside of the object.
//
//     elements STORE
//
// Each case makes a container in the object, calls one function, and looks at the result: it equals
// what the same calls give elsewhere, and all its memory is in the object. Everything stays in the
// object; a second run looks at all of it again.

#include "aware.hpp"
#include "check.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <tuple>
#include <variant>

namespace {

using evermap::string;
using session_type = evermap::session;

// Does not use allocators.
struct person {
  string name;
  evermap::vector<string> friends;
  person() = default;
  explicit person(const char* called) : name(called), friends({called, called}) {}
};

using aware = aware_of<string>;

// ---- Is all memory of a value in the object?

const session_type* object = nullptr;
std::uint64_t looked_at = 0;

bool is_inside(const void* begin, std::size_t bytes) {
  return bytes == 0 || object->contains(begin, bytes);
}

bool inside(int) { return true; }
bool inside(const string& text) {
  ++looked_at;
  return is_inside(text.data(), text.size());
}
bool inside(const aware& value) { return inside(value.text); }
template <class A, class B>
bool inside(const std::pair<A, B>& pair);
template <class... T>
bool inside(const std::tuple<T...>& tuple);
template <class T>
bool inside(const std::optional<T>& value);
template <class... T>
bool inside(const std::variant<T...>& value);
template <class T, std::size_t N>
bool inside(const std::array<T, N>& all);
template <class C, class = typename C::const_iterator>
auto inside(const C& all) -> std::enable_if_t<!std::is_same_v<C, string>, bool>;
bool inside(const person& value) { return inside(value.name) && inside(value.friends); }

template <class A, class B>
bool inside(const std::pair<A, B>& pair) {
  return inside(pair.first) && inside(pair.second);
}
template <class... T>
bool inside(const std::tuple<T...>& tuple) {
  return std::apply([](const T&... each) { return (inside(each) && ...); }, tuple);
}
template <class T>
bool inside(const std::optional<T>& value) {
  return !value || inside(*value);
}
template <class... T>
bool inside(const std::variant<T...>& value) {
  return std::visit([](const auto& each) { return inside(each); }, value);
}
template <class T, std::size_t N>
bool inside(const std::array<T, N>& all) {
  return std::all_of(all.begin(), all.end(), [](const T& each) { return inside(each); });
}
template <class C, class>
auto inside(const C& all) -> std::enable_if_t<!std::is_same_v<C, string>, bool> {
  for (const auto& each : all) {
    if (!is_inside(&each, sizeof each) || !inside(each)) {
      return false;
    }
  }
  return true;
}

// ---- Values to give, made outside of the object and of any scope.

std::string text_of(int i) {
  return "a text that is longer than what a string keeps in itself, " + std::to_string(i);
}

template <class T>
struct make;
template <class T>
T value(int i) {
  return make<T>::value(i);
}
template <>
struct make<int> {
  static int value(int i) { return i; }
};
template <>
struct make<string> {
  static string value(int i) { return text_of(i).c_str(); }
};
template <>
struct make<aware> {
  static aware value(int i) { return text_of(i).c_str(); }
};
template <class A, class B>
struct make<std::pair<A, B>> {
  static std::pair<A, B> value(int i) { return {::value<std::remove_cv_t<A>>(i), ::value<B>(i)}; }
};
template <class... T>
struct make<std::tuple<T...>> {
  static std::tuple<T...> value(int i) { return {::value<T>(i)...}; }
};
template <class T>
struct make<std::optional<T>> {
  static std::optional<T> value(int i) {
    return i % 3 == 2 ? std::nullopt : std::optional<T>(::value<T>(i));
  }
};
template <class First, class Second>
struct make<std::variant<First, Second>> {
  static std::variant<First, Second> value(int i) {
    return i % 3 == 2 ? std::variant<First, Second>(::value<First>(i))
                      : std::variant<First, Second>(::value<Second>(i));
  }
};
template <class T, std::size_t N>
struct make<std::array<T, N>> {
  static std::array<T, N> value(int i) {
    std::array<T, N> made;
    made.fill(::value<T>(i));
    return made;
  }
};
template <class T>
struct make<evermap::vector<T>> {
  static evermap::vector<T> value(int i) {
    evermap::vector<T> made;
    made.push_back(::value<T>(i));
    made.push_back(::value<T>(i + 1));
    return made;
  }
};
template <class K, class V>
struct make<evermap::map<K, V>> {
  static evermap::map<K, V> value(int i) {
    evermap::map<K, V> made;
    made.emplace(::value<K>(i), ::value<V>(i));
    made.emplace(::value<K>(i + 1), ::value<V>(i + 1));
    return made;
  }
};

bool equal(const aware& a, const aware& b) { return a.text == b.text; }
template <class T>
bool equal(const T& a, const T& b) {
  return a == b;
}
template <class C, class Wanted>
bool all_equal(const C& all, const Wanted& wanted) {
  return std::equal(all.begin(), all.end(), wanted.begin(), wanted.end(),
                    [](const auto& a, const auto& b) { return equal(a, b); });
}

// ---- Cases.

int cases = 0;
bool second_run = false;

// Containers of earlier cases of this type, stored in the object under the type's name and a
// number.
template <class C>
struct kept {
  evermap::list<C> all;
};

template <class C>
class table {
 public:
  table(evermap::store& store, const char* name)
      : name_(name), session_(store.write_or_create(name)), all_(session_.find_or_make_root<kept<C>>().all) {
    object = &session_;
    at_ = all_.begin();
  }
  ~table() { session_.commit(); }

  // Creates a container and changes it, or finds the one of the first run; it must equal `wanted`.
  template <class F, class Wanted>
  void run(const char* what, const Wanted& wanted, F&& change) {
    if (!second_run) {
      try {
        at_ = all_.emplace(all_.end());
        change(*at_);
      } catch (const std::exception& failure) {
        std::cerr << name_ << ": " << what << ": " << failure.what() << "\n";
        std::exit(1);
      }
    }
    CHECK(at_ != all_.end());
    const C& found = *at_++;
    if (!all_equal(found, wanted) || !inside(found)) {
      std::cerr << name_ << ": " << what
                << (inside(found) ? ": other elements" : ": memory outside of the object") << "\n";
      std::exit(1);
    }
    ++cases;
  }

 private:
  const char* name_;
  session_type session_;
  evermap::list<C>& all_;
  typename evermap::list<C>::iterator at_;
};

// Values for a case, by number.
template <class T>
std::vector<T> these(std::initializer_list<int> numbers) {
  std::vector<T> made;
  for (const int i : numbers) {
    made.push_back(value<T>(i));
  }
  return made;
}

#define RUN(what, wanted, ...) all.run(what, wanted, [&](auto& c) { __VA_ARGS__; })

// Assigning an optional or a variant constructs in place, without the container: what is moved
// there has to have been built for the object.
template <class T>
constexpr bool needs_scope = false;
template <class T>
constexpr bool needs_scope<std::optional<T>> = true;
template <class... T>
constexpr bool needs_scope<std::variant<T...>> = true;
template <class A, class B>
constexpr bool needs_scope<std::pair<A, B>> = needs_scope<A> || needs_scope<B>;
template <class... T>
constexpr bool needs_scope<std::tuple<T...>> = (needs_scope<T> || ...);

#define RUN_ASSIGNING(what, wanted, ...)                                   \
  all.run(what, wanted, [&](auto& c) {                                     \
    std::optional<evermap::scope> in_object;                               \
    if constexpr (needs_scope<T>) {                                        \
      in_object.emplace(*object);                                          \
    }                                                                      \
    __VA_ARGS__;                                                           \
  })

// vector, deque, list.
template <class C>
void sequence(evermap::store& store, const char* name) {
  using T = typename C::value_type;
  table<C> all(store, name);
  const T one = value<T>(1);
  const std::vector<T> outside = these<T>({1, 2, 3});
  RUN("push_back(const&)", these<T>({1}), c.push_back(one));
  RUN("push_back(&&)", these<T>({1}), c.push_back(value<T>(1)));
  RUN("push_back of its own", these<T>({1, 1}), c.push_back(one); c.push_back(c.front()));
  RUN("emplace_back()", std::vector<T>(1), c.emplace_back());
  RUN("emplace_back(const&)", these<T>({1}), c.emplace_back(one));
  RUN("emplace_back(&&)", these<T>({1}), c.emplace_back(value<T>(1)));
  RUN("resize(n)", std::vector<T>(3), c.resize(3));
  RUN("resize(n, value)", these<T>({1, 1, 1}), c.resize(3, one));
  RUN("insert(const&)", these<T>({1, 2}), c.push_back(value<T>(2)); c.insert(c.begin(), one));
  RUN("insert(&&)", these<T>({1, 2}), c.push_back(value<T>(2)); c.insert(c.begin(), value<T>(1)));
  RUN_ASSIGNING("insert in the middle", these<T>({0, 1, 2, 3, 4}), c.insert(c.begin(), {value<T>(0), value<T>(1), value<T>(3), value<T>(4)}); c.insert(std::next(c.begin(), 2), value<T>(2)));
  RUN_ASSIGNING("emplace in the middle", these<T>({0, 1, 2, 3, 4}), c.insert(c.begin(), {value<T>(0), value<T>(1), value<T>(3), value<T>(4)}); c.emplace(std::next(c.begin(), 2), value<T>(2)));
  RUN_ASSIGNING("insert(n, value)", these<T>({1, 1, 2}), c.push_back(value<T>(2)); c.insert(c.begin(), 2, one));
  RUN("insert(range)", these<T>({1, 2, 3}), c.insert(c.end(), outside.begin(), outside.end()));
  RUN("insert(range of the moved)", these<T>({1, 2}), auto from = these<T>({1, 2}); c.insert(c.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end())));
  RUN("insert(list)", these<T>({1, 2}), c.insert(c.end(), {value<T>(1), value<T>(2)}));
  RUN_ASSIGNING("assign(n, value)", these<T>({1, 1}), c.push_back(value<T>(2)); c.assign(2, one));
  RUN_ASSIGNING("assign(range)", these<T>({1, 2, 3}), c.assign(outside.begin(), outside.end()));
  RUN_ASSIGNING("assign(list)", these<T>({1, 2}), c.push_back(one); c.assign({value<T>(1), value<T>(2)}));
  RUN_ASSIGNING("= list", these<T>({1, 2}), c = {value<T>(1), value<T>(2)});
  RUN_ASSIGNING("= const&", these<T>({1, 2}), C other; other.push_back(value<T>(1)); other.push_back(value<T>(2)); c = other);
  RUN_ASSIGNING("= &&", these<T>({1, 2}), C other; other.push_back(value<T>(1)); other.push_back(value<T>(2)); c = std::move(other));
  RUN("C(n, value, allocator)", these<T>({1, 1}), c = C(2, one, c.get_allocator()));
  RUN("C(range, allocator)", these<T>({1, 2, 3}), c = C(outside.begin(), outside.end(), c.get_allocator()));
  RUN("C(list, allocator)", these<T>({1, 2}), c = C({value<T>(1), value<T>(2)}, c.get_allocator()));
  RUN("growth", these<T>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), for (int i = 0; i < 10; ++i) c.push_back(value<T>(i)));
}

template <class C>
void double_ended(evermap::store& store, const char* name) {
  using T = typename C::value_type;
  table<C> all(store, name);
  const T one = value<T>(1);
  RUN("push_front(const&)", these<T>({1}), c.push_front(one));
  RUN("push_front(&&)", these<T>({1, 2}), c.push_front(value<T>(2)); c.push_front(value<T>(1)));
  RUN("emplace_front", these<T>({1, 2}), c.emplace_front(value<T>(2)); c.emplace_front(one));
}

template <class C>
void forward(evermap::store& store, const char* name) {
  using T = typename C::value_type;
  table<C> all(store, name);
  const T one = value<T>(1);
  const std::vector<T> outside = these<T>({1, 2, 3});
  RUN("push_front(const&)", these<T>({1}), c.push_front(one));
  RUN("push_front(&&)", these<T>({1}), c.push_front(value<T>(1)));
  RUN("emplace_front", these<T>({1}), c.emplace_front(value<T>(1)));
  RUN("insert_after(const&)", these<T>({1}), c.insert_after(c.before_begin(), one));
  RUN("insert_after(&&)", these<T>({1}), c.insert_after(c.before_begin(), value<T>(1)));
  RUN("insert_after(n, value)", these<T>({1, 1}), c.insert_after(c.before_begin(), 2, one));
  RUN("insert_after(range)", these<T>({1, 2, 3}), c.insert_after(c.before_begin(), outside.begin(), outside.end()));
  RUN("insert_after(list)", these<T>({1, 2}), c.insert_after(c.before_begin(), {value<T>(1), value<T>(2)}));
  RUN("emplace_after", these<T>({1}), c.emplace_after(c.before_begin(), value<T>(1)));
  RUN("resize(n)", std::vector<T>(2), c.resize(2));
  RUN("resize(n, value)", these<T>({1, 1}), c.resize(2, one));
  RUN("assign(n, value)", these<T>({1, 1}), c.assign(2, one));
  RUN("assign(range)", these<T>({1, 2, 3}), c.assign(outside.begin(), outside.end()));
  RUN("= list", these<T>({1, 2}), c = {value<T>(1), value<T>(2)});
  RUN("= &&", these<T>({1}), C other; other.push_front(value<T>(1)); c = std::move(other));
}

// set, multiset and the unordered ones, of keys.
template <class C>
void keys(evermap::store& store, const char* name) {
  using T = typename C::value_type;
  table<C> all(store, name);
  const T one = value<T>(1);
  const std::vector<T> outside = these<T>({1});
  RUN("insert(const&)", these<T>({1}), c.insert(one));
  RUN("insert(&&)", these<T>({1}), c.insert(value<T>(1)));
  RUN("insert(hint, const&)", these<T>({1}), c.insert(c.begin(), one));
  RUN("insert(hint, &&)", these<T>({1}), c.insert(c.begin(), value<T>(1)));
  RUN("insert(range)", these<T>({1}), c.insert(outside.begin(), outside.end()));
  RUN("insert(list)", these<T>({1}), c.insert({value<T>(1)}));
  RUN("emplace(const&)", these<T>({1}), c.emplace(one));
  RUN("emplace(&&)", these<T>({1}), c.emplace(value<T>(1)));
  RUN("emplace_hint", these<T>({1}), c.emplace_hint(c.begin(), value<T>(1)));
  RUN("= list", these<T>({1}), c = {value<T>(1)});
  RUN("= const&", these<T>({1}), C other; other.insert(value<T>(1)); c = other);
  RUN("= &&", these<T>({1}), C other; other.insert(value<T>(1)); c = std::move(other));
  RUN("merge", these<T>({1}), C other(c.get_allocator()); other.insert(value<T>(1)); c.merge(other));
  RUN("node", these<T>({1}), C other(c.get_allocator()); other.insert(value<T>(1)); c.insert(other.extract(other.begin())));
}

// map, multimap and the unordered ones.
template <class C>
void entries(evermap::store& store, const char* name) {
  using T = typename C::value_type;
  using K = typename C::key_type;
  using V = typename C::mapped_type;
  table<C> all(store, name);
  const T one = value<T>(1);
  const K key = value<K>(1);
  const V mapped = value<V>(1);
  const auto wanted = [&] {
    std::vector<T> made;
    made.push_back(value<T>(1));
    return made;
  }();
  RUN("insert(const&)", wanted, c.insert(one));
  RUN("insert(&&)", wanted, c.insert(value<T>(1)));
  RUN("insert(pair&&)", wanted, c.insert(std::pair<K, V>(value<K>(1), value<V>(1))));
  RUN("insert(hint)", wanted, c.insert(c.begin(), value<T>(1)));
  RUN("insert(range)", wanted, c.insert(&one, &one + 1));
  RUN("insert(list)", wanted, c.insert({value<T>(1)}));
  RUN("emplace(const&, const&)", wanted, c.emplace(key, mapped));
  RUN("emplace(&&, &&)", wanted, c.emplace(value<K>(1), value<V>(1)));
  RUN("emplace(pair)", wanted, c.emplace(value<T>(1)));
  RUN("emplace(piecewise)", wanted, c.emplace(std::piecewise_construct, std::forward_as_tuple(key), std::forward_as_tuple(mapped)));
  RUN("emplace_hint", wanted, c.emplace_hint(c.begin(), value<K>(1), value<V>(1)));
  RUN("= list", wanted, c = {value<T>(1)});
  RUN("= const&", wanted, C other; other.insert(value<T>(1)); c = other);
  RUN("= &&", wanted, C other; other.insert(value<T>(1)); c = std::move(other));
  RUN("node", wanted, C other(c.get_allocator()); other.insert(value<T>(1)); c.insert(other.extract(other.begin())));
}

// Functions that only maps with unique keys have.
template <class C>
void mapped(evermap::store& store, const char* name) {
  using T = typename C::value_type;
  using K = typename C::key_type;
  using V = typename C::mapped_type;
  table<C> all(store, name);
  const K key = value<K>(1);
  const V one = value<V>(1);
  std::vector<T> wanted, empty;
  wanted.push_back(value<T>(1));
  empty.emplace_back(value<K>(1), V());
  RUN("[const&]", empty, (void)c[key]);
  RUN("[&&]", empty, (void)c[value<K>(1)]);
  RUN_ASSIGNING("[&&] = const&", wanted, c[value<K>(1)] = one);
  RUN_ASSIGNING("[&&] = &&", wanted, c[value<K>(1)] = value<V>(1));
  RUN("try_emplace(const&)", empty, c.try_emplace(key));
  RUN("try_emplace(&&)", empty, c.try_emplace(value<K>(1)));
  RUN("try_emplace(&&, &&)", wanted, c.try_emplace(value<K>(1), value<V>(1)));
  RUN("try_emplace(hint)", wanted, c.try_emplace(c.begin(), key, one));
  RUN("insert_or_assign(new)", wanted, c.insert_or_assign(value<K>(1), value<V>(1)));
  RUN_ASSIGNING("insert_or_assign(old)", wanted, c.try_emplace(key); c.insert_or_assign(key, value<V>(1)));
  RUN("insert_or_assign(hint)", wanted, c.insert_or_assign(c.begin(), value<K>(1), value<V>(1)));
}

template <class T>
void sequences(evermap::store& store, const std::string& of) {
  sequence<evermap::vector<T>>(store, ("vector of " + of).c_str());
  sequence<evermap::deque<T>>(store, ("deque of " + of).c_str());
  double_ended<evermap::deque<T>>(store, ("front of deque of " + of).c_str());
  sequence<evermap::list<T>>(store, ("list of " + of).c_str());
  double_ended<evermap::list<T>>(store, ("front of list of " + of).c_str());
  forward<evermap::forward_list<T>>(store, ("forward_list of " + of).c_str());
}

template <class V>
void maps(evermap::store& store, const std::string& to) {
  entries<evermap::map<string, V>>(store, ("map to " + to).c_str());
  mapped<evermap::map<string, V>>(store, ("map[] to " + to).c_str());
  entries<evermap::multimap<string, V>>(store, ("multimap to " + to).c_str());
  entries<evermap::unordered_map<string, V>>(store, ("unordered_map to " + to).c_str());
  mapped<evermap::unordered_map<string, V>>(store, ("unordered_map[] to " + to).c_str());
  entries<evermap::unordered_multimap<string, V>>(store, ("unordered_multimap to " + to).c_str());
}

// Functions that compose strings.
void strings(evermap::store& store) {
  table<evermap::vector<string>> all(store, "strings");
  const std::vector<string> wanted = these<string>({1});
  const std::string text = text_of(1);
  RUN("emplace_back(characters)", wanted, c.emplace_back(text.c_str()));
  RUN("push_back(characters)", wanted, c.push_back(text.c_str()));
  RUN("+=", wanted, c.emplace_back() += text.c_str());
  RUN("append", wanted, c.emplace_back().append(text.begin(), text.end()));
  RUN("assign", wanted, c.emplace_back().assign(text.data(), text.size()));
  RUN("insert", wanted, c.emplace_back().insert(0, text.c_str()));
  RUN("replace", wanted, c.emplace_back("x").replace(0, 1, text.c_str()));
  RUN("= outside", wanted, c.emplace_back() = string(text.c_str()));
  RUN("+ outside", wanted, c.push_back(string(text.c_str(), 20) + text.substr(20).c_str()));
  RUN("substr", wanted, c.push_back(string(("x" + text).c_str()).substr(1)));
  RUN("swap of elements", wanted, c.emplace_back(); c.emplace_back(text.c_str()); c[0].swap(c[1]); c.pop_back());
}

void words(evermap::store& store) {
  table<evermap::map<string, int>> all(store, "words");
  const std::vector<std::pair<const string, int>> wanted{{value<string>(1), 2}};
  const std::string text = text_of(1);
  RUN("[characters]++", wanted, c[text.c_str()]++; c[text.c_str()]++);
}

// Containers outside of objects behave like ordinary ones.
void outside_of_objects() {
  evermap::list<string> a, b;
  b.push_back(value<string>(1));
  a.splice(a.end(), b);
  CHECK(a.size() == 1 && b.empty());
  a.swap(b);
  b.merge(a);
  CHECK(b.front() == value<string>(1));
  evermap::map<string, string> c, d;
  d.emplace(value<string>(1), value<string>(2));
  c.insert(d.extract(d.begin()));
  d = std::move(c);
  std::swap(c, d);
  CHECK(c.at(value<string>(1)) == value<string>(2));
  evermap::unordered_map<string, int> e;
  e.reserve(1000);
  e[value<string>(1)] = 1;
  evermap::unordered_map<string, int> f(std::move(e));
  CHECK(f.at(value<string>(1)) == 1);
}

// A class without an allocator, and values moved into an object.
void classes(evermap::store& store) {
  session_type session = store.write_or_create("classes");
  object = &session;
  auto& people = session.find_or_make_root<evermap::vector<person>>();
  people.clear();
  const std::string text = text_of(1);
  people.emplace_back(text.c_str());
  const person outside(text.c_str());
  people.push_back(outside);
  people.insert(people.begin(), 2, outside);
  people.push_back(person());
  person later = outside;
  people.back() = std::move(later);
  person brief;
  brief.name = "short";
  people.push_back(std::move(brief));
  CHECK(people.size() == 6 && people[4].name == text.c_str() && inside(people));
  {
    const evermap::scope in_object(session);
    people.push_back(person(text.c_str()));
  }
  CHECK(inside(people));
  const auto blocks = session.info().blocks;
  for (int i = 0; i < 3; ++i) {
    person refused(text.c_str());
    CHECK(says(CHECK_THROWS(evermap::invalid_argument, people.push_back(std::move(refused))), "person"));
    // A text whose contents were moved away before.
    person stolen;
    stolen.name = string(text.c_str());
    CHECK_THROWS(evermap::invalid_argument, people.emplace_back(std::move(stolen)));
    CHECK_THROWS(evermap::invalid_argument, (void)session.make<person>(person(text.c_str())));
  }
  CHECK(people.size() == 7 && inside(people));
  people.shrink_to_fit();
  CHECK(session.info().blocks <= blocks);

  // Members of the object's values that are constructed in place, outside of any scope.
  auto* const title = session.make<std::optional<string>>();
  *title = text.c_str();
  CHECK(inside(*title));
  title->reset();
  title->emplace(text.c_str());
  CHECK(inside(*title));
  auto* const counts = session.make<std::optional<evermap::unordered_map<string, int>>>();
  counts->emplace()[text.c_str()] = 1;
  CHECK(inside((*counts)->begin()->first) && is_inside(&*(*counts)->begin(), 1));
  auto* const either = session.make<std::variant<int, string>>(1);
  either->emplace<string>(text.c_str());
  CHECK(inside(*either));
  session.commit();
}

}  // namespace

int main(int count, char** arguments) {
  CHECK(count == 2);
  return run_reporting([&] {
    evermap::store store = evermap::store::open_or_create(arguments[1]);
    second_run = store.contains("words");
    strings(store);
    sequences<string>(store, "strings");
    sequences<std::pair<string, std::pair<int, string>>>(store, "pairs");
    sequences<std::tuple<string, int, string>>(store, "tuples");
    using mixed = std::tuple<std::pair<string, string>, std::optional<string>, std::variant<int, string>>;
    sequences<mixed>(store, "nested tuples");
    sequences<std::optional<std::pair<int, string>>>(store, "optionals");
    sequences<std::variant<int, string>>(store, "variants");
    sequences<std::array<string, 2>>(store, "arrays");
    sequences<evermap::vector<evermap::map<string, string>>>(store, "containers");
    sequence<evermap::vector<aware>>(store, "vector of the aware");
    keys<evermap::set<string>>(store, "set");
    keys<evermap::multiset<std::pair<string, string>>>(store, "multiset");
    keys<evermap::set<evermap::vector<string>>>(store, "set of vectors");
    keys<evermap::unordered_set<string>>(store, "unordered_set");
    keys<evermap::unordered_multiset<string>>(store, "unordered_multiset");
    maps<string>(store, "strings");
    maps<std::pair<string, std::optional<string>>>(store, "pairs");
    maps<evermap::map<string, evermap::vector<string>>>(store, "containers");
    outside_of_objects();
    classes(store);
    words(store);
    std::cout << cases << " cases, " << (looked_at > 5000 ? "all" : "few") << " looked at\n";
  });
}
