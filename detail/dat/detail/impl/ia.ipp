// Definitions of dat::ia.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ia.hpp>

#include <dat/detail/adapter/attributes_query.hpp>
#include <dat/detail/discovery/find_adapter.hpp>
#include <dat/detail/discovery/registered_names.hpp>

#include <limits>

namespace dat { inline namespace v0 {

DAT_DECL expected<ia> ia::open(const ia_options& options) noexcept { return make(detail::first_adapter(), options); }
DAT_DECL expected<ia> ia::open(std::string_view name, const ia_options& options) noexcept {
  // The name counts as open before it is found: see registry::open.
  auto in_use = detail::registered_names::of_process()->hold(name);
  if (!in_use)
    return error(return_type::insufficient_resources, return_subtype::resource_memory).at("ia.open", object_kind::ia);
  auto opened = make(detail::adapter_named(name), options);
  if (opened) {
    detail::ia_core& core = *opened.assume_value().core_.get();
    core.set_opened_as(name);
    core.keep_until_closed(std::move(in_use));
  }
  return opened;
}
DAT_DECL expected<ia> ia::open(const ia_address& local, const ia_options& options) noexcept {
  return make(detail::adapter_at(local), options);
}
DAT_DECL expected<ia> ia::open_by_route(const std::string& remote, const ia_options& options, timeout limit) noexcept {
  return make(detail::adapter_reaching(remote, limit), options);
}

DAT_DECL expected<ia> ia::make(detail::result<detail::adapter_location> where, const ia_options& options) noexcept {
  if (!where) return where.assume_error();
  auto core = detail::ia_core::open(where.assume_value(), options.progress == progress::automatic, options.qos);
  if (!core) return core.assume_error();
  if (auto ok = detail::check_qos(options.qos, core.assume_value()->iwarp(), return_subtype::arg2); !ok)
    return ok.assume_error().at("ia.open", object_kind::ia);
  if (options.async_evd.out_of_scope_) return ia(std::move(core).assume_value());
  auto own = detail::async_evd_for(*core.assume_value(), options.async_evd.core_, options.async_qlen);
  if (!own) return own.assume_error();
  ia made(std::move(core).assume_value());
  made.async_evd_ = evd<streams::async>(std::move(own).assume_value());
  return made;
}

DAT_DECL expected<adapter_list> ia::list_adapters() noexcept { return detail::list_adapters("ia.list_adapters"); }
DAT_DECL expected<adapter_list> ia::list_adapters_near(std::uint32_t cpu) noexcept {
  return detail::list_adapters("ia.list_adapters_near", cpu);
}

DAT_DECL expected<void> ia::close(close_mode how) noexcept {
  if (!core_) return empty_handle("ia.close");
  if (how != close_mode::abrupt && how != close_mode::graceful)
    return error(return_type::invalid_parameter, return_subtype::arg2)
        .at("ia.close", object_kind::ia)
        .hint("`how` must be close_mode::abrupt or close_mode::graceful.");
  auto closed = core_.close(how == close_mode::graceful);
  if (closed) async_evd_ = {};
  return closed;
}

DAT_DECL expected<pz> ia::create_pz() noexcept {
  if (!core_) return empty_handle("ia.create_pz");
  auto core = detail::pz_core::create(core_.shared());
  if (!core) return core.assume_error();
  return pz(std::move(core).assume_value());
}

DAT_DECL expected<cno> ia::create_cno(const wait_proxy_agent& agent) noexcept {
  if (!core_) return empty_handle("ia.create_cno");
  auto core = detail::cno_core::create(core_.shared(), agent);
  if (!core) return core.assume_error();
  return cno(std::move(core).assume_value());
}

DAT_DECL expected<psp> ia::create_psp(conn_qual qualifier, const evd_ref<streams::connection_requests>& requests,
                                      psp_flags flags) noexcept {
  if (!core_) return empty_handle("ia.create_psp");
  if (auto ok = qualifier.check(); !ok) return ok.assume_error().at("ia.create_psp", object_kind::psp);
  return listen("ia.create_psp", qualifier.port(), requests, flags);
}
DAT_DECL expected<psp> ia::create_psp_any(const evd_ref<streams::connection_requests>& requests,
                                          psp_flags flags) noexcept {
  return listen("ia.create_psp_any", 0, requests, flags);
}
DAT_DECL expected<psp> ia::listen(const char* call, std::uint16_t port,
                                  const evd_ref<streams::connection_requests>& requests, psp_flags flags) noexcept {
  if (!core_) return empty_handle(call);
  if (flags != psp_flags::consumer && flags != psp_flags::provider)
    return error(return_type::invalid_parameter, return_subtype::arg4)
        .at(call, object_kind::psp, port)
        .hint("The flags of a psp are dat::psp_flags::consumer and dat::psp_flags::provider.");
  auto core = detail::service_point::create(core_.shared(), detail::core_access::of(requests),
                                            {.call = call,
                                             .port = port,
                                             .makes_eps = flags == psp_flags::provider,
                                             .endpoints = &detail::ep_core::request_functions});
  if (!core) return core.assume_error();
  return psp(std::move(core).assume_value());
}

DAT_DECL ia_address ia::address() const noexcept {
  for (const auto family : {address_family::ipv4, address_family::ipv6})
    if (const ia_address* a = core_ ? core_->address(family) : nullptr) return *a;
  return {};
}
DAT_DECL expected<ia_address> ia::address(address_family family) const noexcept {
  if (!core_) return empty_handle("ia.address");
  const ia_address* a = core_->address(family);
  if (!a)
    return error(return_type::invalid_address, return_subtype::address_unsupported)
        .at("ia.address", object_kind::ia)
        .hint("The adapter's interface has no address of this family.");
  return *a;
}

DAT_DECL void ia::run(std::chrono::milliseconds limit) noexcept {
  constexpr auto most = std::numeric_limits<int>::max();
  if (core_) core_->progress(limit.count() > most ? most : limit.count() < 0 ? 0 : static_cast<int>(limit.count()));
}

template <class Core, class Wanted>
expected<cookie> ia::find_context(Wanted wanted) const noexcept {
  static constexpr const char* call = "ia.context_of";
  if (!core_) return empty_handle(call);
  const auto found = core_.shared()->find(
      Core::kind_of_child, [&](detail::ia_child& c) noexcept { return wanted(static_cast<const Core&>(c)); });
  if (!found)
    return error(return_type::invalid_handle)
        .at(call, object_kind::ia)
        .hint("No object of the ia has that id: it has ended, or is of another ia.");
  return cookie(found->consumer_context.load(std::memory_order_acquire));
}
DAT_DECL expected<cookie> ia::context_of(evd_id evd) const noexcept {
  return find_context<detail::evd_core>([&](const detail::evd_core& e) noexcept { return e.number() == evd.number(); });
}
DAT_DECL expected<cookie> ia::context_of(const service_id& service) const noexcept {
  return find_context<detail::service_point>(
      [&](const detail::service_point& s) noexcept { return s.service() == service; });
}

DAT_DECL bool async_event::is_of(const ia& a) const noexcept {
  return what_.context && what_.context == a.native_handle();
}

}} // namespace dat::v0
