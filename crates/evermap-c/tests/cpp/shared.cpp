// Threads that read and write one shared object through guards, and sessions that end with changes.
//
//     shared DIRECTORY

#include <atomic>
#include <thread>
#include <vector>

#include "check.hpp"

namespace {

using words = evermap::map<evermap::string, evermap::vector<int>>;

void threads_share(evermap::store& store, const char* name, bool early) {
  evermap::share_options options;
  options.early_read = early;
  evermap::shared<words> index(store, name, options);
  std::atomic<int> acknowledged{0};
  std::atomic<bool> ended{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 8; i++) {
    readers.emplace_back([&] {
      while (!ended) {
        const int before = acknowledged;
        std::size_t seen = 0;
        {
          const auto reader = index.read();
          for (const auto& [word, places] : *reader) {
            CHECK(seen == 0 || places.size() == seen);
            seen = places.size();
          }
        }
        CHECK(seen >= static_cast<std::size_t>(before));
        CHECK(early || seen <= static_cast<std::size_t>(acknowledged));
      }
    });
  }
  for (int n = 1; n <= 100; n++) {
    auto writer = index.write();
    for (const char* word : {"one", "a word that is longer than any small string", "three"}) {
      (*writer)[evermap::string(word, index.get_allocator<char>())].push_back(n);
    }
    CHECK(writer.commit());
    acknowledged = n;
  }
  ended = true;
  for (std::thread& reader : readers) {
    reader.join();
  }
  index.close();
}

void a_thread_is_refused_and_does_not_wait_for_itself(evermap::store& store) {
  evermap::shared<words> index(store, "refused");
  {
    const auto reader = index.read();
    const auto again = index.read();
    CHECK(says(CHECK_THROWS(evermap::would_deadlock, (void)index.write()), "reads"));
    CHECK_THROWS(evermap::busy, index.close());
  }
  {
    auto writer = index.write();
    CHECK(says(CHECK_THROWS(evermap::would_deadlock, (void)index.read()), "writes"));
    CHECK(says(CHECK_THROWS(evermap::would_deadlock, (void)index.write()), "writes"));
    // The change is dropped, with a line on stderr.
    (*writer)[evermap::string("gone", index.get_allocator<char>())].push_back(1);
  }
  CHECK(index.read()->empty());
  CHECK_THROWS(evermap::busy, store.read("refused"));
  index.sync();
  index.checkpoint();
  index.close();
  CHECK_THROWS(evermap::schema_mismatch,
               evermap::shared<evermap::vector<int>>(store, "refused"));
}

void a_session_with_changes_is_not_closed(evermap::store& store) {
  evermap::session session = store.write_or_create("session");
  auto& numbers = session.find_or_make_root<evermap::vector<int>>();
  CHECK(says(CHECK_THROWS(evermap::uncommitted, session.close()), "roll back"));
  CHECK(session.is_open());
  session.commit();
  numbers.push_back(1);
  CHECK_THROWS(evermap::uncommitted, session.close());
  session.rollback();
  session.close();
  {
    // A destructor cannot fail.
    evermap::session again = store.write("session");
    again.root<evermap::vector<int>>()->push_back(2);
  }
  CHECK(store.read("session").root<evermap::vector<int>>()->empty());
}

}  // namespace

int main(int, char** arguments) {
  return run_reporting([&] {
    evermap::store store =
        evermap::store::open_or_create(std::string(arguments[1]) + "/shared");
    threads_share(store, "acknowledged", false);
    threads_share(store, "early", true);
    a_thread_is_refused_and_does_not_wait_for_itself(store);
    a_session_with_changes_is_not_closed(store);
  });
}
