/**
 * @file
 * `evermap::allocator<T>`: the allocator with which a standard container can live in an object.
 *
 * An allocator identifies its object by the *address of the object's first byte*, which is the same
 * in every process. So it is eight bytes, stays valid in the next process, and finds the open
 * object by this address (each thread caches the last one). An empty allocator that uses its own
 * address would not work: containers copy their allocators to the stack (libstdc++ rebinds a copy
 * for every hash bucket array), which is in no object.
 *
 * Guarantee: the memory of a container in an object comes from that object, also for elements that
 * are containers, and for members of elements that do not use allocators. A container outside of
 * objects uses the process's heap. Its elements are copied into an object; a value that would bring
 * process memory into an object is refused on arrival.
 */
#ifndef EVERMAP_ALLOCATOR_HPP
#define EVERMAP_ALLOCATOR_HPP

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

#include "construct.hpp"
#include "error.hpp"
#include "outside.hpp"
#include "residence.hpp"
#include "vtable.hpp"

namespace evermap {

template <class T>
class allocator;

/** Requests an allocator of the process's heap, even inside an `evermap::scope`:
 * `evermap::string key("...", evermap::process_heap)`. Outside of scopes, a container on the
 * stack uses that heap anyway. Such a container may be copied, or given to a container of the
 * object. Moving its memory unchanged into an object (as a member of a class without allocators)
 * is refused. */
struct process_heap_t {
  explicit constexpr process_heap_t(int) noexcept {}
};
inline constexpr process_heap_t process_heap{0};

namespace detail {

/** Value of an allocator that lies outside of objects and was given none. It stands for the
 * process's heap, unless the allocator is moved into an object before its first use. */
inline constexpr std::uintptr_t no_object = 0;
/** Value of an allocator of the process's heap. No object begins there. */
inline constexpr std::uintptr_t heap_of_process = 1;

/** The object that this thread looked up last. */
struct last_object {
  std::uintptr_t anchor;
  em_object* object;
};
inline thread_local last_object last{no_object, nullptr};

/** The object for which containers are being constructed, see `evermap::scope`. */
inline thread_local std::uintptr_t constructing_for = no_object;

[[noreturn]] inline void stop(const char* what) noexcept {
  std::fprintf(stderr, "evermap: %s\n", what);
  std::abort();
}

/** Returns the first address of the open object that owns `address`, or 0. */
inline std::uintptr_t anchor_at(const void* address) noexcept {
  em_object* const object = em_object_of(address);
  return object == nullptr ? no_object : reinterpret_cast<std::uintptr_t>(em_object_base(object));
}

inline em_object* look_up(std::uintptr_t anchor) noexcept {
  em_object* const found = em_object_of(reinterpret_cast<const void*>(anchor));
  if (found != nullptr) {
    last = {anchor, found};
  }
  return found;
}

/** Returns the open object that begins at `anchor`. A cached one may have been closed since:
 * handles are never reused, so the call that uses it reports this. */
inline em_object* object_at(std::uintptr_t anchor) noexcept {
  return last.anchor == anchor ? last.object : look_up(anchor);
}

[[noreturn]] inline void refuse(std::uintptr_t anchor, std::size_t bytes) {
  if (em_last_error() != EM_FORKED &&
      em_object_of(reinterpret_cast<const void*>(anchor)) == nullptr) {
    throw bad_alloc(EM_CLOSED, "the object of this container is not open in this process; open "
                               "it for writing before its containers grow");
  }
  throw bad_alloc(em_last_error(), std::string(em_last_error_message()) + " (" +
                                       std::to_string(bytes) + " bytes were asked for)");
}

inline void* allocate_from(em_object* object, std::size_t bytes, std::size_t align) noexcept {
  // Blocks begin at multiples of 16, like malloc's.
  return align <= 16 ? em_malloc(object, bytes) : em_aligned_alloc(object, align, bytes);
}

inline void* allocate_again(std::uintptr_t anchor, std::size_t bytes, std::size_t align) {
  em_object* const object = look_up(anchor);
  void* const block = object == nullptr ? nullptr : allocate_from(object, bytes, align);
  if (block == nullptr) {
    refuse(anchor, bytes);
  }
  return block;
}

inline void* allocate(std::uintptr_t anchor, std::size_t bytes, std::size_t align) {
  if (anchor > heap_of_process) {
    em_object* const object = object_at(anchor);
    void* const block = object == nullptr ? nullptr : allocate_from(object, bytes, align);
    if (block != nullptr) {
      return block;
    }
  } else {
    return outside_blocks::all().allocate(bytes, align);
  }
  return allocate_again(anchor, bytes, align);
}

inline void deallocate(std::uintptr_t anchor, void* block, std::size_t align) noexcept {
  if (anchor <= heap_of_process) {
    if (!outside_blocks::all().free(block, align)) {
      stop("a container outside of objects frees a block that it did not allocate. Was it freed "
           "before, or did bytes of a container of an object come here? Free each block once, and "
           "copy containers between objects and the process's heap");
    }
    return;
  }
  if (last.anchor == anchor && em_try_free(last.object, block) == EM_OK) {
    return;
  }
  // A value that was just refused still has its outside memory.
  if (outside_blocks::all().free(block, align)) {
    return;
  }
  // The object differs from the cached one, was closed and opened again, or the pointer is not a
  // block, which em_free detects. A closed object has nothing to free.
  if (em_object* const object = look_up(anchor); object != nullptr) {
    em_free(object, block);
  }
}

/** Outside containers that are moved into an object while the value that contains them is
 * constructed. */
struct arrivals {
  bool any = false;
  /** The last allocator that was moved in. */
  const void* moved = nullptr;
};
/** Null while no value of an object is being constructed. */
inline thread_local arrivals* arriving = nullptr;

/** Called when an allocator with the object `anchor` is placed at `place`, where its container's
 * memory must come from the object that owns `place`. Returns the value that the allocator must
 * hold. */
inline std::uintptr_t arrive(const void* place, std::uintptr_t anchor) noexcept {
  const std::uintptr_t here = anchor_at(place);
  if (here == no_object || here == anchor) {
    return anchor;
  }
  if (anchor > heap_of_process) {
    stop("a container of one object was moved into another; copy it there");
  }
  if (arriving != nullptr) {
    // The caller constructs the value and checks this flag.
    arriving->any = true;
  } else if (anchor == heap_of_process) {
    stop("a container whose memory is in the process's heap was moved into an object; copy it "
         "there, make it with the object's allocator, or build it in an `evermap::scope` of the "
         "session");
  }
  return here;
}

}  // namespace detail

/**
 * Assigns containers without an explicit allocator to the scope's object, if they are constructed
 * in this thread while the scope lives. `session.make` and the containers themselves open one
 * around each constructor; a program needs it to build values on the stack:
 *
 *     evermap::scope in_object(session);
 *     people.push_back(person("a name"));   // person knows nothing of allocators
 *
 * Costs two stores.
 */
class scope {
 public:
  /** Scope of the object with this first address. */
  explicit scope(std::uintptr_t first_address) noexcept : before_(detail::constructing_for) {
    detail::constructing_for = first_address;
  }
  /** Scope of a session's object. */
  template <class Session, class = decltype(std::declval<const Session&>().first_address())>
  explicit scope(const Session& session) noexcept : scope(session.first_address()) {}
  scope(const scope&) = delete;
  scope& operator=(const scope&) = delete;
  ~scope() { detail::constructing_for = before_; }

