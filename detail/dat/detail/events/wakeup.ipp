// Definitions of wakeup.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/events/wakeup.hpp>
#include <dat/detail/work/trace_points.hpp>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL wakeup::wakeup(counted& owner, std::uint32_t number, reactor& r) noexcept
    : owner_(owner), number_(number), reactor_(r) {
  delayed_.self = this;
  delayed_.run = [](task& t) noexcept {
    wakeup& self = *static_cast<delayed_kick&>(t).self;
    const ref<counted> held(&self.owner_, adopt); // the task was armed with a reference
    self.kick_.raise();
  };
}

DAT_DECL void wakeup::kick() noexcept {
  if (!asleep_.load(std::memory_order_seq_cst) || !asleep_.exchange(false, std::memory_order_seq_cst)) return;
  trace_points::notify(number_);
  // The reactor holds locks that the waiter would need at once: the wake-up follows when they are released.
  if (reactor_.batches_tasks() && owner_.try_add_ref()) {
    if (!reactor_.defer(delayed_)) owner_.release();
    return;
  }
  kick_.raise();
}

}}} // namespace dat::v0::detail
