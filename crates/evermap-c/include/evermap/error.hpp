/**
 * @file Errors as exceptions: one class per status of `evermap.h`, all derived from
 * `evermap::error`, and `bad_alloc` for failed allocations. The message is the library's sentence
 * with cause, place and remedy.
 */
#ifndef EVERMAP_ERROR_HPP
#define EVERMAP_ERROR_HPP

#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "../evermap.h"

namespace evermap {

/** Base class of all failures. */
class error : public std::runtime_error {
 public:
  error(em_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}

  /** Returns the status of `evermap.h`. */
  em_status status() const noexcept { return status_; }

 private:
  em_status status_;
};

/** Error of one status. */
template <em_status Status>
class status_error : public error {
 public:
  explicit status_error(const std::string& message) : error(Status, message) {}
};

using no_store = status_error<EM_NO_STORE>;
using store_exists = status_error<EM_STORE_EXISTS>;
using not_found = status_error<EM_NOT_FOUND>;
using already_exists = status_error<EM_ALREADY_EXISTS>;
using invalid_name = status_error<EM_INVALID_NAME>;
using busy = status_error<EM_BUSY>;
using address_taken = status_error<EM_ADDRESS_TAKEN>;
using foreign = status_error<EM_FOREIGN>;
using newer_format = status_error<EM_NEWER_FORMAT>;
using damaged = status_error<EM_DAMAGED>;
using schema_mismatch = status_error<EM_SCHEMA_MISMATCH>;
using other_application = status_error<EM_OTHER_APPLICATION>;
using disk_full = status_error<EM_DISK_FULL>;
using not_permitted = status_error<EM_NOT_PERMITTED>;
using out_of_addresses = status_error<EM_OUT_OF_ADDRESSES>;
using bad_allocation = status_error<EM_BAD_ALLOCATION>;
using invalid_free = status_error<EM_INVALID_FREE>;
using bad_root = status_error<EM_BAD_ROOT>;
using capacity_overflow = status_error<EM_CAPACITY_OVERFLOW>;
using out_of_bounds = status_error<EM_OUT_OF_BOUNDS>;
using durability_unknown = status_error<EM_DURABILITY_UNKNOWN>;
using log_missing = status_error<EM_LOG_MISSING>;
using log_full = status_error<EM_LOG_FULL>;
using unsupported = status_error<EM_UNSUPPORTED>;
using io_error = status_error<EM_IO>;
using other_object = status_error<EM_OTHER_OBJECT>;
using deserialize_error = status_error<EM_DESERIALIZE>;
using bad_base = status_error<EM_BAD_BASE>;
using nothing_kept = status_error<EM_NOTHING_KEPT>;
using changed_since = status_error<EM_CHANGED_SINCE>;
using points_elsewhere = status_error<EM_POINTS_ELSEWHERE>;
using bad_export = status_error<EM_BAD_EXPORT>;
using other_kind = status_error<EM_OTHER_KIND>;
using bad_guest_root = status_error<EM_BAD_GUEST_ROOT>;
using would_deadlock = status_error<EM_WOULD_DEADLOCK>;
using not_locked = status_error<EM_NOT_LOCKED>;
using file_size_limit = status_error<EM_FILE_SIZE_LIMIT>;
using foreign_pointer = status_error<EM_FOREIGN_POINTER>;
using other_build = status_error<EM_OTHER_BUILD>;
using closed = status_error<EM_CLOSED>;
using read_only = status_error<EM_READ_ONLY>;
using forked = status_error<EM_FORKED>;
using invalid_argument = status_error<EM_INVALID_ARGUMENT>;
using too_many_open = status_error<EM_TOO_MANY_OPEN>;
using internal_error = status_error<EM_INTERNAL>;
using uncommitted = status_error<EM_UNCOMMITTED>;
using source_changed = status_error<EM_SOURCE_CHANGED>;
using differs = status_error<EM_DIFFERS>;
using refused = status_error<EM_REFUSED>;
using peer = status_error<EM_PEER>;
using cancelled = status_error<EM_CANCELLED>;
using not_a_file = status_error<EM_NOT_A_FILE>;
using unreadable = status_error<EM_UNREADABLE>;
using no_memory = status_error<EM_NO_MEMORY>;
using threads_lost = status_error<EM_THREADS_LOST>;
using malformed = status_error<EM_MALFORMED>;

/** A failed allocation, thrown by allocators and `make`, so that code which only knows
 * `std::bad_alloc` works. (It is not an `evermap::error`: an exception with two `std::exception`
 * bases would not be caught as a `std::exception`.) */
class bad_alloc : public std::bad_alloc {
 public:
  bad_alloc(em_status status, std::string message)
      : status_(status), message_(std::move(message)) {}

