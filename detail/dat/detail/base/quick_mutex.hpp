// A mutex for short sections that seldom collide. Without contention, lock and unlock are one inlined atomic operation
// each; those of the C library are calls of 57 instructions together. It has marks beside the lock: one atomic
// operation locks it and shows that none is set.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/config.hpp>
#include <dat/detail/base/control_mutex.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <pthread.h>

namespace dat { inline namespace v0 { namespace detail {

/// Locked as std::mutex is. A thread that finds it locked sleeps. Any thread may set and clear marks at any time, with
/// the mutex locked or not.
class quick_mutex {
public:
  constexpr quick_mutex() noexcept = default;
  quick_mutex(const quick_mutex&) = delete;
  quick_mutex& operator=(const quick_mutex&) = delete;

  [[gnu::always_inline]] void lock() noexcept {
    if (!try_lock_unmarked()) [[unlikely]]
      lock_marked();
  }
  /// Locks the mutex, if it is free and has no mark.
  [[nodiscard, gnu::always_inline]] bool try_lock_unmarked() noexcept {
    std::uint32_t expected = free;
    return state_.compare_exchange_strong(expected, locked, std::memory_order_acquire, std::memory_order_relaxed);
  }
  [[gnu::always_inline]] void unlock() noexcept {
    if (state_.fetch_sub(locked, std::memory_order_release) != locked) [[unlikely]]
      unlock_marked();
  }

  /// Whether a thread holds it, is about to wake another one, or waits for it.
  [[nodiscard]] bool in_use() const noexcept {
    return (state_.load(std::memory_order_relaxed) & (locked | awaited)) != 0;
  }

  /// The lowest bit that may be a mark.
  static constexpr std::uint32_t first_mark = 4;
  void mark(std::uint32_t which) noexcept { state_.fetch_or(which, std::memory_order_relaxed); }
  void unmark(std::uint32_t which) noexcept { state_.fetch_and(~which, std::memory_order_relaxed); }

private:
  enum : std::uint32_t { free = 0, locked = 1, awaited = 2 }; // awaited: a thread may sleep

  [[gnu::cold]] void lock_marked() noexcept;
  [[gnu::cold]] void unlock_marked() noexcept;

  std::atomic<std::uint32_t> state_{free}; // and marks
  control_mutex sleep_;                    // locked by a thread that goes to sleep, and by a thread that wakes it
  pthread_cond_t freed_ = PTHREAD_COND_INITIALIZER;
};

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/base/quick_mutex.ipp>
#endif
