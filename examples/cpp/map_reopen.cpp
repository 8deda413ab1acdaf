// What reopening saves: a std::map with N entries, built again in every run or kept in an object.
//
//     map_reopen STORE build N          makes the map in an object and commits it
//     map_reopen STORE reopen LOOKUPS   opens it in a new process and looks entries up
//     map_reopen STORE rebuild N LOOKUPS    what a program without Evermap does
//
// Each prints the nanoseconds from its beginning to its end, and a sum over what it found.

#include <chrono>
#include <cstdint>
#include <evermap.hpp>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace {

using entries = evermap::map<std::uint64_t, std::uint64_t>;

// Keys in no order: the finaliser of splitmix64, which maps no two numbers to one.
std::uint64_t key_of(std::uint64_t i) {
  std::uint64_t z = i * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

template <class Map>
void fill(Map& map, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    map.emplace(key_of(i), i);
  }
}

template <class Map>
std::uint64_t look_up(const Map& map, std::uint64_t lookups) {
  std::uint64_t sum = 0;
  const std::uint64_t count = map.size();
  for (std::uint64_t i = 0; i < lookups; ++i) {
    sum += map.at(key_of(key_of(~i) % count));
  }
  return sum;
}

std::uint64_t run(const std::vector<std::string>& arguments) {
  const std::string& verb = arguments.at(1);
  const std::uint64_t number = std::stoull(arguments.at(2));
  if (verb == "rebuild") {
    std::map<std::uint64_t, std::uint64_t> map;
    fill(map, number);
    return look_up(map, std::stoull(arguments.at(3)));
  }
  evermap::store store = evermap::store::open_or_create(arguments.at(0));
  if (verb == "build") {
    evermap::session session = store.write_or_create("map");
    auto& map = session.find_or_make_root<entries>();
    map.clear();
    fill(map, number);
    session.commit();
    session.close();
    return number;
  }
  if (verb != "reopen") {
    throw std::invalid_argument("the verbs are build, reopen and rebuild");
  }
  evermap::snapshot snapshot = store.read("map");
  const auto* map = snapshot.root<entries>();
  if (map == nullptr) {
    throw std::runtime_error("nothing was built yet");
  }
  return look_up(*map, number);
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const auto begun = std::chrono::steady_clock::now();
    const std::uint64_t sum = run(std::vector<std::string>(arguments + 1, arguments + count));
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begun;
    std::cout << "ns " << took.count() << " sum " << sum << "\n";
    return 0;
  } catch (const std::exception& failure) {
    std::cerr << "map_reopen: " << failure.what() << "\n";
    return 1;
  }
}