 private:
  std::uintptr_t before_;
};

namespace detail {

/** Lives while a value of an object is being constructed. */
class construction {
 public:
  explicit construction(std::uintptr_t anchor) noexcept : in_object_(anchor) { arriving = &here_; }
  construction(const construction&) = delete;
  construction& operator=(const construction&) = delete;
  ~construction() { arriving = before_; }

  /** Returns true if an outside container was moved in with the value. */
  bool has_arrived() const noexcept { return here_.any; }

 private:
  scope in_object_;
  arrivals here_;
  arrivals* before_ = arriving;
};

}  // namespace detail

/**
 * Allocates from an object. Meets the requirements of an Allocator; 8 bytes.
 *
 * - *Equality*: same object. Memory from one can be freed by the other, in any process.
 * - *Assignment* of containers does not replace the target's allocator, neither by copy nor by
 *   move: a container stays in its object, and elements are copied or moved over if the source is
 *   elsewhere.
 * - *Swap* is for containers of one object. Between objects it stops the program with a message
 *   (`propagate_on_container_swap` is true so that the standard library calls our `swap`, which
 *   compares; without it swapping unequal allocators would be undefined behaviour).
 * - *Copies* of a container are in the scope's object if there is one, else in that of the source.
 *
 * Errors: `evermap::bad_alloc`, a `std::bad_alloc` with the status and the library's sentence.
 * Threads: as `em_malloc`; a container itself is as thread-safe as the standard one.
 * Cost over `em_malloc`: a comparison with the thread's last object.
 */
template <class T>
class allocator {
 public:
  using value_type = T;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using propagate_on_container_copy_assignment = std::false_type;
  using propagate_on_container_move_assignment = std::false_type;
  using propagate_on_container_swap = std::true_type;
  using is_always_equal = std::false_type;

