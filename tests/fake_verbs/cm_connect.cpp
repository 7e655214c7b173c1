// rdma_cm connections: request, response, establishment, reject, disconnect, and the message that destroying an id
// sends.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

#include <algorithm>
#include <cerrno>

namespace fake::impl {

namespace {

constexpr int rej_timeout = 4, rej_no_listener = 8, rej_stale = 10, rej_consumer = 28, rej_ece = 35;

std::uint8_t clamp_depth(std::uint8_t asked, int limit) {
  return asked == RDMA_MAX_RESP_RES ? std::uint8_t(std::min(limit, 255)) : asked;
}

/// Resources above the device's limit are refused by librdmacm itself.
bool depths_ok(const id_obj& id, const rdma_conn_param& p) {
  const auto& a = id.dev->attr;
  return (p.responder_resources == RDMA_MAX_RESP_RES || p.responder_resources <= a.max_qp_rd_atom) &&
         (p.initiator_depth == RDMA_MAX_INIT_DEPTH || p.initiator_depth <= a.max_qp_init_rd_atom);
}

rdma_conn_param effective(const id_obj& id, const rdma_conn_param* given) {
  rdma_conn_param p{};
  p.responder_resources = RDMA_MAX_RESP_RES;
  p.initiator_depth = RDMA_MAX_INIT_DEPTH;
  p.retry_count = p.rnr_retry_count = 7;
  if (given) p = *given;
  p.responder_resources = clamp_depth(p.responder_resources, id.dev->attr.max_qp_rd_atom);
  p.initiator_depth = clamp_depth(p.initiator_depth, id.dev->attr.max_qp_init_rd_atom);
  p.retry_count = std::min<std::uint8_t>(p.retry_count, 7);
  p.rnr_retry_count = std::min<std::uint8_t>(p.rnr_retry_count, 7);
  return p;
}

void note(const rdma_conn_param* given) {
  if (!given) return;
  auto& all = the_world().connection_parameters;
  all.push_back(*given);
  all.back().private_data = nullptr;
}

void post_reject(id_obj& to, int status, std::vector<std::byte> data) {
  if (to.dev && is_iwarp(*to.dev)) status = -ECONNREFUSED; // MPA has no reason
  post_event({&to, nullptr, RDMA_CM_EVENT_REJECTED, status, {}, std::move(data), [&to] { to.wire = ib::dead; }});
}

void leave_timewait(id_obj& id) {
  if (the_world().cfg.timewait_exit) post_event({&id, nullptr, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, {}, {}, {}});
}
void enter_timewait(id_obj& id) {
  id.wire = ib::timewait;
  leave_timewait(id);
}

/// A connection of the same remote queue pair that this side still keeps.
id_obj* stale_connection(const id_obj& active) {
  if (is_iwarp(*active.dev)) return nullptr; // TCP identifies a connection by its ports
  for (auto* i : all_live<id_obj>())
    if (i != &active && i->wire == ib::established && i->peer_qpn == active.own_qpn && i->peer &&
        i->peer->dev == active.dev && i->own_qpn != active.own_qpn)
      return i;
  return nullptr;
}

void send_request(id_obj& id, const rdma_conn_param& p) {
  const auto o = owner_of(id.dst);
  if (!o.dev) { // removed since the address was resolved
    post_event({&id, nullptr, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, {}, {}, [&id] { id.wire = ib::dead; }});
    return;
  }
  auto* l = find_listener(id.dst, id.ps);
  if (!l) return post_reject(id, rej_no_listener, padded(nullptr, 0, is_iwarp(*o.dev) ? 0 : rej_data));
  if (auto* old = stale_connection(id)) {
    send_dreq(*old);
    return post_reject(id, rej_stale, padded(nullptr, 0, rej_data));
  }
  auto& child = new_child(*l, id, o);
  child.peer_qpn = p.qp_num;
  child.responder_resources = p.initiator_depth;
  child.initiator_depth = p.responder_resources;
  child.retry = p.retry_count;
  child.rnr_retry = p.rnr_retry_count;
  child.tos = id.tos;
  auto shown = p;
  std::swap(shown.responder_resources, shown.initiator_depth);
  post_event({&child,
              l,
              RDMA_CM_EVENT_CONNECT_REQUEST,
              0,
              shown,
              padded(p.private_data, p.private_data_len, is_iwarp(*id.dev) ? p.private_data_len : req_data),
              {}});
}

int accept(id_obj& id, const rdma_conn_param* given) {
  note(given);
  if (id.state != cma::connect || id.wire != ib::req_rcvd) return EINVAL;
  if (given && !depths_ok(id, *given)) return EINVAL;
  const auto p = effective(id, given);
  if (p.private_data_len > rep_data) {
    send_reject(id, rej_consumer, padded(nullptr, 0, rej_data)); // the kernel does so when it cannot send the response
    return EINVAL;
  }
  id.own_qpn = p.qp_num;
  id.responder_resources = p.responder_resources;
  id.initiator_depth = p.initiator_depth;
  id.wire = ib::rep_sent;
  if (is_iwarp(*id.dev)) {
    auto back = p;
    std::swap(back.responder_resources, back.initiator_depth);
    return iwarp_accept(id, back, p.private_data, p.private_data_len);
  }
  auto* peer = id.peer;
  if (!peer) return 0;
  auto shown = p;
  std::swap(shown.responder_resources, shown.initiator_depth);
  post_event({peer, nullptr, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, shown,
              padded(p.private_data, p.private_data_len, rep_data), [peer, shown] {
                peer->wire = ib::rep_rcvd;
                peer->peer_qpn = shown.qp_num;
                peer->responder_resources = shown.responder_resources;
                peer->initiator_depth = shown.initiator_depth;
                peer->rnr_retry = shown.rnr_retry_count;
              }});
  return 0;
}

int reject(entry& e, id_obj& id, int status, const void* data, std::size_t n) {
  if (e.fault()) return e.minus1(e.fault());
  if (n > rej_data) return e.minus1(EINVAL);
  if (id.ps != RDMA_PS_TCP) return e.minus1(reject_datagram(id, data, n));
  if (id.wire != ib::req_rcvd && id.wire != ib::rep_rcvd && id.wire != ib::rep_sent && id.wire != ib::req_sent)
    return e.minus1(EINVAL);
  send_reject(id, status, padded(data, n, is_iwarp(*id.dev) ? n : rej_data));
  return e.minus1(0);
}

} // namespace

id_obj& new_child(id_obj& listener) {
  auto o = std::make_unique<id_obj>();
  o->counted = false; // the id is not counted until the program reads the request
  auto& c = adopt(std::move(o));
  c.channel = listener.channel;
  c.chan = listener.chan;
  c.context = listener.context;
  c.ps = listener.ps;
  c.qp_type = listener.qp_type;
  c.child = true;
  c.state = cma::connect;
  c.wire = ib::req_rcvd;
  return c;
}

id_obj& new_child(id_obj& listener, id_obj& asking, const owner& at) {
  auto& c = new_child(listener);
  c.src = asking.dst;
  c.dst = asking.src;
  c.dev = at.dev;
  c.dev_port = at.port;
  c.peer = &asking;
  asking.peer = &c;
  return c;
}

void send_reject(id_obj& from, int status, std::vector<std::byte> data) {
  auto* p = from.peer;
  from.wire = ib::dead;
  if (!p || !p->alive) return;
  switch (p->wire) {
  case ib::req_rcvd:
    p->wire = ib::dead;
    break; // there is no event: the program gets an error when it answers
  case ib::req_sent:
  case ib::rep_rcvd:
  case ib::rep_sent:
  case ib::established:
    post_reject(*p, status, std::move(data));
    break;
  default:
    break;
  }
}

void send_dreq(id_obj& from) {
  if (from.dev && is_iwarp(*from.dev)) return iwarp_close(from);
  from.wire = ib::dreq_sent;
  auto* p = from.peer;
  if (!p || !p->alive) return;
  if (p->wire != ib::established && p->wire != ib::rep_sent && p->wire != ib::dreq_sent) return;
  post_event({p, nullptr, RDMA_CM_EVENT_DISCONNECTED, 0, {}, {}, [p] { p->wire = ib::dreq_rcvd; }});
}

void send_drep(id_obj& from) {
  auto* p = from.peer;
  enter_timewait(from);
  // In dreq_rcvd, both sides have disconnected, and each has had its event.
  if (!p || !p->alive || p->wire != ib::dreq_sent) return;
  post_event({p, nullptr, RDMA_CM_EVENT_DISCONNECTED, 0, {}, {}, [p] { p->wire = ib::timewait; }});
  leave_timewait(*p);
}

void destroy_on_wire(id_obj& id) {
  if (id.ps == RDMA_PS_UDP) (void)reject_datagram(id, nullptr, 0); // a request that was not answered
  switch (id.wire) {
  case ib::req_sent:
    send_reject(id, rej_timeout, padded(nullptr, 0, rej_data));
    break;
  case ib::req_rcvd:
  case ib::rep_sent:
  case ib::rep_rcvd:
    send_reject(id, rej_consumer, padded(nullptr, 0, rej_data));
    break;
  case ib::established:
    send_dreq(id);
    break;
  case ib::dreq_rcvd:
    send_drep(id);
    break;
  default:
    break;
  }
  id.wire = ib::dead;
  if (id.peer && id.peer->peer == &id) id.peer->peer = nullptr;
  id.peer = nullptr;
}

} // namespace fake::impl

