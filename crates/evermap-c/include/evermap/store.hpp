/**
 * @file Stores, sessions and snapshots: owners of the handles of `evermap.h`. They are movable but
 * not copyable, their destructors never throw, and all other functions throw the errors of
 * `error.hpp`.
 */
#ifndef EVERMAP_STORE_HPP
#define EVERMAP_STORE_HPP

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "containers.hpp"
#include "error.hpp"
#include "polymorphic.hpp"
#include "type.hpp"

namespace evermap {

/** Options for opening and creating stores; fields that are not set are the defaults of
 * `em_store_options`. */
struct store_options {
  /** Maximum wait for an object that another process has open. */
  std::chrono::milliseconds busy_timeout{0};
  /** Maximum wait for another process that changes the list of objects; zero: 10 s. */
  std::chrono::milliseconds catalog_timeout{0};
  /** Checks made when an object is opened. */
  em_verify verify = EM_VERIFY_SUPERBLOCK;
  /** Name of the application whose objects are created and opened. */
  std::optional<std::string> application;
  /** Address space of a new store in bytes; zero: 64 GiB. */
  std::uint64_t arena_bytes = 0;
  /** Range of addresses for a new store; both or none. */
  std::uint64_t window_base = 0;
  std::uint64_t window_end = 0;
  /** File in which stores record their addresses; an empty path for none. */
  std::optional<std::filesystem::path> arena_registry;
  /** Action for objects with pointers into a build that this process does not have. */
  em_other_builds other_builds = EM_OTHER_BUILDS_REFUSE;
};

/** Options of one writer; zero is the default of `em_write_options`. */
struct write_options {
  em_durability durability = EM_DURABILITY_COMMIT;
  /** With EM_DURABILITY_INTERVAL. */
  std::chrono::milliseconds interval{0};
  em_when_log_full when_log_full = EM_WHEN_LOG_FULL_REPLACE;
  std::uint64_t log_bytes_max = 0;
  std::uint64_t hot_bytes_max = 0;
  std::chrono::milliseconds checkpoint_after{0};
  bool log_full_pages = false;
  /** Protects the object against stores outside of a `write_scope`. */
  em_protection protection = EM_PROTECTION_OFF;
  /** Rights of forked children to the object's memory. */
  em_in_children in_children = EM_IN_CHILDREN_READ_ONLY;
  /** Action of commits for pointers that lead out of the object. */
  em_foreign_pointers foreign_pointers = EM_FOREIGN_REPORT;
};

namespace detail {

inline std::uint32_t milliseconds(std::chrono::milliseconds time) {
  if (time.count() < 0 || time.count() > UINT32_MAX) {
    throw invalid_argument("a time is negative or longer than 49 days");
  }
  return static_cast<std::uint32_t>(time.count());
}

/** Converts the options of a writer for C. */
inline em_write_options options_of(const write_options& options) {
  em_write_options given = EM_WRITE_OPTIONS_DEFAULT;
  given.durability = options.durability;
  given.interval_ms = milliseconds(options.interval);
  given.log_bytes_max = options.log_bytes_max;
  given.hot_bytes_max = options.hot_bytes_max;
  given.checkpoint_after_ms = milliseconds(options.checkpoint_after);
  given.when_log_full = options.when_log_full;
  given.log_full_pages = options.log_full_pages;
  given.protection = options.protection;
  given.in_children = options.in_children;
  given.foreign_pointers = options.foreign_pointers;
  return given;
}

/** Converts a name for C. */
inline std::string name_of(std::string_view name) {
  if (name.find('\0') != std::string_view::npos) {
    throw invalid_name("a name with a zero byte cannot name an object");
  }
  return std::string(name);
}

/** Prints on stderr that changes are dropped, because a destructor cannot fail. */
inline void tell_forgotten(em_object* object) noexcept {
  char name[EM_NAME_BUFFER_BYTES] = "?";
  em_object_name(object, name, sizeof name);
  std::fprintf(stderr,
               "evermap: object `%s`: changes that were not committed are forgotten; commit them or "
               "roll back before the end of the session\n",
               name);
}

/** An open object; common part of sessions and snapshots. */
class open_object {
 public:
  open_object(const open_object&) = delete;
  open_object& operator=(const open_object&) = delete;

