// Errors that stop the program with a message, selected by name: nothing after them may run.
//
//     deaths STORE MISTAKE

#include "check.hpp"

#include <optional>

namespace {

constexpr const char* long_text = "a text that is longer than what a string keeps in itself";

struct person {
  evermap::string name;
  explicit person(evermap::string called) : name(std::move(called)) {}
};

void run(const char* path, const std::string& mistake) {
  evermap::store store = evermap::store::open_or_create(path);
  evermap::session session = store.write_or_create("one");
  evermap::session other = store.write_or_create("two");
  if (mistake == "swap") {
    session.make<evermap::vector<int>>()->swap(*other.make<evermap::vector<int>>());
  } else if (mistake == "heap") {
    // Assigning to an optional constructs in place, where no container can look.
    *session.make<std::optional<evermap::string>>() = evermap::string(long_text);
  } else if (mistake == "across") {
    auto* const people = session.make<evermap::vector<person>>();
    people->emplace_back(evermap::string(long_text, other.get_allocator<char>()));
  } else if (mistake == "twice") {
    int* const number = session.make<int>(1);
    session.destroy(number);
    session.destroy(number);
  } else if (mistake == "foreign") {
    session.get_allocator<int>().deallocate(other.make<int>(1), 1);
  } else {
    std::cerr << "no such mistake\n";
    std::exit(3);
  }
}

}  // namespace

int main(int count, char** arguments) {
  CHECK(count == 3);
  return run_reporting([&] { run(arguments[1], arguments[2]); });
}
