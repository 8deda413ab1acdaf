// Tests of commits with pointers that lead out of the object.
//
//     foreign STORE OTHER_STORE

#include "check.hpp"

#include <map>
#include <memory>
#include <thread>
#include <vector>

namespace {

// Its constructor hides the types of its members.
class hidden {
 public:
  hidden() { words_["a word that is longer than what a string keeps in itself"] = 1; }

 private:
  std::map<std::string, int> words_;
};

struct pointers {
  const void* first;
  const void* second;
  evermap::vector<const void*> more;
};

struct shape {
  virtual ~shape() = default;
  virtual int corners() const = 0;
};
struct square final : shape {
  int corners() const override { return 4; }
};
struct drawing : evermap::polymorphic<square> {
  evermap::vector<evermap::unique_ptr<shape>> shapes;
};

struct report {
  std::string object, into, message;
  std::uint64_t address, value;
};
std::vector<report> reports;

void note(const em_foreign_pointer* pointer, void* context) {
  CHECK(context == &reports && pointer->size == sizeof *pointer);
  reports.push_back({pointer->object, pointer->into, pointer->message, pointer->address, pointer->value});
}

// Commits, and returns the reports.
std::vector<report> commit(evermap::session& session) {
  reports.clear();
  session.commit();
  return reports;
}

std::uint64_t address_of(const void* place) { return reinterpret_cast<std::uintptr_t>(place); }

void each_kind_of_memory_is_named(evermap::store& store, evermap::store& other) {
  evermap::session session = store.write_or_create("kinds");
  evermap::session second = store.write_or_create("kinds of the same store");
  evermap::session elsewhere = other.write_or_create("elsewhere");
  auto& root = session.find_or_make_root<pointers>();
  CHECK(commit(session).empty());
  const auto heap = std::make_unique<int>(7);
  int local = 1;
  const void* of_thread = nullptr;
  static int variable = 2;
  const auto one = [&](const void* to, const char* into) {
    root.first = nullptr;
    CHECK(commit(session).empty());
    // Each place is reported once per session, so every kind uses another place.
    root.more.push_back(to);
    const auto told = commit(session);
    CHECK(told.size() == 1 && told[0].object == "kinds" && told[0].value == address_of(to));
    CHECK(told[0].address == address_of(&root.more.back()));
    CHECK(says(told[0].into, into) && says(told[0].message, into) &&
          says(told[0].message, "in the next process: "));
    CHECK(commit(session).empty());
  };
  root.more.reserve(100);
  one(heap.get(), "the C heap");
  one(&local, "the stack of the main thread");
  one(&variable, "foreign");
  one("a literal", "foreign");
  one(reinterpret_cast<const void*>(&std::strlen), "/libc");
  one(elsewhere.make<int>(1), "store");
  std::thread([&] {
    int here = 3;
    of_thread = &here;
    one(of_thread, "the stack of a thread");
  }).join();
  // Legal: this object, other objects of its store, and values that are not addresses.
  root.first = &root;
  root.second = second.make<int>(1);
  root.more.push_back(reinterpret_cast<const void*>(std::uintptr_t{12345}));
  CHECK(commit(session).empty());
  // A reported place is not reported again, whatever it holds.
  root.more[0] = &local;
  CHECK(commit(session).empty());
  // Freed blocks are ignored.
  auto* const freed = session.make<const void*>(&local);
  session.destroy(freed);
  CHECK(commit(session).empty());
}

void memory_that_is_new_is_known(evermap::store& store) {
  evermap::session session = store.write_or_create("new memory");
  auto& root = session.find_or_make_root<pointers>();
  CHECK(commit(session).empty());
  // Too large for the existing mappings.
  const std::vector<char> large(std::size_t{200} << 20);
  root.first = large.data() + large.size() / 2;
  CHECK(commit(session).size() == 1);
}

void refusing_loses_nothing(evermap::store& store) {
  evermap::write_options options;
  options.foreign_pointers = EM_FOREIGN_REFUSE;
  int local = 1;
  {
    evermap::session session = store.write_or_create("refused", options);
    auto& root = session.find_or_make_root<pointers>();
    root.more.push_back(&root);
    CHECK(session.commit());
    root.first = &local;
    root.more.push_back(&local);
    const std::string text = CHECK_THROWS(evermap::foreign_pointer, session.commit());
    CHECK(says(text, "refused") && says(text, "2 pointers") && says(text, "the stack of the main"));
    CHECK_THROWS(evermap::foreign_pointer, session.commit());
    root.first = root.more.data();
    // The vector's block still has the old value.
    root.more.back() = nullptr;
    root.more.pop_back();
    CHECK(session.commit());
    root.first = &local;
    CHECK_THROWS(evermap::foreign_pointer, session.commit());
    session.rollback();
    CHECK(session.root<pointers>()->first != &local && !session.commit());
  }
  CHECK(store.read("refused").root<pointers>()->more.size() == 1);
  options.foreign_pointers = EM_FOREIGN_ALLOW;
  evermap::session session = store.write("refused", options);
  session.root<pointers>()->first = &local;
  CHECK(commit(session).empty());
}

void a_standard_container_in_a_class_is_reported(evermap::store& store) {
  evermap::session session = store.write_or_create("hidden");
  (void)session.find_or_make_root<hidden>();
  const auto told = commit(session);
  CHECK(!told.empty() && says(told[0].into, "the C heap"));
}

void expected_pointers_are_ignored(evermap::store& store) {
  evermap::session session = store.write_or_create("expected");
  int local = 1;
  auto& root = session.find_or_make_root<pointers>();
  root.first = &local;
  root.second = &local;
  CHECK(em_expect_foreign(session.handle(), &root.first, sizeof root.first) == EM_OK);
  CHECK(em_expect_foreign(session.handle(), &local, sizeof local) == EM_INVALID_ARGUMENT);
  const auto told = commit(session);
  CHECK(told.size() == 1 && told[0].address == address_of(&root.second));
}

void tables_of_registered_classes_are_expected(evermap::store& store) {
  for (int i = 0; i < 2; ++i) {
    evermap::session session = store.write_or_create("drawing");
    auto& all = session.find_or_make_root<drawing>();
    all.shapes.push_back(session.make_unique<square>());
    CHECK(commit(session).empty());
    CHECK(all.shapes.back()->corners() == 4);
  }
}

// Each bit of the root and of the list of its classes, changed in the file.
void a_root_changed_at_any_bit_raises_no_signal(const std::filesystem::path& directory,
                                                   evermap::store& store) {
  std::filesystem::path file;
  for (const auto& each : std::filesystem::directory_iterator(directory / "objects")) {
    if (each.path().filename().string() == store.read("drawing").info().uuid) {
      file = each.path();
    }
  }
  std::vector<std::pair<std::uint64_t, std::size_t>> ranges;
  {
    evermap::snapshot snapshot = store.read("drawing");
    const auto base = reinterpret_cast<std::uintptr_t>(em_object_base(snapshot.handle()));
    const auto* const root = static_cast<const unsigned char*>(snapshot.raw_root());
    ranges.emplace_back(address_of(root) - base, sizeof(drawing));
    // The list of classes: the root begins with its allocator and the list's three pointers.
    const unsigned char* list = nullptr;
    std::memcpy(&list, root + sizeof(void*), sizeof list);
    CHECK(snapshot.contains(list, sizeof(evermap::detail::class_entry)));
    ranges.emplace_back(address_of(list) - base, sizeof(evermap::detail::class_entry));
    // Page 0: what the superblock says of the root.
    ranges.emplace_back(104, 32);
    ranges.emplace_back(2048, 128);
  }
  std::FILE* const opened = std::fopen(file.c_str(), "r+b");
  CHECK(opened != nullptr);
  std::setbuf(opened, nullptr);
  int refused = 0, fine = 0;
  const auto write = [&](std::uint64_t at, int byte) {
    CHECK(std::fseek(opened, static_cast<long>(at), SEEK_SET) == 0 && std::fputc(byte, opened) == byte);
  };
  for (const auto& [begin, bytes] : ranges) {
    for (std::uint64_t at = begin; at < begin + bytes; ++at) {
      CHECK(std::fseek(opened, static_cast<long>(at), SEEK_SET) == 0);
      const int before = std::fgetc(opened);
      for (int bit = 0; bit < 8; ++bit) {
        write(at, before ^ (1 << bit));
        try {
          evermap::snapshot snapshot = store.read("drawing");
          const drawing* const root = snapshot.root<drawing>();
          fine += root != nullptr;
        } catch (const evermap::error&) {
          ++refused;
        }
        try {
          evermap::session session = store.write("drawing");
          fine += session.root<drawing>() != nullptr;
        } catch (const evermap::error&) {
          ++refused;
        } catch (const std::bad_alloc&) {
          ++refused;
        }
        write(at, before);
      }
    }
  }
  std::fclose(opened);
  CHECK(refused > 1000);
  std::cout << refused << " refused, " << fine << " without effect on it\n";
  evermap::snapshot snapshot = store.read("drawing");
  CHECK(snapshot.root<drawing>()->shapes.back()->corners() == 4);
}

}  // namespace

int main(int count, char** arguments) {
  CHECK(count == 3);
  return run_reporting([&] {
    evermap::store store = evermap::store::open_or_create(arguments[1]);
    evermap::store other = evermap::store::open_or_create(arguments[2]);
    em_on_foreign_pointer(note, &reports);
    each_kind_of_memory_is_named(store, other);
    memory_that_is_new_is_known(store);
    refusing_loses_nothing(store);
    a_standard_container_in_a_class_is_reported(store);
    expected_pointers_are_ignored(store);
    tables_of_registered_classes_are_expected(store);
    a_root_changed_at_any_bit_raises_no_signal(arguments[1], store);
    em_on_foreign_pointer(nullptr, nullptr);
  });
}
