// Shared by the test programs: checks that report their line, and random numbers from a seed.
#ifndef EVERMAP_TESTS_CHECK_HPP
#define EVERMAP_TESTS_CHECK_HPP

#include <cstdint>
#include <cstdlib>
#include <evermap.hpp>
#include <iostream>
#include <string>

#define CHECK(...)                                                                    \
  do { \
    if (!(__VA_ARGS__)) { \
      std::cerr << __FILE__ << ":" << __LINE__ << ": not true: " #__VA_ARGS__ "\n"; \
      std::exit(1); \
    } \
  } while (false)

// The statement must throw this type. Returns the exception's text.
#define CHECK_THROWS(type, ...) \
  ([&]() -> std::string { \
    try { \
      __VA_ARGS__;                                                                    \
    } catch (const type& thrown) {                                                    \
      return thrown.what();                                                           \
    }                                                                                 \
    std::cerr << __FILE__ << ":" << __LINE__ << ": does not throw " #type "\n";       \
    std::exit(1);                                                                     \
  }())

inline bool says(const std::string& text, const char* part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) {
    std::cerr << "`" << text << "` lacks `" << part << "`\n";
  }
  return found;
}

// splitmix64
class random_numbers {
 public:
  explicit random_numbers(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }

 private:
  std::uint64_t state_;
};

template <class F>
int run_reporting(F&& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& failure) {
    std::cerr << "uncaught: " << failure.what() << "\n";
    return 1;
  }
}

#endif
