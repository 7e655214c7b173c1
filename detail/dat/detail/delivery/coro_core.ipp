// Definitions of coro_driver.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/delivery/coro_core.hpp>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL coro_driver::coro_driver(ref<evd_core> evd) noexcept
    : coro_schedule(std::move(evd)), before_(reinterpret_cast<std::uintptr_t>(this) * 0xd6e8feb86659fd93u) {}

DAT_DECL coro_driver::~coro_driver() { abandon(nullptr, error(return_type::abort, return_subtype::interrupted)); }

DAT_DECL void coro_driver::stop_waits() noexcept {
  stopping_.store(true, std::memory_order_release);
  mark_due();
  if (evd()) evd()->interrupt();
}

DAT_DECL std::size_t coro_driver::take_due() noexcept {
  std::size_t n = coro_schedule::take_due();
  if (!stopping()) return n;
  mark_due(); // the driver drops events that it keeps later
  if (stopped_) return n;
  stopped_ = true;
  for (const rank r : {some, any, asleep})
    while (coro_operation* const o = listeners_[r].front()) {
      o->on_stop(*o);
      ++n;
    }
  return n;
}

DAT_DECL void coro_driver::abandon(const ep_core* whose, const error& why) noexcept {
  const auto sweep = [&](auto& list) {
    for (auto* o = list.front(); o;) {
      auto* const next = list.after(*o);
      if (!whose || o->whose() == whose) o->fail(why);
      o = next;
    }
  };
  for (auto& list : buckets_) sweep(list);
  for (const rank r : {outcome, some, any, asleep, idle}) sweep(listeners_[r]);
  if (whose) return;
  // The operations that these limit have just ended, or are tasks. Each limit knows whether its coroutine is already
  // ready.
  while (coro_operation* const o = listeners_[limited].front()) o->on_stop(*o);
}

}}} // namespace dat::v0::detail
