// A type with a text in an object, which takes the text's allocator.
#pragma once

#include <utility>

template <class String>
struct aware_of {
  using allocator_type = typename String::allocator_type;
  String text;
  explicit aware_of(const allocator_type& a = allocator_type()) : text(a) {}
  aware_of(const char* words, const allocator_type& a = allocator_type()) : text(words, a) {}
  aware_of(const aware_of& other, const allocator_type& a) : text(other.text, a) {}
  aware_of(aware_of&& other, const allocator_type& a) : text(std::move(other.text), a) {}
  aware_of(const aware_of&) = default;
  aware_of(aware_of&&) = default;
  aware_of& operator=(const aware_of&) = default;
  aware_of& operator=(aware_of&&) = default;
  ~aware_of() = default;
};
