// Definitions of ud.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ud.hpp>

#include <cerrno>
#include <cstring>

namespace dat { inline namespace v0 {

DAT_DECL expected<void> ep<ud>::connect(const ia_address& remote, conn_qual qualifier, timeout limit,
                                        std::span<const std::byte> data) noexcept {
  if (!alive()) return empty_handle("ep.connect");
  if (auto ok = qualifier.check(); !ok) return ok.assume_error().at("ep.connect", object_kind::ep, number());
  return detail::ud_core::of(*core_)->connect(core_.shared(), remote, qualifier.port(), limit, data);
}

DAT_DECL expected<ib::datagram_address> ep<ud>::address(address_family family) const noexcept {
  static constexpr const char* call = "ep.address";
  if (!alive()) return empty_handle(call);
  auto here = detail::place_of(core_->ia(), family == address_family::ipv4);
  if (!here) return core_->at(here.assume_error(), call);
  const detail::qp_place& p = here.assume_value().place;
  ib::datagram_address a;
  std::memcpy(a.gid.data(), p.gid.raw, sizeof p.gid.raw);
  a.lid = p.lid;
  a.qp_number = number();
  return a;
}

DAT_DECL expected<ib::address_handle> ep<ud>::address_of(const ib::datagram_address& peer,
                                                         const qos& quality) const noexcept {
  static constexpr const char* call = "ep.address_of";
  if (!alive()) return empty_handle(call);
  detail::qp_place p;
  std::memcpy(p.gid.raw, peer.gid.data(), sizeof p.gid.raw);
  p.lid = peer.lid;
  auto path = detail::path_to(core_->ia(), p);
  if (!path) return core_->at(path.assume_error(), call);
  return make(call, {path.assume_value(), peer.qp_number, peer.qkey}, quality);
}

DAT_DECL expected<ib::address_handle> ep<ud>::reply_to(const ib::datagram_recv_done& message, const ib::grh& header,
                                                       std::uint32_t qkey) const noexcept {
  static constexpr const char* call = "ep.reply_to";
  if (!alive()) return empty_handle(call);
  ibv_wc wc = detail::datagram_access::completion_of(message);
  ibv_grh raw;
  std::memcpy(static_cast<void*>(&raw), header.bytes().data(), sizeof raw);
  static_assert(sizeof raw == ib::grh::size);
  detail::datagram_target to;
  if (ibv_init_ah_from_wc(core_->ia().context(), core_->ia().where().port, &wc, &raw, &to.path) != 0)
    return core_->at(error(return_type::invalid_address, return_subtype::address_unreachable)
                         .from("ibv_init_ah_from_wc", errno)
                         .hint("The header is not that of the message, or the message was sent to an address that this "
                               "port no longer has."),
                     call);
  to.qp_num = wc.src_qp;
  to.qkey = qkey;
  return make(call, to);
}

DAT_DECL expected<ib::address_handle> ep<ud>::connect(const ib::descriptor& peer, const qos& quality) const noexcept {
  static constexpr const char* call = "ep.connect";
  if (!alive()) return empty_handle(call);
  const detail::direct_peer& raw = detail::descriptor_access::of(peer);
  if (auto ok = detail::check_descriptor(core_->ia(), raw, detail::direct_peer::datagrams); !ok)
    return core_->at(ok.assume_error(), call);
  auto path = detail::path_to(core_->ia(), raw.place);
  if (!path) return core_->at(path.assume_error(), call);
  return make(call, {path.assume_value(), raw.place.qp_num, raw.place.qkey}, quality);
}

DAT_DECL expected<ib::descriptor> ep<ud>::export_descriptor(address_family family) const noexcept {
  static constexpr const char* call = "ep.export_descriptor";
  if (!alive()) return empty_handle(call);
  auto raw = core_->describe(call, family);
  if (!raw) return raw.assume_error();
  return detail::descriptor_access::make(raw.assume_value());
}

DAT_DECL expected<void> ep<ud>::disconnect() noexcept {
  if (!alive()) return empty_handle("ep.disconnect");
  return detail::ud_core::of(*core_)->disconnect();
}

DAT_DECL expected<void> ep<ud>::reset() noexcept {
  if (!alive()) return empty_handle("ep.reset");
  return core_->reset();
}

DAT_DECL expected<void> ep<ud>::close() noexcept {
  ref_ = {};
  return close_as("ep.close");
}

DAT_DECL expected<ep<ud>> ep<ud>::create(const detail::ref<detail::pz_core>& pz, const ib::datagram_evds& evds,
                                         const ep_attributes& attributes) noexcept {
  static constexpr const char* call = "pz.create_ep";
  if (!pz) return detail::empty_handle(call, return_subtype::handle_pz);
  auto core = detail::ud_core::create_ep(call, pz, evds.shared(), attributes);
  if (!core) return core.assume_error();
  return ep(std::move(core).assume_value());
}

DAT_DECL expected<void> ib::datagram_request::accept(ep<ud>& with, std::span<const std::byte> data) noexcept {
  static constexpr const char* call = "datagram_request.accept";
  if (!request_) return detail::empty_handle(call, return_subtype::handle_cr);
  detail::ep_core* const ep = detail::core_access::of(with);
  if (!ep || ep->dead()) return detail::empty_handle(call, return_subtype::handle_ep);
  auto r = core()->accept(*ep, data);
  if (r) request_.done();
  return r;
}

DAT_DECL expected<void> ib::datagram_request::handoff(conn_qual to) noexcept {
  static constexpr const char* call = "datagram_request.handoff";
  if (!request_) return detail::empty_handle(call, return_subtype::handle_cr);
  if (auto ok = to.check(); !ok) return ok.assume_error().at(call, object_kind::cr);
  auto r = detail::ud_service::hand_off(detail::ref<detail::ud_connection>(core()), to.port());
  if (r) request_.done();
  return r;
}

DAT_DECL expected<ib::datagram_service>
ib::datagram_service::listen(ia& at, conn_qual qualifier,
                             const evd_ref<streams::connection_requests | streams::datagrams>& requests) noexcept {
  if (!at) return detail::empty_handle("datagram_service.listen", return_subtype::handle_ia);
  if (auto ok = qualifier.check(); !ok) return ok.assume_error().at("datagram_service.listen");
  auto core =
      detail::ud_service::create(detail::core_access::of(at), detail::core_access::of(requests), qualifier.port());
  if (!core) return core.assume_error();
  return datagram_service(std::move(core).assume_value());
}

}} // namespace dat::v0
