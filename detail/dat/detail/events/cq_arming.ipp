// Definitions of cq_arming.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/events/cq_arming.hpp>
#include <dat/detail/work/trace_points.hpp>

#include <cerrno>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL int cq_arming::arm() noexcept {
  if (!cq_ || feeds() == 0) return 0;
  armed_.store(true, std::memory_order_seq_cst); // set first, because the device may notify at once
  const int err = ibv_req_notify_cq(cq_, mode() == completion_notification::solicited_wait ? 1 : 0);
  trace_points::arm(evd_, err);
  if (err != 0) armed_.store(false, std::memory_order_relaxed);
  return err;
}

DAT_DECL void cq_arming::on_notification() noexcept {
  armed_.store(false, std::memory_order_seq_cst);
  mark_fired();
  if (mode() == completion_notification::solicited_wait) mark_notified();
}

DAT_DECL int cq_arming::read_all() noexcept {
  if (!channel_) return 0;
  ibv_cq* cq;
  void* context;
  for (;;) {
    errno = EIO; // a read that ends early leaves it unset
    if (ibv_get_cq_event(channel_, &cq, &context) != 0) return errno == EAGAIN || errno == EINTR ? 0 : errno;
    on_notification();
    ibv_ack_cq_events(cq, 1);
  }
}

DAT_DECL void cq_arming::read_for_waiter() noexcept {
  unread_ = false;
  ibv_cq* cq;
  void* context;
  while (channel_ && ibv_get_cq_event(channel_, &cq, &context) == 0) {
    on_notification();
    ++unacknowledged_;
    // There is nearly always one notification. A second notification only ends the next sleep at once, which costs less
    // than another read. In a selective mode, all notifications count.
    if (!is_selective()) break;
  }
  // Acknowledging takes a lock, so many notifications are acknowledged at once.
  if (unacknowledged_ >= 64) acknowledge_all();
}

DAT_DECL void cq_arming::acknowledge_all() noexcept {
  if (unacknowledged_ != 0) ibv_ack_cq_events(cq_, std::exchange(unacknowledged_, 0u));
}

}}} // namespace dat::v0::detail
