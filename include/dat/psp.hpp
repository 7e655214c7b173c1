// Public service points: listeners that turn arriving requests into events.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>
#include <dat/evd_id.hpp>
#include <dat/expected.hpp>
#include <dat/object.hpp>
#include <dat/service_id.hpp>

#include <dat/detail/core.hpp>
#include <dat/detail/enum_name.hpp>
#include <dat/detail/handle.hpp>

#include <string_view>
#include <utility>

namespace dat::inline v0 {

/// Who makes the endpoint that a request is accepted on (DAT_PSP_FLAGS, uDAPL 2.0 §6.4.4.1.1).
enum class psp_flags : std::uint8_t {
  consumer = 0, ///< the consumer: any of its endpoints, given to `cr::accept`
  provider = 1  ///< dat: the request brings one, `cr::ep()`, which the consumer configures
};
/// The enumerator's name; total: a value outside the enumeration gives "unknown ...". Never allocates.
[[nodiscard]] constexpr std::string_view to_string(psp_flags value) noexcept {
  return detail::enum_name(value, {"consumer", "provider"}, "unknown psp_flags");
}

/// What a public service point was created with (DAT_PSP_PARAM).
struct psp_params {
  service_id id;   ///< `id.port()` is the connection qualifier
  evd_id requests; ///< the evd that gets the requests
  psp_flags flags = psp_flags::consumer;
};

/// Listens on a connection qualifier at all addresses of its ia (uDAPL 2.0 §6.4.4.1). Made by `ia::create_psp`; every
/// request becomes one `connection_request` on its evd. When the evd has no room, the peer is refused at once.
///
/// Move-only. Thread safety: queries are safe; `close` and destruction must not overlap other uses.
class psp : public dat::object<psp, object_kind::psp> {
public:
  psp() noexcept = default; ///< names no service point
  psp(psp&&) noexcept = default;
  psp& operator=(psp&&) noexcept = default;
  ~psp() = default;

  /// Stops listening (uDAPL 2.0 §6.4.4.1.3). Requests that were delivered stay answerable; the qualifier is free again
  /// when this returns. Errors: `invalid_handle`. Blocks: no.
  expected<void> close() noexcept { return core_.close("psp.close", return_subtype::handle_psp); }

  /// The port it listens on, in host byte order; 0 for an empty handle.
  [[nodiscard]] std::uint16_t port() const noexcept { return core_ ? core_->port() : std::uint16_t{0}; }
  /// What its requests call it: `cr::service()`.
  [[nodiscard]] service_id id() const noexcept { return core_ ? core_->service() : service_id(); }
  /// What it was created with (uDAPL 2.0 §6.4.4.1.4). Errors: `invalid_handle`.
  template <class Params = psp_params> // a template, so that only who calls it pays for compiling it
  [[nodiscard]] expected<Params> query() const noexcept {
    if (!core_ || core_->dead()) return detail::empty_handle("psp.query", return_subtype::handle_psp);
    return psp_params{core_->service(), evd_id(core_->evd_number()),
                      core_->makes_eps() ? psp_flags::provider : psp_flags::consumer};
  }

  explicit operator bool() const noexcept { return static_cast<bool>(core_); }

  /// The listening rdma_cm id.
  [[nodiscard]] rdma_cm_id* native_handle() const noexcept { return core_ ? core_->id() : nullptr; }

private:
  friend dat::object<psp, object_kind::psp>;
  friend class ia;
  explicit psp(detail::ref<detail::service_point> core) noexcept : core_(std::move(core)) {}
  [[nodiscard]] auto* entity() const noexcept { return core_.get(); }
  detail::handle<detail::service_point> core_;
};

} // namespace dat::inline v0

template <>
struct std::hash<dat::psp> : dat::detail::handle_hash<dat::psp> {};
