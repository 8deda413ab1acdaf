/**
 * @file A file's bytes as memory, by the cheapest method that the kernel offers. A thin layer:
 * `evermap_load.h` documents each function; here options are a builder, an image is an owner, and
 * failures are thrown.
 *
 *     evermap::image image = evermap::loader("model.bin").written(0.1).load();
 *     std::span<const std::byte> bytes = image.bytes();    // C++20; data() and size() before
 *     std::cout << image.why() << "\n";
 */
#ifndef EVERMAP_LOAD_HPP
#define EVERMAP_LOAD_HPP

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>
#if __cplusplus >= 202002L && __has_include(<span>)
#include <span>
#endif

#include "../evermap_load.h"
#include "error.hpp"

namespace evermap {

/** One candidate method. */
struct load_choice {
  std::string method;
  std::string why;
  std::uint32_t threads;
  /** Shows pages of the file, not private memory. */
  bool maps_the_file;
};

/** Facts about a file before it is loaded, and the candidate methods. */
struct load_facts : em_load_facts {
  std::vector<load_choice> choices;
};

/** Progress of a load. */
struct load_progress {
  std::uint64_t loaded_bytes;
  std::uint64_t total_bytes;
};

/** Load options for files by their names; `evermap_load.h` explains rules. Movable, not
 * copyable. */
class rules {
 public:
  /** Reads a file of rules. Errors: `io_error`, `not_permitted`, `malformed`. */
  static rules read(const std::filesystem::path& path) {
    rules read;
    detail::check(evermap_rules_read(path.c_str(), &read.rules_));
    return read;
  }
  /** Errors: `malformed`. */
  static rules parse(const std::string& text) {
    rules parsed;
    detail::check(evermap_rules_parse(text.c_str(), &parsed.rules_));
    return parsed;
  }
  rules(rules&& other) noexcept : rules_(std::exchange(other.rules_, nullptr)) {}
  rules& operator=(rules&& other) noexcept {
    rules old(std::move(*this));
    std::swap(rules_, other.rules_);
    return *this;
  }
  ~rules() {
    if (rules_ != nullptr) {
      evermap_rules_close(rules_);
    }
  }

  /** Returns true if a rule matches a file. */
  bool match(const std::filesystem::path& path) const {
    bool matches = false;
    detail::check(evermap_rules_match(rules_, path.c_str(), &matches));
    return matches;
  }
  evermap_rules* handle() const noexcept { return rules_; }

