// Definitions of timer_node and timer_heap.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/delivery/coro_timer.hpp>

#include <utility>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL void timer_node::set(timer_heap& in, const deadline& d) noexcept {
  due_ = d.at;
  heap_ = &in;
  in.insert(*this);
}

DAT_DECL void timer_node::cancel() noexcept {
  if (heap_) std::exchange(heap_, nullptr)->remove(*this);
}

DAT_DECL timer_node* timer_heap::meld(timer_node* a, timer_node* b) noexcept {
  if (!a || !b) return a ? a : b;
  if (b->due_ < a->due_) std::swap(a, b);
  b->prev_ = a;
  b->next_ = a->child_;
  if (b->next_) b->next_->prev_ = b;
  a->child_ = b;
  return a;
}

DAT_DECL timer_node* timer_heap::join(timer_node* first) noexcept {
  timer_node* pairs = nullptr; // the list of pairs, the last one first
  while (first) {
    timer_node* const a = first;
    timer_node* const b = a->next_;
    first = b ? b->next_ : nullptr;
    timer_node* const pair = meld(a, b);
    pair->next_ = pairs;
    pairs = pair;
  }
  timer_node* all = nullptr;
  while (pairs) {
    timer_node* const pair = std::exchange(pairs, pairs->next_);
    all = meld(all, pair);
  }
  return all;
}

DAT_DECL void timer_heap::remove(timer_node& n) noexcept {
  timer_node* const below = join(std::exchange(n.child_, nullptr));
  if (&n == root_) {
    root_ = below;
    return;
  }
  (n.prev_->child_ == &n ? n.prev_->child_ : n.prev_->next_) = n.next_;
  if (n.next_) n.next_->prev_ = n.prev_;
  root_ = meld(root_, below);
}

DAT_DECL std::size_t timer_heap::expire() noexcept {
  if (!root_) return 0;
  std::size_t n = 0;
  for (const clock::time_point now = clock::now(); root_ && root_->due_ <= now; ++n) {
    timer_node& first = *root_;
    first.cancel();
    first.expire_(first);
  }
  return n;
}

}}} // namespace dat::v0::detail
