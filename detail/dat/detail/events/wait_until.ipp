// Definition of wait_until.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/no_cancel.hpp>
#include <dat/detail/events/wait_until.hpp>
#include <dat/detail/text/errno.hpp>

namespace dat { inline namespace v0 { namespace detail {

/// The one waiter of an evd, which cannot be cancelled while it waits.
class waiter {
public:
  waiter(evd_core& e, std::uint32_t count) noexcept : evd_(e), mine_(e.waking().begin_wait()) {
    if (mine_) evd_.awaited.store(count, std::memory_order_relaxed);
    mark(true);
  }
  waiter(const waiter&) = delete;
  waiter& operator=(const waiter&) = delete;
  ~waiter() {
    mark(false); // first: the next waiter sets the mark again
    if (!mine_) return;
    evd_.awaited.store(0, std::memory_order_relaxed);
    evd_.waking().end_wait();
  }
  explicit operator bool() const noexcept { return mine_; }

private:
  void mark(bool waits) noexcept {
    if (merged_evd* const m = mine_ ? merged(&evd_) : nullptr) m->mark_waiter(waits);
  }

  no_cancel no_cancel_;
  evd_core& evd_;
  bool mine_;
};

/// Whether an event that wakes a waiter has arrived, on an evd where some events do not.
[[nodiscard]] DAT_DECL bool notified(evd_core& e) noexcept {
  if (merged_evd* m = merged(&e)) m->drain();
  return e.arming().take_notified();
}

DAT_DECL expected<void> wait_until(evd_core& e, const deadline& until, look_ref look, std::uint32_t count) {
  static constexpr const char* call = "evd.wait";
  if (e.dead()) return e.closed(call);
  wakeup& w = e.waking();
  cq_arming& arming = e.arming();
  const auto unwaitable = [&] { return e.at({return_type::invalid_state, return_subtype::evd_unwaitable}, call); };
  // Read before the check, because a thread that forbids waiting counts only afterwards.
  const std::uint32_t allowed = w.times_forbidden();
  if (!w.allowed()) return unwaitable();
  const waiter me(e, count);
  if (!me) return has_waiter_already(e, w, call);
  if (e.dead()) return e.closed(call); // the evd has ended since the first check, without waiting for this thread
  if (const int err = w.open()) return e.at(map_errno(err, return_subtype::resource_tevd).from("eventfd", err), call);
  const auto interrupted = [&] {
    return e.at(error(return_type::interrupted_call), call).hint("The program called evd.wake.");
  };
  e.ia().progress_now_and_then();
  if (w.take_interrupt()) return interrupted();
  (void)arming.take_notified();
  if (look()) return success();
  bool armed = false;
  for (;;) {
    w.prepare_to_sleep();
    if (e.take_poll_failure()) [[unlikely]]
      return e.poll_error(call);
    if (w.times_forbidden() != allowed) return unwaitable();
    if (w.take_interrupt()) return interrupted();
    // In a selective mode the device is armed again only after it has notified, because its notification is the only
    // sign of a solicited receive. A completion from before it was armed may have been solicited, so check once.
    if (arming.take_fired() || !arming.is_selective()) armed = false;
    if (!armed) {
      arming.read_unread();
      if (const int err = arming.arm()) return e.at(map_errno(err).from("ibv_req_notify_cq", err), call);
      armed = true;
      if (arming.mode() != completion_notification::selective && look()) return success();
    }
    if (arming.is_selective() && notified(e) && look()) return success();
    if (e.overflowed())
      return e.at(error(return_type::invalid_state), call)
          .hint("Completions were lost because the evd was full. Its endpoints are disconnected, and no more events "
                "come. Create the evd again, with room for all completions that its endpoints can have outstanding.");
    if (e.take_poll_failure()) [[unlikely]]
      return e.poll_error(call);
    if (auto slept = e.sleep(until); !slept) {
      // Checks for an event that arrived at the last moment: the wait reports a deadline or a signal only if there is
      // no event.
      const return_type why = slept.assume_error().type();
      if ((why == return_type::timeout_expired || why == return_type::interrupted_call) && look()) return success();
      return slept;
    }
    if (w.times_forbidden() != allowed) return unwaitable();
    if (w.take_interrupt()) return interrupted();
    if (!arming.is_selective() && look()) return success();
    if (until.passed()) { // checked here, too, in case something ends every sleep at once
      if (arming.is_selective() && look()) return success();
      return e.expired(call);
    }
  }
}

}}} // namespace dat::v0::detail