  /** Returns the status of `evermap.h`: EM_DISK_FULL, EM_BAD_ALLOCATION, EM_READ_ONLY,
   * EM_CLOSED, ... */
  em_status status() const noexcept { return status_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  em_status status_;
  std::string message_;
};

namespace detail {

/** Throws the class of `status`. */
[[noreturn]] inline void raise(em_status status, const std::string& message) {
  switch (status) {
    case EM_NO_STORE: throw no_store(message);
    case EM_STORE_EXISTS: throw store_exists(message);
    case EM_NOT_FOUND: throw not_found(message);
    case EM_ALREADY_EXISTS: throw already_exists(message);
    case EM_INVALID_NAME: throw invalid_name(message);
    case EM_BUSY: throw busy(message);
    case EM_ADDRESS_TAKEN: throw address_taken(message);
    case EM_FOREIGN: throw foreign(message);
    case EM_NEWER_FORMAT: throw newer_format(message);
    case EM_DAMAGED: throw damaged(message);
    case EM_SCHEMA_MISMATCH: throw schema_mismatch(message);
    case EM_OTHER_APPLICATION: throw other_application(message);
    case EM_DISK_FULL: throw disk_full(message);
    case EM_NOT_PERMITTED: throw not_permitted(message);
    case EM_OUT_OF_ADDRESSES: throw out_of_addresses(message);
    case EM_BAD_ALLOCATION: throw bad_allocation(message);
    case EM_INVALID_FREE: throw invalid_free(message);
    case EM_BAD_ROOT: throw bad_root(message);
    case EM_CAPACITY_OVERFLOW: throw capacity_overflow(message);
    case EM_OUT_OF_BOUNDS: throw out_of_bounds(message);
    case EM_DURABILITY_UNKNOWN: throw durability_unknown(message);
    case EM_LOG_MISSING: throw log_missing(message);
    case EM_LOG_FULL: throw log_full(message);
    case EM_UNSUPPORTED: throw unsupported(message);
    case EM_IO: throw io_error(message);
    case EM_OTHER_OBJECT: throw other_object(message);
    case EM_DESERIALIZE: throw deserialize_error(message);
    case EM_BAD_BASE: throw bad_base(message);
    case EM_NOTHING_KEPT: throw nothing_kept(message);
    case EM_CHANGED_SINCE: throw changed_since(message);
    case EM_POINTS_ELSEWHERE: throw points_elsewhere(message);
    case EM_BAD_EXPORT: throw bad_export(message);
    case EM_OTHER_KIND: throw other_kind(message);
    case EM_BAD_GUEST_ROOT: throw bad_guest_root(message);
    case EM_WOULD_DEADLOCK: throw would_deadlock(message);
    case EM_NOT_LOCKED: throw not_locked(message);
    case EM_FILE_SIZE_LIMIT: throw file_size_limit(message);
    case EM_FOREIGN_POINTER: throw foreign_pointer(message);
    case EM_OTHER_BUILD: throw other_build(message);
    case EM_CLOSED: throw closed(message);
    case EM_READ_ONLY: throw read_only(message);
    case EM_FORKED: throw forked(message);
    case EM_INVALID_ARGUMENT: throw invalid_argument(message);
    case EM_TOO_MANY_OPEN: throw too_many_open(message);
    case EM_INTERNAL: throw internal_error(message);
    case EM_UNCOMMITTED: throw uncommitted(message);
    case EM_SOURCE_CHANGED: throw source_changed(message);
    case EM_DIFFERS: throw differs(message);
    case EM_REFUSED: throw refused(message);
    case EM_PEER: throw peer(message);
    case EM_CANCELLED: throw cancelled(message);
    case EM_NOT_A_FILE: throw not_a_file(message);
    case EM_UNREADABLE: throw unreadable(message);
    case EM_NO_MEMORY: throw no_memory(message);
    case EM_THREADS_LOST: throw threads_lost(message);
    case EM_MALFORMED: throw malformed(message);
    case EM_OK: break;
  }
  // Unknown status: the library is newer than this header. (Without a `default`, compilers report a
  // status of this header that lacks a class.)
  throw error(status, message);
}

/** Throws the failure of the thread's last call. */
[[noreturn]] inline void raise_last() { raise(em_last_error(), em_last_error_message()); }

/** Throws unless `status` is EM_OK. */
inline void check(em_status status) {
  if (status != EM_OK) {
    raise(status, em_last_error_message());
  }
}

}  // namespace detail
}  // namespace evermap

#endif
