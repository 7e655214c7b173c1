// Definitions of break_watch.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/events/break_watch.hpp>

#include <sched.h>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL break_watch::break_watch(counted& owner, reactor& r, look_function look) noexcept
    : owner_(owner), reactor_(r), look_(look) {
  task_.self = this;
  // The task is armed without a reference, which would keep an evd without handles; stop() waits for the task instead.
  task_.run = [](task& t) noexcept { static_cast<look_task&>(t).self->look_now(); };
}

DAT_DECL void break_watch::look_later() noexcept {
  if (stopped_.load(std::memory_order_relaxed) || !has_connections()) return;
  if (due_.exchange(true, std::memory_order_acq_rel)) return;
  reactor_.defer(task_, clock::now() + pause);
}

DAT_DECL void break_watch::look_now() noexcept {
  looking_.store(true, std::memory_order_seq_cst);
  const bool alive = owner_.try_add_ref(); // an event that the check handles may hold the last reference
  due_.store(false, std::memory_order_seq_cst);
  if (alive && has_connections() && !stopped_.load(std::memory_order_relaxed)) look_(owner_);
  // After this store stop() can return, and without a reference *this may end.
  looking_.store(false, std::memory_order_seq_cst);
  if (alive) owner_.release();
}

DAT_DECL void break_watch::stop() noexcept {
  stopped_.store(true, std::memory_order_seq_cst);
  if (reactor_.cancel(task_)) due_.store(false, std::memory_order_relaxed);
  while (!reactor_.runs_here() && (due_.load(std::memory_order_seq_cst) || looking_.load(std::memory_order_seq_cst)))
    ::sched_yield();
}

}}} // namespace dat::v0::detail
