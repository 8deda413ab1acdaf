// Containers in an object against plain ones: the same random operations on both, over commits,
// rollbacks and processes.
//
//     containers STORE SEED ROUND
//
// The state that round R must find is computed from the seed: rounds 0 to R-1 on plain containers.

#include "aware.hpp"
#include "check.hpp"

#include <array>
#include <deque>
#include <forward_list>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

namespace {

struct in_object {
  template <class T>
  using alloc = evermap::allocator<T>;
};
struct in_process {
  template <class T>
  using alloc = std::allocator<T>;
};

template <class Where>
struct world {
  template <class T>
  using alloc = typename Where::template alloc<T>;
  using string = std::basic_string<char, std::char_traits<char>, alloc<char>>;
  template <class T>
  using vector = std::vector<T, alloc<T>>;
  template <class T>
  using list = std::list<T, alloc<T>>;
  template <class K, class V>
  using map = std::map<K, V, std::less<>, alloc<std::pair<const K, V>>>;

  // Does not use allocators, like most classes.
  struct person {
    string name;
    vector<string> friends;
    std::optional<string> title;
    std::array<string, 2> addresses;
    std::variant<int, string> age = 0;

    person() = default;
    explicit person(const char* called) : name(called) {}
    friend bool operator<(const person& a, const person& b) { return a.name < b.name; }
  };
  using aware = aware_of<string>;
  struct hash_of_string {
    std::size_t operator()(const string& text) const {
      return std::hash<std::string_view>()(std::string_view(text.data(), text.size()));
    }
  };

  vector<int> numbers;
  std::vector<bool, alloc<bool>> flags;
  vector<string> words;
  std::deque<string, alloc<string>> queue;
  list<vector<int>> chain;
  std::forward_list<string, alloc<string>> stack;
  map<int, vector<string>> lists;
  map<string, map<int, string>> nested;
  std::multimap<int, string, std::less<>, alloc<std::pair<const int, string>>> pairs;
  std::set<string, std::less<>, alloc<string>> names;
  std::multiset<int, std::less<>, alloc<int>> bag;
  std::unordered_map<string, list<string>, hash_of_string, std::equal_to<>,
                     alloc<std::pair<const string, list<string>>>>
      index;
  std::unordered_multiset<int, std::hash<int>, std::equal_to<>, alloc<int>> hashed;
  vector<person> people;
  map<string, person> directory;
  vector<aware> aware_ones;
  vector<std::pair<string, std::pair<int, string>>> tuples;
  vector<std::tuple<string, int>> triples;
};

std::string text_of(random_numbers& random) {
  return std::string(random.below(40), static_cast<char>('a' + random.below(26))) +
         std::to_string(random.below(50));
}

// One step; every random number is drawn in the same order for both worlds.
template <class W>
void step(W& w, random_numbers& random) {
  const int number = static_cast<int>(random.below(64));
  const std::string text = text_of(random);
  const std::size_t at = random.below(1000);
  switch (random.below(36)) {
    case 0: w.numbers.push_back(number); break;
    case 1: w.numbers.insert(w.numbers.begin() + static_cast<std::ptrdiff_t>(at % (w.numbers.size() + 1)), 3, number); break;
    case 2: if (!w.numbers.empty()) w.numbers.erase(w.numbers.begin() + static_cast<std::ptrdiff_t>(at % w.numbers.size())); break;
    case 3: w.flags.push_back(number % 2 == 0); break;
    case 4: w.words.emplace_back(text.c_str()); break;
    case 5: if (!w.words.empty()) { w.words[at % w.words.size()].append(text.c_str()); } break;
    case 6: if (!w.words.empty()) { w.words.erase(w.words.begin()); w.words.shrink_to_fit(); } break;
    case 7: w.queue.emplace_front(text.c_str()); break;
    case 8: w.queue.emplace_back(text.c_str()); break;
    case 9: if (!w.queue.empty()) w.queue.pop_front(); break;
    case 10: w.chain.emplace_back(number, number); break;
    case 11: if (!w.chain.empty()) w.chain.front().push_back(number); break;
    case 12: if (w.chain.size() > 1) w.chain.splice(w.chain.begin(), w.chain, std::prev(w.chain.end())); break;
    case 13: w.stack.emplace_front(text.c_str()); break;
    case 14: w.lists[number].emplace_back(text.c_str()); break;
    case 15: w.lists.erase(number); break;
    case 16: {
      typename W::string key(text.c_str(), w.words.get_allocator());
      w.nested[key][number] = text.c_str();
      w.nested[std::move(key)].erase(number / 2);
      break;
    }
    case 17: w.pairs.emplace(number, text.c_str()); break;
    case 18: w.pairs.erase(number); break;
    case 19: w.names.emplace(text.c_str()); break;
    case 20: if (!w.names.empty()) w.names.erase(w.names.begin()); break;
    case 21: w.bag.insert(number); w.bag.erase(number / 3); break;
    case 22: {
      const typename W::string key(text.substr(0, 3).c_str(), w.words.get_allocator());
      w.index[key].emplace_back(text.c_str());
      break;
    }
    case 23: w.index.rehash(at); break;
    case 24: w.hashed.insert(number); break;
    case 25: w.hashed.erase(number); break;
    case 26: w.people.emplace_back(text.c_str()); break;
    case 27: if (!w.people.empty()) { auto& p = w.people[at % w.people.size()]; p.friends.emplace_back(text.c_str()); p.title.emplace(); *p.title = text.c_str(); p.addresses[1] += text.c_str(); p.age = p.name; } break;
    case 28: if (w.people.size() > 1) { w.people.push_back(w.people[at % w.people.size()]); std::swap(w.people.front(), w.people.back()); w.people.erase(w.people.begin()); } break;
    case 29: { const typename W::string key(text.c_str(), w.words.get_allocator()); w.directory[key].friends.emplace_back(text.c_str()); w.directory.try_emplace(key, "another"); break; }
    case 30: w.aware_ones.emplace_back(text.c_str()); if (at % 4 == 0) w.aware_ones.push_back(w.aware_ones.front()); break;
    case 31: w.tuples.emplace_back(std::piecewise_construct, std::forward_as_tuple(text.c_str()), std::forward_as_tuple(number, text.c_str())); break;
    case 32: w.triples.emplace_back(text.c_str(), number); break;
    case 33: { auto copy = w.words; copy.resize(copy.size() / 2); w.words = copy; w.words.swap(copy); break; }
    case 34: { auto moved = std::move(w.names); w.names.clear(); w.names = std::move(moved); break; }
    case 35: if (at % 5 == 0) { w.people.clear(); w.directory.clear(); w.lists.clear(); } break;
  }
}

// Prints everything a world holds, with unordered containers in a sorted order.
struct printer {
  std::ostringstream out;

