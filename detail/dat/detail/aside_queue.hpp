// Completions that were taken out of a completion queue before the consumer asked for them.
//
// It is polled in the place of the queue, and before it, until it is empty: the poll loop need not know.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/basics.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <new>
#include <utility>

namespace dat::inline v0::detail {

class aside_queue {
public:
  /// `polled` is where the taker finds the queue to poll, `real` the one to poll when this is empty.
  aside_queue(ibv_cq*& polled, ibv_cq* real) noexcept : polled_(polled), real_(real) {
    context_.ops.poll_cq = [](ibv_cq* q, int n, ibv_wc* to) { return static_cast<queue*>(q)->self->poll(n, to); };
    stand_in_.context = &context_;
    stand_in_.self = this;
  }
  aside_queue(const aside_queue&) = delete;
  aside_queue& operator=(const aside_queue&) = delete;
  ~aside_queue() = default;

  /// Room for `n` more. False when there is no memory.
  [[nodiscard]] bool reserve(std::uint32_t n) noexcept {
    if (end_ + n <= capacity_) return true;
    const std::uint32_t more = larger(2 * capacity_, end_ + n);
    owned_array<ibv_wc> bigger(new (std::nothrow) ibv_wc[more]);
    if (!bigger) return false;
    for (std::uint32_t i = first_; i < end_; ++i) bigger[i] = wc_[i];
    wc_ = std::move(bigger);
    capacity_ = more;
    return true;
  }
  void push(const ibv_wc& c) noexcept { wc_[end_++] = c; }
  /// Removes what `gone` accepts.
  template <class Predicate>
  void erase_if(Predicate gone) noexcept {
    std::uint32_t kept = first_;
    for (std::uint32_t i = first_; i < end_; ++i)
      if (!gone(wc_[i])) wc_[kept++] = wc_[i];
    end_ = kept;
  }
  /// From now on this is polled, if it has anything.
  void stand_in() noexcept {
    if (first_ != end_) polled_ = &stand_in_;
  }

private:
  struct queue : ibv_cq {
    aside_queue* self;
  };
  [[nodiscard]] int poll(int n, ibv_wc* to) noexcept {
    int given = 0;
    while (given < n && first_ != end_) to[given++] = wc_[first_++];
    if (first_ != end_) return given;
    first_ = end_ = 0;
    polled_ = real_;
    const int more = given < n ? ibv_poll_cq(real_, n - given, to + given) : 0;
    return more > 0 ? given + more : given;
  }

  ibv_cq*& polled_;
  ibv_cq* real_;
  owned_array<ibv_wc> wc_;
  std::uint32_t capacity_ = 0;
  std::uint32_t first_ = 0;
  std::uint32_t end_ = 0;
  ibv_context context_{};
  queue stand_in_{};
};

} // namespace dat::inline v0::detail
