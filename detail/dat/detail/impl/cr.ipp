// Definitions of cr.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/cr.hpp>

#include <utility>

namespace dat { inline namespace v0 {

DAT_DECL cr::cr(detail::event_key, detail::request_ref r) noexcept : unique_object(std::move(r)) {
  // For the consumer that gets it, a request that was handed off is a new request.
  core_.get()->consumer_context.store(0, std::memory_order_relaxed);
  if (auto* made = endpoint(); made && made->state() == ep_state::unconfigured_tentative)
    ep_ = dat::ep<rc>(detail::ref<detail::ep_core>(made));
}

DAT_DECL expected<cr_params> cr::query() const noexcept {
  if (!usable() || core()->ia().closed()) return empty_handle("cr.query");
  return cr_params{remote_address(), local_address(), private_data(), service(), local_ep()};
}

DAT_DECL std::span<const std::byte> cr::private_data() const noexcept {
  return core_ ? core_.get()->private_data() : std::span<const std::byte>();
}
DAT_DECL ia_address cr::remote_address() const noexcept { return core_ ? core_.get()->remote_address() : ia_address(); }
DAT_DECL ia_address cr::local_address() const noexcept { return core_ ? core_.get()->local_address() : ia_address(); }
DAT_DECL service_id cr::service() const noexcept { return core_ ? core()->service() : service_id(); }
DAT_DECL ep_ref cr::local_ep() const noexcept { return ep_ref(core_ ? endpoint() : nullptr); }

DAT_DECL expected<void> cr::accept_on_given(detail::ep_core* with, std::span<const std::byte> data,
                                            const connect_options& options) noexcept {
  static constexpr const char* call = "cr.accept";
  if (!usable()) return empty_handle(call);
  if (!with) return detail::empty_handle(call, return_subtype::handle_ep);
  if (endpoint())
    return error(return_type::invalid_parameter, return_subtype::arg2)
        .at(call, object_kind::cr, service().port())
        .hint("The request has an endpoint: call accept() without another one.");
  return accept_on(*with, data, options);
}

DAT_DECL expected<void> cr::accept(std::span<const std::byte> data, const connect_options& options) noexcept {
  static constexpr const char* call = "cr.accept";
  if (!usable()) return empty_handle(call);
  if (!endpoint())
    return error(return_type::invalid_handle, return_subtype::handle_ep)
        .at(call, object_kind::cr, service().port())
        .hint("The request has no endpoint: call accept(ep).");
  return accept_on(*endpoint(), data, options);
}

DAT_DECL expected<void> cr::accept_on(detail::ep_core& with, std::span<const std::byte> data,
                                      const connect_options& options) noexcept {
  auto r = with.accept(*core(), data, options);
  if (r) core_.done();
  return r;
}

DAT_DECL expected<void> cr::reject(std::span<const std::byte> data) noexcept {
  if (!usable()) return empty_handle("cr.reject");
  auto r = core()->reject(data);
  if (r) answered();
  return r;
}

DAT_DECL expected<void> cr::handoff(conn_qual to) noexcept {
  if (!usable()) return empty_handle("cr.handoff");
  if (auto ok = to.check(); !ok) return ok.assume_error().at("cr.handoff", object_kind::cr);
  auto r = core()->hand_off(to.port());
  if (r) answered();
  return r;
}

}} // namespace dat::v0
