// Connection requests: what a service point delivers, to be accepted or rejected.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>
#include <dat/ep.hpp>
#include <dat/expected.hpp>
#include <dat/object.hpp>

#include <dat/detail/core.hpp>
#include <dat/detail/handle.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace dat::inline v0 {

/// A peer's request for a connection (uDAPL 2.0 §6.4.5). Ends with exactly one of `accept` and `reject`; one that is
/// dropped unanswered is refused (the peer gets `non_peer_rejected`), so nobody waits for nothing.
///
/// Move-only. Stays valid when its service point is closed, and also when the peer has given up meanwhile.
/// Thread safety: one thread at a time.
class cr : public dat::object<cr, object_kind::cr> {
public:
  cr() noexcept = default; ///< names no request
  cr(cr&&) noexcept = default;
  cr& operator=(cr&&) noexcept = default;
  ~cr() = default;

  /// What the peer gave to `connect`, followed by zeros up to 56 bytes: the wire does not carry the length. Valid until
  /// the request is answered or dropped.
  [[nodiscard]] std::span<const std::byte> private_data() const noexcept {
    return request_ ? request_.get()->private_data() : std::span<const std::byte>();
  }
  /// The peer's address and port.
  [[nodiscard]] ia_address remote_address() const noexcept {
    return request_ ? request_.get()->remote_address() : ia_address();
  }
  /// The address here that the request came to; its port is the service point's.
  [[nodiscard]] ia_address local_address() const noexcept {
    return request_ ? request_.get()->local_address() : ia_address();
  }

  /// Accepts the request on an unconnected endpoint of the same ia (uDAPL 2.0 §6.4.5.2). Post receives on it before:
  /// the peer may send at once. `data` (at most 56 bytes) is shown to the peer with `established`. The endpoint's
  /// connect evd then gets one of `established` and `accept_completion_error`; the latter also when the peer has given
  /// up.
  ///
  /// Errors, all leaving the request open and the endpoint as it was: `invalid_state` unless the endpoint is
  /// unconnected; `invalid_parameter` for too much data; `invalid_handle` for an empty request, or an endpoint that is
  /// empty or of another ia. On success the request is empty. Allocates: no. Blocks: no.
  template <class Service>
  expected<void> accept(ep<Service>& with, std::span<const std::byte> data = {}) noexcept {
    static constexpr const char* call = "cr.accept";
    if (!request_) return detail::empty_handle(call, return_subtype::handle_cr);
    if (!with) return detail::empty_handle(call, return_subtype::handle_ep);
    auto r = with.core_->accept(*core(), data);
    if (r) request_.done();
    return r;
  }

  /// Says no (uDAPL 2.0 §6.4.5.3). The peer gets `peer_rejected` with `data` (at most 56 bytes).
  /// Errors: `invalid_parameter` for too much data, `invalid_handle` for an empty request. On success the request is
  /// empty. Allocates: no. Blocks: no.
  expected<void> reject(std::span<const std::byte> data = {}) noexcept {
    if (!request_) return detail::empty_handle("cr.reject", return_subtype::handle_cr);
    auto r = core()->reject(data);
    if (r) request_.done();
    return r;
  }

  explicit operator bool() const noexcept { return static_cast<bool>(request_); }

private:
  friend dat::object<cr, object_kind::cr>;
  friend struct detail::event_access;
  explicit cr(detail::request_ref r) noexcept : request_(std::move(r)) {}
  [[nodiscard]] detail::ep_connection* core() const noexcept {
    return static_cast<detail::ep_connection*>(request_.get());
  }
  [[nodiscard]] auto* entity() const noexcept { return request_.get(); }
  detail::request_ref request_;
};

} // namespace dat::inline v0

template <>
struct std::hash<dat::cr> : dat::detail::handle_hash<dat::cr> {};
