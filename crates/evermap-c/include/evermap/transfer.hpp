/**
 * @file Files and streams by the cheapest method that the kernel offers. A thin layer:
 * `evermap_transfer.h` documents each function; here options are a struct with defaults,
 * explanations are collected, and failures are thrown.
 *
 *     evermap::transfer::options options;
 *     options.durability = EM_COPY_DURABILITY_FULL;
 *     const auto report = evermap::transfer::copy("from", "to", options);
 *     std::cout << report.data_bytes << " bytes by " << report.engine << ": " << report.why << "\n";
 */
#ifndef EVERMAP_TRANSFER_HPP
#define EVERMAP_TRANSFER_HPP

#include <chrono>
#include <csignal>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "../evermap_transfer.h"
#include "error.hpp"
#include "store.hpp"

namespace evermap::transfer {

/** One explanation of a transfer: engines used and not used, attributes not kept. */
struct explanation {
  em_explained kind;
  /** Copies of each byte by the processor with this engine. */
  std::uint32_t copies;
  std::uint64_t bytes;
  /** The engine, or the attribute. */
  std::string what;
  std::string path;
  std::string why;
};

/** Options; `em_transfer_options` documents them and the functions that use them. */
struct options {
  /** Name of the engine, such as "splice"; empty: chosen by the library. */
  std::string engine;
  em_copy_durability durability = EM_COPY_DURABILITY_NONE;
  em_reflink reflink = EM_REFLINK_AUTO;
  bool verify = false;
  bool resume = false;
  bool keep_going = false;
  bool one_file_system = false;
  bool sparse = false;
  std::uint32_t threads = 0;
  std::uint64_t begin_bytes = 0;
  std::uint64_t length_bytes = 0;
  /** A sum of em_without. */
  std::uint32_t without = 0;
  std::uint32_t connections = 0;
  bool raw = false;
  bool discard = false;
  /** Maximum wait for a sender; 0: unlimited. */
  std::chrono::milliseconds wait{0};
  /** Maximum time without progress; 0: a minute. */
  std::chrono::milliseconds idle{0};
  /** Cancel flag: a nonzero value, set by a signal handler or another thread, ends the transfer
   * with `cancelled`. */
  const volatile std::sig_atomic_t* cancelled = nullptr;
  /** Called in this thread with the bytes that have arrived and the total (0: not known); false
   * ends the transfer with `cancelled`. An exception ends it as well, and is rethrown. */
  std::function<bool(std::uint64_t, std::uint64_t)> progress;
};

/** Results and costs of a transfer. */
struct report : em_transfer_report {
  std::vector<explanation> explained;
};

namespace detail {

/** Receives callbacks; may not throw. */
struct listener {
  const options& chosen;
  std::vector<explanation> explained;
  std::exception_ptr failure;

  template <class F>
  bool attempt(F&& call) noexcept {
    try {
      return call();
    } catch (...) {
      failure = std::current_exception();
      return false;
    }
  }

  static bool on_progress(std::uint64_t arrived_bytes, std::uint64_t total_bytes, void* context) {
    auto* self = static_cast<listener*>(context);
    return self->attempt([&] { return self->chosen.progress(arrived_bytes, total_bytes); });
  }

