// Service points, connection requests, and connecting.
// SPDX-License-Identifier: BSL-1.0
#include "calls.hpp"
#include "entries.hpp"

namespace provider {
namespace {

constexpr auto requests_stream = dat::streams::connection_requests;

[[nodiscard]] DAT_RETURN listen(const char* call, DAT_IA_HANDLE ia, DAT_CONN_QUAL* qual, bool any, DAT_EVD_HANDLE evd,
                                DAT_PSP_FLAGS flags, DAT_PSP_HANDLE* psp) noexcept {
  const entry_call<adapter> a(ia, call);
  if (!a) return a.bad_handle();
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

/// Counts a call on an endpoint, of which no post may change the counters meanwhile.
void count(DAT_EP_HANDLE ep, DAT_EP_COUNTERS which) noexcept {
  if (const post_to alone(ep, handle::requests); alone) alone->counters.add(which);
}

/// Ends a service point of dat.
constexpr auto close_point = [](auto& o) { return o.point.close(); };

} // namespace

// --- public, reserved and common service points

DAT_RETURN psp_create(DAT_IA_HANDLE ia, DAT_CONN_QUAL qual, DAT_EVD_HANDLE evd, DAT_PSP_FLAGS flags,
                      DAT_PSP_HANDLE* psp) {
  return listen("dat_psp_create", ia, &qual, false, evd, flags, psp);
}
DAT_RETURN psp_create_any(DAT_IA_HANDLE ia, DAT_CONN_QUAL* qual, DAT_EVD_HANDLE evd, DAT_PSP_FLAGS flags,
                          DAT_PSP_HANDLE* psp) {
  return listen("dat_psp_create_any", ia, qual, true, evd, flags, psp);
}
DAT_RETURN psp_free(DAT_PSP_HANDLE psp) {
  return end_object<psp_object>(psp, "dat_psp_free", DCNT_IA_PSP_FREE, close_point);
}
DAT_RETURN psp_query(DAT_PSP_HANDLE psp, DAT_PSP_PARAM_MASK mask, DAT_PSP_PARAM* param) {
  const auto fill = [](const psp_object& p, DAT_PSP_PARAM& to) {
    to = {p.ia.self, p.id.port(), p.evd, p.flags};
    return success;
  };
  return query<psp_object>(psp, mask, DAT_PSP_FIELD_ALL, param, "dat_psp_query", fill);
}

DAT_RETURN rsp_create(DAT_IA_HANDLE ia, DAT_CONN_QUAL qual, DAT_EP_HANDLE ep, DAT_EVD_HANDLE evd, DAT_RSP_HANDLE* rsp) {
  const entry_call<adapter> a(ia, "dat_rsp_create");
  if (!a) return a.bad_handle();
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
DAT_RETURN rsp_free(DAT_RSP_HANDLE rsp) {
  return end_object<rsp_object>(rsp, "dat_rsp_free", DCNT_IA_RSP_FREE, close_point);
}
DAT_RETURN rsp_query(DAT_RSP_HANDLE rsp, DAT_RSP_PARAM_MASK mask, DAT_RSP_PARAM* param) {
  const auto fill = [](const rsp_object& r, DAT_RSP_PARAM& to) {
    const auto from = r.point.query();
    if (!from) return word(from);
    to = {r.ia.self, r.id.port(), r.evd, from.assume_value().ep.context<handle>()};
    return success;
  };
  return query<rsp_object>(rsp, mask, DAT_RSP_FIELD_ALL, param, "dat_rsp_query", fill);
}

DAT_RETURN csp_create(DAT_IA_HANDLE ia, DAT_COMM* comm, DAT_IA_ADDRESS_PTR address, DAT_EVD_HANDLE evd,
                      DAT_CSP_HANDLE* csp) {
  const entry_call<adapter> a(ia, "dat_csp_create");
  if (!a) return a.bad_handle();
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
DAT_RETURN csp_free(DAT_CSP_HANDLE csp) {
  return end_object<csp_object>(csp, "dat_csp_free", DCNT_IA_PSP_FREE, close_point);
}
DAT_RETURN csp_query(DAT_CSP_HANDLE csp, DAT_CSP_PARAM_MASK mask, DAT_CSP_PARAM* param) {
  const auto fill = [](csp_object& c, DAT_CSP_PARAM& to) {
    const auto from = c.point.query();
    if (!from) return word(from);
    const dat::csp_params& p = from.assume_value();
    const std::lock_guard lock(c.mutex);
    c.comm = {p.comm.domain, p.comm.type, p.comm.protocol};
    to = {c.ia.self, &c.comm, keep(c.address, p.address), c.evd};
    return success;
  };
  return query<csp_object>(csp, mask, DAT_CSP_FIELD_ALL, param, "dat_csp_query", fill);
}

// --- connection requests

DAT_RETURN cr_query(DAT_CR_HANDLE cr, DAT_CR_PARAM_MASK mask, DAT_CR_PARAM* param) {
  const auto fill = [](cr_object& r, DAT_CR_PARAM& to) {
    const auto port = r.cr ? r.cr.remote_address().port() : r.datagrams.remote_address().port();
    to = {reinterpret_cast<DAT_IA_ADDRESS_PTR>(&r.remote), port, r.private_data.size(), r.private_data.data(),
          r.local_ep};
    return success;
  };
  return query<cr_object>(cr, mask, DAT_CR_FIELD_ALL, param, "dat_cr_query", fill);
}

DAT_RETURN cr_accept(DAT_CR_HANDLE cr, DAT_EP_HANDLE ep, DAT_COUNT size, DAT_PVOID data) {
  static constexpr const char* call = "dat_cr_accept";
  return end_object<cr_object>(cr, call, [&](cr_object& r) {
    if (!is_range(data, size)) return bad_argument(3, call);
    const call_on<ep_object> with(ep ? ep : r.local_ep);
    if (!with) return bad_handle(return_subtype::handle_ep, call);
    if (static_cast<bool>(r.datagrams) != with->is_datagram()) return bad_argument(2, call);
    if (r.datagrams) return word(r.datagrams.accept(with->ud, to_bytes(data, size)));
    // The one endpoint that a request brings may also be named, as consumers of DAT 1 do.
    if (r.local_ep && ep && ep != r.local_ep) return bad_argument(2, call);
    const auto accepted = r.local_ep ? r.cr.accept(to_bytes(data, size)) : r.cr.accept(with->rc, to_bytes(data, size));
    if (accepted) with->made_for_request = false;
    if (accepted) r.ia.counters.add(DCNT_IA_SP_CR_ACCEPTED);
    return word(accepted);
  });
}

namespace {
/// Ends a request without a connection: `refuse(request)` refuses it or passes it on. The endpoint that was made for it
/// ends, too.
template <class Refuse>
[[nodiscard]] DAT_RETURN end_request(DAT_CR_HANDLE cr, const char* call, Refuse refuse) noexcept {
  DAT_EP_HANDLE ep = DAT_HANDLE_NULL;
  const DAT_RETURN done = end_object<cr_object>(cr, call, [&](cr_object& r) {
    ep = r.local_ep;
    return refuse(r);
  });
  if (done != success) return done;
  const auto was_made = [ep] {
    const call_on<ep_object> e(ep);
    return e && e->made_for_request;
  };
  if (was_made()) (void)end_object<ep_object>(ep, call, [](ep_object&) { return success; });
  return success;
}
} // namespace

DAT_RETURN cr_reject(DAT_CR_HANDLE cr, DAT_COUNT size, DAT_PVOID data) {
  static constexpr const char* call = "dat_cr_reject";
  return end_request(cr, call, [&](cr_object& r) {
    if (!is_range(data, size)) return bad_argument(2, call);
    const auto rejected = r.datagrams ? r.datagrams.reject(to_bytes(data, size)) : r.cr.reject(to_bytes(data, size));
    if (rejected) r.ia.counters.add(DCNT_IA_SP_CR_REJECTED);
    return word(rejected);
  });
}

DAT_RETURN cr_handoff(DAT_CR_HANDLE cr, DAT_CONN_QUAL to) {
  static constexpr const char* call = "dat_cr_handoff";
  return end_request(cr, call, [&](cr_object& r) {
    const auto qualifier = to_port(to);
    if (!qualifier) return bad_argument(2, call);
    if (r.datagrams) return refuse(return_type::model_not_supported, return_subtype::none, call);
    return word(r.cr.handoff(qualifier.assume_value()));
  });
}

// --- endpoints

DAT_RETURN ep_connect(DAT_EP_HANDLE ep, DAT_IA_ADDRESS_PTR address, DAT_CONN_QUAL qual, DAT_TIMEOUT timeout,
                      DAT_COUNT size, DAT_PVOID data, DAT_QOS qos, DAT_CONNECT_FLAGS flags) {
  const entry_call<ep_object> e(ep, "dat_ep_connect");
  if (!e) return e.bad_handle();
  const auto remote = to_address(address);
  if (!remote) return word(remote);
  const auto qualifier = to_port(qual);
  if (!qualifier) return e.bad_argument(3);
  if (!is_range(data, size)) return e.bad_argument(5);
  const auto quality = to_qos(qos);
  if (!quality) return e.bad_argument(7);
  if (!within(flags, DAT_CONNECT_MULTIPATH_REQUESTED_FLAG | DAT_CONNECT_MULTIPATH_REQUIRED_FLAG))
    return e.bad_argument(8);
  count(ep, DCNT_EP_CONNECT);
  if (e->is_datagram())
    return word(
        e->ud.connect(remote.assume_value(), qualifier.assume_value(), to_timeout(timeout), to_bytes(data, size)));
  return word(e->rc.connect(remote.assume_value(), qualifier.assume_value(), to_timeout(timeout), to_bytes(data, size),
                            {.qos = *quality, .multipath = static_cast<dat::multipath>(flags)}));
}

DAT_RETURN ep_common_connect(DAT_EP_HANDLE ep, DAT_IA_ADDRESS_PTR address, DAT_TIMEOUT timeout, DAT_COUNT size,
                             DAT_PVOID data) {
  const entry_call<ep_object> e(ep, "dat_ep_common_connect");
  if (!e || e->is_datagram()) return e.bad_handle();
  const auto remote = to_address(address);
  if (!remote) return e.bad_argument(2); // DAT_INVALID_ADDRESS is no result of this call
  if (!is_range(data, size)) return e.bad_argument(4);
  count(ep, DCNT_EP_CONNECT);
  return word(e->rc.common_connect(remote.assume_value(), to_timeout(timeout), to_bytes(data, size)));
}

DAT_RETURN ep_dup_connect(DAT_EP_HANDLE ep, DAT_EP_HANDLE original, DAT_TIMEOUT timeout, DAT_COUNT size, DAT_PVOID data,
                          DAT_QOS qos) {
  const entry_call<ep_object> e(ep, "dat_ep_dup_connect");
  const call_on<ep_object> from(original);
  if (!e || e->is_datagram() || !from || from->is_datagram()) return e.bad_handle();
  if (!is_range(data, size)) return e.bad_argument(4);
  const auto quality = to_qos(qos);
  if (!quality) return e.bad_argument(6);
  count(ep, DCNT_EP_CONNECT);
  return word(e->rc.dup_connect(from->rc, to_timeout(timeout), to_bytes(data, size), *quality));
}

DAT_RETURN ep_disconnect(DAT_EP_HANDLE ep, DAT_CLOSE_FLAGS flags) {
  const entry_call<ep_object> e(ep, "dat_ep_disconnect");
  if (!e) return e.bad_handle();
  if (flags != DAT_CLOSE_ABRUPT_FLAG && flags != DAT_CLOSE_GRACEFUL_FLAG) return e.bad_argument(2);
  count(ep, DCNT_EP_DISCONNECT);
  if (e->is_datagram()) return word(e->ud.disconnect());
  if (flags == DAT_CLOSE_ABRUPT_FLAG) return word(e->rc.disconnect());
  const post_to alone(ep, handle::requests); // it posts a request
  return word(e->rc.disconnect(dat::close_mode::graceful));
}

} // namespace provider
