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

  coro_awaited waiting; // the coroutine
  stop_function on_stop = nullptr;
  coro_entry* next_stop = nullptr;
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
  /// Resumes a coroutine before all others, by the next resume_ready. That follows at once: no code runs before it that
  /// could destroy the coroutine.
  void resume_first(std::coroutine_handle<> c) noexcept { first_ = c; }
  void resume_ready() {
    if (first_) std::exchange(first_, {}).resume();
    while (coro_entry* o = ready_.pop_front())
      if (const auto c = o->waiting.take()) c.resume(); // none: the coroutine was destroyed
  }
  /// The coroutines that are ready stay suspended; their owner may destroy them.
  void forget_ready() noexcept;

  [[nodiscard]] timer_heap& timers() noexcept { return timers_; }
  [[nodiscard]] const timer_heap& timers() const noexcept { return timers_; }

  /// Any thread.
  void request_stop(coro_entry& o) noexcept;
  /// Serves requests to stop, and returns their number.
  std::size_t take_stops() noexcept;
  /// Whether there is a request to stop.
  [[nodiscard]] bool stop_requested() const noexcept { return stops_ || requested_.load(std::memory_order_relaxed); }
  /// Removes requests to stop this operation.
  void forget_stop(const coro_entry& o) noexcept;

private:
  void collect_stops() noexcept;

  ref<evd_core> evd_;
  timer_heap timers_;
  std::coroutine_handle<> first_; // resumed before the ready coroutines
  intrusive_list<coro_entry> ready_;
  std::atomic<coro_entry*> requested_{nullptr};
  coro_entry* stops_ = nullptr;
};

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/delivery/coro_schedule.ipp>
#endif
