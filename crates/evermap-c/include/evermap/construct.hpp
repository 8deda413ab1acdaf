/**
 * @file
 * Uses-allocator construction: the arguments for constructing an element, so that each container in
 * it gets the allocator of the enclosing container.
 *
 * The standard does this for types that take an allocator, and for pairs since C++20. This file
 * also reaches the members of pairs, tuples, optionals, variants and arrays, nested in any way: the
 * standard's versions take no allocator, or do not pass it on to such members.
 */
#ifndef EVERMAP_CONSTRUCT_HPP
#define EVERMAP_CONSTRUCT_HPP

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace evermap::detail {

template <class T, class A, class... Args>
inline constexpr bool takes_allocator_first =
    std::uses_allocator_v<T, A> &&
    std::is_constructible_v<T, std::allocator_arg_t, const A&, Args...>;
template <class T, class A, class... Args>
inline constexpr bool takes_allocator_last =
    std::uses_allocator_v<T, A> && std::is_constructible_v<T, Args..., const A&>;

/** True if `T` consists of members that get the allocator one by one. */
template <class T>
inline constexpr bool is_composed = false;
template <class T>
inline constexpr bool is_composed<const T> = is_composed<T>;
template <class A, class B>
inline constexpr bool is_composed<std::pair<A, B>> = true;
template <class... T>
inline constexpr bool is_composed<std::tuple<T...>> = true;
template <class T>
inline constexpr bool is_composed<std::optional<T>> = true;
template <class... T>
inline constexpr bool is_composed<std::variant<T...>> = true;
template <class T, std::size_t N>
inline constexpr bool is_composed<std::array<T, N>> = true;

template <class T>
inline constexpr bool is_pair = false;
template <class A, class B>
inline constexpr bool is_pair<std::pair<A, B>> = true;
template <class T>
inline constexpr bool is_tuple = false;
template <class... T>
inline constexpr bool is_tuple<std::tuple<T...>> = true;
template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_in_place = std::is_same_v<T, std::in_place_t>;
template <class T>
inline constexpr bool is_in_place<std::in_place_type_t<T>> = true;
template <std::size_t I>
inline constexpr bool is_in_place<std::in_place_index_t<I>> = true;

template <class T>
using plain = std::remove_cv_t<std::remove_reference_t<T>>;

/** An argument that becomes a value when it is used, for construction that cannot be expressed
 * as a list of arguments. The value is constructed in its final place (C++17 elides the copy). */
template <class F>
struct delayed {
  F make;
  using value = std::invoke_result_t<const F&>;
  operator value() const { return make(); }  // NOLINT: a conversion is what it is for
};
template <class F>
delayed(F) -> delayed<F>;

/** `arguments(a, args...)` returns a tuple of the arguments to construct a `T` from. */
template <class T>
struct builder {
  template <class A, class... Args>
  static auto arguments([[maybe_unused]] const A& a, Args&&... args) {
    if constexpr (takes_allocator_first<T, A, Args...>) {
      return std::tuple<std::allocator_arg_t, const A&, Args&&...>(std::allocator_arg, a,
                                                                   std::forward<Args>(args)...);
    } else if constexpr (takes_allocator_last<T, A, Args...>) {
      return std::tuple<Args&&..., const A&>(std::forward<Args>(args)..., a);
    } else {
      return std::tuple<Args&&...>(std::forward<Args>(args)...);
    }
  }
};
template <class T>
struct builder<const T> : builder<T> {};

template <class T, class A, class... Args>
auto arguments_from(const A& a, std::tuple<Args...>&& args) {
  return std::apply(
      [&a](Args&... each) { return builder<T>::arguments(a, std::forward<Args>(each)...); }, args);
}

/** Constructs a `T` from these arguments; its containers use the allocator. */
template <class T, class A, class... Args>
T make_using(const A& a, Args&&... args) {
  return std::apply(
      [](auto&&... all) -> T { return T(std::forward<decltype(all)>(all)...); },
      builder<T>::arguments(a, std::forward<Args>(args)...));
}

/** Like `make_using`, but deferred. */
template <class T, class A, class... Args>
auto delay(const A& a, Args&&... args) {
  return std::tuple(delayed{[&a, all = std::tuple<Args&&...>(std::forward<Args>(args)...)]() -> T {
    return std::apply(
        [&a](std::remove_reference_t<Args>&... each) -> T {
          return make_using<T>(a, std::forward<Args>(each)...);
        },
        all);
  }});
}

template <class First, class Second>
struct builder<std::pair<First, Second>> {
  template <class A>
  static auto arguments(const A& a) {
    return arguments(a, std::piecewise_construct, std::tuple<>(), std::tuple<>());
  }
  template <class A, class X, class Y>
  static auto arguments(const A& a, X&& first, Y&& second) {
    return arguments(a, std::piecewise_construct, std::forward_as_tuple(std::forward<X>(first)),
                     std::forward_as_tuple(std::forward<Y>(second)));
  }
  template <class A, class Pair>
  static auto arguments(const A& a, Pair&& pair) {
    if constexpr (is_pair<plain<Pair>>) {
      return arguments(a, std::piecewise_construct,
                       std::forward_as_tuple(std::get<0>(std::forward<Pair>(pair))),
                       std::forward_as_tuple(std::get<1>(std::forward<Pair>(pair))));
    } else {
      return std::tuple(delayed{[&a, &pair]() -> std::pair<First, Second> {
        return make_using<std::pair<First, Second>>(
            a, std::pair<First, Second>(std::forward<Pair>(pair)));
      }});
    }
  }
  template <class A, class... X, class... Y>
  static auto arguments(const A& a, std::piecewise_construct_t, std::tuple<X...> first,
                        std::tuple<Y...> second) {
    return std::tuple(std::piecewise_construct, arguments_from<First>(a, std::move(first)),
                      arguments_from<Second>(a, std::move(second)));
  }
};

template <class... T>
struct builder<std::tuple<T...>> {
  using made = std::tuple<T...>;

  template <class A, class... Args>
  static auto arguments(const A& a, Args&&... args) {
    if constexpr (!(is_composed<T> || ...)) {
      // The standard's own constructors pass the allocator on to such members.
      return std::tuple<std::allocator_arg_t, const A&, Args&&...>(std::allocator_arg, a,
                                                                   std::forward<Args>(args)...);
    } else if constexpr (sizeof...(Args) == 1 && (... && is_tuple<plain<Args>>)) {
      return of_tuple(a, std::index_sequence_for<T...>(), std::forward<Args>(args)...);
    } else if constexpr (sizeof...(Args) == 1 && sizeof...(T) == 2 && (... && is_pair<plain<Args>>)) {
      return of_tuple(a, std::index_sequence_for<T...>(), std::forward<Args>(args)...);
    } else if constexpr (sizeof...(Args) == sizeof...(T) && sizeof...(T) > 0) {
      return std::tuple_cat(delay<std::remove_cv_t<T>>(a, std::forward<Args>(args))...);
    } else {
      return std::tuple<Args&&...>(std::forward<Args>(args)...);
    }
  }

 private:
  template <class A, std::size_t... I, class Tuple>
  static auto of_tuple(const A& a, std::index_sequence<I...>, Tuple&& tuple) {
    return std::tuple_cat(
        delay<std::remove_cv_t<T>>(a, std::get<I>(std::forward<Tuple>(tuple)))...);
  }
};

template <class T>
struct builder<std::optional<T>> {
  template <class A>
  static std::tuple<> arguments(const A&) {
    return {};
  }
  template <class A, class First, class... Args>
  static auto arguments(const A& a, First&& first, Args&&... args) {
    if constexpr (std::is_same_v<plain<First>, std::nullopt_t>) {
      return std::tuple<std::nullopt_t>(std::nullopt);
    } else if constexpr (std::is_same_v<plain<First>, std::in_place_t>) {
      return in_place(a, std::forward<Args>(args)...);
    } else if constexpr (is_optional<plain<First>>) {
      return std::tuple(delayed{[&a, &first]() -> std::optional<T> {
        return first ? make_using<std::optional<T>>(a, std::in_place, *std::forward<First>(first))
                     : std::optional<T>();
      }});
    } else {
      return in_place(a, std::forward<First>(first));
    }
  }

 private:
  template <class A, class... Args>
  static auto in_place(const A& a, Args&&... args) {
    return std::tuple_cat(std::tuple<std::in_place_t>(std::in_place),
                          builder<T>::arguments(a, std::forward<Args>(args)...));
  }
};

template <class... T>
struct builder<std::variant<T...>> {
  using made = std::variant<T...>;

  template <class A>
  static std::tuple<> arguments(const A&) {
    return {};
  }
  template <class A, class First, class... Args>
  static auto arguments(const A& a, First&& first, Args&&... args) {
    if constexpr (is_in_place<plain<First>>) {
      return std::tuple_cat(std::tuple<plain<First>>(first),
                            alternative(first, a, std::forward<Args>(args)...));
    } else if constexpr (std::is_same_v<plain<First>, made>) {
      return std::tuple(delayed{[&a, &first]() -> made {
        return alternative_of(a, std::forward<First>(first), std::make_index_sequence<sizeof...(T)>());
      }});
    } else {
      // The variant itself tells which alternative it holds.
      return std::tuple(delayed{[&a, &first]() -> made {
        return make_using<made>(a, made(std::forward<First>(first)));
      }});
    }
  }

 private:
  template <std::size_t I, class A, class... Args>
  static auto alternative(std::in_place_index_t<I>, const A& a, Args&&... args) {
    return builder<std::variant_alternative_t<I, made>>::arguments(a, std::forward<Args>(args)...);
  }
  template <class U, class A, class... Args>
  static auto alternative(std::in_place_type_t<U>, const A& a, Args&&... args) {
    return builder<U>::arguments(a, std::forward<Args>(args)...);
  }

  template <class A, class Other, std::size_t... I>
  static made alternative_of(const A& a, Other&& other, std::index_sequence<I...>) {
    using copy = made (*)(const A&, Other&&);
    static constexpr copy copies[] = {[](const A& a, Other&& other) -> made {
      return make_using<made>(a, std::in_place_index<I>, std::get<I>(std::forward<Other>(other)));
    }...};
    if (other.valueless_by_exception()) {
      return made(std::forward<Other>(other));
    }
    return copies[other.index()](a, std::forward<Other>(other));
  }
};

template <class T, std::size_t N>
struct builder<std::array<T, N>> {
  template <class A, class... Args>
  static auto arguments([[maybe_unused]] const A& a, Args&&... args) {
    if constexpr (N > 0 && sizeof...(Args) == 1) {
      return std::tuple(delayed{[&a, all = std::tuple<Args&&...>(std::forward<Args>(args)...)] {
        return copy(a, std::forward<Args>(std::get<0>(all))..., std::make_index_sequence<N>());
      }});
    } else {
      return std::tuple<Args&&...>(std::forward<Args>(args)...);
    }
  }

 private:
  template <class A, class Other, std::size_t... I>
  static std::array<T, N> copy(const A& a, Other&& other, std::index_sequence<I...>) {
    return {{make_using<T>(a, std::get<I>(std::forward<Other>(other)))...}};
  }
};

}  // namespace evermap::detail

#endif
