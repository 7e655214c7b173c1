// The instant device: functions that are as short as those of a provider can be.
// SPDX-License-Identifier: BSL-1.0
#include "instant_verbs.hpp"

#include <cstddef>
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

/// The extended queue pair. A request is begun by one function and gets its memory by another one, so both find the
/// request in memory; no request is there for the device before wr_complete. The providers mlx5 and rxe do the same,
/// and take a lock in wr_start as in post_send, check for a full queue, and keep an error until wr_complete. As those
/// of post_send, these checks are left out.
struct extended_qp {
  ibv_qp_ex verbs;
  unsigned tail;
  entry* begun;
};

extended_qp the_extended_qp;

extended_qp& extended_of(ibv_qp_ex* qp) { return *reinterpret_cast<extended_qp*>(qp); }

void wr_start(ibv_qp_ex* qp) { extended_of(qp).tail = queue->tail; }

void begin(ibv_qp_ex* qp, std::uint32_t opcode) {
  extended_qp& x = extended_of(qp);
  entry& e = queue->at[x.tail & (ring_size - 1)];
  x.tail += (qp->wr_flags & IBV_SEND_SIGNALED) != 0 ? 1 : 0;
  x.begun = &e;
  e.id = qp->wr_id;
  e.opcode = opcode;
  e.qp = qp->qp_base.qp_num;
}
void wr_send(ibv_qp_ex* qp) { begin(qp, IBV_WR_SEND); }
void wr_rdma_write(ibv_qp_ex* qp, std::uint32_t, std::uint64_t) { begin(qp, IBV_WR_RDMA_WRITE); }
void wr_rdma_read(ibv_qp_ex* qp, std::uint32_t, std::uint64_t) { begin(qp, IBV_WR_RDMA_READ); }

void wr_set_sge(ibv_qp_ex* qp, std::uint32_t, std::uint64_t, std::uint32_t length) {
  extended_of(qp).begun->length = length;
}
void wr_set_sge_list(ibv_qp_ex* qp, std::size_t, const ibv_sge* list) { extended_of(qp).begun->length = list->length; }
void wr_set_inline_data(ibv_qp_ex* qp, void*, std::size_t length) {
  extended_of(qp).begun->length = static_cast<std::uint32_t>(length);
}

int wr_complete(ibv_qp_ex* qp) {
  queue->tail = extended_of(qp).tail;
  return 0;
}

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

ibv_qp_ex* extend(const ibv_qp& qp) {
  ibv_qp_ex& to = the_extended_qp.verbs;
  to.qp_base = qp;
  to.wr_start = wr_start;
  to.wr_send = wr_send;
  to.wr_rdma_write = wr_rdma_write;
  to.wr_rdma_read = wr_rdma_read;
  to.wr_set_sge = wr_set_sge;
  to.wr_set_sge_list = wr_set_sge_list;
  to.wr_set_inline_data = wr_set_inline_data;
  to.wr_complete = wr_complete;
  return &to;
}

} // namespace instant
