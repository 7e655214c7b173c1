// Policies of posting: the checks of a post, chosen at its call at compile time.
// SPDX-License-Identifier: BSL-1.0
#pragma once

//     ep.post<dat::unchecked>(dat::send{out});   // checks nothing that the types have not checked
//     ep.post<dat::tracked>(dat::send{out});     // tracks the memory that posted work names
//
// A post without a policy is as ep_ref::post documents. The policies cost it nothing.

#include <dat/ep.hpp>
#include <dat/expected.hpp>
#include <dat/ia.hpp>
#include <dat/status.hpp>

#include <dat/detail/handle/core_access.hpp>
#include <dat/detail/posting/endpoint_queues.hpp>
#include <dat/detail/posting/tracked_posts.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace dat { inline namespace v0 {

/// Posts without the checks of zones, lengths and limits. An operation that they would have refused reaches the
/// adapter, which breaks the connection, or worse: to some adapters a segment of length 0 means 2 GiB. Types, room in
/// the queue and the state of the endpoint are still checked, and so are a send to an address (datagrams) and the
/// number of segments of a receive before the connection. Receives keep their length, so messages longer than
/// max_message_size arrive in them. Use it for programs that have run with `tracked`.
struct unchecked {
  static constexpr bool is_posting_policy = true;
  /// Posts operations without those checks; `ep::post<dat::unchecked>` calls it.
  /// Errors: `invalid_state`, `insufficient_resources` and `invalid_handle` as ep_ref::post; `invalid_parameter` for a
  /// receive before the connection that has more segments than max_recv_iov.
  /// Allocates, Blocks and Thread safety: as ep_ref::post.
  template <class... D>
  [[gnu::always_inline]] static expected<void> post(detail::ep_posting& ep, const D&... operations) noexcept {
    if constexpr ((detail::is_recv<D> && ...))
      return detail::post(detail::unchecked_recv_queue(ep), detail::request_access::of(operations)...);
    else
      return detail::post(detail::queue_for<detail::unchecked_request_queue, D...>(ep),
                          detail::request_access::of(operations)...);
  }
  /// Checks nothing. The post of a datagram calls this function first, and then makes the checks of a post without a
  /// policy.
  /// Errors: none.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  template <class... R>
  static expected<void> before(detail::ep_posting&, const R&...) noexcept {
    return success();
  }
};

/// An operation that is posted and has not completed.
struct posted_dto {
  dto_operation operation;
  dat::cookie cookie;
  std::uint32_t ep; ///< ep::number
};

/// Posts with the usual checks, and tracks each operation and the memory that it names until its completion has been
/// taken. Then
/// - a post that names a closed region is refused: `privileges_violation`
/// - `lmr::close` of a region that a posted operation names is refused: `invalid_state` (lmr_in_use)
/// - the destructor of such a region, which cannot refuse, calls the function of `on_misuse`
/// - `verify` finds operations whose memory is no longer mapped
/// - `unreferenced` checks whether memory may be freed, for allocators
///
/// Each error names the endpoint of the operation, and `last_offender` returns the operation. Use this policy for all
/// posts of an endpoint, for connections or datagrams. Batches, `post_n` and buffers of shared queues cannot have it,
/// and are not tracked. If an operation has more than eight segments, only the first eight are tracked.
struct tracked {
  static constexpr bool is_posting_policy = true;
  /// Posts operations and tracks them; `ep::post<dat::tracked>` calls it.
  /// Errors: as ep_ref::post; `privileges_violation` for a region that is closed; `insufficient_resources`
  /// (resource_memory).
  /// Allocates: at the first post to a queue of an endpoint.
  /// Blocks: for a lock of the ia.
  /// Thread safety: as ep_ref::post.
  template <class... D>
  static expected<void> post(detail::ep_posting& ep, const D&... operations) noexcept {
    if (auto ok = before(ep, detail::request_access::of(operations)...); !ok) return ok;
    if constexpr ((detail::is_recv<D> && ...))
      return detail::post(detail::recv_queue(ep), detail::request_access::of(operations)...);
    else
      return detail::post(detail::queue_for<detail::request_queue, D...>(ep),
                          detail::request_access::of(operations)...);
  }
  /// Tracks operations before the post of a datagram.
  /// Errors, Allocates, Blocks and Thread safety: as post.
  template <class... R>
  static expected<void> before(detail::ep_posting& ep, const R&... requests) noexcept {
    if (ep.state() == detail::ep_dead) return success(); // the post refuses such a request
    return detail::tracked_posts::remember(static_cast<detail::ep_core&>(ep).ia(), ep, requests...);
  }

  /// Checks that the memory of every posted operation is still mapped and registered.
  /// Errors: `invalid_state` when the memory of a posted operation is not mapped, or its region is closed;
  /// `invalid_handle`.
  /// Allocates: no.
  /// Blocks: for system calls, one for each segment of the posted operations.
  /// Thread safety: safe.
  [[nodiscard]] static expected<void> verify(const ia& adapter) noexcept {
    return detail::tracked_posts::verify(detail::core_access::of(adapter));
  }
  /// Checks that no posted operation names a part of this memory.
  /// Errors: `invalid_state` while a posted operation names a part of it; `invalid_handle`.
  /// Allocates: no.
  /// Blocks: for a lock of the ia.
  /// Thread safety: safe.
  [[nodiscard]] static expected<void> unreferenced(const ia& adapter, std::span<const std::byte> memory) noexcept {
    return detail::tracked_posts::unreferenced(detail::core_access::of(adapter), memory);
  }
  /// The operation of the last error of this policy.
  [[nodiscard]] static std::optional<posted_dto> last_offender(const ia& adapter) noexcept {
    const auto found = detail::tracked_posts::last_offender(detail::core_access::of(adapter));
    if (!found.known) return std::nullopt;
    return posted_dto{found.operation, found.cookie, found.ep};
  }
  /// Sets the function that is called in the thread that destroys an lmr while a posted operation names it; null
  /// removes it.
  static void on_misuse(void (*tell)(const error&) noexcept) noexcept { detail::tracked_posts::on_misuse(tell); }
};

}} // namespace dat::v0