  /** Returns the handle, for functions of `evermap.h`; null after closing or moving. */
  em_object* handle() const noexcept { return object_; }
  bool is_open() const noexcept { return object_ != nullptr; }

  /** Returns the object's first address, which identifies it for allocators. */
  std::uintptr_t first_address() const noexcept { return anchor_; }

  /** Returns an allocator for the object's containers; valid as long as the object is open, here
   * or in another process. The allocator of a snapshot is for comparisons only: allocating
   * throws. */
  template <class T = std::byte>
  allocator<T> get_allocator() const noexcept {
    return allocator<T>(anchor_);
  }

  /** Returns the object's name at the time of opening. */
  std::string name() const {
    char buffer[EM_NAME_BUFFER_BYTES];
    check(em_object_name(object_, buffer, sizeof buffer));
    return buffer;
  }

  /** Returns the root, of any type; null if there is none. */
  void* raw_root() const {
    void* const root = em_root(object_);
    if (root == nullptr) {
      check_open();
    }
    return root;
  }
  std::size_t root_size() const noexcept { return em_root_size(object_); }
  tag root_tag() const {
    tag value{};
    check(em_root_tag(object_, value.data()));
    return value;
  }
  std::string root_description() const {
    std::string text(EM_DESCRIPTION_BUFFER_BYTES, '\0');
    check(em_root_description(object_, text.data(), text.size()));
    text.resize(std::strlen(text.c_str()));
    return text;
  }

  /** Returns true if `size` bytes from `address` lie in the object. */
  bool contains(const void* address, std::size_t size = 1) const noexcept {
    return em_contains(object_, address, size);
  }
  /** Returns the number of the last commit, or of the one that is read. */
  std::uint64_t sequence() const noexcept { return em_sequence(object_); }

  /** Returns information about the object. Counts blocks: some microseconds per GiB. */
  em_object_info info() const {
    em_object_info result{};
    result.size = sizeof result;
    check(em_info(object_, &result));
    return result;
  }

 protected:
  open_object(em_store* store, std::string_view name, em_mode mode,
              const em_write_options* options) {
    check(em_object_open(store, name_of(name).c_str(), mode, options, &object_));
    anchor_ = reinterpret_cast<std::uintptr_t>(em_object_base(object_));
  }
  open_object(open_object&& other) noexcept
      : object_(std::exchange(other.object_, nullptr)),
        anchor_(std::exchange(other.anchor_, no_object)) {}
  ~open_object() = default;

  void swap(open_object& other) noexcept {
    std::swap(object_, other.object_);
    std::swap(anchor_, other.anchor_);
  }

  void check_open() const { check(em_root_tag(object_, tag{}.data())); }

  void close_handle() {
    em_object* const object = std::exchange(object_, nullptr);
    if (object == nullptr) {
      return;
    }
    const em_status status = em_object_close(object);
    if (status == EM_BUSY || status == EM_UNCOMMITTED) {
      object_ = object;
    }
    check(status);
  }

  /** Forgets the handle if a call closed it. */
  void forget_if_closed() noexcept {
    char name[EM_NAME_BUFFER_BYTES];
    if (em_object_name(object_, name, sizeof name) == EM_CLOSED) {
      object_ = nullptr;
    }
  }

  void forget_handle() noexcept {
    em_object* const object = std::exchange(object_, nullptr);
    if (object != nullptr && em_object_close(object) == EM_UNCOMMITTED) {
      tell_forgotten(object);
      em_rollback(object);
      em_object_close(object);
    }
  }

