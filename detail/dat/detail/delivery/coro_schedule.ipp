// Definitions of coro_schedule.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/delivery/coro_schedule.hpp>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL coro_schedule::coro_schedule(ref<evd_core> evd) noexcept : evd_(std::move(evd)) {}

DAT_DECL void coro_schedule::forget_ready() noexcept {
  while (ready_.pop_front()) {
  }
}

DAT_DECL void coro_schedule::request_stop(coro_entry& o) noexcept {
  coro_entry* head = requested_.load(std::memory_order_relaxed);
  do {
    o.next_stop = head;
  } while (!requested_.compare_exchange_weak(head, &o, std::memory_order_release, std::memory_order_relaxed));
  mark_due();
  evd_->interrupt();
}

DAT_DECL std::size_t coro_schedule::take_due() noexcept {
  due_.exchange(false, std::memory_order_acquire); // first, so that requests and timers that are added during this call
                                                   // set the mark again
  const std::size_t n = take_stops() + timers_.expire();
  if (timers_.any()) mark_due();
  return n;
}

DAT_DECL std::size_t coro_schedule::take_stops() noexcept {
  std::size_t n = 0;
  for (collect_stops(); stops_; ++n) {
    coro_entry* const o = std::exchange(stops_, stops_->next_stop);
    o->on_stop(*o);
  }
  return n;
}

DAT_DECL void coro_schedule::collect_stops() noexcept {
  coro_entry* newest = requested_.exchange(nullptr, std::memory_order_acquire);
  coro_entry** end = &stops_;
  while (*end) end = &(*end)->next_stop;
  while (newest) { // the newest comes first: append them in reverse order
    coro_entry* const o = std::exchange(newest, newest->next_stop);
    o->next_stop = *end;
    *end = o;
  }
}

DAT_DECL void coro_schedule::forget_stop(const coro_entry& o) noexcept {
  collect_stops();
  for (coro_entry** p = &stops_; *p; p = &(*p)->next_stop)
    if (*p == &o) {
      *p = o.next_stop;
      return;
    }
}

}}} // namespace dat::v0::detail
