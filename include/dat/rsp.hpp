// Reserved service points: one endpoint waits for one request.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ia.hpp>
#include <dat/object.hpp>

#include <utility>

namespace dat::inline v0 {

/// What a reserved service point was created with (DAT_RSP_PARAM).
struct rsp_params {
  service_id id;   ///< `id.port()` is the connection qualifier
  evd_id requests; ///< the evd that gets the request
  ep_ref ep;       ///< the endpoint, while it waits for the request or for its answer
};

/// Listens for one request, which is accepted on the endpoint that was given to `ia::create_rsp` (uDAPL 2.0 §6.4.4.3).
/// All later ones are refused as if nobody listened; the qualifier stays taken until `close`.
///
///     auto rsp = ia.create_rsp(7471, ep, evd);
///     auto request = evd.wait_for<dat::connection_request>();
///     request->accept(); // on ep
///
/// The endpoint is `reserved` from creation on, and `passive_connection_pending` from the request to its answer: it
/// takes receives, and cannot be connected or closed. A handle of it that is dropped meanwhile ends it all the same;
/// the request can only be rejected then.
///
/// Move-only. Thread safety: queries are safe; `close` and destruction must not overlap other uses.
class rsp : public dat::object<rsp, object_kind::rsp> {
public:
  rsp() noexcept = default; ///< names no service point
  rsp(rsp&&) noexcept = default;
  rsp& operator=(rsp&&) noexcept = default;
  ~rsp() = default;

  /// Stops listening (uDAPL 2.0 §6.4.4.3.2). An endpoint whose request has not come is unconnected again, with its
  /// receives; a request that has come stays answerable, so look at the endpoint's state or the evd. Errors:
  /// `invalid_handle`. Blocks: no.
  expected<void> close() noexcept { return core_.close("rsp.close", return_subtype::handle_rsp); }

  /// The port it listens on, in host byte order; 0 for an empty handle.
  [[nodiscard]] std::uint16_t port() const noexcept { return core_ ? core_->port() : std::uint16_t{0}; }
  /// What its request calls it: `cr::service()`.
  [[nodiscard]] service_id id() const noexcept { return core_ ? core_->service() : service_id(); }
  /// What it was created with (uDAPL 2.0 §6.4.4.3.3). Errors: `invalid_handle`.
  [[nodiscard]] expected<rsp_params> query() const noexcept {
    if (!core_ || core_->dead()) return detail::empty_handle("rsp.query", return_subtype::handle_rsp);
    return rsp_params{core_->service(), evd_id(core_->evd_number()), ep_ref(core_->endpoint().get())};
  }

  explicit operator bool() const noexcept { return static_cast<bool>(core_); }

  /// The listening rdma_cm id.
  [[nodiscard]] rdma_cm_id* native_handle() const noexcept { return core_ ? core_->id() : nullptr; }

private:
  friend dat::object<rsp, object_kind::rsp>;
  friend class ia;
  explicit rsp(detail::ref<detail::service_point> core) noexcept : core_(std::move(core)) {}
  [[nodiscard]] auto* entity() const noexcept { return core_.get(); }
  detail::handle<detail::service_point> core_;
};

inline expected<rsp> ia::create_rsp(conn_qual qualifier, const ep<rc>& with,
                                    const evd_ref<connection_requests>& requests) noexcept {
  static constexpr const char* call = "ia.create_rsp";
  if (!core_) return detail::empty_handle(call, return_subtype::handle_ia);
  if (!with) return detail::empty_handle(call, return_subtype::handle_ep);
  auto core = detail::service_point::create(
      core_.shared(), requests.shared(),
      {.call = call, .kind = service_kind::rsp, .port = qualifier.port(), .ep = with.core_.shared()});
  if (!core) return core.assume_error();
  return rsp(std::move(core).assume_value());
}

inline expected<rsp> ia::create_rsp(conn_qual qualifier, const evd_ref<connection_requests>& requests) noexcept {
  static constexpr const char* call = "ia.create_rsp";
  if (!core_) return detail::empty_handle(call, return_subtype::handle_ia);
  auto core = detail::service_point::create(
      core_.shared(), requests.shared(),
      {.call = call, .kind = service_kind::rsp, .port = qualifier.port(), .makes_eps = true});
  if (!core) return core.assume_error();
  return rsp(std::move(core).assume_value());
}

} // namespace dat::inline v0

template <>
struct std::hash<dat::rsp> : dat::detail::handle_hash<dat::rsp> {};
