// Public service points: listeners that turn arriving requests into events.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>
#include <dat/evd_id.hpp>
#include <dat/expected.hpp>
#include <dat/object.hpp>
#include <dat/service_id.hpp>

#include <dat/detail/base/enum_name.hpp>
#include <dat/detail/endpoint/core.hpp>
#include <dat/detail/handle/unique_object.hpp>

#include <string_view>
#include <utility>

namespace dat { inline namespace v0 {

/// The side that creates the endpoint on which a request is accepted (DAT_PSP_FLAGS, uDAPL 2.0 §6.4.4.1.1).
enum class psp_flags : std::uint8_t {
  consumer = 0, ///< the consumer, which passes any of its endpoints to `cr::accept`
  provider = 1  ///< dat: the request contains a new endpoint, `cr::ep()`, which the consumer configures
};
/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(psp_flags value) noexcept {
  return detail::enum_name(value, {"consumer", "provider"}, "unknown psp_flags");
}

/// The parameters of a public service point (DAT_PSP_PARAM).
struct psp_params {
  service_id id;   ///< `id.port()` is the connection qualifier
  evd_id requests; ///< the evd that gets the requests
  psp_flags flags = psp_flags::consumer;
};

namespace detail {

/// The members of every service point. Programs use psp, rsp and csp.
template <class Self, object_kind Kind>
class service_point_handle : public unique_object<Self, service_point, Kind> {
public:
  /// The port that it listens on, in host byte order; 0 for an empty handle.
  [[nodiscard]] std::uint16_t port() const noexcept { return this->core_ ? this->core_->port() : std::uint16_t{0}; }
  /// The name of the service point in its requests: compare with `cr::service()`.
  [[nodiscard]] service_id id() const noexcept { return this->core_ ? this->core_->service() : service_id(); }
  /// The listening rdma_cm id; null for an empty handle.
  [[nodiscard]] rdma_cm_id* native_handle() const noexcept { return this->core_ ? this->core_->id() : nullptr; }

  using unique_object<Self, service_point, Kind>::unique_object;
};

} // namespace detail

/// Listens on a connection qualifier at all addresses of its ia (uDAPL 2.0 §6.4.4.1). `ia::create_psp` creates it.
/// Every request becomes one `connection_request` on its evd. When the evd has no room, the peer is refused at once.
///
/// Move-only.
/// Thread safety: queries are safe; `close` and destruction must not overlap other uses.
class psp : public detail::service_point_handle<psp, object_kind::psp> {
public:
  psp() noexcept = default; ///< names no service point

  /// Stops listening (uDAPL 2.0 §6.4.4.1.3). Requests that were delivered stay answerable. The qualifier is free again
  /// when the call returns.
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: must not overlap any other use of the object.
  expected<void> close() noexcept;

  /// The parameters of the service point (uDAPL 2.0 §6.4.4.1.4).
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] expected<psp_params> query() const noexcept;

  using service_point_handle::service_point_handle;
};

}} // namespace dat::v0

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/impl/psp.ipp>
#endif
