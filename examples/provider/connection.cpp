// Service points, connection requests, and connecting.
// SPDX-License-Identifier: BSL-1.0
#include "entries.hpp"

namespace provider {
namespace {

constexpr auto requests_stream = dat::streams::connection_requests;

// --- public, reserved and common service points

/// Creates a psp, on a free port for `any`.
[[nodiscard]] DAT_RETURN listen(const entry_call<adapter>& a, DAT_CONN_QUAL* qual, bool any, DAT_EVD_HANDLE evd,
                                DAT_PSP_FLAGS flags, DAT_PSP_HANDLE* psp) noexcept {
  const auto requests = evd_for<requests_stream>(*a, evd, return_subtype::handle_evd_cr);
  if (!requests) return word(requests);
  if (flags != DAT_PSP_CONSUMER_FLAG && flags != DAT_PSP_PROVIDER_FLAG) return a.bad_argument(4);
  if (!psp) return a.bad_argument(5);
  if (!qual) return a.bad_argument(2);
  const auto to_flags = static_cast<dat::psp_flags>(flags);
  auto made = [&]() -> dat::expected<dat::psp> {
    if (any) return a->ia.create_psp_any(requests.assume_value(), to_flags);
    const auto qualifier = to_port(*qual);
    if (!qualifier) return dat::error(return_type::invalid_parameter, return_subtype::arg2);
    return a->ia.create_psp(qualifier.assume_value(), requests.assume_value(), to_flags);
  }();
  if (!made) return word(made);
  auto p = make_object<psp_object>(*a, std::move(made).assume_value(), evd);
  if (!p) return a.no_memory();
  p->flags = flags;
  *qual = p->point.port();
  // C has one call for both services. If the port of datagrams is taken, connections can still be requested.
  if (a->attributes.extension_supported == dat::extension::infiniband) {
    const auto both = evd_for<requests_stream | dat::streams::datagrams>(*a, evd, return_subtype::handle_evd_cr);
    auto datagrams = dat::ib::datagram_service::listen(a->ia, p->point.port(), both.assume_value());
    if (datagrams) p->datagrams = std::move(datagrams).assume_value();
  }
  return issue(*a, std::move(p), psp, any ? DCNT_IA_PSP_CREATE_ANY : DCNT_IA_PSP_CREATE, a.name());
}

[[nodiscard]] DAT_RETURN create_rsp(const entry_call<adapter>& a, DAT_CONN_QUAL qual, DAT_EP_HANDLE ep,
                                    DAT_EVD_HANDLE evd, DAT_RSP_HANDLE* rsp) noexcept {
  const call_on<ep_object> with(ep);
  if (ep && (!with || &with->ia != a.get() || with->is_datagram())) return a.bad_handle(return_subtype::handle_ep);
  const auto requests = evd_for<requests_stream>(*a, evd, return_subtype::handle_evd_cr);
  if (!requests) return word(requests);
  const auto qualifier = to_port(qual);
  if (!qualifier) return a.bad_argument(2);
  if (!rsp) return a.bad_argument(5);
  auto made = with ? a->ia.create_rsp(qualifier.assume_value(), with->rc, requests.assume_value())
                   : a->ia.create_rsp(qualifier.assume_value(), requests.assume_value());
  return issue<rsp_object>(*a, std::move(made), rsp, DCNT_IA_RSP_CREATE, a.name(), evd);
}

[[nodiscard]] dat::expected<DAT_RSP_PARAM> parameters(const rsp_object& r) noexcept {
  const auto from = r.point.query();
  if (!from) return from.assume_error();
  return DAT_RSP_PARAM{r.ia.self, r.id.port(), r.evd, from.assume_value().ep.context<handle>()};
}

[[nodiscard]] DAT_RETURN create_csp(const entry_call<adapter>& a, DAT_COMM* comm, DAT_IA_ADDRESS_PTR address,
                                    DAT_EVD_HANDLE evd, DAT_CSP_HANDLE* csp) noexcept {
  if (!comm) return a.bad_argument(2);
  const auto requests = evd_for<requests_stream>(*a, evd, return_subtype::handle_evd_cr);
  if (!requests) return word(requests);
  const auto at = to_address(address);
  if (address && !at) return a.bad_argument(3);
  if (!csp) return a.bad_argument(5);
  const dat::communicator kind{comm->domain, comm->type, comm->protocol};
  auto made = address ? a->ia.create_csp(kind, at.assume_value(), requests.assume_value())
                      : a->ia.create_csp(kind, requests.assume_value());
  return issue<csp_object>(*a, std::move(made), csp, DCNT_IA_PSP_CREATE, a.name(), evd);
}

[[nodiscard]] dat::expected<DAT_CSP_PARAM> parameters(csp_object& c) noexcept {
  const auto from = c.point.query();
  if (!from) return from.assume_error();
  const dat::csp_params& p = from.assume_value();
  const std::lock_guard lock(c.mutex);
  c.comm = {p.comm.domain, p.comm.type, p.comm.protocol};
  return DAT_CSP_PARAM{c.ia.self, &c.comm, keep(c.address, p.address), c.evd};
}

// --- connection requests

[[nodiscard]] DAT_CR_PARAM parameters(cr_object& r) noexcept {
  const auto port = r.cr ? r.cr.remote_address().port() : r.datagrams.remote_address().port();
  return {reinterpret_cast<DAT_IA_ADDRESS_PTR>(&r.remote), port, r.private_data.size(), r.private_data.data(),
          r.local_ep};
}

[[nodiscard]] DAT_RETURN accept(const entry_call<cr_object>& cr, DAT_EP_HANDLE ep, DAT_COUNT size,
                                DAT_PVOID data) noexcept {
  return end_object(cr, [&](cr_object& r) {
    if (!is_range(data, size)) return cr.bad_argument(3);
    const call_on<ep_object> with(ep ? ep : r.local_ep);
    if (!with) return cr.bad_handle(return_subtype::handle_ep);
    if (static_cast<bool>(r.datagrams) != with->is_datagram()) return cr.bad_argument(2);
    if (r.datagrams) return word(r.datagrams.accept(with->ud, to_bytes(data, size)));
    // The endpoint that a request contains may also be named, as consumers of DAT 1 do.
    if (r.local_ep && ep && ep != r.local_ep) return cr.bad_argument(2);
    const auto accepted = r.local_ep ? r.cr.accept(to_bytes(data, size)) : r.cr.accept(with->rc, to_bytes(data, size));
    if (accepted) with->made_for_request = false;
    if (accepted) r.ia.counters.add(DCNT_IA_SP_CR_ACCEPTED);
    return word(accepted);
  });
}

/// Ends a request without a connection: `refuse(request)` refuses it or passes it on. The endpoint that was made for it
/// ends, too.
template <class Refuse>
[[nodiscard]] DAT_RETURN end_request(const entry_call<cr_object>& cr, Refuse refuse) noexcept {
  const DAT_EP_HANDLE ep = cr->local_ep;
  if (const DAT_RETURN refused = end_object(cr, refuse)) return refused;
  const entry_call<ep_object> e(ep, cr.name());
  if (e && e->made_for_request) (void)end_object(e, [](ep_object&) { return success; });
  return success;
}

[[nodiscard]] DAT_RETURN reject(const entry_call<cr_object>& cr, DAT_COUNT size, DAT_PVOID data) noexcept {
  return end_request(cr, [&](cr_object& r) {
    if (!is_range(data, size)) return cr.bad_argument(2);
    const auto rejected = r.datagrams ? r.datagrams.reject(to_bytes(data, size)) : r.cr.reject(to_bytes(data, size));
    if (rejected) r.ia.counters.add(DCNT_IA_SP_CR_REJECTED);
    return word(rejected);
  });
}

[[nodiscard]] DAT_RETURN hand_off(const entry_call<cr_object>& cr, DAT_CONN_QUAL to) noexcept {
  return end_request(cr, [&](cr_object& r) {
    const auto qualifier = to_port(to);
    if (!qualifier) return cr.bad_argument(2);
    if (r.datagrams) return cr.refuse(return_type::model_not_supported);
    return word(r.cr.handoff(qualifier.assume_value()));
  });
}

// --- endpoints

/// Counts a call on an endpoint. No post may change the counters of the endpoint during the count.
void count(const ep_object& e, DAT_EP_COUNTERS which) noexcept {
  if (const post_to alone(e.self, handle::requests); alone) alone->counters.add(which);
}

[[nodiscard]] DAT_RETURN connect(const entry_call<ep_object>& e, DAT_IA_ADDRESS_PTR address, DAT_CONN_QUAL qual,
                                 DAT_TIMEOUT timeout, DAT_COUNT size, DAT_PVOID data, DAT_QOS qos,
                                 DAT_CONNECT_FLAGS flags) noexcept {
  const auto remote = to_address(address);
  if (!remote) return word(remote);
  const auto qualifier = to_port(qual);
  if (!qualifier) return e.bad_argument(3);
  if (!is_range(data, size)) return e.bad_argument(5);
  const auto quality = to_qos(qos);
  if (!quality) return e.bad_argument(7);
  if (!within(flags, DAT_CONNECT_MULTIPATH_REQUESTED_FLAG | DAT_CONNECT_MULTIPATH_REQUIRED_FLAG))
    return e.bad_argument(8);
  count(*e, DCNT_EP_CONNECT);
  if (e->is_datagram())
    return word(
        e->ud.connect(remote.assume_value(), qualifier.assume_value(), to_timeout(timeout), to_bytes(data, size)));
  return word(e->rc.connect(remote.assume_value(), qualifier.assume_value(), to_timeout(timeout), to_bytes(data, size),
                            {.qos = *quality, .multipath = static_cast<dat::multipath>(flags)}));
}

[[nodiscard]] DAT_RETURN common_connect(const entry_call<ep_object>& e, DAT_IA_ADDRESS_PTR address, DAT_TIMEOUT timeout,
                                        DAT_COUNT size, DAT_PVOID data) noexcept {
  if (e->is_datagram()) return e.bad_handle();
  const auto remote = to_address(address);
  if (!remote) return e.bad_argument(2); // DAT_INVALID_ADDRESS is no result of this call
  if (!is_range(data, size)) return e.bad_argument(4);
  count(*e, DCNT_EP_CONNECT);
  return word(e->rc.common_connect(remote.assume_value(), to_timeout(timeout), to_bytes(data, size)));
}

[[nodiscard]] DAT_RETURN dup_connect(const entry_call<ep_object>& e, DAT_EP_HANDLE original, DAT_TIMEOUT timeout,
                                     DAT_COUNT size, DAT_PVOID data, DAT_QOS qos) noexcept {
  const call_on<ep_object> from(original);
  if (e->is_datagram() || !from || from->is_datagram()) return e.bad_handle();
  if (!is_range(data, size)) return e.bad_argument(4);
  const auto quality = to_qos(qos);
  if (!quality) return e.bad_argument(6);
  count(*e, DCNT_EP_CONNECT);
  return word(e->rc.dup_connect(from->rc, to_timeout(timeout), to_bytes(data, size), *quality));
}

[[nodiscard]] DAT_RETURN disconnect(const entry_call<ep_object>& e, DAT_CLOSE_FLAGS flags) noexcept {
  if (flags != DAT_CLOSE_ABRUPT_FLAG && flags != DAT_CLOSE_GRACEFUL_FLAG) return e.bad_argument(2);
  count(*e, DCNT_EP_DISCONNECT);
  if (e->is_datagram()) return word(e->ud.disconnect());
  if (flags == DAT_CLOSE_ABRUPT_FLAG) return word(e->rc.disconnect());
  const post_to alone(e->self, handle::requests); // it posts a request
  return word(e->rc.disconnect(dat::close_mode::graceful));
}

} // namespace

void add_connection_entries(DAT_PROVIDER& table) noexcept {
  constexpr auto close_point = [](auto& o) { return o.point.close(); };
  table.psp_create_func =
      entry<adapter, "dat_psp_create">([](auto& a, DAT_CONN_QUAL qual, DAT_EVD_HANDLE evd, DAT_PSP_FLAGS flags,
                                          DAT_PSP_HANDLE* psp) { return listen(a, &qual, false, evd, flags, psp); });
  table.psp_create_any_func =
      entry<adapter, "dat_psp_create_any">([](auto& a, DAT_CONN_QUAL* qual, DAT_EVD_HANDLE evd, DAT_PSP_FLAGS flags,
                                              DAT_PSP_HANDLE* psp) { return listen(a, qual, true, evd, flags, psp); });
  table.psp_query_func = query<psp_object, "dat_psp_query", DAT_PSP_FIELD_ALL>([](auto& p) {
    return DAT_PSP_PARAM{p.ia.self, p.id.port(), p.evd, p.flags};
  });
  table.psp_free_func = free<psp_object, "dat_psp_free", DCNT_IA_PSP_FREE>(close_point);
  table.rsp_create_func = entry<adapter, "dat_rsp_create", create_rsp>();
  table.rsp_query_func = query<rsp_object, "dat_rsp_query", DAT_RSP_FIELD_ALL>([](auto& r) { return parameters(r); });
  table.rsp_free_func = free<rsp_object, "dat_rsp_free", DCNT_IA_RSP_FREE>(close_point);
  table.csp_create_func = entry<adapter, "dat_csp_create", create_csp>();
  table.csp_query_func = query<csp_object, "dat_csp_query", DAT_CSP_FIELD_ALL>([](auto& c) { return parameters(c); });
  table.csp_free_func = free<csp_object, "dat_csp_free", DCNT_IA_PSP_FREE>(close_point);

  table.cr_query_func = query<cr_object, "dat_cr_query", DAT_CR_FIELD_ALL>([](auto& r) { return parameters(r); });
  table.cr_accept_func = entry<cr_object, "dat_cr_accept", accept>();
  table.cr_reject_func = entry<cr_object, "dat_cr_reject", reject>();
  table.cr_handoff_func = entry<cr_object, "dat_cr_handoff", hand_off>();

  table.ep_connect_func = entry<ep_object, "dat_ep_connect", connect>();
  table.ep_common_connect_func = entry<ep_object, "dat_ep_common_connect", common_connect>();
  table.ep_dup_connect_func = entry<ep_object, "dat_ep_dup_connect", dup_connect>();
  table.ep_disconnect_func = entry<ep_object, "dat_ep_disconnect", disconnect>();
}

} // namespace provider
