/**
 * @file
 * Memory of containers outside of objects: a string on the stack, a key to look up.
 *
 * It comes from the process's heap, and the blocks are recorded, so that a value which brings one
 * into an object is detected: in the next process its address would be invalid.
 */
#ifndef EVERMAP_OUTSIDE_HPP
#define EVERMAP_OUTSIDE_HPP

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <unordered_set>

namespace evermap::detail {

/** The process-heap blocks of outside containers. */
class outside_blocks {
 public:
  /** Never destroyed, because containers with static storage may outlive everything else. */
  static outside_blocks& all() {
    static outside_blocks& only = *new outside_blocks();
    return only;
  }

  void* allocate(std::size_t bytes, std::size_t align) {
    void* const block = ::operator new(bytes, std::align_val_t{align});
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    part& in = part_of(address);
    try {
      const std::lock_guard<std::mutex> guard(in.lock);
      in.blocks.insert(address);
    } catch (...) {
      ::operator delete(block, std::align_val_t{align});
      throw;
    }
    count_.fetch_add(1, std::memory_order_relaxed);
    return block;
  }

  /** Frees a block. Returns false if it is not one of these. */
  bool free(void* block, std::size_t align) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    part& in = part_of(address);
    {
      const std::lock_guard<std::mutex> guard(in.lock);
      if (in.blocks.erase(address) == 0) {
        return false;
      }
    }
    count_.fetch_sub(1, std::memory_order_relaxed);
    ::operator delete(block, std::align_val_t{align});
    return true;
  }

  /** Returns true if one of the words of a value leads to such a block. */
  bool are_in(const void* value, std::size_t bytes) noexcept {
    if (count_.load(std::memory_order_relaxed) == 0) {
      return false;
    }
    std::uintptr_t word = 0;
    for (std::size_t at = 0; at + sizeof word <= bytes; at += sizeof word) {
      std::memcpy(&word, static_cast<const unsigned char*>(value) + at, sizeof word);
      if (word != 0 && has(word)) {
        return true;
      }
    }
    return false;
  }

 private:
  struct part {
    std::mutex lock;
    std::unordered_set<std::uintptr_t> blocks;
  };
  std::array<part, 32> parts_;
  std::atomic<std::size_t> count_{0};

  outside_blocks() {
    // Without this, a child that was forked while another thread held a lock would wait for ever.
    pthread_atfork([] { all().lock_all(); }, [] { all().unlock_all(); }, [] { all().unlock_all(); });
  }

  part& part_of(std::uintptr_t address) noexcept { return parts_[(address >> 4) % parts_.size()]; }

  bool has(std::uintptr_t address) noexcept {
    part& in = part_of(address);
    const std::lock_guard<std::mutex> guard(in.lock);
    return in.blocks.count(address) != 0;
  }

  void lock_all() {
    for (part& each : parts_) {
      each.lock.lock();
    }
  }
  void unlock_all() {
    for (part& each : parts_) {
      each.lock.unlock();
    }
  }
};

}  // namespace evermap::detail

#endif
