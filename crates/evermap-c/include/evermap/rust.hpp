/**
 * @file Read-only views of the containers that Rust programs put into objects: the layouts of
 * `docs/persist.md`. Declare a Rust struct as a C++ struct with the same members; the description
 * in the object confirms the match (`snapshot.rust_root<T>(description)`).
 */
#ifndef EVERMAP_RUST_HPP
#define EVERMAP_RUST_HPP

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string_view>

namespace evermap {

/** `PVec<T>`: a growable array. Empty when all its bytes are zero. */
template <class T>
class pvec {
 public:
  using value_type = T;
  using const_iterator = const T*;

  pvec(const pvec&) = delete;
  pvec& operator=(const pvec&) = delete;

  const T* data() const noexcept { return elements_; }
  std::size_t size() const noexcept { return static_cast<std::size_t>(length_); }
  bool empty() const noexcept { return length_ == 0; }
  const T& operator[](std::size_t i) const noexcept { return elements_[i]; }
  const T* begin() const noexcept { return elements_; }
  const T* end() const noexcept { return elements_ + length_; }

 private:
  const T* elements_;
  std::uint64_t length_;
  std::uint64_t capacity_;
};

/** `PString`: UTF-8 text. A short text lies in the string's own bytes. */
class pstring {
 public:
  pstring(const pstring&) = delete;
  pstring& operator=(const pstring&) = delete;

  std::string_view view() const noexcept {
    if (const auto in_place = static_cast<unsigned char>(bytes_[sizeof bytes_ - 1])) {
      return {bytes_, in_place};
    }
    const char* data;
    std::uint64_t length;
    std::memcpy(&data, bytes_, sizeof data);
    std::memcpy(&length, bytes_ + 8, sizeof length);
    return {data, static_cast<std::size_t>(length)};
  }
  operator std::string_view() const noexcept { return view(); }

 private:
  alignas(8) char bytes_[24];
};

/** `PBox<T>`, and `Option<PBox<T>>`, which converts to false for `None`. */
template <class T>
class pbox {
 public:
  pbox(const pbox&) = delete;
  pbox& operator=(const pbox&) = delete;

  explicit operator bool() const noexcept { return value_ != nullptr; }
  const T& operator*() const noexcept { return *value_; }
  const T* operator->() const noexcept { return value_; }
  const T* get() const noexcept { return value_; }

 private:
  const T* value_;
};

/** `PMap<K, V>`: its entries in order. (The hash is not implemented here, so a lookup is a
 * linear search.) */
template <class K, class V>
class pmap {
 public:
  /** One entry; a hash of 0 marks a removed entry. */
  struct entry {
    std::uint64_t hash;
    K key;
    V value;
  };

  class const_iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = entry;
    using difference_type = std::ptrdiff_t;
    using pointer = const entry*;
    using reference = const entry&;

    const entry& operator*() const noexcept { return *at_; }
    const entry* operator->() const noexcept { return at_; }
    const_iterator& operator++() noexcept {
      ++at_;
      skip();
      return *this;
    }
    const_iterator operator++(int) noexcept {
      const const_iterator before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const_iterator a, const_iterator b) noexcept { return a.at_ == b.at_; }
    friend bool operator!=(const_iterator a, const_iterator b) noexcept { return a.at_ != b.at_; }

   private:
    friend class pmap;
    const_iterator(const entry* at, const entry* end) noexcept : at_(at), end_(end) { skip(); }
    void skip() noexcept {
      while (at_ != end_ && at_->hash == 0) {
        ++at_;
      }
    }
    const entry* at_;
    const entry* end_;
  };

  pmap(const pmap&) = delete;
  pmap& operator=(const pmap&) = delete;

  std::size_t size() const noexcept { return live_; }
  bool empty() const noexcept { return live_ == 0; }
  const_iterator begin() const noexcept { return {entries_, entries_ + used_}; }
  const_iterator end() const noexcept { return {entries_ + used_, entries_ + used_}; }

 private:
  const entry* entries_;
  const std::uint32_t* cells_;
  std::uint64_t seed_;
  std::uint32_t used_;
  std::uint32_t live_;
  std::uint32_t bits_;
  std::uint32_t zero_;
};

static_assert(sizeof(pvec<char>) == 24 && sizeof(pstring) == 24 && sizeof(pbox<char>) == 8);
static_assert(alignof(pstring) == 8);
static_assert(sizeof(pmap<char, char>) == 40 && alignof(pmap<char, char>) == 8);

}  // namespace evermap

#endif
