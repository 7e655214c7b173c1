// The mutex of the control path: of everything but posts and completions.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/inside_dat.hpp>

#include <mutex>

namespace dat { inline namespace v0 { namespace detail {

/// A std::mutex whose owner, and each thread that waits for it, is marked by inside_dat.
class control_mutex {
public:
  void lock() noexcept {
    inside_dat::enter();
    mutex_.lock();
  }
  [[nodiscard]] bool try_lock() noexcept {
    inside_dat::enter();
    const bool locked = mutex_.try_lock();
    if (!locked) inside_dat::leave();
    return locked;
  }
  void unlock() noexcept {
    mutex_.unlock();
    inside_dat::leave();
  }
  [[nodiscard]] std::mutex::native_handle_type native_handle() noexcept { return mutex_.native_handle(); }

private:
  std::mutex mutex_;
};

}}} // namespace dat::v0::detail
