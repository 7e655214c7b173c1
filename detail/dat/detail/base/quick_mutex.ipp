// Definitions of quick_mutex.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/no_cancel.hpp>
#include <dat/detail/base/quick_mutex.hpp>

namespace dat { inline namespace v0 { namespace detail {

/// A thread that has slept locks the mutex as awaited, because others may still sleep.
DAT_DECL void quick_mutex::lock_marked() noexcept {
  std::uint32_t seen = state_.load(std::memory_order_relaxed);
  while ((seen & locked) == 0)
    if (state_.compare_exchange_weak(seen, seen | locked, std::memory_order_acquire, std::memory_order_relaxed)) return;
  const no_cancel whole; // the wait is a cancellation point
  const std::lock_guard held(sleep_);
  while ((state_.fetch_or(locked | awaited, std::memory_order_acquire) & locked) != 0)
    ::pthread_cond_wait(&freed_, sleep_.native_handle());
}

/// Wakes one thread, if any sleeps. Holds `sleep_` while it signals: a thread that has made the mutex awaited then
/// sleeps already. The thread that wakes makes the mutex awaited again, for the others.
DAT_DECL void quick_mutex::unlock_marked() noexcept {
  if ((state_.load(std::memory_order_relaxed) & awaited) == 0) return;
  const std::lock_guard held(sleep_);
  state_.fetch_and(~std::uint32_t{awaited}, std::memory_order_relaxed);
  ::pthread_cond_signal(&freed_);
}

}}} // namespace dat::v0::detail
