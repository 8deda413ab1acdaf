/**
 * @file
 * Detects types that obviously cannot live in an object, at compile time.
 *
 * Other processes read an object, and their code, static data and heap are elsewhere. Types that
 * hold such addresses by nature are refused here, also as one of the first twelve members of a
 * class without constructors. A header cannot see the members of other classes: the commit checks
 * the values (`em_foreign_pointers`), and so does `evermap store audit`.
 */
#ifndef EVERMAP_RESIDENCE_HPP
#define EVERMAP_RESIDENCE_HPP

#include <any>
#include <array>
#include <functional>
#include <locale>
#include <memory>
#include <optional>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

// libc++ before 16 does not have it.
#if __has_include(<memory_resource>)
#include <memory_resource>
#endif

namespace evermap {

namespace detail {

template <class A>
inline constexpr bool is_foreign_allocator = false;
template <class T>
inline constexpr bool is_foreign_allocator<std::allocator<T>> = true;
#if defined(__cpp_lib_memory_resource)
template <class T>
inline constexpr bool is_foreign_allocator<std::pmr::polymorphic_allocator<T>> = true;
#endif

template <class T, class = void>
inline constexpr bool has_foreign_allocator = false;
template <class T>
inline constexpr bool has_foreign_allocator<T, std::void_t<typename T::allocator_type>> =
    is_foreign_allocator<typename T::allocator_type>;

template <class T>
constexpr bool has_foreign_member();

}  // namespace detail

/** True if a `T` can live in an object, as far as its type tells. Specialise it for your own
 * class that cannot: `template <> inline constexpr bool evermap::can_live_in_object<connection>
 * = false;` */
template <class T>
inline constexpr bool can_live_in_object =
    std::is_object_v<T> && !detail::has_foreign_allocator<T> && !detail::has_foreign_member<T>() &&
    !std::is_member_function_pointer_v<T> &&
    !(std::is_pointer_v<T> && std::is_function_v<std::remove_pointer_t<T>>);

template <class T>
inline constexpr bool can_live_in_object<const T> = can_live_in_object<T>;
template <class T, std::size_t N>
inline constexpr bool can_live_in_object<T[N]> = can_live_in_object<T>;
template <class T, std::size_t N>
inline constexpr bool can_live_in_object<std::array<T, N>> = can_live_in_object<T>;
template <class A, class B>
inline constexpr bool can_live_in_object<std::pair<A, B>> =
    can_live_in_object<A> && can_live_in_object<B>;
template <class... T>
inline constexpr bool can_live_in_object<std::tuple<T...>> = (can_live_in_object<T> && ...);
template <class... T>
inline constexpr bool can_live_in_object<std::variant<T...>> = (can_live_in_object<T> && ...);
template <class T>
inline constexpr bool can_live_in_object<std::optional<T>> = can_live_in_object<T>;

/** Its control block has virtual functions, and its owners are in this process only. */
template <class T>
inline constexpr bool can_live_in_object<std::shared_ptr<T>> = false;
template <class T>
inline constexpr bool can_live_in_object<std::weak_ptr<T>> = false;
/** Frees to the process's heap; `evermap::unique_ptr` frees to the object. */
template <class T>
inline constexpr bool can_live_in_object<std::unique_ptr<T, std::default_delete<T>>> = false;
/** These hold addresses of code. */
template <class F>
inline constexpr bool can_live_in_object<std::function<F>> = false;
template <>
inline constexpr bool can_live_in_object<std::any> = false;
/** These belong to the process. */
template <>
inline constexpr bool can_live_in_object<std::locale> = false;
template <>
inline constexpr bool can_live_in_object<std::thread> = false;

namespace detail {

/** Pointers to functions are refused as values. As members they are the class's responsibility:
 * a program with a fixed address may register its code. */
template <class T>
inline constexpr bool is_refused_member =
    !can_live_in_object<T> && std::is_object_v<T> && !std::is_pointer_v<T> &&
    !std::is_member_pointer_v<T>;

/** Initialises only a member whose type cannot live in an object. */
struct foreign_member {
  template <class T, class = std::enable_if_t<is_refused_member<T>>>
  operator T() const;
};

/** True if member number `N` of an aggregate can be initialised by that. */
template <class T, std::size_t N, class = void>
inline constexpr bool is_foreign_member = false;
#define EVERMAP_MEMBER_(N, ...)                                                          \
  template <class T>                                                                     \
  inline constexpr bool                                                                  \
      is_foreign_member<T, N, std::void_t<decltype(T{__VA_ARGS__ foreign_member()})>> = true;
EVERMAP_MEMBER_(0, )
EVERMAP_MEMBER_(1, {},)
EVERMAP_MEMBER_(2, {}, {},)
EVERMAP_MEMBER_(3, {}, {}, {},)
EVERMAP_MEMBER_(4, {}, {}, {}, {},)
EVERMAP_MEMBER_(5, {}, {}, {}, {}, {},)
EVERMAP_MEMBER_(6, {}, {}, {}, {}, {}, {},)
EVERMAP_MEMBER_(7, {}, {}, {}, {}, {}, {}, {},)
EVERMAP_MEMBER_(8, {}, {}, {}, {}, {}, {}, {}, {},)
EVERMAP_MEMBER_(9, {}, {}, {}, {}, {}, {}, {}, {}, {},)
EVERMAP_MEMBER_(10, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},)
EVERMAP_MEMBER_(11, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},)
#undef EVERMAP_MEMBER_

template <class T, std::size_t... N>
constexpr bool has_foreign_member(std::index_sequence<N...>) {
  return (is_foreign_member<T, N> || ...);
}
template <class T>
constexpr bool has_foreign_member() {
  if constexpr (std::is_class_v<T> && std::is_aggregate_v<T>) {
    return has_foreign_member<T>(std::make_index_sequence<12>());
  } else {
    return false;
  }
}

}  // namespace detail

namespace detail {

template <class T>
constexpr void check_residence() noexcept {
  static_assert(!has_foreign_member<T>(),
                "a member of this class would keep its memory in the process's heap, or belongs to "
                "the process; use evermap::string, evermap::vector, ... for it, see "
                "evermap::can_live_in_object");
  static_assert(!has_foreign_allocator<T>,
                "this container would keep its memory in the process's heap; use the one with "
                "evermap::allocator (evermap::string, evermap::vector, ...)");
  static_assert(can_live_in_object<T>,
                "this type holds addresses that mean nothing in another process, see "
                "evermap::can_live_in_object");
}

}  // namespace detail
}  // namespace evermap

#endif
