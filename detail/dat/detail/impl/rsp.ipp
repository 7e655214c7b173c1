// Definitions of rsp.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/rsp.hpp>

namespace dat { inline namespace v0 {

DAT_DECL expected<void> rsp::close() noexcept { return close_as("rsp.close"); }

DAT_DECL expected<rsp_params> rsp::query() const noexcept {
  if (!alive()) return empty_handle("rsp.query");
  return rsp_params{core_->service(), evd_id(core_->evd_number()),
                    ep_ref(static_cast<detail::ep_core*>(core_->endpoint().get()))};
}

DAT_DECL expected<rsp> ia::create_rsp(conn_qual qualifier, const ep<rc>& with,
                                      const evd_ref<streams::connection_requests>& requests) noexcept {
  static constexpr const char* call = "ia.create_rsp";
  if (!core_) return empty_handle(call);
  if (!with) return detail::empty_handle(call, return_subtype::handle_ep);
  if (auto ok = qualifier.check(); !ok) return ok.assume_error().at(call, object_kind::rsp);
  auto core = detail::service_point::create(core_.shared(), detail::core_access::of(requests),
                                            {.call = call,
                                             .kind = service_kind::rsp,
                                             .port = qualifier.port(),
                                             .ep = detail::ref<detail::ia_child>(detail::core_access::of(with)),
                                             .endpoints = &detail::ep_core::request_functions});
  if (!core) return core.assume_error();
  return rsp(std::move(core).assume_value());
}

DAT_DECL expected<rsp> ia::create_rsp(conn_qual qualifier,
                                      const evd_ref<streams::connection_requests>& requests) noexcept {
  static constexpr const char* call = "ia.create_rsp";
  if (!core_) return empty_handle(call);
  if (auto ok = qualifier.check(); !ok) return ok.assume_error().at(call, object_kind::rsp);
  auto core = detail::service_point::create(core_.shared(), detail::core_access::of(requests),
                                            {.call = call,
                                             .kind = service_kind::rsp,
                                             .port = qualifier.port(),
                                             .makes_eps = true,
                                             .endpoints = &detail::ep_core::request_functions});
  if (!core) return core.assume_error();
  return rsp(std::move(core).assume_value());
}

}} // namespace dat::v0
