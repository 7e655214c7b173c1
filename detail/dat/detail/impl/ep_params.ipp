// Definitions of ep_params.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ep_params.hpp>

#include <dat/detail/endpoint/core.hpp>

namespace dat { inline namespace v0 {

namespace detail {

/// Whether receives of an endpoint in this state may have completions that are still in the device's queue.
[[nodiscard]] constexpr bool may_have_completed(ep_state s) noexcept {
  return s == ep_state::active_connection_pending || s >= ep_state::connected;
}

} // namespace detail

DAT_DECL expected<void> ep<rc>::modify(const ep_changes& wanted) noexcept {
  static constexpr const char* call = "ep.modify";
  if (!usable()) return empty_handle(call);
  if (wanted.pz && !*wanted.pz) return detail::empty_handle(call, return_subtype::handle_pz);
  auto evds = ep_evds{wanted.recv, wanted.request, wanted.connect}.shared();
  if (!evds) return core_->at(evds.assume_error(), call);
  return core_->modify({wanted.pz ? detail::core_access::of(*wanted.pz) : detail::ref<detail::pz_core>(),
                        evds.assume_value(), wanted.local_address, wanted.comm, &wanted});
}

DAT_DECL expected<ep_params> ep<rc>::read_params() const noexcept {
  if (!usable() || core_->state() == detail::ep_dead) return empty_handle("ep.query");
  ep_params p;
  core_->locked([&](detail::ep_core& e) {
    p.state = e.state();
    p.number = e.number();
    p.attributes = e.attributes();
    p.attributes.max_message_size = e.max_message();
    p.attributes.max_rdma_read_in = e.responder_resources();
    p.attributes.max_rdma_read_out = p.attributes.max_rdma_read_out.value_or(e.initiator_depth());
    p.attributes.soft_high_watermark = e.soft_watermark();
    p.attributes.hard_high_watermark = e.hard_watermark();
    if (e.srq()) {
      p.srq = srq_ref(e.srq().get());
      p.attributes.max_recv_dtos = e.hard_watermark();
      p.attributes.max_recv_iov = 0;
    }
    p.comm = p.attributes.comm;
    p.has_pz = e.pz() != nullptr;
    const auto id = [](const auto& evd) { return evd ? evd_id(evd->number()) : evd_id(); };
    p.recv = id(e.evds().recv);
    p.request = id(e.evds().request);
    p.connect = id(e.evds().connect);
    p.local_address = e.local_address();
    if (e.local_address() == ia_address())
      for (const auto family : {address_family::ipv6, address_family::ipv4})
        if (const ia_address* own = e.ia().address(family)) p.local_address = *own;
    if (!e.connection() || p.state == ep_state::disconnected) return;
    p.remote_address = e.connection()->remote_address();
    p.local_address = e.connection()->local_address();
    if (p.comm == communicator{} && e.connection()->passive())
      p.comm = {p.local_address.family() == address_family::ipv4 ? AF_INET : AF_INET6, SOCK_STREAM, IPPROTO_TCP};
  });
  return p;
}

DAT_DECL expected<ep_status> ep<rc>::read_status() const noexcept {
  if (!usable() || core_->state() == detail::ep_dead) return empty_handle("ep.status");
  const ep_state s = core_->state();
  if (detail::is_unconfigured(s)) // there is no request queue yet, and with an srq no receive queue
    return ep_status{s, core_->shares_receives() || core_->receives().used() == 0, true};
  return ep_status{s, core_->receives().used() == 0, core_->requests().used() == 0};
}

DAT_DECL expected<ep_recv_buffers> ep<rc>::read_recv_buffers() const noexcept {
  if (!usable() || core_->state() == detail::ep_dead) return empty_handle("ep.recv_query");
  if (core_->shares_receives()) return ep_recv_buffers{std::nullopt, std::nullopt};
  std::optional<std::uint32_t> n;
  core_->locked([&](detail::ep_core& e) {
    n = e.receives().used();
    if (detail::merged_evd* const m = detail::merged(e.evds().recv.get()))
      n = m->count_not_completed(e.receives());
    else if (*n != 0 && detail::may_have_completed(e.state()))
      n.reset(); // only the consumer takes completions from the device
  });
  return ep_recv_buffers{n, n};
}

DAT_DECL expected<void> ep<rc>::set_watermark(std::uint32_t soft, std::uint32_t hard) noexcept {
  static constexpr const char* call = "ep.set_watermark";
  if (!usable() || core_->state() == detail::ep_dead) return empty_handle(call);
  return core_->set_watermark(soft, hard);
}

}} // namespace dat::v0
