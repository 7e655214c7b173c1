// The instant device: five functions that are as short as those of a provider can be.
// SPDX-License-Identifier: BSL-1.0
#include "instant_verbs.hpp"

#include <cstdint>

namespace instant {
namespace {

constexpr unsigned ring_size = 4096;

struct entry {
  std::uint64_t id;
  std::uint32_t length;
  std::uint32_t opcode;
  std::uint32_t qp;
};
struct ring {
  unsigned head;
  unsigned tail;
  entry at[ring_size];
};

ring the_ring;
// Loaded from memory at each call, as a provider loads its queue from the ibv_qp or ibv_cq.
ring* volatile queue = &the_ring;

ibv_context_ops own_ops;

void put(ring& r, std::uint64_t id, std::uint32_t opcode, const ibv_sge* list, std::uint32_t qp_num) {
  entry& e = r.at[r.tail++ & (ring_size - 1)];
  e.id = id;
  e.opcode = opcode;
  e.length = list->length;
  e.qp = qp_num;
}

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr**) {
  ring& r = *queue;
  for (; wr; wr = wr->next)
    if ((wr->send_flags & IBV_SEND_SIGNALED) != 0) put(r, wr->wr_id, wr->opcode, wr->sg_list, qp->qp_num);
  return 0;
}

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr**) {
  ring& r = *queue;
  for (; wr; wr = wr->next) put(r, wr->wr_id, IBV_WC_RECV, wr->sg_list, qp->qp_num);
  return 0;
}

std::uint32_t volatile drawing_qp = 0;

int post_srq_recv(ibv_srq*, ibv_recv_wr* wr, ibv_recv_wr**) {
  ring& r = *queue;
  for (; wr; wr = wr->next) put(r, wr->wr_id, IBV_WC_RECV, wr->sg_list, drawing_qp);
  return 0;
}

int poll_cq(ibv_cq*, int n, ibv_wc* wc) {
  ring& r = *queue;
  int k = 0;
  for (; k < n && r.head != r.tail; ++k) {
    const entry& e = r.at[r.head++ & (ring_size - 1)];
    wc[k].wr_id = e.id;
    wc[k].status = IBV_WC_SUCCESS;
    wc[k].opcode = static_cast<ibv_wc_opcode>(e.opcode);
    wc[k].byte_len = e.length;
    wc[k].qp_num = e.qp;
    wc[k].wc_flags = e.opcode == IBV_WC_RECV ? IBV_WC_GRH : 0; // RoCE devices set this flag
  }
  return k;
}

int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  static constexpr ibv_sge no_bytes{};
  put(*queue, bind->wr_id, IBV_WC_BIND_MW, &no_bytes, qp->qp_num);
  mw->rkey = ibv_inc_rkey(mw->rkey);
  return 0;
}

int req_notify_cq(ibv_cq*, int) { return 0; }

} // namespace

void take_over(ibv_context& context, std::uint32_t draws) {
  drawing_qp = draws;
  own_ops = context.ops;
  context.ops.post_send = post_send;
  context.ops.post_recv = post_recv;
  context.ops.post_srq_recv = post_srq_recv;
  context.ops.poll_cq = poll_cq;
  context.ops.req_notify_cq = req_notify_cq;
  context.ops.bind_mw = bind_mw;
}

void give_back(ibv_context& context) { context.ops = own_ops; }

} // namespace instant
