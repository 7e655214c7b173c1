// High watermarks of receives: limits of completed receives that were not taken from their evd.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ep_attributes.hpp>

#include <dat/detail/base/utility.hpp>

#include <atomic>
#include <cstdint>

namespace dat { inline namespace v0 { namespace detail {

/// DAT counts in signed numbers.
[[nodiscard]] constexpr bool is_watermark(std::uint32_t n) noexcept { return n == no_watermark || n <= 0x7fffffffu; }

/// The counter is changed where receives complete, with the lock of the recv evd held. The watermarks are set and
/// checked with the endpoint locked.
class watermarks {
public:
  // --- counting ------------------------------------------------------------------------------------------------------

  /// True when no watermark is armed, so that completions need not be counted.
  [[nodiscard]] bool off() const noexcept { return alarm_.load(std::memory_order_relaxed) == no_watermark; }
  /// A receive has completed. Returns true when that exceeds an armed watermark: then check() is due.
  [[nodiscard]] bool add() noexcept {
    const std::uint32_t n = held_.load(std::memory_order_relaxed) + 1;
    held_.store(n, std::memory_order_relaxed);
    if (n <= alarm_.load(std::memory_order_relaxed)) [[likely]]
      return false;
    if (n > peak_.load(std::memory_order_relaxed)) peak_.store(n, std::memory_order_relaxed);
    return true;
  }
  /// A completed receive was taken.
  void remove() noexcept { held_.store(held_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed); }
  [[nodiscard]] bool exceeded() const noexcept {
    return held_.load(std::memory_order_relaxed) > alarm_.load(std::memory_order_relaxed);
  }

  // --- setting and checking ------------------------------------------------------------------------------------------

  [[nodiscard]] std::uint32_t soft() const noexcept { return soft_; }
  [[nodiscard]] std::uint32_t hard() const noexcept { return hard_; }
  /// Sets and arms both.
  void set(std::uint32_t soft, std::uint32_t hard) noexcept {
    soft_ = soft;
    hard_ = hard;
    soft_armed_ = soft != no_watermark;
    arm();
  }
  /// Forgets peaks that have passed.
  void forget_peak() noexcept { peak_.store(0, std::memory_order_relaxed); }
  /// A new life of the endpoint has received nothing.
  void clear() noexcept {
    held_.store(0, std::memory_order_relaxed);
    forget_peak();
  }
  struct verdict {
    bool hard = false; ///< more than the hard watermark
    bool soft = false; ///< more than the soft watermark for the first time since it was armed
  };
  /// Compares the most that was held since the last check. `connected`: the hard watermark counts. When the connection
  /// breaks at a hard watermark that is not above the soft one, the soft one stays armed.
  [[nodiscard]] verdict check(bool connected) noexcept {
    const std::uint32_t n = max(held_.load(std::memory_order_relaxed), peak_.exchange(0, std::memory_order_relaxed));
    verdict v;
    v.hard = connected && n > hard_;
    v.soft = soft_armed_ && n > soft_ && !(v.hard && soft_ >= hard_);
    if (v.soft) {
      soft_armed_ = false;
      arm();
    }
    return v;
  }

private:
  void arm() noexcept { alarm_.store(min(soft_armed_ ? soft_ : no_watermark, hard_), std::memory_order_relaxed); }

  std::atomic<std::uint32_t> held_{0};
  std::atomic<std::uint32_t> peak_{0};             // the most of held_ since the last check
  std::atomic<std::uint32_t> alarm_{no_watermark}; // the lower of the watermarks that are armed
  std::uint32_t soft_ = no_watermark;
  std::uint32_t hard_ = no_watermark;
  bool soft_armed_ = false;
};

}}} // namespace dat::v0::detail
