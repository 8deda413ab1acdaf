/**
 * @file
 * Locates the virtual functions of classes in objects.
 *
 * A virtual table holds addresses of code, which differ in every process. So an object has a *copy*
 * of the table of each registered class, and values of the class point to the copy, whose address
 * is the same everywhere. Opening only rewrites the copies: a few hundred bytes per class,
 * independent of the number of values.
 *
 * Itanium C++ ABI, as implemented by GCC and Clang on Linux. A *group* is the tables of one class:
 * that of its primary base first, then those of further bases. Each begins with the offset to the
 * top and the address of the class's type_info; addresses of functions follow. No symbol gives a
 * group's length, so it is read word by word as long as the words are plausible; reading a word too
 * many is harmless. Virtual bases are refused: their offsets precede the group's beginning.
 */
#ifndef EVERMAP_VTABLE_HPP
#define EVERMAP_VTABLE_HPP

#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "error.hpp"
#include "type.hpp"

namespace evermap {

/** Example value of `T`: specialise it for a class without a default constructor, with a static
 * `make()` that returns one. It is created once per process. */
template <class T>
struct vtable_example {
  static T make() { return T(); }
};

namespace detail {

/** Maximum length of a group. A longer one is refused. */
inline constexpr std::size_t vtable_words_max = 4096;

/** Tables of one class in this process. */
struct vtable_group {
  const std::uintptr_t* first = nullptr;
  std::size_t words = 0;
  /** Hash of the positions at which the tables in the group begin. */
  std::uint64_t shape = 0;
};

/** Address ranges of the loaded program and libraries. */
struct program_ranges {
  struct range {
    std::uintptr_t first;
    std::uintptr_t end;
  };
  std::vector<range> code;
  std::vector<range> data;

  program_ranges() {
    dl_iterate_phdr(
        [](dl_phdr_info* module, std::size_t, void* context) {
          auto& ranges = *static_cast<program_ranges*>(context);
          for (int i = 0; i < module->dlpi_phnum; ++i) {
            const auto& segment = module->dlpi_phdr[i];
            if (segment.p_type != PT_LOAD) {
              continue;
            }
            const std::uintptr_t first = module->dlpi_addr + segment.p_vaddr;
            auto& list = (segment.p_flags & PF_X) != 0 ? ranges.code : ranges.data;
            list.push_back({first, first + segment.p_memsz});
          }
          return 0;
        },
        this);
  }

  static const range* find(const std::vector<range>& list, std::uintptr_t address) {
    for (const range& r : list) {
      if (address >= r.first && address < r.end) {
        return &r;
      }
    }
    return nullptr;
  }
};

/** Returns true if a class has virtual bases, at any depth. Reads its type_info in the ABI's
 * layout (2.9.5, RTTI Layout): libc++abi declares these classes in no header, and only their
 * names tell the kind. After the address of a table and of a name follow either the one base, or
 * flags, the number of bases and for each its type and a word whose bit 0 marks a virtual base. */
inline bool has_virtual_base(const std::type_info* type) {
  struct base {
    const std::type_info* type;
    long flags;
  };
  const std::string_view kind = typeid(*type).name();
  const auto* const behind = reinterpret_cast<const unsigned char*>(type) + 2 * sizeof(void*);
  if (kind == "N10__cxxabiv120__si_class_type_infoE") {
    const std::type_info* single = nullptr;
    std::memcpy(&single, behind, sizeof single);
    return has_virtual_base(single);
  }
  if (kind == "N10__cxxabiv121__vmi_class_type_infoE") {
    unsigned count = 0;
    std::memcpy(&count, behind + sizeof(unsigned), sizeof count);
    for (unsigned i = 0; i < count; ++i) {
      base one{};
      std::memcpy(&one, behind + 2 * sizeof(unsigned) + i * sizeof one, sizeof one);
      if ((one.flags & 1) != 0 || has_virtual_base(one.type)) {
        return true;
      }
    }
  }
  return false;
}

/** Reads the group whose primary table a value points to. May read words after its end, which a
 * sanitizer would report. */
__attribute__((no_sanitize("address", "undefined"), noinline)) inline vtable_group read_group(
    std::uintptr_t address_point, const std::type_info& type) {
  const program_ranges ranges;
  vtable_group group;
  group.first = reinterpret_cast<const std::uintptr_t*>(address_point) - 2;
  const auto* segment =
      program_ranges::find(ranges.data, reinterpret_cast<std::uintptr_t>(group.first));
  const auto own = reinterpret_cast<std::uintptr_t>(&type);
  if (segment == nullptr || group.first[0] != 0 || group.first[1] != own) {
    raise(EM_UNSUPPORTED, std::string("the virtual table of ") + type.name() +
                              " is not where this ABI has it; it cannot live in an object");
  }
  const auto* const end =
      reinterpret_cast<const std::uintptr_t*>(segment->end & ~std::uintptr_t{7});
  const std::uintptr_t* at = group.first + 2;
  group.shape = 2;
  // One word more than allowed, to see that a group is longer.
  while (at < end && at - group.first <= static_cast<std::ptrdiff_t>(vtable_words_max)) {
    const auto offset_to_top = static_cast<std::intptr_t>(*at);
    if (offset_to_top < 0 && at + 1 < end && at[1] == own) {
      group.shape = group.shape * 0x100000001b3u + static_cast<std::uint64_t>(at - group.first);
      at += 2;
    } else if (*at == 0 || program_ranges::find(ranges.code, *at) != nullptr) {
      ++at;
    } else {
      break;
    }
  }
  while (at[-1] == 0) {
    --at;
  }
  group.words = static_cast<std::size_t>(at - group.first);
  if (group.words > vtable_words_max) {
    raise(EM_UNSUPPORTED, std::string("the virtual tables of ") + type.name() +
                              " are longer than " + std::to_string(vtable_words_max) +
                              " words; it cannot live in an object");
  }
  return group;
}

/** Copy of a class's group in one object. */
struct vtable_copy {
  std::uintptr_t anchor;
  std::uintptr_t first;
};

/** Copies of one class's group, one for each object that was opened with the class registered. */
template <class T>
struct vtable_copies {
  static inline std::mutex lock;
  static inline std::vector<vtable_copy> list;

