// Tests of the C++ interface beyond containers: owners, errors, tags, and the source of memory.
//
//     behaviour DIRECTORY      (an empty one)

#include "check.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <limits>
#include <scoped_allocator>
#include <thread>
#include <type_traits>

namespace {

using evermap::process_heap;
using namespace std::string_literals;

constexpr const char* long_text = "a text that is longer than what a string keeps in itself";

struct person {
  evermap::string name;
  explicit person(const char* called) : name(called) {}
};
struct bomb {
  evermap::string name = evermap::string(long_text);
  bomb() { throw std::runtime_error("boom"); }
};
// Names its elements in both ways, like `std::span`.
struct view_of_numbers {
  using value_type = int;
  using element_type = const int;
  const int* first;
  std::size_t count;
};
struct version_one {
  int a;
};
struct version_two {
  int a;
};

}  // namespace

template <>
inline constexpr unsigned evermap::layout_version<version_two> = 2;

namespace {

static_assert(std::is_nothrow_move_constructible_v<evermap::store>);
static_assert(std::is_nothrow_move_assignable_v<evermap::session>);
static_assert(std::is_nothrow_move_constructible_v<evermap::snapshot>);
static_assert(!std::is_copy_constructible_v<evermap::session>);
static_assert(sizeof(evermap::allocator<int>) == 8 && sizeof(evermap::vector<int>) == 32);
static_assert(!std::allocator_traits<evermap::allocator<int>>::is_always_equal::value);
static_assert(evermap::can_live_in_object<evermap::map<int, evermap::string>>);
static_assert(!evermap::can_live_in_object<std::pair<int, std::string>>);
static_assert(!evermap::can_live_in_object<std::shared_ptr<int>>);
static_assert(!evermap::can_live_in_object<std::unique_ptr<int>>);
static_assert(evermap::can_live_in_object<evermap::unique_ptr<int>>);
static_assert(!evermap::can_live_in_object<void (*)()>);
// The published values of FNV-1a, 128 bits.
static_assert(evermap::fnv1a("")[0] == 0x6c && evermap::fnv1a("")[15] == 0x8d);
static_assert(evermap::fnv1a("a")[0] == 0xd2 && evermap::fnv1a("a")[1] == 0x28 &&
              evermap::fnv1a("a")[15] == 0x64);

void owners_move_and_close_once(evermap::store& store) {
  evermap::session session = store.write_or_create("owners");
  evermap::session other = std::move(session);
  CHECK(!session.is_open() && other.is_open());
  session = std::move(other);
  CHECK(session.is_open() && session.name() == "owners");
  CHECK(session.commit() == false);
  session.close();
  session.close();
  CHECK_THROWS(evermap::closed, session.commit());
  CHECK_THROWS(evermap::closed, (void)session.raw_root());
  CHECK_THROWS(evermap::closed, (void)session.root<int>());
  {
    evermap::session forgotten = store.write("owners");
    forgotten.set_root(forgotten.make<int>(5));
  }
  CHECK(store.read("owners").root<int>() == nullptr);
}

void errors_have_a_class_each(const std::filesystem::path& directory, evermap::store& store) {
  CHECK(says(CHECK_THROWS(evermap::not_found, (void)store.read("nothing")), "nothing"));
  CHECK_THROWS(evermap::already_exists, store.create_object("owners"));
  CHECK_THROWS(evermap::invalid_name, store.create_object(".."));
  CHECK_THROWS(evermap::out_of_addresses, store.create_object("vast", UINT64_MAX));
  store.create_object("roomy", 1 << 20);
  CHECK(store.write("roomy").info().backed_bytes >= 1 << 20);
  store.remove("roomy");
  CHECK_THROWS(evermap::invalid_name, store.create_object("a\0b"s));
  CHECK_THROWS(evermap::no_store, evermap::store(directory / "nowhere"));
  CHECK_THROWS(evermap::store_exists, evermap::store::create(directory / "store"));
  try {
    (void)store.read("nothing");
  } catch (const evermap::error& e) {
    CHECK(e.status() == EM_NOT_FOUND);
  }
  const evermap::session session = store.write("owners");
  CHECK_THROWS(evermap::busy, (void)store.write("owners"));
  CHECK_THROWS(evermap::busy, (void)store.read("owners"));
  CHECK_THROWS(evermap::busy, store.remove("owners"));

  evermap::store_options options;
  options.application = "letters";
  evermap::store letters(directory / "store", options);
  letters.create_object("letter");
  CHECK_THROWS(evermap::other_application, (void)store.write("letter"));
  letters.write("letter").close();
  options.busy_timeout = std::chrono::milliseconds(-1);
  CHECK_THROWS(evermap::invalid_argument, evermap::store(directory / "store", options));
}

void stores_list_rename_and_remove(evermap::store& store) {
  store.create_object("one");
  store.rename("one", "two");
  CHECK(store.contains("two") && !store.contains("one"));
  const auto names = store.list();
  CHECK(std::find(names.begin(), names.end(), "two") != names.end());
  {
    evermap::session session = store.write("two");
    CHECK(store.object_at(session.make<int>(1)) == "two");
    CHECK(store.object_at(&store) == std::nullopt);
  }
  store.remove("two");
  CHECK(!store.contains("two"));
}

void a_root_of_another_type_is_refused(evermap::store& store) {
  evermap::session session = store.write_or_create("typed");
  session.find_or_make_root<version_one>();
  const std::string text = CHECK_THROWS(evermap::schema_mismatch, session.root<version_two>());
  CHECK(says(text, "version_one") && says(text, "version_two") && says(text, "stored"));
  CHECK_THROWS(evermap::schema_mismatch, session.root<int>());
  CHECK(evermap::tag_of<version_one>() != evermap::tag_of<version_two>());
  CHECK(evermap::tag_of<evermap::vector<int>>() != evermap::tag_of<evermap::vector<unsigned>>());
  CHECK(says(evermap::signature<int>(), "lp64"));
  CHECK(says(evermap::signature<version_two>(), "v2"));
  // The elements are part of a container's type.
  CHECK(says(evermap::signature<evermap::vector<version_two>>(), "v2"));
  CHECK(says(evermap::description<view_of_numbers>(), "[ int#4/4[]]"));
  CHECK(session.root<version_one>() != nullptr);
  session.set_root(nullptr);
  CHECK(session.root<int>() == nullptr);
  static int elsewhere;
  CHECK_THROWS(evermap::bad_root, session.set_root(&elsewhere));
}

void memory_comes_from_the_object_or_stays_outside(evermap::store& store) {
  evermap::session session = store.write_or_create("memory");
  const evermap::string on_the_stack(long_text);
  CHECK(!session.contains(on_the_stack.data()));
  auto& people = session.find_or_make_root<evermap::vector<person>>();
  CHECK(people.get_allocator() == session.get_allocator<person>());
  // The class does not use allocators; its string is in the object.
  people.emplace_back(long_text);
  CHECK(session.contains(people[0].name.data()));
  const std::string text = CHECK_THROWS(evermap::invalid_argument, people.push_back(person(long_text)));
  CHECK(says(text, "person") && says(text, "emplace") && says(text, "evermap::scope"));
  {
    const evermap::scope in_object(session);
    people.push_back(person(long_text));
    CHECK(session.contains(people[1].name.data()));
  }

  // A string of the process's heap is copied when it is given to the object's containers.
  const evermap::string outside(long_text, process_heap);
  CHECK(!session.contains(outside.data()));
  auto* const strings = session.make<evermap::vector<evermap::string>>();
  strings->push_back(outside);
  strings->push_back(evermap::string(outside));
  (*strings)[0] = outside;
  CHECK(session.contains((*strings)[0].data()) && session.contains((*strings)[1].data()));
  // Elements of a container of the process's heap are on that heap as well.
  evermap::vector<person> local(process_heap);
  local.emplace_back(long_text);
  CHECK(!session.contains(local[0].name.data()));

  // An alignment larger than malloc's.
  struct alignas(256) wide {
    char bytes[256];
  };
  CHECK(reinterpret_cast<std::uintptr_t>(session.make<wide>()) % 256 == 0);

  // std::scoped_allocator_adaptor is not needed, but works.
  using inner = std::basic_string<char, std::char_traits<char>, evermap::allocator<char>>;
  using scoped = std::vector<inner, std::scoped_allocator_adaptor<evermap::allocator<inner>>>;
  auto* const adapted = session.make<scoped>();
  adapted->emplace_back(long_text);
  CHECK(session.contains((*adapted)[0].data()));
}

void containers_of_two_objects_stay_apart(evermap::store& store) {
  evermap::session a = store.write_or_create("a");
  evermap::session b = store.write_or_create("b");
  auto* const in_a = a.make<evermap::vector<evermap::string>>();
  auto* const in_b = b.make<evermap::vector<evermap::string>>();
  in_a->emplace_back(long_text);
  *in_b = *in_a;
  CHECK(b.contains(in_b->data()) && b.contains((*in_b)[0].data()));
  in_b->clear();
  *in_b = std::move(*in_a);
  CHECK(b.contains(in_b->data()) && b.contains((*in_b)[0].data()));
  in_b->push_back(std::move((*in_b)[0]));
  auto* const copied = b.make<evermap::vector<evermap::string>>(*in_a);
  CHECK(copied->get_allocator() == b.get_allocator<evermap::string>());
  // The thread's last object changes with every call; no block is freed in the wrong one.
  for (int i = 0; i < 100; ++i) {
    in_a->emplace_back(long_text);
    in_b->emplace_back(long_text);
  }
  in_a->clear();
  in_b->clear();
}

void what_cannot_be_allocated_changes_nothing(evermap::store& store) {
  evermap::session session = store.write_or_create("refused");
  auto& bytes = session.find_or_make_root<evermap::vector<char>>();
  bytes.assign(100, 'x');
  session.commit();
  const auto blocks = session.info().blocks;
  try {
    bytes.reserve(std::size_t{1} << 60);
    CHECK(false);
  } catch (const evermap::bad_alloc& e) {
    CHECK(e.status() == EM_BAD_ALLOCATION);
    CHECK(says(e.what(), "1152921504606846976"));
  }
  CHECK_THROWS(std::length_error, bytes.reserve(std::numeric_limits<std::size_t>::max()));
  CHECK_THROWS(std::bad_array_new_length,
               (void)session.get_allocator<long>().allocate(std::numeric_limits<std::size_t>::max()));
  CHECK(bytes.size() == 100 && bytes.back() == 'x');
  CHECK_THROWS(std::runtime_error, (void)session.make<bomb>());
  auto* const bombs = session.make<evermap::vector<bomb>>();
  CHECK_THROWS(std::runtime_error, bombs->emplace_back());
  session.destroy(bombs);
  CHECK(session.info().blocks == blocks);
  session.destroy(static_cast<int*>(nullptr));
}

void snapshots_are_for_reading(evermap::store& store) {
  {
    evermap::session session = store.write_or_create("read");
    auto& words = session.find_or_make_root<evermap::vector<evermap::string>>();
    words.emplace_back(long_text);
    session.commit();
  }
  evermap::snapshot snapshot = store.read("read");
  const auto* const words = snapshot.root<evermap::vector<evermap::string>>();
  CHECK(words->at(0) == long_text);
  try {
    const evermap::vector<evermap::string> copy(*words);
    CHECK(false);
  } catch (const evermap::bad_alloc& e) {
    CHECK(e.status() == EM_READ_ONLY);
  }
  const evermap::vector<evermap::string> copy(*words, process_heap);
  CHECK(copy == *words);
  CHECK(!snapshot.refresh());
  CHECK(snapshot.info().mode == EM_READ);
  snapshot.close();
  // A refresh that finds the object closed leaves nothing to close.
  snapshot = store.read("read");
  CHECK(em_object_close(snapshot.handle()) == EM_OK);
  CHECK_THROWS(evermap::closed, (void)snapshot.refresh());
  CHECK(!snapshot.is_open());
  snapshot.close();
  evermap::string stale(evermap::allocator<char>(std::uintptr_t{0x12345000}));
  try {
    stale.assign(100, 'x');
    CHECK(false);
  } catch (const evermap::bad_alloc& e) {
    CHECK(e.status() == EM_CLOSED);
  }
}

void a_reopened_object_is_found_again(evermap::store& store) {
  for (int i = 0; i < 3; ++i) {
    evermap::session session = store.write_or_create("again");
    auto& list = session.find_or_make_root<evermap::list<evermap::string>>();
    list.emplace_back(long_text);
    if (list.size() > 1) {
      list.pop_front();
    }
    session.commit();
  }
}

void threads_allocate_together(evermap::store& store) {
  evermap::session session = store.write_or_create("threads");
  auto& all = session.find_or_make_root<evermap::vector<evermap::map<int, evermap::string>>>();
  all.resize(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < all.size(); ++t) {
    threads.emplace_back([&mine = all[t]] {
      for (int i = 0; i < 2000; ++i) {
        mine[i % 300] = std::string(static_cast<std::size_t>(i % 90), 'x').c_str();
        mine.erase(i % 7);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  session.commit();
  for (const auto& mine : all) {
    for (const auto& [key, text] : mine) {
      CHECK(key < 300 && text.find_first_not_of('x') == evermap::string::npos);
    }
  }
}

void owned_values_are_freed(evermap::store& store) {
  struct node {
    evermap::unique_ptr<node> next;
    evermap::string text;
  };
  evermap::session session = store.write_or_create("owned");
  auto& first = session.find_or_make_root<evermap::unique_ptr<node>>();
  const auto blocks = session.info().blocks;
  for (int i = 0; i < 10; ++i) {
    auto made = session.make_unique<node>();
    made->text.assign(long_text);
    made->next = std::move(first);
    first = std::move(made);
  }
  CHECK(session.info().blocks == blocks + 20);
  first.reset();
  CHECK(session.info().blocks == blocks);
}

void room_is_made_and_given_back(evermap::store& store) {
  evermap::session session = store.write_or_create("room");
  session.reserve(8 << 20);
  const auto reserved = session.info().file_bytes;
  CHECK(reserved >= 8 << 20);
  CHECK(session.release(4096) <= 4096);
  session.shrink();
  session.sync();
  session.checkpoint();
  CHECK(session.info().file_bytes < reserved);
}

void every_choice_of_a_writer_reaches_c() {
  evermap::write_options chosen;
  chosen.durability = EM_DURABILITY_INTERVAL;
  chosen.interval = std::chrono::milliseconds(2);
  chosen.when_log_full = EM_WHEN_LOG_FULL_REFUSE;
  chosen.log_bytes_max = 3;
  chosen.hot_bytes_max = 4;
  chosen.checkpoint_after = std::chrono::milliseconds(5);
  chosen.log_full_pages = true;
  chosen.protection = EM_PROTECTION_PAGES;
  chosen.in_children = EM_IN_CHILDREN_PRIVATE;
  chosen.foreign_pointers = EM_FOREIGN_REFUSE;
  const em_write_options given = evermap::detail::options_of(chosen);
  CHECK(given.size == sizeof given);
  CHECK(given.durability == EM_DURABILITY_INTERVAL && given.interval_ms == 2);
  CHECK(given.when_log_full == EM_WHEN_LOG_FULL_REFUSE && given.log_bytes_max == 3);
  CHECK(given.hot_bytes_max == 4 && given.checkpoint_after_ms == 5);
  CHECK(given.log_full_pages == 1 && given.protection == EM_PROTECTION_PAGES);
  CHECK(given.in_children == EM_IN_CHILDREN_PRIVATE);
  CHECK(given.foreign_pointers == EM_FOREIGN_REFUSE);
}

void a_forked_child_reads_and_commits_nothing(evermap::store& store) {
  evermap::session session = store.write_or_create("forked");
  auto heap = session.get_allocator<char>();
  char* const block = heap.allocate(100);
  block[99] = 7;
  const pid_t child = fork();
  if (child == 0) {
    int code = block[99] == 7 ? 1 : 3;
    try {
      session.commit();
    } catch (const evermap::forked&) {
      try {
        (void)heap.allocate(100);
      } catch (const evermap::bad_alloc& e) {
        code = e.status() == EM_FORKED && code == 1 ? 0 : 2;
      }
    }
    heap.deallocate(block, 100);
    {
      const evermap::session ended = std::move(session);
    }
    _exit(code);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  heap.deallocate(block, 100);
}

// A root of two words, the second of them a pointer.
struct pair_of_words {
  std::uint64_t number;
  const void* to;
};

void a_protected_session_stores_in_scopes(evermap::store& store) {
  for (const em_protection way : {EM_PROTECTION_OFF, EM_PROTECTION_PAGES, EM_PROTECTION_KEYS}) {
    evermap::write_options options;
    options.protection = way;
    evermap::session session = store.write_or_create("protected", options);
    CHECK(way == EM_PROTECTION_KEYS ? session.protection() != EM_PROTECTION_OFF
                                    : session.protection() == way);
    {
      const evermap::write_scope open = session.begin_write();
      auto& words = session.find_or_make_root<evermap::vector<evermap::string>>();
      words.emplace_back(long_text);
    }
    session.commit();
    const auto before = session.root<evermap::vector<evermap::string>>()->size();
    {
      const evermap::write_scope open = session.begin_write();
      session.root<evermap::vector<evermap::string>>()->clear();
    }
    session.rollback();
    CHECK(session.root<evermap::vector<evermap::string>>()->size() == before);
    if (way != EM_PROTECTION_OFF) {
      // The scopes have ended, each once.
      CHECK(em_write_end(session.handle()) == EM_INVALID_ARGUMENT);
    }
  }
}

void tools_look_at_stores_and_take_them_elsewhere(const std::filesystem::path& directory) {
  const auto path = directory / "tools", copy = directory / "copy", made = directory / "made";
  {
    evermap::store store = evermap::store::create(path);
    evermap::session session = store.write_or_create("pair");
    auto& pair = session.find_or_make_root<pair_of_words>(pair_of_words{1, nullptr});
    pair.to = &store;  // means nothing in the next process
    (void)session.make<int>(7);
    session.commit();
  }
  const evermap::audit_report audited = evermap::audit(path, "pair");
  CHECK(audited.is_damaged() && audited.damage == 1 && audited.findings.size() == 2);
  CHECK(audited.findings[0].kind == EM_AUDIT_FOREIGN && audited.findings[0].severity == EM_DAMAGE);
  CHECK(audited.findings[0].samples.at(0).path == "root +8");
  CHECK(audited.findings[1].kind == EM_AUDIT_LEAK && audited.leaked_blocks == 1);
  CHECK(audited.doubt == EM_DOUBT_NO_POINTERS);
  CHECK_THROWS(evermap::not_found, (void)evermap::audit(path, "none"));

  const evermap::copy_report copied = evermap::backup(path, copy);
  CHECK(copied.objects == 1 && copied.damage.empty());
  CHECK_THROWS(evermap::store_exists, (void)evermap::backup(path, copy));
  CHECK_THROWS(evermap::store_exists, (void)evermap::restore(copy, path));
  em_copy_options replace = EM_COPY_OPTIONS_DEFAULT;
  replace.replace = 1;
  CHECK(evermap::restore(copy, path, replace).objects == 1);

  em_rebase_options plan = EM_REBASE_OPTIONS_DEFAULT;
  plan.dry_run = 1;
  CHECK(evermap::rebase(path, plan).to == 0);
  const evermap::rebase_report moved = evermap::rebase(path);
  CHECK(moved.to != moved.from && moved.objects == 1 && moved.words.empty());
  evermap::undo_rebase(path);
  CHECK_THROWS(evermap::nothing_kept, evermap::undo_rebase(path));
  plan.dry_run = 0;
  plan.to = 4096;
  CHECK_THROWS(evermap::bad_base, (void)evermap::rebase(path, plan));
  (void)evermap::rebase(path);
  evermap::store(path).create_object("new");
  CHECK_THROWS(evermap::changed_since, evermap::undo_rebase(path));
  evermap::undo_rebase(path, true);

  std::FILE* const file = std::tmpfile();
  CHECK(file != nullptr);
  const int descriptor = fileno(file);
  CHECK(evermap::export_object(path, "pair", descriptor).bytes > 0);
  const auto again = [&] { CHECK(lseek(descriptor, 0, SEEK_SET) == 0); };
  again();
  CHECK_THROWS(evermap::no_store, (void)evermap::import_object(made, descriptor));
  em_import_options create = EM_IMPORT_OPTIONS_DEFAULT;
  create.create = 1;
  again();
  CHECK(evermap::import_object(made, descriptor, create).name == "pair"s);
  again();
  CHECK_THROWS(evermap::already_exists, (void)evermap::import_object(made, descriptor));
  CHECK(ftruncate(descriptor, 5000) == 0);
  again();
  create.name = "cut";
  CHECK_THROWS(evermap::bad_export, (void)evermap::import_object(made, descriptor, create));
  std::fclose(file);
  evermap::store imported(made);
  CHECK(imported.read("pair").root<pair_of_words>()->number == 1);
}

}  // namespace

int main(int count, char** arguments) {
  CHECK(count == 2);
  return run_reporting([&] {
    const std::filesystem::path directory = arguments[1];
    evermap::store store = evermap::store::create(directory / "store");
    owners_move_and_close_once(store);
    errors_have_a_class_each(directory, store);
    stores_list_rename_and_remove(store);
    a_root_of_another_type_is_refused(store);
    memory_comes_from_the_object_or_stays_outside(store);
    containers_of_two_objects_stay_apart(store);
    what_cannot_be_allocated_changes_nothing(store);
    snapshots_are_for_reading(store);
    a_reopened_object_is_found_again(store);
    threads_allocate_together(store);
    owned_values_are_freed(store);
    room_is_made_and_given_back(store);
    a_protected_session_stores_in_scopes(store);
    tools_look_at_stores_and_take_them_elsewhere(directory);
    every_choice_of_a_writer_reaches_c();
    a_forked_child_reads_and_commits_nothing(store);
  });
}
