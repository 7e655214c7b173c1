// Credits: a sender posts no more messages than its peer has receives for.
//
// The adapter repeats a send that finds no receive, and in the end breaks the connection. With credits such a send is
// not posted. Credits are numbers of receives. The consumer carries them to the peer, in a message or as immediate
// data.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ep.hpp>
#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <atomic>
#include <cstdint>

namespace dat { inline namespace v0 {

/// Counts the messages for which the peer has receives.
/// Allocates: never.
/// Thread safety: safe.
class send_credits {
public:
  /// `initial`: the receives that the peer posts before the connection is up.
  explicit send_credits(std::uint32_t initial) noexcept : left_(initial) {}

  /// Takes `n` credits, or none if fewer are left; returns whether it did.
  [[nodiscard]] bool take(std::uint32_t n = 1) noexcept {
    std::uint32_t have = left_.load(std::memory_order_relaxed);
    while (have >= n)
      if (left_.compare_exchange_weak(have, have - n, std::memory_order_acquire)) return true;
    return false;
  }
  /// Adds `n` receives that the peer has posted again.
  void give(std::uint32_t n = 1) noexcept { left_.fetch_add(n, std::memory_order_release); }
  [[nodiscard]] std::uint32_t left() const noexcept { return left_.load(std::memory_order_relaxed); }

  /// Posts messages for which the peer has receives, or none of them.
  /// Errors: `insufficient_resources` (resource_credits) when too few credits are left; as ep_ref::post, which leaves
  /// the credits as they were.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: as ep_ref::post for the endpoint; safe for the credits.
  template <class... D>
  expected<void> post(ep_ref ep, const D&... messages) noexcept {
    static_assert((detail::is_request<D> && ...), "dat: credits are for messages: dat::send, or dat::rdma_write with "
                                                  "immediate data");
    constexpr std::uint32_t n = sizeof...(D);
    if (!take(n))
      return error(return_type::insufficient_resources, return_subtype::resource_credits)
          .at("send_credits.post", object_kind::ep, ep.number())
          .hint("The peer has fewer receives posted: wait for credits from it.");
    auto posted = ep.post(messages...);
    if (!posted) give(n - (posted.assume_error().index() < n ? posted.assume_error().index() : n));
    return posted;
  }

private:
  std::atomic<std::uint32_t> left_;
};

/// Counts the receives that were posted again and not yet reported to the peer.
/// Allocates: never.
/// Thread safety: safe.
class recv_credits {
public:
  /// `posted`: the receives of this side, which are the initial credits of the peer. They are returned in batches of
  /// `batch`; 0 means a quarter of `posted`, and at least one.
  explicit recv_credits(std::uint32_t posted, std::uint32_t batch = 0) noexcept
      : batch_(batch != 0    ? batch
               : posted >= 4 ? posted / 4
                             : 1) {}

  /// `n` receives were posted in place of those that have completed.
  void reposted(std::uint32_t n = 1) noexcept { owed_.fetch_add(n, std::memory_order_relaxed); }
  /// The credits to report to the peer now: 0 while they are fewer than a batch. With `all`, also fewer than a batch,
  /// for a message that goes to the peer in any case.
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

}} // namespace dat::v0