  static bool on_explanation(const em_explanation* told, void* context) {
    auto* self = static_cast<listener*>(context);
    return self->attempt([&] {
      self->explained.push_back({static_cast<em_explained>(told->kind), told->copies, told->bytes,
                                 told->what, told->path, told->why});
      return true;
    });
  }
};

/** Calls a function of `evermap_transfer.h` with options and places for its results. */
template <class F>
report run(const options& chosen, F&& call) {
  static_assert(sizeof(std::sig_atomic_t) == sizeof(int), "the C library reads an int");
  listener heard{chosen, {}, nullptr};
  em_transfer_options given = EM_TRANSFER_OPTIONS_DEFAULT;
  given.engine = chosen.engine.empty() ? nullptr : chosen.engine.c_str();
  given.cancelled = chosen.cancelled;
  given.progress = chosen.progress ? &listener::on_progress : nullptr;
  given.explain = &listener::on_explanation;
  given.context = &heard;
  given.durability = chosen.durability;
  given.reflink = chosen.reflink;
  given.verify = chosen.verify;
  given.resume = chosen.resume;
  given.keep_going = chosen.keep_going;
  given.one_file_system = chosen.one_file_system;
  given.threads = chosen.threads;
  given.sparse = chosen.sparse;
  given.begin_bytes = chosen.begin_bytes;
  given.length_bytes = chosen.length_bytes;
  given.without = chosen.without;
  given.connections = chosen.connections;
  given.raw = chosen.raw;
  given.discard = chosen.discard;
  given.wait_ms = evermap::detail::milliseconds(chosen.wait);
  given.idle_ms = evermap::detail::milliseconds(chosen.idle);
  report done{};
  done.size = sizeof(em_transfer_report);
  const em_status status = std::forward<F>(call)(&given, static_cast<em_transfer_report*>(&done));
  if (heard.failure) {
    std::rethrow_exception(heard.failure);
  }
  evermap::detail::check(status);
  done.explained = std::move(heard.explained);
  return done;
}

}  // namespace detail

/** Copies a file, or a directory with all its contents. Errors: `disk_full`, `source_changed`,
 * `differs`, `refused`, `cancelled`, `not_permitted`, `busy`, `invalid_argument`, `io_error`;
 * an existing file is unchanged then, and a directory may be copied in part. */
inline report copy(const std::filesystem::path& source, const std::filesystem::path& target,
                   const options& chosen = {}) {
  return detail::run(chosen, [&](const em_transfer_options* given, em_transfer_report* done) {
    return evermap_copy(source.c_str(), target.c_str(), given, done);
  });
}

/** Moves bytes between two open descriptors, which stay open. Errors: `disk_full`,
 * `source_changed`, `refused`, `cancelled`, `io_error`; bytes that have arrived stay in the
 * target. */
inline report move(int source, int target, const options& chosen = {}) {
  return detail::run(chosen, [&](const em_transfer_options* given, em_transfer_report* done) {
    return evermap_move(source, target, given, done);
  });
}

/** Sends a file to a receiver at `address`: "HOST:PORT", "[IPV6]:PORT" or "unix:PATH". On return
 * the receiver has published the file, unless it discards the data, its target is not a regular
 * file, or the bytes are raw. Errors: `peer`, `source_changed`, `differs`, `refused`, `cancelled`,
 * `not_permitted`, `io_error`. */
inline report send(const std::filesystem::path& source, const std::string& address,
                   const options& chosen = {}) {
  return detail::run(chosen, [&](const em_transfer_options* given, em_transfer_report* done) {
    return evermap_send(source.c_str(), address.c_str(), given, done);
  });
}

/** Listens at `address`, receives one file, to a name or into a directory, and stops listening.
 * Errors: `peer`, `disk_full`, `source_changed`, `differs`, `refused`, `cancelled`,
 * `not_permitted`, `io_error`; a failed transfer leaves nothing. */
inline report receive(const std::string& address, const std::filesystem::path& target,
                      const options& chosen = {}) {
  return detail::run(chosen, [&](const em_transfer_options* given, em_transfer_report* done) {
    return evermap_receive(address.c_str(), target.c_str(), given, done);
  });
}

/** Listens while it lives. Movable, not copyable; one thread at a time may receive with it. */
class receiver {
 public:
  /** Port 0 means any free port. Errors: `peer` when the address is not available. */
  explicit receiver(const std::string& address) {
    evermap::detail::check(evermap_listen(address.c_str(), &receiver_));
  }
  receiver(receiver&& other) noexcept : receiver_(std::exchange(other.receiver_, nullptr)) {}
  receiver& operator=(receiver&& other) noexcept {
    receiver old(std::move(*this));
    std::swap(receiver_, other.receiver_);
    return *this;
  }
  ~receiver() {
    if (receiver_ != nullptr) {
      evermap_receiver_close(receiver_);
    }
  }

  /** Returns the address with the actual port. */
  std::string address() const {
    char text[512];
    evermap::detail::check(evermap_receiver_address(receiver_, text, sizeof text));
    return text;
  }
  /** Receives one file, and continues to listen. Errors: as `receive`; `busy`, `closed`. */
  report next(const std::filesystem::path& target, const options& chosen = {}) {
    return detail::run(chosen, [&](const em_transfer_options* given, em_transfer_report* done) {
      return evermap_receiver_next(receiver_, target.c_str(), given, done);
    });
  }
  /** Stops listening. Closing again does nothing. Errors: `busy`. */
  void close() {
    if (receiver_ != nullptr) {
      evermap::detail::check(evermap_receiver_close(receiver_));
      receiver_ = nullptr;
    }
  }
  evermap_receiver* handle() const noexcept { return receiver_; }

 private:
  evermap_receiver* receiver_ = nullptr;
};

}  // namespace evermap::transfer

#endif