  static void set(std::uintptr_t anchor, std::uintptr_t first) {
    const std::lock_guard<std::mutex> guard(lock);
    for (vtable_copy& copy : list) {
      if (copy.anchor == anchor) {
        copy.first = first;
        return;
      }
    }
    list.push_back({anchor, first});
  }

  static void forget(std::uintptr_t anchor) noexcept {
    const std::lock_guard<std::mutex> guard(lock);
    for (vtable_copy& copy : list) {
      if (copy.anchor == anchor) {
        copy.first = 0;
      }
    }
  }

  static std::uintptr_t get(std::uintptr_t anchor) {
    const std::lock_guard<std::mutex> guard(lock);
    for (const vtable_copy& copy : list) {
      if (copy.anchor == anchor) {
        return copy.first;
      }
    }
    return 0;
  }
};

/** Returns the group of `T` in this process. */
template <class T>
const vtable_group& group_of() {
  static const vtable_group group = [] {
    if (has_virtual_base(&typeid(T))) {
      raise(EM_UNSUPPORTED,
            readable_name<T>() + " has virtual bases; such classes cannot live in objects");
    }
    const T example = vtable_example<T>::make();
    std::uintptr_t address_point = 0;
    std::memcpy(&address_point, static_cast<const void*>(&example), sizeof address_point);
    return read_group(address_point, typeid(T));
  }();
  return group;
}

/** Returns the place of the copy of `T`'s group in an object; throws when the class was not
 * registered there. */
template <class T>
std::uintptr_t registered_copy(std::uintptr_t anchor) {
  const std::uintptr_t copy = vtable_copies<T>::get(anchor);
  if (copy == 0) {
    raise(EM_INVALID_ARGUMENT,
          readable_name<T>() + " has virtual functions and is not registered in this object; "
                               "derive the root's class from evermap::polymorphic<" +
              readable_name<T>() + ">");
  }
  return copy;
}

/** Makes a new value of `T` point to the copy. Finds all its pointers into the group by value. */
template <class T>
void adopt_vtable(T* value, std::uintptr_t copy) noexcept {
  const vtable_group& group = group_of<T>();
  const auto first = reinterpret_cast<std::uintptr_t>(group.first);
  auto* const bytes = reinterpret_cast<unsigned char*>(value);
  for (std::size_t at = 0; at + sizeof first <= sizeof(T); at += sizeof first) {
    std::uintptr_t word = 0;
    std::memcpy(&word, bytes + at, sizeof word);
    if (word - first < group.words * sizeof word) {
      word += copy - first;
      std::memcpy(bytes + at, &word, sizeof word);
    }
  }
}

}  // namespace detail
}  // namespace evermap

#endif
