// Connection requests: what a service point delivers, to be accepted or rejected.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>
#include <dat/ep.hpp>
#include <dat/expected.hpp>
#include <dat/object.hpp>
#include <dat/qos.hpp>
#include <dat/service_id.hpp>

#include <dat/detail/endpoint/core.hpp>
#include <dat/detail/handle/core_access.hpp>
#include <dat/detail/handle/event_key.hpp>
#include <dat/detail/handle/unique_object.hpp>
#include <dat/detail/text/event_text.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace dat { inline namespace v0 {

/// The parameters of a request (DAT_CR_PARAM).
struct cr_params {
  ia_address remote_address;               ///< the peer's address and port
  ia_address local_address;                ///< the address that it arrived at; the port is the service point's
  std::span<const std::byte> private_data; ///< valid until the request is answered or dropped
  service_id service;                      ///< the service point that it arrived at, or was passed to
  ep_ref local_ep;                         ///< empty for requests without an endpoint of their own
};

/// A peer's request for a connection (uDAPL 2.0 §6.4.5). It ends with exactly one of `accept`, `reject` and `handoff`.
/// If it is dropped unanswered, it is refused: the peer gets `non_peer_rejected` and need not wait.
///
/// Most requests are accepted on an endpoint that the consumer passes. The request of an rsp is accepted on the
/// endpoint that was reserved for it. The request of a psp with psp_flags::provider, and of an rsp without an endpoint,
/// has an unconfigured endpoint of its own:
///
///     request.ep().modify({.pz = &pz, .recv = evd, .request = evd, .connect = evd}); // <dat/ep_params.hpp>
///     request.accept();
///     dat::ep<dat::rc> ep = std::move(request.ep());
///
/// Move-only. A request stays valid when its service point is closed, and also when the peer has given up meanwhile.
/// Thread safety: one thread at a time.
class cr : public detail::unique_object<cr, detail::connection_base, object_kind::cr, detail::request_ref> {
public:
  static constexpr std::string_view name = "connection_request";
  /// The request as text, for logs. Allocates.
  [[nodiscard]] std::string message() const { return detail::request_text(name, remote_address()); }
  cr() noexcept = default; ///< names no request

  /// The parameters of the request (uDAPL 2.0 §6.4.5.1 dat_cr_query).
  /// Errors: `invalid_handle`, also for a request that was answered.
  /// Allocates: never.
  /// Blocks: no.
  /// Thread safety: safe beside other queries.
  [[nodiscard]] expected<cr_params> query() const noexcept;
  /// The data that the peer gave to `connect`, with its length. Two kinds of data are followed by zeros up to 56 bytes,
  /// unless the connection is one of iWARP: 53 to 55 bytes, which leave no room for their length, and data of a program
  /// that does not use dat. Valid until the request is answered or dropped.
  [[nodiscard]] std::span<const std::byte> private_data() const noexcept;
  /// The peer's address and port.
  [[nodiscard]] ia_address remote_address() const noexcept;
  /// The local address that the request arrived at. Its port is the service point's.
  [[nodiscard]] ia_address local_address() const noexcept;
  /// The service point that the request arrived at, or was passed to: compare with `psp::id()`.
  [[nodiscard]] service_id service() const noexcept;
  /// Always false: the peer cannot send more private data than `private_data` holds.
  [[nodiscard]] static constexpr bool truncated() noexcept { return false; }
  /// The endpoint that dat created for this request; empty for other requests. It belongs to the request until it is
  /// moved out, and ends when the request is rejected, handed off or dropped.
  [[nodiscard]] dat::ep<rc>& ep() noexcept { return ep_; }
  /// The endpoint of the request: the one that dat created, or that of an rsp. Empty for other requests.
  [[nodiscard]] ep_ref local_ep() const noexcept;

  /// Accepts the request on an unconnected endpoint of the same ia (uDAPL 2.0 §6.4.5.2). The endpoint's connect evd
  /// then gets one of `established` and `accept_completion_error`; the latter also when the peer has given up, or does
  /// not finish within ep_attributes::accept_timeout. The peer gets `data`, at most 56 bytes, with `established`. The
  /// peer may send at once, so post receives before. On success the request is empty.
  ///
  /// Errors: all of them leave the request open and the endpoint as it was:
  /// - `invalid_state`: the endpoint is not unconnected
  /// - `invalid_parameter`: too much data; the request has an endpoint of its own; the endpoint's local address or
  ///   communicator differs from the request's; a value of `options` is out of its range
  /// - `model_not_supported`: `options` asks for several paths, or for what iWARP does not have
  /// - `invalid_handle`: the request or the endpoint is empty, or the endpoint is of another ia
  /// - the device's errno: the device refused the first steps
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: one thread at a time for the request.
  template <class Service>
  expected<void> accept(dat::ep<Service>& with, std::span<const std::byte> data = {},
                        const connect_options& options = {}) noexcept {
    return accept_on_given(detail::core_access::of(with), data, options);
  }
  /// Accepts the request on the endpoint that was reserved or created for it (uDAPL 2.0 §6.4.5.2).
  /// Errors: as above; `invalid_state` with the endpoint's state, such as ep_unconftentative: configure it first;
  /// `invalid_handle` when there is no such endpoint, or it is closed.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: one thread at a time for the request.
  expected<void> accept(std::span<const std::byte> data = {}, const connect_options& options = {}) noexcept;

  /// Rejects the request (uDAPL 2.0 §6.4.5.3). The peer gets `peer_rejected` with `data`, at most 56 bytes. On success
  /// the request is empty.
  /// Errors: `invalid_parameter` for too much data; `invalid_handle` for an empty request.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: one thread at a time for the request.
  expected<void> reject(std::span<const std::byte> data = {}) noexcept;

  /// Passes the request to another service point of the same ia, which queues it as if it had arrived there (uDAPL 2.0
  /// §6.4.5.4). An endpoint that was reserved for the request is free again. On success the request is empty.
  ///
  /// Errors: all of them leave the request as it was:
  /// - `invalid_parameter`: no service point listens there, or the request already belongs to that service point
  /// - `invalid_state`: the evd of that service point is full, or its rsp has already received its request
  /// - `insufficient_resources`: no memory for the endpoint that the service point creates
  /// - `invalid_handle`: the request is empty
  /// Allocates: only for a service point that creates endpoints.
  /// Blocks: no.
  /// Thread safety: one thread at a time for the request.
  expected<void> handoff(conn_qual to) noexcept;

  cr(detail::event_key, detail::request_ref r) noexcept;

private:
  expected<void> accept_on_given(detail::ep_core* with, std::span<const std::byte> data,
                                 const connect_options& options) noexcept;
  expected<void> accept_on(detail::ep_core& with, std::span<const std::byte> data,
                           const connect_options& options) noexcept;
  void answered() noexcept {
    core_.done();
    ep_ = {};
  }
  [[nodiscard]] detail::connection_state* core() const noexcept {
    return static_cast<detail::connection_state*>(core_.get());
  }
  /// The endpoint that was reserved for the request or created for it.
  [[nodiscard]] detail::ep_core* endpoint() const noexcept { return static_cast<detail::ep_core*>(core()->endpoint()); }
  dat::ep<rc> ep_;
};

}} // namespace dat::v0

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/impl/cr.ipp>
#endif