  /** Returns the root, if there is one, after checking its tag. */
  void* checked_root(const tag& expected, std::size_t size, std::size_t align,
                     const std::string& description) const {
    void* const root = raw_root();
    if (root == nullptr) {
      return nullptr;
    }
    if (root_tag() != expected || root_size() < size ||
        reinterpret_cast<std::uintptr_t>(root) % align != 0) {
      throw schema_mismatch("object `" + name() + "` holds another type:\n  stored:   " +
                            root_description() + "\n  expected: " + description +
                            "\nopen it with the type, the compiler's library and the ABI it was "
                            "made with, or create it again");
    }
    return root;
  }

 private:
  em_object* object_ = nullptr;
  std::uintptr_t anchor_ = no_object;
};

}  // namespace detail

/** Scope in which a protected object may be stored to, from `session.begin_write()`. With keys
 * it applies to this thread, and must end in it. For an object that is neither protected nor
 * `shared` it does nothing. */
class [[nodiscard]] write_scope {
 public:
  /** Errors: `read_only`, `busy`, and errors of the kernel. */
  explicit write_scope(em_object* object) : object_(object) {
    detail::check(em_write_begin(object));
  }
  write_scope(const write_scope&) = delete;
  write_scope& operator=(const write_scope&) = delete;
  ~write_scope() { em_write_end(object_); }

 private:
  em_object* object_;
};

/**
 * A writer's session with an object. Uncommitted changes are dropped when it ends. Pointers into
 * the object are valid until then; pointers to blocks allocated since the last commit only until a
 * rollback. Containers *outside* the object with its memory (on the stack) must be destroyed before
 * a commit, or their memory is leaked in the object if the process dies; and before a rollback.
 */
class session : public detail::open_object {
 public:
  session(session&& other) noexcept
      : open_object(std::move(other)), classes_(std::exchange(other.classes_, nullptr)) {}
  session& operator=(session&& other) noexcept {
    session old(std::move(*this));
    open_object::swap(other);
    std::swap(classes_, other.classes_);
    return *this;
  }
  /** Drops uncommitted changes, with a line on stderr, and ignores errors of the last flush
   * (`close` throws both). */
  ~session() {
    forget_classes();
    forget_handle();
  }

  /** Constructs a value in a block of the object; its containers belong to the object. Strong
   * guarantee: if the constructor throws, nothing stays allocated. Errors: `bad_alloc`, and
   * exceptions of the constructor. */
  template <class T, class... Args>
  [[nodiscard]] T* make(Args&&... args) {
    allocator<T> heap = get_allocator<T>();
    T* const value = heap.allocate(1);
    try {
      heap.construct(value, std::forward<Args>(args)...);
    } catch (...) {
      heap.deallocate(value, 1);
      throw;
    }
    remember_classes<T>();
    return value;
  }

  /** Like `make`, and returns an owner, which may lie in the object. */
  template <class T, class... Args>
  [[nodiscard]] unique_ptr<T> make_unique(Args&&... args) {
    return unique_ptr<T>(make<T>(std::forward<Args>(args)...));
  }

  /** Destroys a value created by `make` and frees its block; null is ignored. */
  template <class T>
  void destroy(T* value) noexcept {
    if (value != nullptr) {
      deleter()(value);
    }
  }

  /** Returns the root, or null when there is none. Errors: `schema_mismatch` when it is of
   * another type. */
  template <class T>
  T* root() {
    auto* const value =
        static_cast<T*>(checked_root(tag_of<T>(), sizeof(T), alignof(T), description<T>()));
    if constexpr (detail::is_registry<T>) {
      if (value != nullptr) {
        remember_classes<T>();
        const write_scope open(handle());
        detail::registry_in(*value).restore();
      }
    }
    return value;
  }

  /** Makes a value created by `make` the root, with the next commit; null for none. The old root
   * is not freed. */
  template <class T>
  void set_root(T* value) {
    detail::check_residence<T>();
    set_raw_root(value, sizeof(T), tag_of<T>(), description<T>());
    remember_classes<T>();
  }
  void set_root(std::nullptr_t) { set_raw_root(nullptr, 0, tag{}, ""); }

