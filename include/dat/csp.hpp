// Common service points: listeners at an address, as sockets are.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/communicator.hpp>
#include <dat/ia.hpp>
#include <dat/object.hpp>

#include <dat/detail/csp_impl.hpp>

#include <utility>

namespace dat::inline v0 {

/// What a common service point was created with (DAT_CSP_PARAM).
struct csp_params {
  service_id id;
  evd_id requests;    ///< the evd that gets the requests
  communicator comm;  ///< with the protocol that 0 stood for
  ia_address address; ///< that it listens at, with the port
};

/// Listens at one address of its ia, or at all of one family, for what `ep::common_connect` asks for (uDAPL 2.0
/// §6.4.4.2). Made by `ia::create_csp`; otherwise like a psp.
///
/// Move-only. Thread safety: queries are safe; `close` and destruction must not overlap other uses.
class csp : public dat::object<csp, object_kind::csp> {
public:
  csp() noexcept = default; ///< names no service point
  csp(csp&&) noexcept = default;
  csp& operator=(csp&&) noexcept = default;
  ~csp() = default;

  /// Stops listening (uDAPL 2.0 §6.4.4.2.2). Requests that were delivered stay answerable; the port is free again when
  /// this returns. Errors: `invalid_handle`. Blocks: no.
  expected<void> close() noexcept { return core_.close("csp.close", return_subtype::handle_csp); }

  /// The port it listens on, in host byte order; 0 for an empty handle.
  [[nodiscard]] std::uint16_t port() const noexcept { return core_ ? core_->port() : std::uint16_t{0}; }
  /// What its requests call it: `cr::service()`.
  [[nodiscard]] service_id id() const noexcept { return core_ ? core_->service() : service_id(); }
  /// What it was created with, and what it got (uDAPL 2.0 §6.4.4.2.3). Errors: `invalid_handle`.
  [[nodiscard]] expected<csp_params> query() const noexcept {
    if (!core_ || core_->dead()) return detail::empty_handle("csp.query", return_subtype::handle_csp);
    return csp_params{core_->service(), evd_id(core_->evd_number()), core_->comm(), core_->bound()};
  }

  explicit operator bool() const noexcept { return static_cast<bool>(core_); }

  /// The listening rdma_cm id.
  [[nodiscard]] rdma_cm_id* native_handle() const noexcept { return core_ ? core_->id() : nullptr; }

private:
  friend dat::object<csp, object_kind::csp>;
  friend class ia;
  explicit csp(detail::ref<detail::service_point> core) noexcept : core_(std::move(core)) {}
  [[nodiscard]] auto* entity() const noexcept { return core_.get(); }
  detail::handle<detail::service_point> core_;
};

inline expected<csp> ia::create_csp(const communicator& comm, const ia_address& address,
                                    const evd_ref<connection_requests>& requests) noexcept {
  if (!core_) return detail::empty_handle("ia.create_csp", return_subtype::handle_ia);
  auto core = detail::create_csp(core_.shared(), comm, &address, requests.shared());
  if (!core) return core.assume_error();
  return csp(std::move(core).assume_value());
}

inline expected<csp> ia::create_csp(const communicator& comm, const evd_ref<connection_requests>& requests) noexcept {
  if (!core_) return detail::empty_handle("ia.create_csp", return_subtype::handle_ia);
  auto core = detail::create_csp(core_.shared(), comm, nullptr, requests.shared());
  if (!core) return core.assume_error();
  return csp(std::move(core).assume_value());
}

} // namespace dat::inline v0

template <>
struct std::hash<dat::csp> : dat::detail::handle_hash<dat::csp> {};
