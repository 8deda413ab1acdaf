/**
 * @file
 * Which types obviously cannot live in an object, so that the compiler says so.
 *
 * What lies in an object is read by other processes, where code, static data and the process's heap
 * are elsewhere. Types that hold such addresses by their nature are refused here; what a class's
 * own members point to only its author knows (`evermap audit` looks at the values).
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

// libc++ before 16 has none.
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

}  // namespace detail

/** Can a `T` live in an object, as far as its type tells? A class of your own that cannot says so:
 *  `template <> inline constexpr bool evermap::can_live_in_object<connection> = false;` */
template <class T>
inline constexpr bool can_live_in_object =
    std::is_object_v<T> && !detail::has_foreign_allocator<T> &&
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

/** Its control block has virtual functions, and owners in the process that the next one has not. */
template <class T>
inline constexpr bool can_live_in_object<std::shared_ptr<T>> = false;
template <class T>
inline constexpr bool can_live_in_object<std::weak_ptr<T>> = false;
/** Frees to the process's heap; `evermap::unique_ptr` frees to the object. */
template <class T>
inline constexpr bool can_live_in_object<std::unique_ptr<T, std::default_delete<T>>> = false;
/** Hold addresses of code. */
template <class F>
inline constexpr bool can_live_in_object<std::function<F>> = false;
template <>
inline constexpr bool can_live_in_object<std::any> = false;
/** Belong to the process. */
template <>
inline constexpr bool can_live_in_object<std::locale> = false;
template <>
inline constexpr bool can_live_in_object<std::thread> = false;

namespace detail {

template <class T>
constexpr void check_residence() noexcept {
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