  /** Sets a root of any kind, for programs in other languages. Errors: `bad_root`. */
  void set_raw_root(void* value, std::size_t size, const tag& value_tag, const std::string& text) {
    detail::check(em_set_root(handle(), value, size, value_tag.data(), text.c_str()));
  }

  /** Returns the root; the first time, creates one from `args`. Commits nothing. */
  template <class T, class... Args>
  T& find_or_make_root(Args&&... args) {
    if (T* const there = root<T>(); there != nullptr) {
      return *there;
    }
    T* const made = make<T>(std::forward<Args>(args)...);
    try {
      set_root(made);
    } catch (...) {
      destroy(made);
      throw;
    }
    return *made;
  }

  /** Opens an object with `write_options.protection` to stores, for the lifetime of the result.
   * Only functions that store values need it: `make`, `find_or_make_root`, `destroy`, and those of
   * containers. The session's other functions do not. */
  write_scope begin_write() { return write_scope(handle()); }
  /** Returns the protection that is in effect. */
  em_protection protection() const { return static_cast<em_protection>(info().protection); }

  /** Makes all changes since the last commit durable, atomically; false when nothing had
   * changed. No other thread may use the object during the call. One flush. */
  bool commit() {
    bool changed = false;
    detail::check(em_commit(handle(), &changed));
    return changed;
  }

  /** Drops all changes since the last commit. */
  void rollback() {
    detail::check(em_rollback(handle()));
    if (classes_ != nullptr) {
      classes_(*this, true);
    }
  }

  /** Writes all commits to the object's file; false while readers of older commits prevent that. */
  bool checkpoint() {
    bool done = false;
    detail::check(em_checkpoint(handle(), &done));
    return done;
  }
  /** Makes all commits so far durable, at any durability. */
  void sync() { detail::check(em_sync(handle())); }
  /** Allows pointers into this program's functions and static data, and makes other builds of it
   * refuse the object, from the next commit on. Errors: `unsupported` unless the program has a
   * fixed address (-no-pie). */
  void register_code() { detail::check(em_register_code(handle())); }

  /** Reserves space, durably, so that allocating `bytes` bytes cannot fail on a full disk.
   * Commits. */
  void reserve(std::uint64_t bytes) { detail::check(em_reserve(handle(), bytes)); }
  /** Releases up to `bytes_max` bytes of the object's unused end; commits. Returns the number. */
  std::uint64_t release(std::uint64_t bytes_max) {
    std::uint64_t bytes = 0;
    detail::check(em_release(handle(), bytes_max, &bytes));
    return bytes;
  }
  /** Releases all disk space that the object does not need; commits. Returns the number of
   * bytes. */
  std::uint64_t shrink() {
    std::uint64_t bytes = 0;
    detail::check(em_shrink(handle(), &bytes));
    return bytes;
  }

  /** Closes the session. Closing again does nothing. Errors: `uncommitted` when there are
   * uncommitted changes, and `busy` (the session stays open then); errors of the last flush. */
  void close() {
    forget_classes();
    try {
      close_handle();
    } catch (...) {
      if (is_open() && classes_ != nullptr) {
        classes_(*this, true);
      }
      throw;
    }
  }

 private:
  friend class store;
  /** Brings the virtual tables of the root's classes up to date, or drops them. */
  void (*classes_)(session&, bool restore) = nullptr;

  session(em_store* store, std::string_view name, const em_write_options& options)
      : open_object(store, name, EM_WRITE, &options) {}

