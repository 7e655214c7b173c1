// A mutex for short sections that seldom collide. Without contention, lock and unlock are one inlined atomic operation
// each; those of the C library are calls of 57 instructions together.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/config.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <pthread.h>

namespace dat { inline namespace v0 { namespace detail {

/// Locked as std::mutex is. A thread that finds it locked sleeps.
class quick_mutex {
public:
  constexpr quick_mutex() noexcept = default;
  quick_mutex(const quick_mutex&) = delete;
  quick_mutex& operator=(const quick_mutex&) = delete;

  [[gnu::always_inline]] void lock() noexcept {
    std::uint32_t expected = free;
    if (!state_.compare_exchange_strong(expected, locked, std::memory_order_acquire, std::memory_order_relaxed))
        [[unlikely]]
      sleep_and_lock();
  }
  [[gnu::always_inline]] void unlock() noexcept {
    if (state_.exchange(free, std::memory_order_release) == awaited) [[unlikely]]
      wake_one();
  }

private:
  enum : std::uint32_t { free, locked, awaited }; // awaited: locked, and a thread may sleep

  [[gnu::cold]] void sleep_and_lock() noexcept;
  [[gnu::cold]] void wake_one() noexcept;

  std::atomic<std::uint32_t> state_{free};
  std::mutex sleep_; // locked by a thread that goes to sleep, and by a thread that wakes it
  pthread_cond_t freed_ = PTHREAD_COND_INITIALIZER;
};

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/base/quick_mutex.ipp>
#endif
