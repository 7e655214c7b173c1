// Differences of iWARP: its connections, the kernel moves queue pairs, and some requests are missing.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace fake::impl {

void iwarp_rts(id_obj& id) {
  auto* q = find_qp(id.own_qpn);
  if (!q) return;
  q->attr.qp_state = q->state = IBV_QPS_RTS;
  q->attr.dest_qp_num = id.peer_qpn;
  q->attr.port_num = id.dev_port;
  q->attr.retry_cnt = q->attr.rnr_retry = 7; // TCP repeats lost data
  q->attr.max_rd_atomic = id.initiator_depth;
  q->attr.max_dest_rd_atomic = id.responder_resources;
  kick(*q);
  kick_peer(*q);
}

int iwarp_accept(id_obj& id, const rdma_conn_param& shown, const void* data, std::size_t n) {
  iwarp_rts(id);
  auto* peer = id.peer;
  id.wire = ib::established;
  post_event({&id, nullptr, RDMA_CM_EVENT_ESTABLISHED, 0, {}, {}, {}});
  if (!peer) return 0;
  auto own = shown; // the event has the limits of this side, not the offer of the peer
  std::swap(own.responder_resources, own.initiator_depth);
  own.responder_resources = std::min(own.responder_resources, peer->initiator_depth);
  post_event({peer, nullptr, RDMA_CM_EVENT_ESTABLISHED, 0, own, padded(data, n, n), [peer, shown] {
                peer->wire = ib::established;
                peer->peer_qpn = shown.qp_num;
                peer->responder_resources = shown.responder_resources;
                peer->initiator_depth = shown.initiator_depth;
                iwarp_rts(*peer);
                run();
              }});
  return 0;
}

void iwarp_close(id_obj& id) {
  for (auto* one : {&id, id.peer}) {
    if (!one || !one->alive || one->wire == ib::dead) continue;
    one->wire = ib::timewait;
    if (auto* q = find_qp(one->own_qpn)) to_error(*q); // the queue pair changes before the program reads the event
    post_event({one, nullptr, RDMA_CM_EVENT_DISCONNECTED, 0, {}, {}, [one] { one->wire = ib::dead; }});
  }
}

int iwarp_init_attr(const id_obj& id, ibv_qp_attr& attr, int& mask) {
  const auto to = attr.qp_state;
  attr = {};
  attr.qp_state = to;
  attr.port_num = id.dev_port;
  if (id.wire == ib::none) {
    mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT;
    return 0;
  }
  switch (to) {
  case IBV_QPS_INIT:
  case IBV_QPS_RTR:
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT;
    return 0;
  case IBV_QPS_RTS:
    mask = IBV_QP_PORT;
    return 0;
  default:
    return EINVAL;
  }
}

int iwarp_refuses(const qp_obj& q, const ibv_send_wr& wr) {
  if (!is_iwarp(*q.ctx->dev)) return 0;
  switch (wr.opcode) {
  case IBV_WR_RDMA_WRITE:
  case IBV_WR_SEND:
  case IBV_WR_RDMA_READ:
  case IBV_WR_SEND_WITH_INV:
    return 0;
  default:
    return EINVAL;
  }
}

} // namespace fake::impl
