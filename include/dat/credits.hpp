// Credits: so that a sender sends no more messages than its peer has receives for.
//
// A send that meets no receive is tried again after a while, by both adapters, and in the end breaks the connection.
// With credits it is not posted. They are numbers of receives; how they travel is the consumer's: in a message, or as
// immediate data.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ep.hpp>
#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <atomic>
#include <cstdint>

namespace dat::inline v0 {

/// How many messages the peer has room for. Allocates: never. Thread safety: safe.
class send_credits {
public:
  /// `initial`: the receives that the peer posts before the connection is up.
  explicit send_credits(std::uint32_t initial) noexcept : left_(initial) {}

  /// Takes `n`, or none of them: false when there are fewer.
  [[nodiscard]] bool take(std::uint32_t n = 1) noexcept {
    std::uint32_t have = left_.load(std::memory_order_relaxed);
    while (have >= n)
      if (left_.compare_exchange_weak(have, have - n, std::memory_order_acquire)) return true;
    return false;
  }
  /// What the peer says it has posted again.
  void give(std::uint32_t n = 1) noexcept { left_.fetch_add(n, std::memory_order_release); }
  [[nodiscard]] std::uint32_t left() const noexcept { return left_.load(std::memory_order_relaxed); }

  /// Posts messages for which the peer has room, or nothing.
  /// Errors: `insufficient_resources` (resource_credits) when there are not as many credits; as ep_ref::post, and the
  /// credits are given back then.
  template <class... D>
  expected<void> post(ep_ref ep, const D&... messages) noexcept {
    static_assert((detail::is_request<D> && ...), "dat: credits are for messages: dat::send, or dat::rdma_write with "
                                                  "immediate data");
    constexpr std::uint32_t n = sizeof...(D);
    if (!take(n))
      return error(return_type::insufficient_resources, return_subtype::resource_credits)
          .at("send_credits.post", object_kind::ep, ep.number())
          .hint("the peer has not as many receives posted: wait for credits from it");
    auto posted = ep.post(messages...);
    if (!posted) give(n - (posted.assume_error().index() < n ? posted.assume_error().index() : n));
    return posted;
  }

private:
  std::atomic<std::uint32_t> left_;
};

/// How many receives were posted again and not told to the peer. Allocates: never. Thread safety: safe.
class recv_credits {
public:
  /// `posted`: the receives of this side, `told` to the peer as its initial credits. They are returned in batches of a
  /// quarter, unless `batch` says otherwise; never of none.
  explicit recv_credits(std::uint32_t posted, std::uint32_t batch = 0) noexcept
      : batch_(batch != 0    ? batch
               : posted >= 4 ? posted / 4
                             : 1) {}

  /// `n` receives were posted in place of those that have completed.
  void reposted(std::uint32_t n = 1) noexcept { owed_.fetch_add(n, std::memory_order_relaxed); }
  /// What to tell the peer now: 0 while it is not worth a message. `all`: with a message that goes anyway.
  [[nodiscard]] std::uint32_t take(bool all = false) noexcept {
    std::uint32_t owed = owed_.load(std::memory_order_relaxed);
    while (owed != 0 && (all || owed >= batch_))
      if (owed_.compare_exchange_weak(owed, 0, std::memory_order_relaxed)) return owed;
    return 0;
  }

private:
  const std::uint32_t batch_;
  std::atomic<std::uint32_t> owed_{0};
};

} // namespace dat::inline v0
