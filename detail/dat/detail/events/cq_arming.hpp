// Arms the device of an evd, so that it notifies of the next completion, and reads the notifications.
//
// The device notifies once for each time that it is armed. With completion_notification::solicited_wait its
// notification is the only sign that a solicited completion has arrived, so the device is not armed again before it has
// notified. In the other modes a thread may arm it at any time.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ep_attributes.hpp>

#include <dat/detail/base/config.hpp>

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

namespace dat { inline namespace v0 { namespace detail {

class cq_arming {
public:
  cq_arming() noexcept = default;
  cq_arming(const cq_arming&) = delete;
  cq_arming& operator=(const cq_arming&) = delete;

  /// `channel` is non-blocking. Called before any other thread uses the evd.
  void set_queue(ibv_cq* cq, ibv_comp_channel* channel, std::uint32_t evd) noexcept {
    cq_ = cq;
    channel_ = channel;
    evd_ = evd;
  }
  /// Called before the queue is destroyed, which waits for the acknowledgement of every notification.
  void acknowledge_all() noexcept;

  // --- mode ----------------------------------------------------------------------------------------------------------

  /// The completions that notify, by the attributes of all endpoints that feed the evd (uDAPL 2.0 §6.3.1, §6.8.1).
  [[nodiscard]] completion_notification mode() const noexcept { return mode_.load(std::memory_order_acquire); }
  /// True when some completions do not wake a waiter.
  [[nodiscard]] bool is_selective() const noexcept { return mode() != completion_notification::evd_threshold; }
  /// Calls of this function and of add_feed and remove_feed are serialised by the caller.
  void set_mode(completion_notification f) noexcept {
    if (mode_.exchange(f, std::memory_order_acq_rel) != f) armed_.store(false, std::memory_order_seq_cst);
  }
  /// Counts the queues of endpoints that feed the evd.
  void add_feed() noexcept { feeds_.fetch_add(1, std::memory_order_seq_cst); }
  /// Returns how many feeds are left.
  std::uint32_t remove_feed() noexcept { return feeds_.fetch_sub(1, std::memory_order_seq_cst) - 1; }
  [[nodiscard]] std::uint32_t feeds() const noexcept { return feeds_.load(std::memory_order_seq_cst); }

  // --- arming --------------------------------------------------------------------------------------------------------

  /// Arms the device in the present mode. Does nothing while no queue feeds the evd: a device that is armed for all
  /// completions cannot be armed for fewer, and the mode may still change. Returns 0 or errno.
  [[nodiscard]] int arm() noexcept;
  /// True while the device is armed or its notification is unread. Either may return false when both conditions hold.
  [[nodiscard]] bool armed() const noexcept { return armed_.load(std::memory_order_seq_cst); }
  /// True when the device must be armed again: it has notified since the last call, or the mode has changed.
  [[nodiscard]] bool take_fired() noexcept { return fired_.exchange(false, std::memory_order_seq_cst); }
  void mark_fired() noexcept { fired_.store(true, std::memory_order_seq_cst); }

  // --- notifications -------------------------------------------------------------------------------------------------

  /// The waiter has found the channel readable. It reads the channel just before it arms the device again, so that the
  /// path from a completion to the consumer stays short.
  void mark_unread() noexcept { unread_ = true; }
  /// Reads the notifications that mark_unread announced. Called by the waiter.
  void read_unread() noexcept {
    if (unread_) read_for_waiter();
  }
  /// Reads and acknowledges all notifications. Called by the reactor. Returns 0 or the errno of a failure.
  [[nodiscard]] int read_all() noexcept;

  /// An event that wakes a waiter has arrived, in a mode where not all completions do.
  void mark_notified() noexcept { notified_.store(true, std::memory_order_seq_cst); }
  [[nodiscard]] bool take_notified() noexcept { return notified_.exchange(false, std::memory_order_seq_cst); }

private:
  void read_for_waiter() noexcept;
  /// The device has notified. In solicited_wait mode only the notification shows that a solicited completion has
  /// arrived.
  void on_notification() noexcept;

  ibv_cq* cq_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  std::uint32_t evd_ = 0; // its number
  std::atomic<completion_notification> mode_{completion_notification::evd_threshold};
  std::atomic<std::uint32_t> feeds_{0};
  std::atomic<bool> armed_{false};
  std::atomic<bool> fired_{false};
  std::atomic<bool> notified_{false};
  // Used by the waiter only.
  unsigned unacknowledged_ = 0;
  bool unread_ = false;
};

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/events/cq_arming.ipp>
#endif
