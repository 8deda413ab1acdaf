/**
 * @file
 * Type of an object's root, for programs that were built separately: a text that describes the type
 * and the ABI of the standard library, and its FNV-1a hash, which is the root's tag.
 *
 * The standard library lays out a container's members, so an object with C++ containers belongs to
 * one library ABI. The signature contains everything that can be known of a type without its
 * author's help: name, size and alignment of the type and of its template arguments. It cannot see
 * that the members of a class with unchanged size changed their meaning: specialise
 * `evermap::layout_version` for that.
 */
#ifndef EVERMAP_TYPE_HPP
#define EVERMAP_TYPE_HPP

#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cxxabi.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>

static_assert(sizeof(void*) == 8 && CHAR_BIT == 8, "objects hold 64-bit addresses");

namespace evermap {

/** Tag of a root: 16 bytes in the superblock, stored with the root's address. */
using tag = std::array<unsigned char, 16>;

/** FNV-1a, 128 bits, most significant byte first: the published function, so that other
 * languages can compute the same tags. */
constexpr tag fnv1a(std::string_view text) noexcept {
  __extension__ using wide = unsigned __int128;
  constexpr wide prime = (wide{1} << 88) + 0x13b;
  wide state = (wide{0x6c62272e07bb0142u} << 64) + 0x62b821756295c58du;
  for (const char letter : text) {
    state = (state ^ static_cast<unsigned char>(letter)) * prime;
  }
  tag bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<unsigned char>(state >> (8 * (bytes.size() - 1 - i)));
  }
  return bytes;
}

/** Version of a class's members: part of its signature when it is not 0. Increase it when the
 * meaning of the bytes changes but the size does not: `template <> inline constexpr unsigned
 * evermap::layout_version<person> = 2;` */
template <class T>
inline constexpr unsigned layout_version = 0;

namespace detail {

/** Returns the standard library whose containers an object holds, as far as it determines their
 * layout. */
constexpr std::string_view library_abi() noexcept {
#if defined(_LIBCPP_ABI_VERSION)
#define EVERMAP_TEXT_OF_(x) #x
#define EVERMAP_TEXT_(x) EVERMAP_TEXT_OF_(x)
  return "libc++ abi " EVERMAP_TEXT_(_LIBCPP_ABI_VERSION) " lp64";
#undef EVERMAP_TEXT_
#undef EVERMAP_TEXT_OF_
#elif defined(__GLIBCXX__)
#if defined(_GLIBCXX_DEBUG)
  return "libstdc++ debug lp64";
#elif _GLIBCXX_USE_CXX11_ABI
  return "libstdc++ cxx11 lp64";
#else
  return "libstdc++ cxx98 lp64";
#endif
#else
#error "this standard library is not known to evermap.hpp; add its ABI here"
#endif
}

/** Returns the name as the ABI writes it: the same for all compilers of one ABI. */
template <class T>
std::string mangled_name() {
  return typeid(T).name();
}

/** Returns the human-readable name. */
template <class T>
std::string readable_name() {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(typeid(T).name(), nullptr, nullptr, &status), std::free);
  return status == 0 && text ? text.get() : mangled_name<T>();
}

template <class T, class = void>
struct element {};
template <class T>
struct element<T, std::void_t<typename T::value_type>> {
  using type = typename T::value_type;
};
template <class T, class = void>
struct pointee {};
template <class T>
struct pointee<T, std::void_t<typename T::element_type>> {
  using type = typename T::element_type;
};

/** Types that a type is made of, as far as templates tell. Recursion ends at a class type that
 * does not name its elements, and at the depth limit of `describer`. */
template <class T>
struct parts {
  template <class F>
  static void each([[maybe_unused]] F&& f) {
    if constexpr (!std::is_scalar_v<T>) {
      each_element(f, 0);
    }
  }

 private:
  // A type that names its elements in both ways, such as std::span, has the first one's parts.
  template <class F, class U = T, class = typename element<U>::type>
  static void each_element(F& f, int) {
    if constexpr (!std::is_same_v<typename element<U>::type, T>) {
      f.template operator()<typename element<U>::type>();
    }
  }
  template <class F, class U = T, class = typename pointee<U>::type, class = void>
  static void each_element(F& f, long) {
    f.template operator()<typename pointee<U>::type>();
  }
  template <class F>
  static void each_element(F&, ...) {}
};
template <class T>
struct parts<const T> : parts<T> {};
template <class T, std::size_t N>
struct parts<T[N]> {
  template <class F>
  static void each(F&& f) {
    f.template operator()<T>();
  }
};
template <class A, class B>
struct parts<std::pair<A, B>> {
  template <class F>
  static void each(F&& f) {
    f.template operator()<A>();
    f.template operator()<B>();
  }
};
template <class... T>
struct parts<std::tuple<T...>> {
  template <class F>
  static void each(F&& f) {
    (f.template operator()<T>(), ...);
  }
};
template <class... T>
struct parts<std::variant<T...>> {
  template <class F>
  static void each(F&& f) {
    (f.template operator()<T>(), ...);
  }
};

/** Appends ` NAME#SIZE/ALIGN` of a type and, in brackets, of its parts. */
struct describer {
  bool readable;
  std::string text;
  int depth = 0;

  template <class T>
  void operator()() {
    text += depth == 0 ? "" : " ";
    if constexpr (!std::is_object_v<T>) {
      text += readable ? readable_name<T>() : mangled_name<T>();
      return;
    } else {
      text += readable ? readable_name<T>() : mangled_name<T>();
      text += "#" + std::to_string(sizeof(T)) + "/" + std::to_string(alignof(T));
      if constexpr (layout_version<std::remove_cv_t<T>> != 0) {
        text += " v" + std::to_string(layout_version<std::remove_cv_t<T>>);
      }
      // A type that contains itself through a container (a tree) would recurse for ever.
      if (depth < 8) {
        ++depth;
        text += "[";
        parts<T>::each(*this);
        text += "]";
        --depth;
      }
    }
  }
};

template <class T>
std::string describe(bool readable) {
  describer d{readable, std::string("C++ ") + std::string(library_abi()) + ": "};
  d.template operator()<T>();
  return std::move(d.text);
}

}  // namespace detail

/** Returns the text whose hash is the tag. */
template <class T>
const std::string& signature() {
  static const std::string text = detail::describe<T>(false);
  return text;
}

/** Returns the text with human-readable names, for the object file (truncated at 1024 bytes) and
 * for errors. */
template <class T>
const std::string& description() {
  static const std::string text = detail::describe<T>(true);
  return text;
}

/** Returns the tag of a root of type `T`. Computed once per process. */
template <class T>
const tag& tag_of() {
  static const tag value = fnv1a(signature<T>());
  return value;
}

}  // namespace evermap

#endif
