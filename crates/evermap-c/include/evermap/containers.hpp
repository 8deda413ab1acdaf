/**
 * @file Names for the standard containers with `evermap::allocator`. Elements that are containers
 * allocate from the same object, because the allocator constructs them that way (no
 * `std::scoped_allocator_adaptor` is needed; it works too).
 *
 * The ordered containers compare with `std::less<>`, so a `std::string_view` or literal is looked
 * up without creating a string. Hashes come from the standard library and are valid for one
 * library ABI: the root's tag excludes others.
 */
#ifndef EVERMAP_CONTAINERS_HPP
#define EVERMAP_CONTAINERS_HPP

#include <deque>
#include <forward_list>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "allocator.hpp"

namespace evermap {

/** A string in an object. Short text (up to 15 bytes, 22 with libc++) is stored inside it. */
template <class Char, class Traits = std::char_traits<Char>>
using basic_string = std::basic_string<Char, Traits, allocator<Char>>;
using string = basic_string<char>;
using wstring = basic_string<wchar_t>;
using u16string = basic_string<char16_t>;
using u32string = basic_string<char32_t>;

template <class T>
using vector = std::vector<T, allocator<T>>;
template <class T>
using deque = std::deque<T, allocator<T>>;
template <class T>
using list = std::list<T, allocator<T>>;
template <class T>
using forward_list = std::forward_list<T, allocator<T>>;

template <class K, class V, class Less = std::less<>>
using map = std::map<K, V, Less, allocator<std::pair<const K, V>>>;
template <class K, class V, class Less = std::less<>>
using multimap = std::multimap<K, V, Less, allocator<std::pair<const K, V>>>;
template <class K, class Less = std::less<>>
using set = std::set<K, Less, allocator<K>>;
template <class K, class Less = std::less<>>
using multiset = std::multiset<K, Less, allocator<K>>;

/** Hash of a key, equal for all strings with the same characters: `std::hash` only supports
 * strings with the default allocator. With C++20, a `std::string_view` or literal is looked up
 * directly. */
template <class K>
struct hash : std::hash<K> {};
template <class Char, class Traits>
struct hash<basic_string<Char, Traits>> {
  using is_transparent = void;
  std::size_t operator()(std::basic_string_view<Char, Traits> text) const noexcept {
    return std::hash<std::basic_string_view<Char, Traits>>()(text);
  }
};

template <class K, class V, class Hash = hash<K>, class Equal = std::equal_to<>>
using unordered_map = std::unordered_map<K, V, Hash, Equal, allocator<std::pair<const K, V>>>;
template <class K, class V, class Hash = hash<K>, class Equal = std::equal_to<>>
using unordered_multimap =
    std::unordered_multimap<K, V, Hash, Equal, allocator<std::pair<const K, V>>>;
template <class K, class Hash = hash<K>, class Equal = std::equal_to<>>
using unordered_set = std::unordered_set<K, Hash, Equal, allocator<K>>;
template <class K, class Hash = hash<K>, class Equal = std::equal_to<>>
using unordered_multiset = std::unordered_multiset<K, Hash, Equal, allocator<K>>;

/** Owns one value in a block of an object. 8 bytes; created by `session.make_unique`. */
template <class T>
using unique_ptr = std::unique_ptr<T, deleter>;

}  // namespace evermap

#endif