  /** Creates an allocator for the object of the current `scope`; without one, for the object
   * that this allocator lies in (a member that is constructed in place); else for the process's
   * heap. */
  allocator() noexcept : anchor_(detail::constructing_for) {
    if (anchor_ <= detail::heap_of_process) {
      anchor_ = detail::arrive(this, anchor_);
    }
  }
  /** Creates an allocator for the process's heap. */
  allocator(process_heap_t) noexcept : anchor_(detail::heap_of_process) {}
  /** Creates an allocator for the object with this first address: `session.first_address()`. */
  explicit allocator(std::uintptr_t first_address) noexcept : anchor_(first_address) {}

  allocator(const allocator& other) noexcept : anchor_(other.anchor_) { settle(); }
  allocator(allocator&& other) noexcept : anchor_(other.anchor_) {
    settle();
    if (anchor_ != other.anchor_ && detail::arriving != nullptr) {
      detail::arriving->moved = this;
    }
  }
  template <class U>
  allocator(const allocator<U>& other) noexcept : anchor_(other.first_address()) {
    settle();
    if constexpr (std::is_same_v<T, U*>) {
      if (detail::arriving != nullptr && detail::arriving->moved == &other) {
        // libstdc++'s deque move constructor allocates here and leaves these blocks to the source,
        // which is outside. So they come from the process's heap. A source always has memory, and
        // `check_memory` refuses the value.
        other.stay_outside();
        anchor_ = detail::heap_of_process;
      }
    }
  }
  allocator& operator=(const allocator&) noexcept = default;

  /** Allocates room for `n` values. */
  [[nodiscard]] T* allocate(std::size_t n) {
    detail::check_residence<T>();
    if (n > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / sizeof(T)) {
      throw std::bad_array_new_length();
    }
    if (anchor_ == detail::no_object) {
      const std::uintptr_t here = detail::anchor_at(this);
      anchor_ = here == detail::no_object ? detail::heap_of_process : here;
    }
    return static_cast<T*>(detail::allocate(anchor_, n * sizeof(T), alignof(T)));
  }

  /** Frees memory from `allocate`. A pointer that is not a block of the object stops the
   * program. */
  void deallocate(T* block, std::size_t) noexcept {
    detail::deallocate(anchor_, block, alignof(T));
  }

  /** Constructs an element: with this allocator if the type takes one, else in this object's
   * scope. */
  template <class U, class... Args>
  void construct(U* place, Args&&... args) {
    detail::check_residence<U>();
    if constexpr (std::is_polymorphic_v<U>) {
      construct_polymorphic(place, std::forward<Args>(args)...);
    } else {
      construct_plain(place, std::forward<Args>(args)...);
    }
  }

  /** Returns the allocator for a copy of a container. */
  allocator select_on_container_copy_construction() const noexcept {
    // A copy of an outside container can still be moved into an object: it has no memory yet.
    const bool from_object = anchor_ > detail::heap_of_process;
    return from_object && detail::constructing_for == detail::no_object ? *this : allocator();
  }

