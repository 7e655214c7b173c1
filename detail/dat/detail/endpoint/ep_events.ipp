// Definitions of ep_core: breaks, watermarks, and the work that is left to the reactor.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/endpoint/ep_core.hpp>

namespace dat { inline namespace v0 { namespace detail {

// --- breaks ----------------------------------------------------------------------------------------------------------

DAT_DECL void ep_core::broke(ep_generation whose, end_reason why) noexcept {
  const std::lock_guard lock(mutex_);
  if (is_life(whose)) break_connection(why);
}

DAT_DECL void ep_core::broke() noexcept {
  const std::lock_guard lock(mutex_);
  break_connection(end_reason::device_failed);
}

DAT_DECL void ep_core::broke_with(const evd_core& e) noexcept {
  const std::lock_guard lock(mutex_);
  if (completes_on(e)) break_connection(end_reason::completions_lost);
}

DAT_DECL void ep_core::on_device(const device_report& r) noexcept {
  switch (r.what) {
  case device_report::kind::queue_pair_failed:
    return broke(r.generation, end_reason::device_failed);
  case device_report::kind::last_receive_done:
    return last_wqe_reached(r.generation);
  case device_report::kind::completions_lost:
    return broke_with(static_cast<const evd_core&>(*r.source));
  default:
    return broke();
  }
}

DAT_DECL void ep_core::break_connection(end_reason why) noexcept {
  if (datagrams_) return end_datagrams(record::kind::broken, why);
  look_for_message();
  switch (state()) {
  case ep_state::connected:
  case ep_state::disconnect_pending:
    return end_connection(record::kind::broken, static_cast<int>(why));
  case ep_state::active_connection_pending:
    return end_connection(record::kind::non_peer_rejected, 0);
  case ep_state::completion_pending:
    return end_connection(record::kind::accept_completion_error, 0);
  default:
    return;
  }
}

DAT_DECL void ep_core::last_wqe_reached(ep_generation whose) noexcept {
  if (is_life(whose)) last_wqe_seen_.store(true, std::memory_order_release);
}

// --- watermarks and graceful ends ------------------------------------------------------------------------------------

DAT_DECL void ep_core::check_watermarks() noexcept {
  const auto v = watermarks_.check(state() == ep_state::connected || state() == ep_state::disconnect_pending);
  if (v.hard) end_connection(record::kind::broken, static_cast<int>(end_reason::too_many_receives));
  if (v.soft) ia().raise(async_kind::ep_soft_high_watermark, {.number = number()}, ref<counted>(this));
}

DAT_DECL void ep_core::own_taken(work_kind kind, ep_generation whose, ibv_wc_status status) noexcept {
  work_entry* last = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!is_life(whose)) return;
    last = before_marker_;
  }
  if (kind == probe_work) {
    probe_ended();
    if (ia().is_break(status)) broke(whose);
    return;
  }
  // Suppressed requests have no completions. Requests that were posted after an abrupt end are behind the marker.
  requests().retire_up_to(*last);
  if (status == IBV_WC_SUCCESS)
    drained(whose);
  else if (ia().is_break(status))
    broke(whose); // all earlier requests succeeded or were suppressed, so no other completion reports the failure
}

DAT_DECL void ep_core::drained(ep_generation whose) noexcept {
  const std::lock_guard lock(mutex_);
  if (is_life(whose) && state() == ep_state::disconnect_pending)
    end_connection(record::kind::disconnected, static_cast<int>(end_reason::local));
}

// --- tests of idle connections ---------------------------------------------------------------------------------------

DAT_DECL void ep_core::begin_tests() noexcept {
  last_next_ = nullptr;
  if (attributes_.keep_alive.count() != 0) arm_test();
}

DAT_DECL void ep_core::end_tests() noexcept {
  if (ia().reactor.cancel(test_)) release();
}

/// A test finds out that a request was posted since the last one, but not when. So the peer is tested at the second
/// test after the last request, and two of them have to come within keep_alive.
DAT_DECL void ep_core::arm_test() noexcept {
  add_ref();
  const auto half = max(attributes_.keep_alive / 2, std::chrono::microseconds(1));
  if (!ia().reactor.defer(test_, clock::now() + half)) release();
}

/// The thread that posts may post at the same time: drivers take turns, and the probe has no entry in the ring. A queue
/// completes in order, so a request that was posted since the last test is as good as a probe. One probe at a time has
/// a place in the queue and in the evd, see own_requests.
DAT_DECL void ep_core::test_peer() noexcept {
  const std::lock_guard lock(mutex_);
  if (state() != ep_state::connected) return;
  const work_entry* const now = sq_.next();
  if (std::exchange(last_next_, now) == now && !probing_.exchange(true, std::memory_order_acq_rel)) {
    ibv_send_wr wr{};
    wr.wr_id = life_->probe();
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad;
    if (const int err = ibv_post_send(qp_, &wr, &bad)) {
      probe_ended();
      ia().failed_inside("ibv_post_send", err);
    }
  }
  arm_test();
}

// --- deferred work ---------------------------------------------------------------------------------------------------

/// The work and its generation are one word, so that work cannot move to another life.
DAT_DECL void ep_core::defer_to_reactor(std::uint32_t what, ep_generation whose) noexcept {
  const auto generation = static_cast<std::uint32_t>(whose >> 32);
  std::uint64_t now = deferred_.load(std::memory_order_relaxed);
  do
    if (static_cast<std::uint32_t>(now >> 32) != generation) return; // the work of another life
  while (!deferred_.compare_exchange_weak(now, now | what, std::memory_order_acq_rel));
  add_ref();
  const auto at = what == deferred_tick ? clock::now() + std::chrono::milliseconds(1) : reactor::at_once;
  if (!ia().reactor.defer(work_, at)) release();
}

DAT_DECL void ep_core::run_deferred() noexcept {
  const std::uint64_t all = deferred_.fetch_and(~std::uint64_t{0xffff'ffff}, std::memory_order_acq_rel);
  const auto what = static_cast<std::uint32_t>(all);
  const ep_generation whose = all; // compares lives
  if ((what & deferred_break) != 0) broke(whose);
  if ((what & deferred_marker) != 0) drained(whose);
  ref<evd_core> requests;
  {
    const std::lock_guard lock(mutex_);
    if (!is_life(whose)) return;
    if ((what & deferred_arrival) != 0 && state() == ep_state::completion_pending) established_by_data();
    if ((what & deferred_watermark) != 0) check_watermarks();
    if (state() == ep_state::disconnect_pending) requests = evds_.request;
  }
  // A graceful disconnect waits for completions that the consumer may not be taking, so the reactor polls the device
  // from time to time.
  if (merged_evd* m = merged(requests.get())) {
    m->drain();
    defer(deferred_tick, whose);
  }
}

}}} // namespace dat::v0::detail
