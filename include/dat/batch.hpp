// Batches: requests that are collected at run time and posted with one doorbell.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/dto.hpp>
#include <dat/expected.hpp>

#include <dat/detail/posting/kept_requests.hpp>

#include <cstddef>

namespace dat { inline namespace v0 {

class counters;

/// Up to `N` requests of at most `Iov` segments each, posted with one doorbell by `ep::post`. A batch can be posted
/// again, and to another endpoint of the same protection zone.
///
///     dat::batch<16> b;
///     for (...) b.push_back(dat::rdma_write{block, window}.cookie(i));
///     ep.post(b);
///
/// Stores its requests inside (about 180 bytes each). It cannot be copied, because it has pointers into itself.
/// Allocates: never.
/// Blocks: never.
/// Thread safety: one thread at a time.
template <std::size_t N, std::size_t Iov = 1>
class batch {
public:
  static constexpr std::size_t capacity = N;
  static_assert(N > 0 && Iov > 0);

  batch() noexcept {
    for (std::size_t i = 0; i < N; ++i) {
      links_[i].wr.sg_list = links_[i].segments;
      links_[i].wr.next = i + 1 < N ? &links_[i + 1].wr : nullptr;
    }
  }
  batch(const batch&) = delete;
  batch& operator=(const batch&) = delete;
  ~batch() = default;

  /// Appends a request. Returns false when the batch is full, and leaves it unchanged.
  template <class D>
  requires detail::is_request<D>
  [[nodiscard, gnu::always_inline]] bool push_back(const D& operation) noexcept {
    static_assert(!detail::is_posted_alone<D>,
                  "dat: a batch posts its requests as one chain, and verbs posts an atomic "
                  "write or a flush by itself: ep.post(dat::ib::atomic_write{...})");
    static_assert(D::max_segments <= Iov, "dat: this request may have more segments than the batch has room for: "
                                          "dat::batch<N, Iov> with a larger Iov");
    if (full()) return false;
    const auto& r = detail::request_access::of(operation);
    links_[size_].take(r);
    kept_[size_].take(r);
    sum_.add(r);
    ++size_;
    return true;
  }

  void clear() noexcept {
    size_ = 0;
    sum_ = {};
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] bool full() const noexcept { return size_ == N; }

  /// Posts the requests of the batch; called by ep_ref::post. `ep`: the endpoint that is to post them.
  ///
  /// Errors: as ep_ref::post.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: as ep_ref::post.
  [[nodiscard]] expected<void> post_to(detail::ep_posting& ep) noexcept {
    const detail::batch_queue queue(ep);
    if (empty()) return ep.is_null() ? queue.usable(0) : success();
    return detail::post_kept(queue, links_, kept_, size_, sum_);
  }

private:
  friend class counters;
  std::size_t size_ = 0;
  detail::kept_sum sum_;
  detail::kept_request kept_[N];
  detail::kept_link<Iov> links_[N]; // a chain
};

}} // namespace dat::v0
