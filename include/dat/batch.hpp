// Batches: requests gathered at run time and posted with one doorbell.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/dto.hpp>
#include <dat/expected.hpp>

#include <dat/detail/batch_limits.hpp>
#include <dat/detail/core.hpp>
#include <dat/detail/handle.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace dat::inline v0 {

/// Up to `N` requests of at most `Iov` segments each. Filling it prepares the work requests, so that posting costs
/// little more than the doorbell; it can be posted again, and to another endpoint of the same protection zone.
///
///     dat::batch<16> b;
///     for (...) b.push_back(dat::rdma_write{block, window}.cookie(i));
///     ep.post(b);
///
/// Holds everything inside (about 200 bytes a request). Allocates: never. Thread safety: one thread at a time. Not
/// copyable: the work requests point into it.
template <std::size_t N, std::size_t Iov = 1>
class batch {
public:
  static constexpr std::size_t capacity = N;
  static_assert(N > 0 && Iov > 0);

  batch() noexcept {
    for (std::size_t i = 0; i < N; ++i) {
      staged_[i].wr.sg_list = staged_[i].segments;
      staged_[i].wr.num_sge = 1;
      staged_[i].wr.next = i + 1 < N ? &staged_[i + 1].wr : nullptr; // post_to ends the chain
    }
  }
  batch(const batch&) = delete;
  batch& operator=(const batch&) = delete;
  ~batch() = default;

  /// Appends a request. False when the batch is full; it is unchanged then.
  template <class D>
  requires detail::is_request<D>
  [[nodiscard, gnu::always_inline]] bool push_back(const D& operation) noexcept {
    static_assert(D::max_segments <= Iov, "dat: this request may have more segments than the batch has room for: "
                                          "dat::batch<N, Iov> with a larger Iov");
    staged* const s = end_;
    if (s == staged_ + N) return false;
    const auto& r = detail::request_access::of(operation);
    if (!limits_.note(r)) [[unlikely]]
      append_tidied(r.copy());
    else
      append(s, r);
    return true;
  }

  void clear() noexcept {
    if (!limits_.simple()) [[unlikely]] // some may have another number of segments
      for (staged* s = staged_; s != end_; ++s) s->wr.num_sge = 1;
    end_ = staged_;
    limits_.forget();
  }
  [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(end_ - staged_); }
  [[nodiscard]] bool empty() const noexcept { return end_ == staged_; }
  [[nodiscard]] bool full() const noexcept { return end_ == staged_ + N; }

private:
  friend class ep_ref;
  using staged = detail::staged_request<Iov>;

  template <std::size_t M>
  [[gnu::always_inline]] void append(staged* s, const detail::send_request<M>& r) noexcept {
    if constexpr (M == 1) {
      detail::copy_triplet(s->segments, r.data.list());
    } else {
      for (std::uint32_t j = 0; j < r.data.count(); ++j) s->segments[j] = r.data[j];
      s->wr.num_sge = static_cast<int>(r.data.count());
    }
    r.fill(s->wr);
    s->posted.cookie = r.cookie;
    s->posted.set(static_cast<std::uint32_t>(r.data.few_bytes()),
                  detail::quiet_if(r.quiet, detail::kind_of_work(r.operation)));
    end_ = s + 1;
  }
  template <std::size_t M>
  [[gnu::cold, gnu::noinline]] void append_tidied(detail::send_request<M> r) noexcept {
    if ((r.flags & IBV_SEND_INLINE) != 0 && r.data.zone().has_offsets()) limits_.note_bad_inline();
    r.data.tidy();
    limits_.note_tidied(r, has_segments());
    end_->wr.num_sge = static_cast<int>(r.data.count());
    append(end_, r);
  }
  [[nodiscard]] bool has_segments() const noexcept {
    for (const staged* s = staged_; s != end_; ++s)
      if (s->wr.num_sge != 0) return true;
    return false;
  }
  /// The longest request, in bytes.
  [[nodiscard]] std::uint64_t longest() const noexcept {
    std::uint64_t n = 0;
    for (const staged* s = staged_; s != end_; ++s) n = detail::larger<std::uint64_t>(n, s->posted.bytes());
    return n;
  }
  expected<void> post_to(detail::ep_posting& ep) noexcept {
    if (!limits_.simply_within(ep)) [[unlikely]] {
      limits_.add(has_segments(), longest());
      if (!limits_.within(ep)) return limits_.refusal(ep);
    }
    if (empty()) return success();
    ibv_send_wr& last = (end_ - 1)->wr;
    ibv_send_wr* const more = std::exchange(last.next, nullptr);
    auto posted = ep.post_staged(staged_, end_);
    last.next = more;
    return posted;
  }

  staged* end_ = staged_;
  detail::batch_limits limits_;
  staged staged_[N];
};

} // namespace dat::inline v0
