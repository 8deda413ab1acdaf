// Reads and prints an object that a Rust program created, one line per entry.
//
//     rust_objects STORE journal       a raw object of plain structs (journal.h)
//     rust_objects STORE library       a typed object, through the views of rust.hpp

#include "check.hpp"

#include "journal.h"

#include <cstring>

namespace {

// The structs of tests/cpp.rs.
struct book {
  evermap::pstring title;
  std::uint32_t year;
  evermap::pvec<evermap::pstring> authors;
};
struct library {
  evermap::pvec<book> books;
  evermap::pmap<evermap::pstring, std::uint64_t> shelves;
  evermap::pbox<book> newest;
  evermap::pbox<book> lost;
};

void print(const book& b) {
  std::cout << b.title.view() << " " << b.year;
  for (const auto& author : b.authors) {
    std::cout << ", " << author.view();
  }
  std::cout << "\n";
}

void print_journal(evermap::store& store) {
  evermap::snapshot snapshot = store.read("journal");
  CHECK(std::memcmp(snapshot.root_tag().data(), JOURNAL_TAG, sizeof JOURNAL_TAG) == 0);
  CHECK(snapshot.root_size() == sizeof(journal));
  const auto* root = static_cast<const journal*>(snapshot.raw_root());
  std::cout << root->entries << " entries\n";
  for (const journal_entry* entry = root->first; entry != nullptr; entry = entry->next) {
    CHECK(snapshot.contains(entry, sizeof *entry) && evermap::object_of(entry) != nullptr);
    std::cout << entry->number << " " << entry->text << "\n";
  }
}

void print_library(evermap::store& store) {
  evermap::snapshot snapshot = store.read("library");
  CHECK(says(CHECK_THROWS(evermap::schema_mismatch, (void)snapshot.rust_root<library>("Other{")),
             "Library{books@0:PVec<Book>"));
  CHECK_THROWS(evermap::schema_mismatch, (void)snapshot.root<library>());
  const auto* root = snapshot.rust_root<library>(
      "Library{books@0:PVec<Book>,shelves@24:PMap<PString,u64>,newest@64:Option<PBox<Book>>,"
      "lost@72:Option<PBox<Book>>}#80/8;Book{title@0:PString,year@24:u32,"
      "authors@32:PVec<PString>}#56/8");
  for (const book& b : root->books) {
    print(b);
  }
  std::cout << root->shelves.size() << " shelves\n";
  for (const auto& shelf : root->shelves) {
    std::cout << shelf.key.view() << " " << shelf.value << "\n";
  }
  CHECK(root->newest && !root->lost);
  print(*root->newest);
}

}  // namespace

int main(int count, char** arguments) {
  CHECK(count == 3);
  return run_reporting([&] {
    evermap::store store(arguments[1]);
    arguments[2] == std::string("journal") ? print_journal(store) : print_library(store);
  });
}