  /** Returns the first address of the object; 0 or 1 for the process's heap. */
  std::uintptr_t first_address() const noexcept { return anchor_; }

  friend bool operator==(const allocator& a, const allocator& b) noexcept {
    return a.anchor_ == b.anchor_ || (a.anchor_ | b.anchor_) <= detail::heap_of_process;
  }
  friend bool operator!=(const allocator& a, const allocator& b) noexcept { return !(a == b); }
  friend void swap(allocator& a, allocator& b) noexcept {
    if (a != b) {
      detail::stop("containers of different objects were swapped; copy one, or move its elements");
    }
    std::swap(a.anchor_, b.anchor_);
  }

 private:
  template <class>
  friend class allocator;

  std::uintptr_t anchor_;

  /** Reverts that this allocator became one of the object that it lies in. The caller only has a
   * container's copy of its allocator, hence `const`; no allocator is a constant. */
  void stay_outside() const noexcept {
    const_cast<allocator*>(this)->anchor_ = detail::heap_of_process;
    detail::arriving->moved = nullptr;
  }

  /** Checks the cases in which a container with outside memory could be moved into an object. */
  void settle() noexcept {
    const std::uintptr_t wanted = detail::constructing_for;
    if (anchor_ <= detail::heap_of_process || (wanted != detail::no_object && wanted != anchor_)) {
      anchor_ = detail::arrive(this, anchor_);
    }
  }

  template <class U, class... Args>
  void construct_polymorphic(U* place, Args&&... args) {
    if (anchor_ <= detail::heap_of_process) {
      return construct_plain(place, std::forward<Args>(args)...);
    }
    // Looked up first: nothing has to be undone when it does not exist.
    const std::uintptr_t copy = detail::registered_copy<U>(anchor_);
    construct_plain(place, std::forward<Args>(args)...);
    detail::adopt_vtable(place, copy);
  }

  template <class U, class... Args>
  void construct_plain(U* place, Args&&... args) {
    constexpr bool takes_allocator = detail::takes_allocator_first<U, allocator, Args...> ||
                                     detail::takes_allocator_last<U, allocator, Args...>;
    if constexpr (takes_allocator && !detail::is_composed<U>) {
      construct_of(place, std::forward<Args>(args)...);
    } else if constexpr (std::is_class_v<U> && !std::is_trivially_copyable_v<U>) {
      const detail::construction in_object(anchor_);
      construct_of(place, std::forward<Args>(args)...);
      if (in_object.has_arrived()) {
        check_memory(place);
      }
    } else {
      ::new (static_cast<void*>(place)) U(std::forward<Args>(args)...);
    }
  }

  template <class U, class... Args>
  void construct_of(U* place, Args&&... args) {
    std::apply([place](auto&&... all) {
      ::new (static_cast<void*>(place)) U(std::forward<decltype(all)>(all)...);
    }, detail::builder<U>::arguments(*this, std::forward<Args>(args)...));
  }

  /** Called when a value was moved here from outside: refuses it if it brought memory. */
  template <class U>
  static void check_memory(U* place) {
    if (detail::outside_blocks::all().are_in(place, sizeof(U))) {
      place->~U();
      detail::raise(EM_INVALID_ARGUMENT,
                    "a " + detail::readable_name<U>() +
                        " that was built outside of the object was moved into it, with memory of "
                        "the process's heap; construct it in place (emplace), build it in an "
                        "`evermap::scope` of the session, or let its class take an allocator");
    }
  }
};

/** Destroys a value and frees its block, found by the value's address: for `unique_ptr` in
 * objects. */
struct deleter {
  template <class T>
  void operator()(T* value) const noexcept {
    void* block = const_cast<std::remove_cv_t<T>*>(value);
    if constexpr (std::is_polymorphic_v<T>) {
      static_assert(std::has_virtual_destructor_v<T> || std::is_final_v<T>,
                    "a class with virtual functions needs a virtual destructor here");
      block = const_cast<void*>(dynamic_cast<const void*>(value));
    }
    em_object* const object = em_object_of(block);
    value->~T();
    if (object != nullptr) {
      em_free(object, block);
    }
  }
};

}  // namespace evermap

#endif
