// Common service points: listeners at an address, as sockets are.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/communicator.hpp>
#include <dat/ia.hpp>
#include <dat/object.hpp>

#include <dat/detail/endpoint/core.hpp>

#include <utility>

namespace dat { inline namespace v0 {

/// The parameters of a common service point (DAT_CSP_PARAM).
struct csp_params {
  service_id id;
  evd_id requests;    ///< the evd that gets the requests
  communicator comm;  ///< never with protocol 0: dat has replaced it
  ia_address address; ///< the address that it listens at, with the port
};

/// Listens at one address of its ia, or at all addresses of one family, for the requests of `ep::common_connect` (uDAPL
/// 2.0 §6.4.4.2). `ia::create_csp` creates it. Otherwise it is like a psp.
///
/// Move-only.
/// Thread safety: queries are safe; `close` and destruction must not overlap other uses.
class csp : public detail::service_point_handle<csp, object_kind::csp> {
public:
  csp() noexcept = default; ///< names no service point

  /// Stops listening (uDAPL 2.0 §6.4.4.2.2). Requests that were delivered can still be answered. The port is free again
  /// when the call returns.
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: must not overlap any other use of the object.
  expected<void> close() noexcept;

  /// The parameters of the service point, with the address and port that it listens on (uDAPL 2.0 §6.4.4.2.3).
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] expected<csp_params> query() const noexcept;

  using service_point_handle::service_point_handle;
};

}} // namespace dat::v0

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/connection/csp.ipp>
#include <dat/detail/impl/csp.ipp>
#endif
