// Definitions of quick_mutex.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/no_cancel.hpp>
#include <dat/detail/base/quick_mutex.hpp>

namespace dat { inline namespace v0 { namespace detail {

/// A thread that has slept locks the mutex as awaited, because others may still sleep.
DAT_DECL void quick_mutex::sleep_and_lock() noexcept {
  const no_cancel whole; // the wait is a cancellation point
  const std::lock_guard held(sleep_);
  while (state_.exchange(awaited, std::memory_order_acquire) != free)
    ::pthread_cond_wait(&freed_, sleep_.native_handle());
}

/// Holds `sleep_` while it signals: a thread that has just marked the mutex as awaited then sleeps already.
DAT_DECL void quick_mutex::wake_one() noexcept {
  const std::lock_guard held(sleep_);
  ::pthread_cond_signal(&freed_);
}

}}} // namespace dat::v0::detail