using namespace fake;
using namespace fake::impl;

extern "C" {

int rdma_connect(rdma_cm_id* handle, rdma_conn_param* param) {
  entry e{call::rdma_connect};
  auto& id = e.use<id_obj>(handle);
  if (e.fault()) return e.minus1(e.fault());
  if (id.ps != RDMA_PS_TCP) return e.minus1(ask_datagram(id, param));
  note(param);
  if (id.state != cma::route_resolved) return e.minus1(EINVAL);
  if (param && (!depths_ok(id, *param) || param->private_data_len > req_data)) return e.minus1(EINVAL);
  const auto p = effective(id, param);
  id.state = cma::connect;
  id.wire = ib::req_sent;
  id.own_qpn = p.qp_num;
  id.responder_resources = p.responder_resources;
  id.initiator_depth = p.initiator_depth;
  id.retry = p.retry_count;
  id.rnr_retry = p.rnr_retry_count;
  send_request(id, p);
  return e.minus1(0);
}

int rdma_accept(rdma_cm_id* handle, rdma_conn_param* param) {
  entry e{call::rdma_accept};
  auto& id = e.use<id_obj>(handle);
  if (e.fault()) return e.minus1(e.fault());
  return e.minus1(id.ps == RDMA_PS_TCP ? accept(id, param) : accept_datagram(id, param));
}

int rdma_establish(rdma_cm_id* handle) {
  entry e{call::rdma_establish};
  auto& id = e.use<id_obj>(handle);
  if (e.fault()) return e.minus1(e.fault());
  if (id.dev && is_iwarp(*id.dev)) return e.minus1(0); // rdma_notify does nothing there (cma.c)
  if (handle->qp || id.wire != ib::rep_rcvd) return e.minus1(EINVAL);
  id.wire = ib::established;
  if (auto* p = id.peer; p && p->alive && p->wire == ib::rep_sent)
    post_event({p, nullptr, RDMA_CM_EVENT_ESTABLISHED, 0, {}, {}, [p] { p->wire = ib::established; }});
  return e.minus1(0);
}

int rdma_reject(rdma_cm_id* handle, const void* data, std::uint8_t n) {
  entry e{call::rdma_reject};
  return reject(e, e.use<id_obj>(handle), rej_consumer, data, n);
}
int rdma_reject_ece(rdma_cm_id* handle, const void* data, std::uint8_t n) {
  entry e{call::rdma_reject_ece};
  return reject(e, e.use<id_obj>(handle), rej_ece, data, n);
}

int rdma_notify(rdma_cm_id* handle, ibv_event_type event) {
  entry e{call::rdma_notify};
  auto& id = e.use<id_obj>(handle);
  if (e.fault()) return e.minus1(e.fault());
  if (event != IBV_EVENT_COMM_EST) return e.minus1(EINVAL);
  if (id.wire == ib::established) return e.minus1(EISCONN);
  if (id.wire != ib::rep_sent) return e.minus1(EINVAL);
  id.wire = ib::established;
  post_event({&id, nullptr, RDMA_CM_EVENT_ESTABLISHED, 0, {}, {}, {}});
  return e.minus1(0);
}

int rdma_disconnect(rdma_cm_id* handle) {
  entry e{call::rdma_disconnect};
  auto& id = e.use<id_obj>(handle);
  if (e.fault()) return e.minus1(e.fault());
  if (id.wire == ib::none) return e.minus1(EINVAL);
  if (id.wire == ib::established)
    send_dreq(id);
  else if (id.wire == ib::dreq_rcvd)
    send_drep(id);
  return e.minus1(0);
}

int rdma_init_qp_attr(rdma_cm_id* handle, ibv_qp_attr* attr, int* mask) {
  entry e{call::rdma_init_qp_attr};
  auto& id = e.use<id_obj>(handle);
  if (e.fault()) return e.minus1(e.fault());
  if (!id.dev || id.state == cma::removed) return e.minus1(EINVAL);
  if (is_iwarp(*id.dev)) return e.minus1(iwarp_init_attr(id, *attr, *mask));
  const auto to = attr->qp_state;
  *attr = {};
  attr->qp_state = to;
  const auto of_interface = std::uint16_t(port_of(*id.dev, id.dev_port)->interface_pkey);
  attr->pkey_index = e.w.cfg.pkey_index != 0 ? e.w.cfg.pkey_index : of_interface;
  attr->port_num = id.dev_port;
  if (id.wire == ib::none) { // before connect: the requested state has no effect
    *mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    return e.minus1(0);
  }
  const bool rest =
      id.wire == ib::rep_rcvd || id.wire == ib::req_rcvd || id.wire == ib::rep_sent || id.wire == ib::established;
  switch (to) {
  case IBV_QPS_INIT:
    if (!rest && id.wire != ib::req_sent) return e.minus1(EINVAL);
    attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (id.responder_resources) attr->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    *mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    return e.minus1(0);
  case IBV_QPS_RTR: {
    if (!rest) return e.minus1(EINVAL);
    attr->path_mtu = port_of(*id.dev, id.dev_port)->active_mtu;
    if (const auto o = owner_of(id.dst); o.dev)
      attr->path_mtu = std::min(attr->path_mtu, port_of(*o.dev, o.port)->active_mtu);
    attr->dest_qp_num = id.peer_qpn;
    attr->rq_psn = e.w.next_psn++;
    attr->max_dest_rd_atomic = id.responder_resources;
    attr->min_rnr_timer = 0;
    attr->ah_attr = path_between(*id.dev, id.dev_port, id.src, id.dst);
    if (attr->ah_attr.is_global) attr->ah_attr.grh.traffic_class = id.tos;
    *mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
            IBV_QP_MIN_RNR_TIMER;
    return e.minus1(0);
  }
  case IBV_QPS_RTS:
    if (!rest) return e.minus1(EINVAL);
    attr->sq_psn = e.w.next_psn++;
    attr->timeout = std::uint8_t(id.ack_timeout >= 0 ? id.ack_timeout : 19);
    attr->retry_cnt = id.retry;
    attr->rnr_retry = id.rnr_retry;
    attr->max_rd_atomic = id.initiator_depth;
    *mask =
        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    return e.minus1(0);
  default:
    return e.minus1(EINVAL);
  }
}

} // extern "C"
