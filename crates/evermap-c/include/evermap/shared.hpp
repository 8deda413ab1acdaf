/**
 * @file Objects that threads of one process read and write: `shared<T>`, and the guards that lock
 * it.
 */
#ifndef EVERMAP_SHARED_HPP
#define EVERMAP_SHARED_HPP

#include <utility>

#include "store.hpp"

namespace evermap {

/** Options of sharing. */
struct share_options {
  /** Options of the writer; without protection. */
  write_options write{};
  /** Readers run during the flush of a commit. A state that they read then can be undone: when
   * the commit fails or is rolled back, or the machine stops before the flush is complete.
   * Without it, readers wait for the end of the flush, and no state that they read is undone. */
  bool early_read = false;
  /** Create the object if it does not exist. */
  bool create = true;
};

/**
 * An object with a root of type `T` that threads read and write. One owner per process is
 * sufficient; it must outlive its guards. Other processes may read the object as usual.
 *
 *     evermap::shared<words> index(store, "words");
 *     { auto writer = index.write(); (*writer)["first"].push_back(1); writer.commit(); }
 *     { auto reader = index.read(); use(reader->at("first")); }
 */
template <class T>
class shared : public detail::open_object {
  static_assert(!detail::is_registry<T>,
                "the root of a shared object cannot be a registry of classes with virtual functions; "
                "use a session");

 public:
  /** A read by one thread: writers wait until it ends. It ends in the thread that began it. */
  class [[nodiscard]] reader {
   public:
    reader(const reader&) = delete;
    reader& operator=(const reader&) = delete;
    ~reader() { em_read_unlock(object_); }

    const T& operator*() const noexcept { return *root_; }
    const T* operator->() const noexcept { return root_; }

   private:
    friend class shared;
    explicit reader(const shared& owner) : object_(owner.handle()) {
      detail::check(em_read_lock(object_));
      root_ = static_cast<const T*>(em_root(object_));
    }
    em_object* object_;
    const T* root_;
  };

  /** A write section of one thread: readers wait until it ends, or with `early_read` only until a
   * commit's flush begins. It ends in the thread that began it. Uncommitted changes are then
   * dropped, with a line on stderr. */
  class [[nodiscard]] writer {
   public:
    writer(const writer&) = delete;
    writer& operator=(const writer&) = delete;
    ~writer() {
      if (em_write_unlock(object_) == EM_UNCOMMITTED) {
        detail::tell_forgotten(object_);
        em_rollback(object_);
        em_write_unlock(object_);
      }
    }

    /** Returns the root, for storing to it: with `early_read`, waits for the readers that a
     * commit let in. Call it again after a commit. */
    T& operator*() { return *operator->(); }
    T* operator->() {
      detail::check(em_write_begin(object_));
      return root_;
    }

    /** Makes all changes since the last commit durable; false when nothing had changed. Errors:
     * those of `session::commit`. After `durability_unknown` the object must be closed. */
    bool commit() {
      bool changed = false;
      detail::check(em_commit(object_, &changed));
      return changed;
    }
    /** Drops all changes since the last commit. */
    void rollback() { detail::check(em_rollback(object_)); }

   private:
    friend class shared;
    explicit writer(shared& owner) : object_(owner.handle()) {
      detail::check(em_write_lock(object_));
      root_ = static_cast<T*>(em_root(object_));
    }
    em_object* object_;
    T* root_;
  };

  /** Opens an object. Creates it if it does not exist, unless `create` is false. If it has no
   * root, makes `T()` the root and commits that.
   * Errors: `schema_mismatch` when its root is of another type; the errors of `store::write`. */
  shared(store& from, std::string_view name, const share_options& options = {})
      : shared(from, name, options_for(from, name, options)) {}
  shared(shared&& other) noexcept : open_object(std::move(other)) {}
  ~shared() { forget_handle(); }

  /** Locks the object for reading. A thread that already reads it does not wait. Errors:
   * `would_deadlock` when the thread writes it; `durability_unknown` after a failed flush. */
  reader read() const { return reader(*this); }
  /** Locks the object for writing: waits for earlier writers, then for the current readers.
   * Errors: as `read`, and `would_deadlock` also when the thread reads it. */
  writer write() { return writer(*this); }

  /** Writes all commits to the object's file, while readers continue. */
  bool checkpoint() {
    bool done = false;
    detail::check(em_checkpoint(handle(), &done));
    return done;
  }
  /** Makes all commits so far durable, while readers continue. */
  void sync() { detail::check(em_sync(handle())); }

  /** Closes the handle. Closing again does nothing. Errors: `busy` while a thread has it locked
   * (it stays open then), and errors of the last flush. */
  void close() { close_handle(); }

 private:
  shared(store& from, std::string_view name, const em_write_options& given)
      : open_object(from.handle(), name, EM_SHARE, &given) {
    try {
      prepare();
    } catch (...) {
      forget_handle();
      throw;
    }
  }

  static em_write_options options_for(store& from, std::string_view name,
                                      const share_options& options) {
    if (options.create) {
      const em_status made = em_object_create(from.handle(), detail::name_of(name).c_str());
      if (made != EM_ALREADY_EXISTS) {
        detail::check(made);
      }
    }
    em_write_options given = detail::options_of(options.write);
    given.early_read = options.early_read;
    return given;
  }

  void prepare() {
    writer section(*this);
    if (checked_root(tag_of<T>(), sizeof(T), alignof(T), description<T>()) != nullptr) {
      return;
    }
    allocator<T> heap = get_allocator<T>();
    T* const made = heap.allocate(1);
    heap.construct(made);
    const tag made_tag = tag_of<T>();
    const std::string text = description<T>();
    detail::check(em_set_root(handle(), made, sizeof(T), made_tag.data(), text.c_str()));
    section.commit();
  }
};

}  // namespace evermap

#endif
