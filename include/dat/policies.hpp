// Policies of posting: what a post checks, chosen where it is called, at compile time.
// SPDX-License-Identifier: BSL-1.0
#pragma once

//     ep.post<dat::trusting>(dat::send{out});   // checks nothing that the types have not checked
//     ep.post<dat::checked>(dat::send{out});    // remembers what it named, and finds who takes that away
//
// A post without a policy is what ep_ref::post says; what is here costs it nothing.

#include <dat/ep.hpp>
#include <dat/expected.hpp>
#include <dat/ia.hpp>
#include <dat/status.hpp>

#include <dat/detail/core_access.hpp>
#include <dat/detail/watch.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace dat::inline v0 {

/// Posts without the checks of zones, lengths and limits. What they would have refused reaches the adapter, which
/// breaks the connection, or worse: segments of length 0 mean 2 GiB to some. Types, room on the queue and the state of
/// the endpoint are checked as ever; so is all of a send to an address (datagrams). For programs that have run with
/// `checked`.
struct trusting {
  static constexpr bool is_posting_policy = true;
  template <class... D>
  [[gnu::always_inline]] static expected<void> post(detail::ep_posting& ep, const D&... operations) noexcept {
    return detail::trusting_post::post(ep, detail::request_access::of(operations)...);
  }
  /// Before sends of datagrams, which are posted as without a policy.
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

/// Posts with the usual checks, and remembers each operation and the memory that it names until its completion has been
/// taken. Then
/// - a post that names a region which is closed already is refused: `privileges_violation`
/// - `lmr::close` of a region that a posted operation names is refused: `invalid_state` (lmr_in_use)
/// - the destructor of such a region, which can refuse nothing, tells `on_misuse`
/// - `verify` finds operations whose memory is not mapped any more
/// - `unused` says whether memory may be freed: for allocators that want to know
///
/// each naming the operation: the error's object is its endpoint, and `culprit` is the operation itself. All posts of
/// an endpoint, for connections or datagrams, should have this policy; batches, `post_n` and buffers of shared queues
/// cannot, and are not known. Of operations with more than eight segments the first eight are remembered.
///
/// `post` allocates where an endpoint's queue is used for the first time, and takes a lock of the ia. Thread safety:
/// the functions are safe.
struct checked {
  static constexpr bool is_posting_policy = true;
  template <class... D>
  static expected<void> post(detail::ep_posting& ep, const D&... operations) noexcept {
    return detail::watch::post(ep, detail::request_access::of(operations)...);
  }
  template <class... R>
  static expected<void> before(detail::ep_posting& ep, const R&... requests) noexcept {
    return detail::watch::remember_requests(ep, requests...);
  }

  /// Errors: `invalid_state` when the memory that a posted operation names is not mapped, or its region is gone;
  /// `invalid_handle`. Blocks: for system calls, one for each segment of what is posted.
  [[nodiscard]] static expected<void> verify(const ia& adapter) noexcept {
    return detail::watch::verify(detail::core_access::of(adapter));
  }
  /// Errors: `invalid_state` while a posted operation names a part of this memory; `invalid_handle`.
  [[nodiscard]] static expected<void> unused(const ia& adapter, std::span<const std::byte> memory) noexcept {
    return detail::watch::unused(detail::core_access::of(adapter), memory);
  }
  /// The operation that the last error of this policy was about.
  [[nodiscard]] static std::optional<posted_dto> culprit(const ia& adapter) noexcept {
    const auto found = detail::watch::culprit(detail::core_access::of(adapter));
    if (!found.known) return std::nullopt;
    return posted_dto{found.operation, found.cookie, found.ep};
  }
  /// Called in the thread that destroys an lmr which a posted operation names. Null: nobody is told.
  static void on_misuse(void (*tell)(const error&) noexcept) noexcept { detail::watch::on_misuse(tell); }
};

} // namespace dat::inline v0
