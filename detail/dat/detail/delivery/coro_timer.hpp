// Timers of coroutines: a pairing heap whose nodes live in the coroutines' frames.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/config.hpp>
#include <dat/detail/base/deadline.hpp>

#include <cstddef>

namespace dat { inline namespace v0 { namespace detail {

class timer_heap;

/// A timer. A timer that is set is in one heap; its destructor removes it.
class timer_node {
public:
  /// The function that the heap calls once, when the time has passed. The timer is no longer set then.
  using function = void (*)(timer_node&) noexcept;

  explicit timer_node(function expire) noexcept : expire_(expire) {}
  timer_node(const timer_node&) = delete;
  timer_node& operator=(const timer_node&) = delete;
  ~timer_node() { cancel(); }

  /// Expires at `d`, which is not "never". The timer must not be set.
  void set(timer_heap& in, const deadline& d) noexcept;
  void cancel() noexcept;

private:
  friend class timer_heap;
  function expire_;
  timer_heap* heap_ = nullptr; // null: not set
  clock::time_point due_;
  timer_node* child_ = nullptr; // the first of those that are due later
  timer_node* next_ = nullptr;  // the next sibling
  timer_node* prev_ = nullptr;  // the previous sibling, or the parent of the first
};

/// Setting a timer takes constant time, ending one logarithmic time (amortised). Not synchronised.
class timer_heap {
public:
  timer_heap() noexcept = default;
  timer_heap(const timer_heap&) = delete;
  timer_heap& operator=(const timer_heap&) = delete;
  /// Timers that are set are forgotten.
  ~timer_heap() {
    while (root_) root_->cancel();
  }

  /// The time of the first timer; "never" when none is set.
  [[nodiscard]] deadline first() const noexcept { return root_ ? deadline{root_->due_} : deadline{}; }
  /// Calls the functions of the timers whose time has passed, in the order of their times. Returns their number.
  std::size_t expire() noexcept;
  /// Whether a timer is set.
  [[nodiscard]] bool any() const noexcept { return root_ != nullptr; }

  // For timer_node.
  void insert(timer_node& n) noexcept { root_ = meld(root_, &n); }
  void remove(timer_node& n) noexcept;

private:
  [[nodiscard]] static timer_node* meld(timer_node* a, timer_node* b) noexcept;
  /// Joins siblings into one tree.
  [[nodiscard]] static timer_node* join(timer_node* first) noexcept;
  timer_node* root_ = nullptr;
};

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/delivery/coro_timer.ipp>
#endif