 private:
  rules() = default;
  evermap_rules* rules_ = nullptr;
};

class loader;

/** The bytes of a file, or of a range of it, as memory. Movable, not copyable; writes never go
 * to the file. The destructor unmaps the image, which invalidates every pointer and span into
 * it. Other threads may use it at the same time, except for `advise`, `close` and the first
 * `writable_data`, which need exclusive use. */
class image {
 public:
  /** Like `loader(path).load()`. */
  explicit image(const std::filesystem::path& path, const em_load_options& wishes = EM_LOAD_OPTIONS_DEFAULT) {
    detail::check(evermap_load(path.c_str(), &wishes, &image_));
    look();
  }
  image(image&& other) noexcept
      : image_(std::exchange(other.image_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  image& operator=(image&& other) noexcept {
    image old(std::move(*this));
    std::swap(image_, other.image_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~image() {
    if (image_ != nullptr) {
      evermap_image_close(image_);
    }
  }

  const std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  const std::byte* begin() const noexcept { return data_; }
  const std::byte* end() const noexcept { return data_ + size_; }
  const std::byte& operator[](std::size_t at) const noexcept { return data_[at]; }

  /** Returns the same bytes, for writing. Errors: `no_memory`, `io_error`, `busy` for an image
   * by "mmap-shared", which becomes private at the first call; `closed`. */
  std::byte* writable_data() {
    void* address = evermap_image_writable_address(image_);
    if (address == nullptr) {
      detail::raise_last();
    }
    return static_cast<std::byte*>(address);
  }

#ifdef __cpp_lib_span
  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  /** Errors: as `writable_data`. */
  std::span<std::byte> writable_bytes() { return {writable_data(), size_}; }
  /** Returns these bytes after they are loaded: reading them raises no signal. Errors: as
   * `ensure`. */
  std::span<const std::byte> get(std::size_t begin, std::size_t length) const {
    ensure(begin, length);
    return {data_ + begin, length};
  }
#endif

  /** Waits until these bytes are loaded. Errors: `unreadable`, `source_changed`, `threads_lost`,
   * `out_of_bounds`, `busy`, `closed`. */
  void ensure(std::size_t begin, std::size_t length) const {
    detail::check(evermap_image_ensure(image_, begin, length));
  }
  /** Requests that these bytes of an on-demand image be loaded before others. Errors:
   * `out_of_bounds`, `busy`, `closed`. */
  void want(std::size_t begin, std::size_t length) const {
    detail::check(evermap_image_want(image_, begin, length));
  }
  /** Waits until everything is loaded that no advice excluded. Errors: as `ensure`. */
  void wait() const { detail::check(evermap_image_wait(image_)); }
  /** Declares the expected use of these bytes; no thread may access them during the call.
   * Errors: `out_of_bounds`, `busy`, `closed`, and the errors of a load if it reads. */
  void advise(std::size_t begin, std::size_t length, em_advice advice) {
    detail::check(evermap_image_advise(image_, begin, length, advice));
  }
  /** Errors: `source_changed` if the file is not the loaded version any more. */
  void check() const { detail::check(evermap_image_check(image_)); }

  load_progress progress() const {
    load_progress found{};
    detail::check(evermap_image_progress(image_, &found.loaded_bytes, &found.total_bytes));
    return found;
  }
  /** Returns true if system calls can use bytes that are not loaded yet; if not, call `ensure`
   * first. */
  bool serves_system_calls() const {
    bool serves = false;
    detail::check(evermap_image_serves_system_calls(image_, &serves));
    return serves;
  }
  /** Reports the memory of the image. Walks its page tables. */
  em_residency residency() const {
    em_residency found{};
    found.size = sizeof found;
    detail::check(evermap_image_residency(image_, &found));
    return found;
  }
  /** Reports method, reason and costs of the image. Walks its page tables. */
  em_load_report report() const {
    em_load_report found{};
    found.size = sizeof found;
    detail::check(evermap_image_report(image_, &found));
    return found;
  }
  /** Returns the method, its reason, and the methods tried before. */
  std::string why() const {
    const std::size_t bytes = evermap_image_why(image_, nullptr, 0);
    if (bytes == 0) {
      detail::raise_last();
    }
    std::string text(bytes + 1, '\0');
    evermap_image_why(image_, text.data(), text.size());
    text.resize(bytes);
    return text;
  }

  /** Reports the use of a recorded image until now; saves it at `path` unless that is empty.
   * Errors: `invalid_argument` if it is not recorded; `io_error`, `not_permitted`, `disk_full`,
   * `busy`, `closed`. */
  em_recording recording(const std::filesystem::path& path = {}) const {
    em_recording found{};
    found.size = sizeof found;
    detail::check(evermap_image_recording(image_, path.empty() ? nullptr : path.c_str(), &found));
    return found;
  }

  /** Closes the image. Closing again does nothing. Errors: `busy`, then it stays open. */
  void close() {
    if (image_ != nullptr) {
      detail::check(evermap_image_close(image_));
      image_ = nullptr;
      data_ = nullptr;
      size_ = 0;
    }
  }
  evermap_image* handle() const noexcept { return image_; }

 private:
  friend std::vector<image> load_all(const std::vector<loader>& loaders);

  explicit image(evermap_image* open) : image_(open) { look(); }
  void look() {
    data_ = static_cast<const std::byte*>(evermap_image_address(image_));
    size_ = evermap_image_length(image_);
  }

  evermap_image* image_ = nullptr;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/** Options of a load and the expected use of the image. By default: all of the file, usable as
 * soon as possible, touched and written everywhere. */
class loader {
 public:
  /** Does nothing before `load`. */
  explicit loader(std::filesystem::path path) : path_(std::move(path)) {}

  /** Loads only these bytes; a length of 0: up to the end of the file. */
  loader& range(std::uint64_t begin_bytes, std::uint64_t length_bytes = 0) {
    wishes_.begin_bytes = begin_bytes;
    wishes_.length_bytes = length_bytes;
    return *this;
  }
  /** Sets the share of pages that will be touched, 0 to 1. */
  loader& touched(double share) {
    wishes_.touched_permille = permille(share);
    return *this;
  }
  /** Sets the share of pages that will be written, 0 to 1. */
  loader& written(double share) {
    wishes_.written_permille = permille(share);
    return *this;
  }
  loader& order(em_load_order order) {
    wishes_.order = order;
    return *this;
  }
  loader& latency(em_load_latency latency) {
    wishes_.latency = latency;
    return *this;
  }
  loader& cache(em_load_cache cache) {
    wishes_.cache = cache;
    return *this;
  }
  /** Sets the maximum private memory. */
  loader& memory_max(std::uint64_t bytes) {
    wishes_.memory_bytes_max = bytes;
    return *this;
  }
  loader& fork(em_load_fork policy) {
    wishes_.fork = policy;
    return *this;
  }
  /** Sets the number of threads of methods that read. */
  loader& threads(std::uint32_t threads) {
    wishes_.threads = threads;
    return *this;
  }
  /** Sets the only method to use, such as "takeover"; "": chosen by the library. */
  loader& method(std::string name) {
    method_ = std::move(name);
    return *this;
  }
  /** Allows methods that map the file. A PROMISE that the file is not changed or truncated while
   * the image is open: else its bytes change, or raise SIGBUS. */
  loader& may_map(bool promised = true) {
    wishes_.may_map = promised;
    return *this;
  }

  /** Sets rules: the first one that matches supplies options that are not set here. They must
   * live until the load. With `trust`, a rule with `unchanging` counts as `may_map`, with the
   * same PROMISE. */
  loader& by(const evermap::rules& rules, bool trust = false) {
    wishes_.rules = rules.handle();
    wishes_.trust_rules = trust;
    return *this;
  }
  /** Makes the image record its use, for `image::recording`. */
  loader& record(bool wanted = true) {
    wishes_.record = wanted;
    return *this;
  }
  /** Loads by the recording in this file if it matches; else records, and saves it there when
   * the image is closed. */
  loader& recording(std::filesystem::path path) {
    recording_ = std::move(path);
    return *this;
  }
  /** Loads by the recording in this file, if it matches. */
  loader& replay(std::filesystem::path path) {
    replay_ = std::move(path);
    return *this;
  }

  /** Errors: `io_error`, `not_permitted`, `not_a_file`, `out_of_bounds`, `no_memory`, `unreadable`, `source_changed`, `refused`,
   *  `malformed`, `invalid_argument`, `too_many_open`. */
  image load() const { return image(path_, given()); }

  /** Reports the facts before a load and the candidate methods. Reads nothing of the file.
   * Errors: as `load` before it reads. */
  load_facts probe() const {
    load_facts found{};
    found.size = sizeof(em_load_facts);
    listener heard;
    const em_load_options wishes = given();
    const em_status status = evermap_load_probe(path_.c_str(), &wishes, static_cast<em_load_facts*>(&found),
                                                &listener::on_choice, &heard);
    if (heard.failure) {
      std::rethrow_exception(heard.failure);
    }
    detail::check(status);
    found.choices = std::move(heard.choices);
    return found;
  }

 private:
  friend std::vector<image> load_all(const std::vector<loader>& loaders);

  /** Receives callbacks; may not throw. */
  struct listener {
    std::vector<load_choice> choices;
    std::exception_ptr failure;

    static bool on_choice(const em_load_choice* told, void* context) noexcept {
      auto* self = static_cast<listener*>(context);
      try {
        self->choices.push_back({told->method, told->why, told->threads, told->maps_the_file != 0});
        return true;
      } catch (...) {
        self->failure = std::current_exception();
        return false;
      }
    }
  };

  /** Never 0, which means "not known". */
  static std::uint32_t permille(double share) {
    if (!(share > 0.0)) {
      return EM_LOAD_NONE;
    }
    return share < 1.0 ? static_cast<std::uint32_t>(std::ceil(share * 1000.0)) : 1000;
  }

  em_load_options given() const {
    em_load_options wishes = wishes_;
    wishes.method = method_.empty() ? nullptr : method_.c_str();
    wishes.recording = recording_.empty() ? nullptr : recording_.c_str();
    wishes.replay = replay_.empty() ? nullptr : replay_.c_str();
    return wishes;
  }

  std::filesystem::path path_;
  std::filesystem::path recording_;
  std::filesystem::path replay_;
  std::string method_;
  em_load_options wishes_ = EM_LOAD_OPTIONS_DEFAULT;
};

/** Loads many files together, all or none, planning the memory for all of them, in the order of
 * their loaders. Errors: as the first that cannot be loaded, as in `loader::load`. */
inline std::vector<image> load_all(const std::vector<loader>& loaders) {
  std::vector<em_load_options> wishes;
  std::vector<em_load_file> files;
  wishes.reserve(loaders.size());
  for (const loader& each : loaders) {
    wishes.push_back(each.given());
    files.push_back({each.path_.c_str(), &wishes.back()});
  }
  std::vector<image> images;
  images.reserve(loaders.size());
  std::vector<evermap_image*> open(loaders.size());
  detail::check(evermap_load_all(files.data(), files.size(), open.data(), nullptr));
  for (evermap_image* each : open) {
    images.push_back(image(each));
  }
  return images;
}

}  // namespace evermap

#endif
