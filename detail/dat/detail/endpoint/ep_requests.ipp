// Definitions of ep_core: the endpoints of service points, which requests reserve or create.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/connection/service_point.hpp>
#include <dat/detail/endpoint/ep_core.hpp>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL const request_endpoints ep_core::request_functions = {
    [](ia_child& ep, const char* call, const ia_core& of) noexcept {
      return static_cast<ep_core&>(ep).reserve(call, of);
    },
    [](ia_child& ep) noexcept { static_cast<ep_core&>(ep).unreserve(); },
    &ep_core::create_for,
    [](ia_child& ep, const ref<connection_state>& request, bool (*push)(void*) noexcept, void* context) noexcept {
      return static_cast<ep_core&>(ep).take_request(request, push, context);
    },
    [](ia_child& ep, const service_id& service) noexcept { return static_cast<ep_core&>(ep).has_request_of(service); },
    [](ia_child& ep) noexcept { static_cast<ep_core&>(ep).request_gone(); }};

DAT_DECL ref<ia_child> ep_core::create_for(const ref<connection_state>& request) noexcept {
  // The number of reads that the peer runs is the number that this side serves, and the other way round.
  const ibv_device_attr& device = request->ia().device();
  const auto can = [](std::uint8_t wanted, int limit) { return static_cast<std::uint8_t>(min<int>(wanted, limit)); };
  ep_attributes a;
  a.max_rdma_read_in = can(request->peer_initiator_depth(), device.max_qp_rd_atom);
  a.max_rdma_read_out = can(request->peer_responder_resources(), device.max_qp_init_rd_atom);
  auto made = create("ia.create_psp", ref(&request->ia()), {}, {}, a);
  if (!made) return {};
  ref<ep_core> ep = std::move(made).assume_value();
  ep->connection_ = request;
  ep->set_state(ep_state::unconfigured_tentative);
  return ref<ia_child>(ep.detach(), adopt);
}

DAT_DECL expected<void> ep_core::reserve(const char* call, const ia_core& of) noexcept {
  if (&of != &ia())
    return at(error(return_type::invalid_handle, return_subtype::handle_ep), call)
        .hint("The endpoint belongs to another ia.");
  const std::lock_guard lock(mutex_);
  const ep_state s = state();
  if (s != ep_state::unconnected && s != ep_state::unconfigured_unconnected) return wrong_state(call);
  set_state(s == ep_state::unconnected ? ep_state::reserved : ep_state::unconfigured_reserved);
  return success();
}

DAT_DECL void ep_core::unreserve() noexcept {
  const std::lock_guard lock(mutex_);
  if (state() == ep_state::reserved) set_state(ep_state::unconnected);
  if (state() == ep_state::unconfigured_reserved) set_state(ep_state::unconfigured_unconnected);
}

DAT_DECL bool ep_core::take_request(const ref<connection_state>& request, bool (*push)(void*) noexcept,
                                    void* context) noexcept {
  const std::lock_guard lock(mutex_);
  const ep_state s = state();
  if (s != ep_state::reserved && s != ep_state::unconfigured_reserved) return false;
  // Changes the state first, so that a thread that takes the event sees the state.
  connection_ = request;
  pending_ = request->service();
  request->set_endpoint(ref<ia_child>(this), &request_functions);
  set_state(s == ep_state::reserved ? ep_state::passive_connection_pending : ep_state::unconfigured_passive);
  if (push(context)) return true;
  connection_ = {};
  request->set_endpoint({}, nullptr);
  set_state(s);
  return false;
}

DAT_DECL bool ep_core::has_request_of(const service_id& service) noexcept {
  const std::lock_guard lock(mutex_);
  return (state() == ep_state::passive_connection_pending || state() == ep_state::unconfigured_passive) &&
         pending_ == service;
}

DAT_DECL void ep_core::request_gone() noexcept {
  ref<connection_state> last; // released without the lock
  {
    const std::lock_guard lock(mutex_);
    switch (state()) {
    case ep_state::passive_connection_pending:
      set_state(ep_state::unconnected);
      break;
    case ep_state::unconfigured_passive:
      set_state(ep_state::unconfigured_unconnected);
      break;
    case ep_state::tentative_connection_pending:
    case ep_state::unconfigured_tentative:
      break;
    default:
      return; // ended meanwhile
    }
    last = std::move(connection_);
    if (state() == ep_state::unconnected || state() == ep_state::unconfigured_unconnected) return;
  }
  end(); // the endpoint was created for that request
}

DAT_DECL expected<void> ep_core::check_free() const noexcept {
  switch (state()) {
  case ep_state::reserved:
  case ep_state::unconfigured_reserved:
    return wrong_state("ep.close").hint("A reserved service point holds the endpoint: close the service point first.");
  case ep_state::passive_connection_pending:
  case ep_state::unconfigured_passive:
  case ep_state::tentative_connection_pending:
  case ep_state::unconfigured_tentative:
    return wrong_state("ep.close")
        .hint("A connection request holds the endpoint: accept, reject or drop the request first.");
  default:
    return success();
  }
}

}}} // namespace dat::v0::detail
