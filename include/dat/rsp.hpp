// Reserved service points: one endpoint waits for one request.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ia.hpp>
#include <dat/object.hpp>

#include <utility>

namespace dat { inline namespace v0 {

/// The parameters of a reserved service point (DAT_RSP_PARAM).
struct rsp_params {
  service_id id;   ///< `id.port()` is the connection qualifier
  evd_id requests; ///< the evd that gets the request
  ep_ref ep;       ///< the endpoint, while it waits for the request or for its answer
};

/// Listens for one request, which is accepted on the endpoint that `ia::create_rsp` was given (uDAPL 2.0 §6.4.4.3). All
/// later requests are refused as if no service point listened. The qualifier stays taken until `close`.
///
///     auto rsp = ia.create_rsp(7471, ep, evd);
///     auto request = evd.wait_for<dat::connection_request>();
///     request->accept(); // on ep
///
/// The endpoint is `reserved` from creation on, and `passive_connection_pending` from the request to its answer. It
/// takes receives, and cannot be connected or closed. If its handle is dropped meanwhile, the endpoint still ends, and
/// the request can only be rejected.
///
/// Move-only.
/// Thread safety: queries are safe; `close` and destruction must not overlap other uses.
class rsp : public detail::service_point_handle<rsp, object_kind::rsp> {
public:
  rsp() noexcept = default; ///< names no service point

  /// Stops listening (uDAPL 2.0 §6.4.4.3.2). If the request has not arrived, the endpoint is unconnected again and
  /// keeps its receives. A request that has arrived can still be answered: see the state of the endpoint, or the evd.
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: must not overlap any other use of the object.
  expected<void> close() noexcept;

  /// The parameters of the service point (uDAPL 2.0 §6.4.4.3.3).
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] expected<rsp_params> query() const noexcept;

  using service_point_handle::service_point_handle;
};

}} // namespace dat::v0

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/impl/rsp.ipp>
#endif