  void operator()(int n) { out << n << ","; }
  void operator()(bool b) { out << (b ? "t" : "f"); }
  template <class A>
  void operator()(const std::basic_string<char, std::char_traits<char>, A>& s) {
    out << '"' << std::string_view(s.data(), s.size()) << '"';
  }
  template <class A, class B>
  void operator()(const std::pair<A, B>& p) {
    (*this)(p.first);
    out << ":";
    (*this)(p.second);
  }
  template <class A, class B>
  void operator()(const std::tuple<A, B>& p) {
    (*this)(std::get<0>(p));
    (*this)(std::get<1>(p));
  }
  template <class T>
  auto operator()(const T& p) -> decltype(p.friends, void()) {
    (*this)(p.name);
    (*this)(p.friends);
    if (p.title) {
      (*this)(*p.title);
    }
    (*this)(p.addresses[0]);
    (*this)(p.addresses[1]);
    std::visit(*this, p.age);
  }
  template <class T>
  auto operator()(const T& p) -> decltype(p.text, void()) {
    (*this)(p.text);
  }
  template <class C>
  auto operator()(const C& all) -> decltype(all.begin()->friends, void()) {
    sequence(all);
  }
  template <class C, class = decltype(std::declval<const C&>().begin()), class = void>
  void operator()(const C& all) {
    sequence(all);
  }
  template <class C>
  void sequence(const C& all) {
    out << "[";
    for (const auto& each : all) {
      (*this)(each);
      out << " ";
    }
    out << "]\n";
  }
  template <class C>
  void sorted(const C& all) {
    std::multiset<std::string> texts;
    for (const auto& each : all) {
      printer one;
      one(each);
      texts.insert(one.out.str());
    }
    sequence(texts);
  }
};

template <class W>
std::string print(const W& w) {
  printer p;
  p.sequence(w.numbers);
  for (const bool flag : w.flags) {
    p(flag);
  }
  p.sequence(w.words);
  p.sequence(w.queue);
  p.sequence(w.chain);
  p.sequence(w.stack);
  p.sequence(w.lists);
  p.sequence(w.nested);
  p.sequence(w.pairs);
  p.sequence(w.names);
  p.sequence(w.bag);
  p.sorted(w.index);
  p.sorted(w.hashed);
  p.sequence(w.people);
  p.sequence(w.directory);
  p.sequence(w.aware_ones);
  p.sequence(w.tuples);
  p.sequence(w.triples);
  return p.out.str();
}

using plain = world<in_process>;
using kept = world<in_object>;

struct part {
  std::uint64_t seed;
  std::size_t steps;
  bool committed;
};

// Returns the parts of a round, each of which is committed or rolled back.
std::vector<part> parts_of(std::uint64_t seed, std::uint64_t round) {
  random_numbers random(seed * 1000003 + round);
  std::vector<part> parts(3 + random.below(3));
  for (part& p : parts) {
    p = {random.next(), 50 + random.below(300), random.below(3) != 0};
  }
  return parts;
}

template <class W>
void play(W& w, const part& p) {
  random_numbers random(p.seed);
  for (std::size_t i = 0; i < p.steps; ++i) {
    step(w, random);
  }
}

void run(const char* path, std::uint64_t seed, std::uint64_t round) {
  plain expected;
  for (std::uint64_t r = 0; r < round; ++r) {
    for (const part& p : parts_of(seed, r)) {
      if (p.committed) {
        play(expected, p);
      }
    }
  }
  evermap::store store = evermap::store::open_or_create(path);
  if (round > 0) {
    evermap::snapshot snapshot = store.read("world");
    CHECK(print(*snapshot.root<kept>()) == print(expected));
  }
  evermap::session session = store.write_or_create("world");
  session.find_or_make_root<kept>();
  session.commit();
  for (const part& p : parts_of(seed, round)) {
    play(*session.root<kept>(), p);
    if (p.committed) {
      play(expected, p);
      session.commit();
    } else {
      session.rollback();
    }
    CHECK(print(*session.root<kept>()) == print(expected));
  }
  // Everything can be freed: no blocks are left.
  if (round % 3 == 2) {
    session.destroy(session.root<kept>());
    session.set_root(nullptr);
    CHECK(session.info().blocks == 0);
    session.rollback();
  }
  session.close();
}

}  // namespace

int main(int count, char** arguments) {
  CHECK(count == 4);
  return run_reporting(
      [&] { run(arguments[1], std::stoull(arguments[2]), std::stoull(arguments[3])); });
}
