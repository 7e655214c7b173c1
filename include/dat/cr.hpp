// Connection requests: what a service point delivers, to be accepted or rejected.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>
#include <dat/ep.hpp>
#include <dat/expected.hpp>
#include <dat/object.hpp>
#include <dat/service_id.hpp>

#include <dat/detail/core.hpp>
#include <dat/detail/handle.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace dat::inline v0 {

/// A peer's request for a connection (uDAPL 2.0 §6.4.5). Ends with exactly one of `accept`, `reject` and `handoff`; one
/// that is dropped unanswered is refused (the peer gets `non_peer_rejected`), so nobody waits for nothing.
///
/// Most requests are accepted on an endpoint that the consumer gives. One of an rsp is accepted on the endpoint that
/// was reserved for it; one of a psp with psp_flags::provider, or of an rsp without an endpoint, brings one of its own,
/// unconfigured:
///
///     request.ep().modify({.pz = &pz, .recv = evd, .request = evd, .connect = evd}); // <dat/ep_params.hpp>
///     request.accept();
///     dat::ep<dat::rc> ep = std::move(request.ep());
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

  /// The service point that it came to, or was handed to: compare with `psp::id()`.
  [[nodiscard]] service_id service() const noexcept { return request_ ? core()->service() : service_id(); }
  /// Whether private data of the peer was cut off: never, since no more arrives than `private_data` holds.
  [[nodiscard]] static constexpr bool truncated() noexcept { return false; }
  /// The endpoint that dat made for this request; empty for other requests. It belongs to the request until it is moved
  /// out, and ends when the request is rejected, handed off or dropped.
  [[nodiscard]] dat::ep<rc>& ep() noexcept { return ep_; }
  /// Names the endpoint that the request is accepted on, if that is settled: the one above, or an rsp's.
  [[nodiscard]] ep_ref local_ep() const noexcept { return ep_ref(request_ ? core()->brought() : nullptr); }

  /// Accepts the request on an unconnected endpoint of the same ia (uDAPL 2.0 §6.4.5.2). Post receives on it before:
  /// the peer may send at once. `data` (at most 56 bytes) is shown to the peer with `established`. The endpoint's
  /// connect evd then gets one of `established` and `accept_completion_error`; the latter also when the peer has given
  /// up.
  ///
  /// Errors, all leaving the request open and the endpoint as it was: `invalid_state` unless the endpoint is
  /// unconnected; `invalid_parameter` for too much data; `invalid_handle` for an empty request, or an endpoint that is
  /// empty or of another ia; `invalid_parameter` for a request that brings its endpoint, and for an endpoint whose own
  /// address or communicator is another than the request's. On success the request is empty. Allocates: no. Blocks: no.
  template <class Service>
  expected<void> accept(dat::ep<Service>& with, std::span<const std::byte> data = {}) noexcept {
    static constexpr const char* call = "cr.accept";
    if (!request_) return detail::empty_handle(call, return_subtype::handle_cr);
    if (!with) return detail::empty_handle(call, return_subtype::handle_ep);
    if (core()->brought())
      return error(return_type::invalid_parameter, return_subtype::arg2)
          .at(call, object_kind::cr, service().port())
          .hint("the request has an endpoint: accept() without another one");
    return accept_on(*with.core_, data);
  }
  /// Accepts the request on the endpoint that was reserved or made for it.
  /// Errors: `invalid_state` with the endpoint's state, such as ep_unconftentative: configure it first;
  /// `invalid_handle` when there is no such endpoint, or it is gone; else as above.
  expected<void> accept(std::span<const std::byte> data = {}) noexcept {
    static constexpr const char* call = "cr.accept";
    if (!request_) return detail::empty_handle(call, return_subtype::handle_cr);
    if (!core()->brought())
      return error(return_type::invalid_handle, return_subtype::handle_ep)
          .at(call, object_kind::cr, service().port())
          .hint("the request brings no endpoint: accept(ep)");
    return accept_on(*core()->brought(), data);
  }

  /// Says no (uDAPL 2.0 §6.4.5.3). The peer gets `peer_rejected` with `data` (at most 56 bytes).
  /// Errors: `invalid_parameter` for too much data, `invalid_handle` for an empty request. On success the request is
  /// empty. Allocates: no. Blocks: no.
  expected<void> reject(std::span<const std::byte> data = {}) noexcept {
    if (!request_) return detail::empty_handle("cr.reject", return_subtype::handle_cr);
    auto r = core()->reject(data);
    if (r) answered();
    return r;
  }

  /// Passes the request to another service point of the same ia, whose consumer gets it as if it had come there
  /// (uDAPL 2.0 §6.4.5.4). An endpoint that was reserved for it is free again.
  /// Errors, all leaving the request as it was: `invalid_parameter` when no service point is there, or it is the one
  /// that the request came to; `invalid_state` when that one has no room; `invalid_handle`. On success the request is
  /// empty. Blocks: no.
  expected<void> handoff(conn_qual to) noexcept {
    if (!request_) return detail::empty_handle("cr.handoff", return_subtype::handle_cr);
    auto r = core()->hand_off(to.port());
    if (r) answered();
    return r;
  }

  explicit operator bool() const noexcept { return static_cast<bool>(request_); }

private:
  friend dat::object<cr, object_kind::cr>;
  friend struct detail::event_access;
  explicit cr(detail::request_ref r) noexcept : request_(std::move(r)) {
    // One that was handed off is a new cr to who gets it.
    request_.get()->consumer_context.store(0, std::memory_order_relaxed);
    if (auto* made = core()->brought(); made && made->state() == ep_state::unconfigured_tentative)
      ep_ = dat::ep<rc>(detail::ref<detail::ep_core>(made));
  }
  expected<void> accept_on(detail::ep_core& with, std::span<const std::byte> data) noexcept {
    auto r = with.accept(*core(), data);
    if (r) request_.done();
    return r;
  }
  void answered() noexcept {
    request_.done();
    ep_ = {};
  }
  [[nodiscard]] detail::ep_connection* core() const noexcept {
    return static_cast<detail::ep_connection*>(request_.get());
  }
  [[nodiscard]] auto* entity() const noexcept { return request_.get(); }
  detail::request_ref request_;
  dat::ep<rc> ep_;
};

} // namespace dat::inline v0

template <>
struct std::hash<dat::cr> : dat::detail::handle_hash<dat::cr> {};