  template <class T>
  void remember_classes() noexcept {
    if constexpr (detail::is_registry<T>) {
      classes_ = [](session& self, bool restore) {
        detail::registry_type<T>::forget(self.first_address());
        if (restore) {
          self.root<T>();
        }
      };
    }
  }
  void forget_classes() noexcept {
    if (classes_ != nullptr) {
      classes_(*this, false);
    }
  }
};

/**
 * One commit of an object, for reading, possibly during a writer's session in another process. Its
 * memory is mapped read-only: a store to it is SIGSEGV, and allocating throws `bad_alloc` with
 * EM_READ_ONLY. Pointers are valid until it is closed or refreshed.
 */
class snapshot : public detail::open_object {
 public:
  snapshot(snapshot&& other) noexcept
      : open_object(std::move(other)), classes_(std::exchange(other.classes_, nullptr)) {}
  snapshot& operator=(snapshot&& other) noexcept {
    snapshot old(std::move(*this));
    open_object::swap(other);
    std::swap(classes_, other.classes_);
    return *this;
  }
  ~snapshot() { forget_handle(); }

  /** Returns the root, or null when there is none. Errors: `schema_mismatch`. */
  template <class T>
  const T* root() {
    auto* const value =
        static_cast<const T*>(checked_root(tag_of<T>(), sizeof(T), alignof(T), description<T>()));
    if constexpr (detail::is_registry<T>) {
      classes_ = [](snapshot& self) { self.root<T>(); };
      if (value != nullptr) {
        detail::registry_in(*value).restore_in(handle());
      }
    }
    return value;
  }

  /** Returns the root of an object that a Rust program created, as a struct with its layout:
   * members of `rust.hpp`'s types. `expected` is the description of the Rust type, or its
   * beginning. */
  template <class T>
  const T* rust_root(std::string_view expected) const {
    const std::string stored = root_description();
    if (stored.substr(0, expected.size()) != expected || expected.empty()) {
      throw schema_mismatch("object `" + name() + "` holds another type:\n  stored:   " + stored +
                            "\n  expected: " + std::string(expected));
    }
    return static_cast<const T*>(checked_root(root_tag(), sizeof(T), alignof(T), std::string(expected)));
  }

  /** Moves to the newest commit; false when this is the newest. Pointers into the older one
   * dangle then. Errors: `busy` when this process has it open elsewhere too, and `damaged` for a
   * bad page that `verify` found: it is unchanged then. If the newer commit cannot be opened, it
   * is closed; `closed` when this process writes an object that has its name now. */
  bool refresh() {
    bool changed = false;
    try {
      detail::check(em_refresh(handle(), &changed));
    } catch (...) {
      forget_if_closed();
      throw;
    }
    if (changed && classes_ != nullptr) {
      classes_(*this);
    }
    return changed;
  }

  /** Closes the snapshot. Closing again does nothing. */
  void close() { close_handle(); }

 private:
  friend class store;
  void (*classes_)(snapshot&) = nullptr;

  snapshot(em_store* store, std::string_view name) : open_object(store, name, EM_READ, nullptr) {}
};

/** A directory of objects. Sessions and snapshots may outlive it. */
class store {
 public:
  /** Opens the store in a directory: some 20 us. Errors: `no_store`, `address_taken`, ... */
  explicit store(const std::filesystem::path& path, const store_options& options = {})
      : store(em_store_open, path, options) {}
  /** Creates a store in a directory that is empty or does not exist. Errors: `store_exists`, ... */
  static store create(const std::filesystem::path& path, const store_options& options = {}) {
    return store(em_store_create, path, options);
  }
  /** Opens an existing store, or creates one. */
  static store open_or_create(const std::filesystem::path& path,
                              const store_options& options = {}) {
    return store(em_store_open_or_create, path, options);
  }

  store(store&& other) noexcept : store_(std::exchange(other.store_, nullptr)) {}
  store& operator=(store&& other) noexcept {
    store old(std::move(*this));
    std::swap(store_, other.store_);
    return *this;
  }
  ~store() {
    if (store_ != nullptr) {
      em_store_close(store_);
    }
  }

  /** Closes the handle. Closing again does nothing. */
  void close() {
    if (em_store* const open = std::exchange(store_, nullptr); open != nullptr) {
      detail::check(em_store_close(open));
    }
  }
  em_store* handle() const noexcept { return store_; }

