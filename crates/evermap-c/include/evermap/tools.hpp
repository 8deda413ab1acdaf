/**
 * @file Tools for whole stores and objects: audits, backups, rebases, exports. A thin layer:
 * `evermap.h` documents each function; here findings are collected and failures thrown.
 */
#ifndef EVERMAP_TOOLS_HPP
#define EVERMAP_TOOLS_HPP

#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "error.hpp"
#include "store.hpp"

namespace evermap {

/** A word in an object. */
struct pointer_sample {
  /** Path from the root: `root.pages[3]`, or `root +16` if no types are known. */
  std::string path;
  std::uint64_t address;
  /** Target address; for a leak, the block's bytes. */
  std::uint64_t value;
};

/** Pointers of one kind to one target, or unreachable blocks. */
struct audit_finding {
  em_audit_kind kind;
  em_severity severity;
  em_confidence confidence;
  std::uint64_t count;
  std::string to;
  std::vector<pointer_sample> samples;
};

/** Counts and findings of an audit, the worst first, leaks last. */
struct audit_report : em_audit_report {
  std::vector<audit_finding> findings;
  bool is_damaged() const noexcept { return damage > 0 || damaged_chunks > 0; }
};

/** One damage in the copied data. */
struct copy_finding {
  std::string file;
  std::string object;
  std::string what;
  std::string found;
  std::string expected;
  std::string remedy;
};

/** Counts of a copy, and damage in the source, which the copy has too. */
struct copy_report : em_copy_report {
  std::vector<copy_finding> damage;
};

/** Words of one kind in one object that a rebase changes or keeps. */
struct moved_words {
  std::string object;
  em_typing typing;
  em_moved_kind kind;
  std::uint64_t count;
  std::vector<pointer_sample> samples;
};

/** New place of a store, and the changed words. */
struct rebase_report : em_rebase_report {
  std::vector<moved_words> words;
};

namespace detail {

/** Collects callbacks; may not throw. */
template <class T>
struct collection {
  std::vector<T> list;
  std::exception_ptr failure;

  /** Adds the result of `make`; false when it threw. */
  template <class F>
  bool add(F&& make) noexcept {
    try {
      list.push_back(make());
      return true;
    } catch (...) {
      failure = std::current_exception();
      return false;
    }
  }

  std::vector<T> take() {
    if (failure) {
      std::rethrow_exception(failure);
    }
    return std::move(list);
  }
};

inline std::vector<pointer_sample> samples_of(const em_pointer_sample* samples, std::size_t count) {
  std::vector<pointer_sample> list;
  for (std::size_t i = 0; i < count; ++i) {
    list.push_back({samples[i].path, samples[i].address, samples[i].value});
  }
  return list;
}

}  // namespace detail

/** Checks the raw pointers of one object, as of its last commit, and finds unreachable blocks.
 * The object may be in use. Errors: `no_store`, `not_found`, `damaged`. */
inline audit_report audit(const std::filesystem::path& store, std::string_view name,
                          const em_audit_options& options = EM_AUDIT_OPTIONS_DEFAULT) {
  const auto collect = [](const em_audit_finding* found, void* context) -> bool {
    return static_cast<detail::collection<audit_finding>*>(context)->add([found] {
      return audit_finding{static_cast<em_audit_kind>(found->kind),
                           static_cast<em_severity>(found->severity),
                           static_cast<em_confidence>(found->confidence),
                           found->count,
                           found->to,
                           detail::samples_of(found->samples, found->sample_count)};
    });
  };
  audit_report report{};
  report.size = sizeof(em_audit_report);
  detail::collection<audit_finding> all;
  detail::check(em_audit(store.c_str(), detail::name_of(name).c_str(), &options, &report, collect,
                         &all));
  report.findings = all.take();
  return report;
}

/** Copies a store, which may be in use, to a directory that is empty or does not exist. Errors:
 * `no_store`, `store_exists`, `disk_full`, `not_permitted`, `damaged` when data cannot be read
 * at all; then there is no copy. */
inline copy_report backup(const std::filesystem::path& store, const std::filesystem::path& to,
                          const em_copy_options& options = EM_COPY_OPTIONS_DEFAULT) {
  const auto collect = [](const em_finding* found, void* context) -> bool {
    return static_cast<detail::collection<copy_finding>*>(context)->add([found] {
      return copy_finding{found->file,  found->object == nullptr ? "" : found->object,
                          found->what,  found->found,
                          found->expected, found->remedy};
    });
  };
  copy_report report{};
  report.size = sizeof(em_copy_report);
  detail::collection<copy_finding> all;
  detail::check(em_backup(store.c_str(), to.c_str(), &options, &report, collect, &all));
  report.damage = all.take();
  return report;
}

/** Creates a store from a backup. Errors: `no_store`, `damaged`, `store_exists` without
 * `options.replace`, `busy`, ... */
inline copy_report restore(const std::filesystem::path& backup, const std::filesystem::path& store,
                           const em_copy_options& options = EM_COPY_OPTIONS_DEFAULT) {
  copy_report report{};
  report.size = sizeof(em_copy_report);
  detail::check(em_restore(backup.c_str(), store.c_str(), &options, &report));
  return report;
}

/** Moves a store that is not open to other addresses. Errors: `busy`, `damaged`, `bad_base`,
 * `address_taken`, ... */
inline rebase_report rebase(const std::filesystem::path& store,
                            const em_rebase_options& options = EM_REBASE_OPTIONS_DEFAULT) {
  const auto collect = [](const em_moved* moved, void* context) -> bool {
    return static_cast<detail::collection<moved_words>*>(context)->add([moved] {
      return moved_words{moved->object, static_cast<em_typing>(moved->typing),
                         static_cast<em_moved_kind>(moved->kind), moved->count,
                         detail::samples_of(moved->samples, moved->sample_count)};
    });
  };
  rebase_report report{};
  report.size = sizeof(em_rebase_report);
  detail::collection<moved_words> all;
  detail::check(em_rebase(store.c_str(), &options, &report, collect, &all));
  report.words = all.take();
  return report;
}

/** Undoes the last rebase. Errors: `nothing_kept`, `changed_since` without `force`, `busy`. */
inline void undo_rebase(const std::filesystem::path& store, bool force = false) {
  detail::check(em_rebase_undo(store.c_str(), force));
}

/** Writes an object's last commit to a file descriptor. Errors: `points_elsewhere` without
 *  `options.force`, `damaged`, `not_found`, `disk_full`, ... */
inline em_export_report export_object(const std::filesystem::path& store, std::string_view name,
                                      int descriptor,
                                      const em_export_options& options =
                                          EM_EXPORT_OPTIONS_DEFAULT) {
  em_export_report report{};
  report.size = sizeof report;
  detail::check(em_export(store.c_str(), detail::name_of(name).c_str(), descriptor, &options,
                          &report));
  return report;
}

/** Creates an object from an export, read from a file descriptor to its end. Errors: `foreign`,
 * `bad_export`, `already_exists`, `no_store` without `options.create`, ... */
inline em_import_report import_object(const std::filesystem::path& store, int descriptor,
                                      const em_import_options& options =
                                          EM_IMPORT_OPTIONS_DEFAULT) {
  em_import_report report{};
  report.size = sizeof report;
  detail::check(em_import(store.c_str(), descriptor, &options, &report));
  return report;
}

}  // namespace evermap

#endif
