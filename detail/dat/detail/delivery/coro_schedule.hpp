// The schedule that resumes coroutines: the list of ready ones, timers, and requests to stop from any thread.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/config.hpp>
#include <dat/detail/base/coro_waiter.hpp>
#include <dat/detail/base/intrusive_list.hpp>
#include <dat/detail/base/ref.hpp>
#include <dat/detail/delivery/coro_timer.hpp>
#include <dat/detail/endpoint/core.hpp>

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

/// The part of an operation that the schedule uses. Until the operation is over, the entry is in a list of its driver.
/// Afterwards it is in the list of ready entries, if a coroutine waits for the operation.
struct coro_entry : list_node {
  /// The function that serves a request to stop, in the driver's thread.
  using stop_function = void (*)(coro_entry&) noexcept;

  coro_awaited waiting;  // the coroutine
  stop_function on_stop; // valid while a request to stop can come
  coro_entry* next_stop; // valid while a request to stop is in a list
};

/// The driver's thread owns all of it, except requests to stop, which pass through one atomic stack.
class coro_schedule {
public:
  explicit coro_schedule(ref<evd_core> evd) noexcept;
  coro_schedule(const coro_schedule&) = delete;
  coro_schedule& operator=(const coro_schedule&) = delete;
  ~coro_schedule() { forget_ready(); }

  [[nodiscard]] evd_core* evd() const noexcept { return evd_.get(); }

  /// The operation is over: its coroutine is resumed by the next resume_ready, in the order of these calls.
  void make_ready(coro_entry& o) noexcept { ready_.push_back(o); }
  void resume_ready() {
    while (coro_entry* o = ready_.pop_front())
      if (const auto c = o->waiting.take()) c.resume(); // none: the coroutine was destroyed
  }
  /// The coroutines that are ready stay suspended; their owner may destroy them.
  void forget_ready() noexcept;

  [[nodiscard]] timer_heap& timers() noexcept { return timers_; }
  [[nodiscard]] const timer_heap& timers() const noexcept { return timers_; }

  void start_timer(timer_node& t, const deadline& d) noexcept {
    t.set(timers_, d);
    mark_due();
  }

  /// Any thread.
  void request_stop(coro_entry& o) noexcept;
  /// Removes requests to stop this operation.
  void forget_stop(const coro_entry& o) noexcept;

  /// Whether there may be a request to stop, or a timer that has expired. It stays true while a timer is set.
  [[nodiscard]] bool has_due() const noexcept { return due_.load(std::memory_order_relaxed); }
  /// Serves requests to stop and timers that have expired. Returns their number.
  std::size_t take_due() noexcept;

protected:
  /// Any thread calls it when it has added something that take_due serves, now or later. It is an exchange and not a
  /// store, because take_due must see what each of several threads has added.
  void mark_due() noexcept { due_.exchange(true, std::memory_order_release); }

private:
  std::size_t take_stops() noexcept;
  void collect_stops() noexcept;

  ref<evd_core> evd_;
  timer_heap timers_;
  intrusive_list<coro_entry> ready_;
  std::atomic<bool> due_{false};
  std::atomic<coro_entry*> requested_{nullptr};
  coro_entry* stops_ = nullptr;
};

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/delivery/coro_schedule.ipp>
#endif
