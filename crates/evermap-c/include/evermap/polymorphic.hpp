/**
 * @file `evermap::polymorphic<Classes...>`: a base of the root's class that makes virtual functions
 * work in an object.
 *
 *     struct drawing : evermap::polymorphic<circle, square> {
 *       evermap::vector<evermap::unique_ptr<shape>> shapes;
 *     };
 *     drawing& d = session.find_or_make_root<drawing>();
 *     d.shapes.push_back(session.make_unique<circle>(3.0));
 *
 * It owns the copies of the classes' virtual tables (`vtable.hpp`). `root<drawing>()`,
 * `find_or_make_root`, a rollback and a snapshot's refresh bring them up to date; code that gets
 * the root in other ways (`raw_root`, C) must not call virtual functions before that. In a
 * snapshot, the update is a private patch of their pages.
 *
 * A class needs a default constructor (or `evermap::vtable_example`), and must be constructed by
 * `make`, `make_unique` or a container of the object, with its exact type: members of polymorphic
 * class type (not bases) are not corrected, nor are classes with virtual bases.
 */
#ifndef EVERMAP_POLYMORPHIC_HPP
#define EVERMAP_POLYMORPHIC_HPP

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "containers.hpp"
#include "vtable.hpp"

namespace evermap {

template <class... Classes>
class polymorphic;

namespace detail {

/** Information about one class in an object. */
struct class_entry {
  class_entry(const char* class_name, std::uint64_t class_shape, std::size_t words)
      : name(class_name), shape(class_shape), copy(words) {}

  string name;
  std::uint64_t shape;
  /** The group's words, with room for some more virtual functions. */
  vector<std::uintptr_t> copy;
};

/** Number of words by which a class's group may grow in later versions of a program. */
inline constexpr std::size_t vtable_words_spare = 16;

/** Base by which `polymorphic` is recognised. */
struct polymorphic_base {};

template <class Root>
inline constexpr bool is_registry = std::is_base_of_v<polymorphic_base, Root>;

template <class... Classes>
const polymorphic<Classes...>& registry_in(const polymorphic<Classes...>& registry) noexcept {
  return registry;
}
template <class... Classes>
polymorphic<Classes...>& registry_in(polymorphic<Classes...>& registry) noexcept {
  return registry;
}

/** The `polymorphic<...>` from which a root's class derives. */
template <class Root>
using registry_type = std::remove_reference_t<decltype(registry_in(std::declval<Root&>()))>;

}  // namespace detail

/** See the top of the file. Classes may be added to the list later, but not removed. */
template <class... Classes>
class polymorphic : public detail::polymorphic_base {
  static_assert((std::is_polymorphic_v<Classes> && ...), "only classes with virtual functions");
  static_assert(!(std::is_abstract_v<Classes> || ...),
                "no value is of an abstract class; leave it out");

 public:
  polymorphic() { restore(); }
  polymorphic(const polymorphic&) = delete;
  polymorphic& operator=(const polymorphic&) = delete;
  ~polymorphic() { forget(anchor()); }

  /** Brings the copies up to date, in a session, and adds new classes. Dirties them only if the
   * program is at another address than when they were committed. */
  void restore() {
    em_object* const object = em_object_of(this);
    if (object == nullptr) {
      return;
    }
    check_memory(object);
    check_entries();
    (restore_class<Classes>(object), ...);
  }

  /** Like `restore`, in a snapshot, where the pages of the copies become private to this
   * process. */
  void restore_in(em_object* snapshot) const {
    check_memory(snapshot);
    check_entries();
    (patch_class<Classes>(snapshot), ...);
  }

  /** Stops creating values in this object. */
  static void forget(std::uintptr_t anchor) noexcept {
    (detail::vtable_copies<Classes>::forget(anchor), ...);
  }

 private:
  vector<detail::class_entry> entries_;

  std::uintptr_t anchor() const noexcept { return entries_.get_allocator().first_address(); }

  template <class T>
  std::size_t find() const noexcept {
    std::size_t i = 0;
    while (i < entries_.size() && entries_[i].name != typeid(T).name()) {
      ++i;
    }
    return i;
  }

  /** Checks values read from the file before they are followed: throws `damaged` when the
   * entries are not in the object. */
  void check_memory(em_object* object) const {
    const bool is_own = anchor() == reinterpret_cast<std::uintptr_t>(em_object_base(object));
    bool sound = is_own && is_sound(object, entries_);
    for (std::size_t i = 0; sound && i < entries_.size(); ++i) {
      const detail::class_entry& entry = entries_[i];
      sound = is_sound(object, entry.copy) &&
              em_contains(object, entry.name.data(), entry.name.size());
    }
    if (!sound) {
      detail::raise(EM_DAMAGED, "the registered classes of an object lead out of it; restore the "
                                "object from a backup");
    }
  }

  /** Returns true if all elements of a vector lie in the object. */
  template <class T>
  static bool is_sound(em_object* object, const vector<T>& all) noexcept {
    const auto first = reinterpret_cast<std::uintptr_t>(all.data());
    return all.size() <= all.capacity() &&
           all.capacity() < std::numeric_limits<std::size_t>::max() / sizeof(T) &&
           (all.capacity() == 0 ||
            (first % alignof(T) == 0 && em_contains(object, all.data(), all.capacity() * sizeof(T))));
  }

  /** Throws if the object may have values of a class that this program would call by stale
   * addresses. */
  void check_entries() const {
    for (const detail::class_entry& entry : entries_) {
      if (((entry.name != typeid(Classes).name()) && ...)) {
        throw schema_mismatch("the object has values of class " + std::string(entry.name) +
                              ", which is not registered; add it to evermap::polymorphic<...>");
      }
    }
    (check_class<Classes>(), ...);
  }

  template <class T>
  void check_class() const {
    const detail::vtable_group& group = detail::group_of<T>();
    const std::size_t i = find<T>();
    if (i == entries_.size()) {
      return;
    }
    if (entries_[i].shape != group.shape || entries_[i].copy.size() < group.words) {
      throw schema_mismatch("class " + detail::readable_name<T>() +
                            " has other bases, or more virtual functions, than there is room for "
                            "in this object (" + std::to_string(group.words) + " words, room for " +
                            std::to_string(entries_[i].copy.size()) + "); create the object again");
    }
  }

  template <class T>
  void restore_class(em_object* object) {
    const detail::vtable_group& group = detail::group_of<T>();
    const std::size_t i = find<T>();
    if (i == entries_.size()) {
      entries_.emplace_back(typeid(T).name(), group.shape,
                            group.words + detail::vtable_words_spare);
    }
    vector<std::uintptr_t>& copy = entries_[i].copy;
    if (!std::equal(group.first, group.first + group.words, copy.begin())) {
      std::copy(group.first, group.first + group.words, copy.begin());
    }
    // The addresses belong to this process by design; only writers can declare that.
    detail::check(em_expect_foreign(object, copy.data(), copy.size() * sizeof copy[0]));
    detail::vtable_copies<T>::set(anchor(), reinterpret_cast<std::uintptr_t>(copy.data()));
  }

  template <class T>
  void patch_class(em_object* snapshot) const {
    const detail::vtable_group& group = detail::group_of<T>();
    const std::size_t i = find<T>();
    if (i == entries_.size()) {
      return;
    }
    const vector<std::uintptr_t>& copy = entries_[i].copy;
    if (!std::equal(group.first, group.first + group.words, copy.begin())) {
      const std::size_t bytes = group.words * sizeof *group.first;
      detail::check(em_patch(snapshot, copy.data(), group.first, bytes));
    }
  }
};

}  // namespace evermap

#endif