  /** Creates an empty object, durably. Errors: `already_exists`, `invalid_name`, `disk_full`. */
  void create_object(std::string_view name) {
    detail::check(em_object_create(store_, detail::name_of(name).c_str()));
  }
  /** Like `create_object(name)`, with room for `bytes` bytes of blocks. Errors: also
   * `out_of_addresses`. */
  void create_object(std::string_view name, std::uint64_t bytes) {
    detail::check(em_object_create_sized(store_, detail::name_of(name).c_str(), bytes));
  }
  /** Opens an object for writing. Errors: `not_found`, `busy`, `other_application`, ... */
  session write(std::string_view name, const write_options& options = {}) {
    return session(store_, name, detail::options_of(options));
  }
  /** Like `write`, but creates an empty object if there is none. */
  session write_or_create(std::string_view name, const write_options& options = {}) {
    const em_status made = em_object_create(store_, detail::name_of(name).c_str());
    if (made != EM_ALREADY_EXISTS) {
      detail::check(made);
    }
    return write(name, options);
  }
  /** Opens an object's last commit for reading. Errors: `not_found`, `busy` when this process
   * writes it, ... */
  snapshot read(std::string_view name) { return snapshot(store_, name); }

  bool contains(std::string_view name) const {
    bool found = false;
    detail::check(em_store_contains(store_, detail::name_of(name).c_str(), &found));
    return found;
  }
  /** Returns the objects' names, in order of creation. */
  std::vector<std::string> list() const {
    struct collector {
      std::vector<std::string> names;
      std::exception_ptr failure;
    } all;
    const auto collect = [](const char* name, void* context) -> bool {
      auto& to = *static_cast<collector*>(context);
      try {
        to.names.emplace_back(name);
        return true;
      } catch (...) {
        to.failure = std::current_exception();
        return false;
      }
    };
    detail::check(em_store_list(store_, collect, &all));
    if (all.failure) {
      std::rethrow_exception(all.failure);
    }
    return std::move(all.names);
  }
  /** Removes an object, durably. Errors: `not_found`, `busy`. */
  void remove(std::string_view name) {
    detail::check(em_store_remove(store_, detail::name_of(name).c_str()));
  }
  /** Renames an object, durably. Errors: `not_found`, `already_exists`. */
  void rename(std::string_view from, std::string_view to) {
    detail::check(
        em_store_rename(store_, detail::name_of(from).c_str(), detail::name_of(to).c_str()));
  }
  /** Returns the name of the object that owns an address, open or not. */
  std::optional<std::string> object_at(const void* address) const {
    char buffer[EM_NAME_BUFFER_BYTES];
    const em_status status = em_store_object_at(store_, address, buffer, sizeof buffer);
    if (status == EM_NOT_FOUND) {
      return std::nullopt;
    }
    detail::check(status);
    return buffer;
  }

 private:
  em_store* store_ = nullptr;

  using opener = em_status (*)(const char*, const em_store_options*, em_store**);

  store(opener open, const std::filesystem::path& path, const store_options& options) {
    em_store_options given = EM_STORE_OPTIONS_DEFAULT;
    given.arena_bytes = options.arena_bytes;
    given.window_base = options.window_base;
    given.window_end = options.window_end;
    given.busy_timeout_ms = detail::milliseconds(options.busy_timeout);
    given.catalog_timeout_ms = detail::milliseconds(options.catalog_timeout);
    given.verify = options.verify;
    given.other_builds = options.other_builds;
    given.arena_registry = options.arena_registry ? options.arena_registry->c_str() : nullptr;
    given.application = options.application ? options.application->c_str() : nullptr;
    detail::check(open(path.c_str(), &given, &store_));
  }
};

/** Returns the open object of this process that owns `address`, or null. */
inline em_object* object_of(const void* address) noexcept { return em_object_of(address); }

}  // namespace evermap

#endif
