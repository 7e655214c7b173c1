// Waking the thread that waits on an evd.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/config.hpp>
#include <dat/detail/base/fd.hpp>
#include <dat/detail/base/ref.hpp>
#include <dat/detail/base/utility.hpp>
#include <dat/detail/progress/reactor.hpp>

#include <atomic>
#include <cstdint>

namespace dat { inline namespace v0 { namespace detail {

/// One thread waits at a time. Before its final check for events it sets `asleep`. A thread that appends an event while
/// `asleep` is set wakes the waiter, once; at other times the waiter checks again by itself. Both sides use
/// sequentially consistent operations. The waiter sets `asleep` and then checks for events. The other thread appends an
/// event and then reads `asleep`. So at least one of them sees the write of the other.
class wakeup {
public:
  /// `owner` is the evd with that number. A wake-up that the reactor delays keeps a reference to it.
  wakeup(counted& owner, std::uint32_t number, reactor& r) noexcept;
  wakeup(const wakeup&) = delete;
  wakeup& operator=(const wakeup&) = delete;

  // --- the waiting thread --------------------------------------------------------------------------------------------

  /// Opens the descriptor by which `kick` wakes the waiter, unless it is open. Returns 0 or errno.
  [[nodiscard]] int open() noexcept { return kick_.get() >= 0 ? 0 : kick_.open(); }
  [[nodiscard]] int fd() const noexcept { return kick_.get(); }
  /// Makes the calling thread the waiter. Returns false when another thread waits.
  [[nodiscard]] bool begin_wait() noexcept {
    const char* nobody = nullptr;
    return waiter_.compare_exchange_strong(nobody, &this_thread(), std::memory_order_seq_cst);
  }
  void end_wait() noexcept {
    asleep_.store(false, std::memory_order_relaxed);
    waiter_.store(nullptr, std::memory_order_release);
  }
  /// Called before the final check for events: from now on, a thread that appends an event wakes the waiter.
  void prepare_to_sleep() noexcept { asleep_.store(true, std::memory_order_seq_cst); }
  /// Called after a sleep; `kicked`: the descriptor was readable. A thread that has read `asleep` just before this call
  /// ends the next sleep, which does no harm.
  void woke_up(bool kicked) noexcept {
    asleep_.store(false, std::memory_order_relaxed);
    if (kicked) kick_.clear(); // before the caller checks for events: a later wake-up ends the next sleep
  }

  // --- other threads -------------------------------------------------------------------------------------------------

  [[nodiscard]] bool has_waiter() const noexcept { return waiter_.load(std::memory_order_seq_cst) != nullptr; }
  /// True when a thread other than the calling one waits.
  [[nodiscard]] bool has_other_waiter() const noexcept {
    const char* const waiter = waiter_.load(std::memory_order_seq_cst);
    return waiter && waiter != &this_thread();
  }
  /// Ends the sleep of the waiter, if it sleeps. Called after the event was appended, with or without the evd's lock.
  void kick() noexcept;

  /// True when a wait may take an event without becoming the waiter: no thread waits, and nothing ends or forbids
  /// waits.
  [[nodiscard]] bool undisturbed() const noexcept {
    return !has_waiter() && bars_.load(std::memory_order_seq_cst) == 0;
  }

  // --- ending a wait without an event --------------------------------------------------------------------------------

  /// Ends the present wait, or the next one if no thread waits. The caller then calls kick.
  void interrupt() noexcept { bars_.fetch_or(interrupted, std::memory_order_seq_cst); }
  /// Returns true when an interrupt was pending, and clears it.
  [[nodiscard]] bool take_interrupt() noexcept {
    return (bars_.load(std::memory_order_seq_cst) & interrupted) != 0 &&
           (bars_.fetch_and(forbidden, std::memory_order_seq_cst) & interrupted) != 0;
  }
  /// Forbids or allows waiting. After forbidding, the caller calls kick.
  void allow(bool allowed) noexcept {
    if (allowed) {
      bars_.fetch_and(interrupted, std::memory_order_seq_cst);
    } else {
      bars_.fetch_or(forbidden, std::memory_order_seq_cst);
      forbidden_.fetch_add(1, std::memory_order_seq_cst);
    }
  }
  [[nodiscard]] bool allowed() const noexcept { return (bars_.load(std::memory_order_acquire) & forbidden) == 0; }
  /// A number that changes each time waiting is forbidden. A waiter that reads another number leaves, even if waiting
  /// is allowed again.
  [[nodiscard]] std::uint32_t times_forbidden() const noexcept { return forbidden_.load(std::memory_order_seq_cst); }

private:
  enum : std::uint8_t { interrupted = 1, forbidden = 2 }; // what ends or forbids waits

  struct delayed_kick : task {
    wakeup* self = nullptr;
  };

  counted& owner_;
  const std::uint32_t number_;
  reactor& reactor_;
  std::atomic<const char*> waiter_{nullptr}; // see this_thread
  std::atomic<bool> asleep_{false};
  std::atomic<std::uint8_t> bars_{0};
  std::atomic<std::uint32_t> forbidden_{0};
  wake_fd kick_;
  delayed_kick delayed_;
};

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/events/wakeup.ipp>
#endif
