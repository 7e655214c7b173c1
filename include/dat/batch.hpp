// Batches: requests gathered at run time and posted with one doorbell.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/dto.hpp>
#include <dat/expected.hpp>

#include <dat/detail/batch_limits.hpp>
#include <dat/detail/core.hpp>
#include <dat/detail/handle.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

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
      wr_[i].sg_list = segments_[i].data();
      wr_[i].next = wr_.data() + i + 1; // post_to ends the chain
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
    if (size_ == N) return false;
    const auto& r = detail::request_access::of(operation);
    if (r.data.count() != 0 && r.data.zone().marked()) [[unlikely]]
      append_tidied(r.copy());
    else
      append(r);
    return true;
  }

  void clear() noexcept {
    size_ = 0;
    limits_ = {};
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] bool full() const noexcept { return size_ == N; }

private:
  friend class ep_ref;
  template <std::size_t M>
  [[gnu::always_inline]] void append(const detail::send_request<M>& r) noexcept {
    const std::uint32_t i = size_;
    for (std::uint32_t j = 0; j < r.data.count(); ++j) segments_[i][j] = r.data[j];
    wr_[i].num_sge = static_cast<int>(r.data.count());
    r.fill(wr_[i]);
    posted_[i].cookie = r.cookie;
    posted_[i].length = static_cast<std::uint32_t>(r.data.bytes());
    posted_[i].kind = detail::quiet_if(r.quiet, detail::kind_of_work(r.operation));
    limits_.note(r);
    size_ = i + 1;
  }
  template <std::size_t M>
  [[gnu::cold, gnu::noinline]] void append_tidied(detail::send_request<M> r) noexcept {
    r.data.tidy();
    append(r);
  }
  expected<void> post_to(detail::ep_posting& ep) noexcept {
    if (!limits_.within(ep)) [[unlikely]]
      return limits_.refusal(ep);
    if (size_ == 0) return success();
    wr_[size_ - 1].next = nullptr;
    auto posted = ep.post_staged(wr_.data(), posted_.data(), size_);
    wr_[size_ - 1].next = wr_.data() + size_; // more may be appended
    return posted;
  }

  std::uint32_t size_ = 0;
  detail::batch_limits limits_;
  std::array<ibv_send_wr, N> wr_;
  std::array<detail::posted_work, N> posted_;
  std::array<std::array<ibv_sge, Iov>, N> segments_;
};

} // namespace dat::inline v0
