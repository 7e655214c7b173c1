// Queue pairs: create, query, change of state, flush, destroy.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>

namespace fake::impl {

namespace {

struct transition {
  ibv_qp_state from, to;
  int required, optional;
};
// The attributes that the kernel requires and accepts for RC queue pairs.
constexpr int init_bits = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int rtr_bits =
    IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int rts_bits = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int live_bits =
    IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE;
constexpr int sqd_bits = IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX |
                         IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE;
constexpr transition transitions[] = {
    {IBV_QPS_RESET, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_RESET, IBV_QPS_INIT, init_bits, 0},
    {IBV_QPS_INIT, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_INIT, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, init_bits},
    {IBV_QPS_INIT, IBV_QPS_RTR, rtr_bits, IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_RTR, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_RTR, IBV_QPS_RTS, rts_bits, live_bits},
    {IBV_QPS_RTS, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_RTS, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, live_bits},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_SQD, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, live_bits},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, sqd_bits},
    {IBV_QPS_SQE, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_SQE, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_ERR, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_ERR, IBV_QPS_ERR, 0, 0},
};

int modify_error(const qp_obj& q, const ibv_qp_attr& a, int mask) {
  const auto from = q.true_state();
  const auto to = mask & IBV_QP_STATE ? a.qp_state : from;
  if ((mask & IBV_QP_CUR_STATE) && a.cur_qp_state != from) return EINVAL;
  const auto bits = mask & ~IBV_QP_STATE;
  const auto* t = std::find_if(std::begin(transitions), std::end(transitions),
                               [&](const transition& x) { return x.from == from && x.to == to; });
  if (t == std::end(transitions)) return EINVAL;
  if (q.qp_type == IBV_QPT_UD) {
    const int needed = from == IBV_QPS_RESET && to == IBV_QPS_INIT ? IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY
                       : from == IBV_QPS_RTR && to == IBV_QPS_RTS  ? IBV_QP_SQ_PSN
                                                                   : 0;
    if (bits != needed) return EINVAL;
  } else if ((bits & t->required) != t->required || (bits & ~(t->required | t->optional))) {
    return EINVAL;
  }
  if ((mask & IBV_QP_PORT) && !port_of(*q.ctx->dev, a.port_num)) return EINVAL;
  if (mask & IBV_QP_PKEY_INDEX) {
    const auto* p = port_of(*q.ctx->dev, (mask & IBV_QP_PORT) ? a.port_num : q.attr.port_num);
    if (p && a.pkey_index >= p->pkeys.size() && a.pkey_index > the_world().cfg.pkey_index) return EINVAL;
  }
  if ((mask & IBV_QP_PATH_MTU) && (a.path_mtu < IBV_MTU_256 || a.path_mtu > IBV_MTU_4096)) return EINVAL;
  return 0;
}

std::uint8_t power_of_two(std::uint8_t n) {
  return n > 128 ? n : n == 0 ? n : std::uint8_t(std::bit_ceil(unsigned(n)));
}

void take(ibv_qp_attr& to, const ibv_qp_attr& a, int mask) {
  if (mask & IBV_QP_ACCESS_FLAGS) to.qp_access_flags = a.qp_access_flags;
  if (mask & IBV_QP_QKEY) to.qkey = a.qkey;
  if (mask & IBV_QP_PKEY_INDEX) to.pkey_index = a.pkey_index;
  if (mask & IBV_QP_PORT) to.port_num = a.port_num;
  if (mask & IBV_QP_AV) to.ah_attr = a.ah_attr;
  if (mask & IBV_QP_PATH_MTU) to.path_mtu = a.path_mtu;
  if (mask & IBV_QP_DEST_QPN) to.dest_qp_num = a.dest_qp_num;
  if (mask & IBV_QP_RQ_PSN) to.rq_psn = a.rq_psn;
  if (mask & IBV_QP_SQ_PSN) to.sq_psn = a.sq_psn;
  if (mask & IBV_QP_TIMEOUT) to.timeout = a.timeout;
  if (mask & IBV_QP_RETRY_CNT) to.retry_cnt = a.retry_cnt;
  if (mask & IBV_QP_RNR_RETRY) to.rnr_retry = a.rnr_retry;
  if (mask & IBV_QP_MIN_RNR_TIMER) to.min_rnr_timer = a.min_rnr_timer;
  if (mask & IBV_QP_MAX_QP_RD_ATOMIC) to.max_rd_atomic = power_of_two(a.max_rd_atomic);
  if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) to.max_dest_rd_atomic = power_of_two(a.max_dest_rd_atomic);
  if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) to.en_sqd_async_notify = a.en_sqd_async_notify;
}

int create_error(const device_state& d, const ibv_qp_init_attr& i) {
  const auto& c = i.cap;
  if (d.removed) return EIO;
  if (i.qp_type != IBV_QPT_RC && i.qp_type != IBV_QPT_UD) return EOPNOTSUPP;
  if (!i.send_cq || !i.recv_cq) return EINVAL;
  if (c.max_send_wr > unsigned(d.attr.max_qp_wr) || c.max_send_sge > unsigned(d.attr.max_sge)) return EINVAL;
  if (c.max_inline_data > (is_iwarp(d) ? 80U : 512U)) return EINVAL; // siw: SIW_MAX_INLINE
  if (!i.srq && (c.max_recv_wr > unsigned(d.attr.max_qp_wr) || c.max_recv_sge > unsigned(d.attr.max_sge)))
    return EINVAL;
  return 0;
}

} // namespace

qp_obj* find_qp(std::uint32_t num) {
  auto& m = the_world().qp_nums;
  const auto it = m.find(num);
  return it == m.end() ? nullptr : it->second;
}

void flush_wc(qp_obj& q, bool receive, std::uint64_t wr_id) {
  if (!the_world().ways.late_flush) return flush_at_once(q, receive, wr_id);
  do_late({&q, receive ? q.rcq : q.scq, failed_wc(q, wr_id, IBV_WC_WR_FLUSH_ERR)});
}
void flush_at_once(qp_obj& q, bool receive, std::uint64_t wr_id) {
  push_wc(receive ? *q.rcq : *q.scq, failed_wc(q, wr_id, IBV_WC_WR_FLUSH_ERR), true);
}

void last_wqe_reached(qp_obj& q) {
  ibv_async_event last{};
  last.event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
  last.element.qp = q.as_c();
  push_async(*q.ctx, last);
}

void to_error(qp_obj& q) {
  if (q.true_state() == IBV_QPS_RESET) return;
  const bool first = q.true_state() != IBV_QPS_ERR;
  q.attr.qp_state = IBV_QPS_ERR;
  for (const auto& s : std::exchange(q.sq, {})) flush_wc(q, false, s.wr.wr_id);
  for (const auto& r : std::exchange(q.rq, {})) flush_wc(q, true, r.wr_id);
  const auto& ways = the_world().ways;
  if (q.held_wr_id || (q.shared && first && ways.last_wqe_event)) {
    if (ways.late_flush)
      do_late({&q, nullptr, {}});
    else
      last_wqe_reached(q);
  }
  kick_peer(q);
}

void kick(qp_obj& q) { the_world().work.push_back(&q); }
void kick_peer(qp_obj& q) {
  if (auto* p = find_qp(q.attr.dest_qp_num)) kick(*p);
}

} // namespace fake::impl

namespace fake {

using namespace impl;

bool begin_message(ibv_qp* qp) {
  const std::lock_guard hold{mutex()};
  auto& q = live_object<qp_obj>(qp, "fake::begin_message");
  if (!q.shared || q.shared->rq.empty() || q.held_wr_id) return false;
  q.held_wr_id = q.shared->rq.front().wr_id;
  q.shared->rq.pop_front();
  return true;
}

} // namespace fake

using namespace fake;
using namespace fake::impl;

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  entry e{call::ibv_create_qp};
  auto& p = e.use<pd_obj>(pd);
  if (e.fault()) return e.null(e.fault());
  if (const int error = create_error(*p.ctx->dev, *init)) return e.null(error);
  auto& scq = live_object<cq_obj>(init->send_cq, "ibv_create_qp");
  auto& rcq = live_object<cq_obj>(init->recv_cq, "ibv_create_qp");
  auto* srq = init->srq ? &live_object<srq_obj>(init->srq, "ibv_create_qp") : nullptr;
  if (scq.ctx != p.ctx || rcq.ctx != p.ctx || (srq && srq->ctx != p.ctx)) return e.null(EINVAL);
  if (is_full<qp_obj>(*p.ctx->dev, p.ctx->dev->attr.max_qp)) return e.null(ENOMEM);
  // One send entry holds either the segments or the inline bytes, so each of the two limits raises the other one.
  const auto entry_bytes = std::max(init->cap.max_send_sge * std::uint32_t(sizeof(ibv_sge)), init->cap.max_inline_data);
  init->cap.max_send_sge = entry_bytes / std::uint32_t(sizeof(ibv_sge));
  init->cap.max_inline_data = entry_bytes;
  if (srq) init->cap.max_recv_wr = init->cap.max_recv_sge = 0;
  auto& q = adopt(std::make_unique<qp_obj>());
  q.context = p.context;
  q.qp_context = init->qp_context;
  q.pd = pd;
  q.send_cq = init->send_cq;
  q.recv_cq = init->recv_cq;
  q.srq = init->srq;
  q.handle = q.serial;
  if (e.w.ways.reuse_qp_numbers)
    for (q.qp_num = 17; e.w.qp_nums.count(q.qp_num) != 0;) ++q.qp_num;
  else
    q.qp_num = e.w.next_qpn++;
  q.state = IBV_QPS_RESET;
  q.qp_type = init->qp_type;
  q.ctx = p.ctx;
  q.domain = &p;
  q.scq = &scq;
  q.rcq = &rcq;
  q.shared = srq;
  q.asked = init->cap;
  q.sq_depth = ring_depth(init->cap.max_send_wr);
  q.rq_depth = srq ? 0 : ring_depth(init->cap.max_recv_wr);
  q.sig_all = init->sq_sig_all != 0;
  q.attr.qp_state = IBV_QPS_RESET;
  ++p.users;
  ++scq.users;
  ++rcq.users;
  if (srq) ++srq->users;
  e.w.qp_nums[q.qp_num] = &q;
  e.made(q);
  return q.as_c();
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  entry e{call::ibv_query_qp};
  auto& q = e.use<qp_obj>(qp);
  if (e.fault()) return e.code(e.fault());
  *attr = q.attr;
  attr->cur_qp_state = q.true_state();
  attr->cap = q.asked;
  attr->cap.max_send_wr = q.sq_depth;
  attr->cap.max_recv_wr = q.rq_depth;
  *init = {};
  init->qp_context = q.qp_context;
  init->send_cq = q.send_cq;
  init->recv_cq = q.recv_cq;
  init->srq = q.srq;
  init->qp_type = q.qp_type;
  init->cap = attr->cap;
  init->sq_sig_all = q.sig_all;
  if (mask & IBV_QP_STATE) qp->state = attr->qp_state;
  return e.code(0);
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  entry e{call::ibv_modify_qp};
  auto& q = e.use<qp_obj>(qp);
  if (e.fault()) return e.code(e.fault());
  if (const int error = modify_error(q, *attr, mask)) return e.code(error);
  take(q.attr, *attr, mask);
  if (mask & IBV_QP_STATE) {
    const auto to = attr->qp_state;
    qp->state = to;
    if (to == IBV_QPS_ERR) {
      to_error(q);
    } else {
      q.attr.qp_state = to;
      if (to == IBV_QPS_RESET) {
        q.sq.clear();
        q.rq.clear();
        forget_late(q);
        kick_peer(q);
        q.attr = {};
      }
      if (to == IBV_QPS_SQD && q.attr.en_sqd_async_notify) {
        ibv_async_event a{};
        a.event_type = IBV_EVENT_SQ_DRAINED;
        a.element.qp = qp;
        push_async(*q.ctx, a);
      }
    }
  }
  kick(q);
  kick_peer(q);
  run();
  return e.code(0);
}

int ibv_destroy_qp(ibv_qp* qp) {
  entry e{call::ibv_destroy_qp};
  auto& q = e.use<qp_obj>(qp);
  if (e.fault()) return e.code(e.fault());
  if (!q.groups.empty()) return e.code(EBUSY);
  discard_async_of(*q.ctx, q.as_c());
  wait_acked(e.lock(), "ibv_destroy_qp(" + q.name() + ")", [&] { return q.unacked_async == 0; });
  if (!e.w.cfg.destroy_drops) finish_late();
  forget_late(q);
  if (e.w.cfg.destroy_drops)
    for (cq_obj* cq : {q.scq, q.rcq}) std::erase_if(cq->entries, [&](const ibv_wc& c) { return c.qp_num == q.qp_num; });
  for (auto* m : all_live<mw_obj>())
    if (m->through == &q)
      e.w.wrong_orders.push_back(q.name() + " destroyed under " + m->name() + ", which stalls a device");
  q.sq.clear();
  q.rq.clear();
  q.alive = false;
  e.w.qp_nums.erase(q.qp_num);
  --q.domain->users;
  --q.scq->users;
  --q.rcq->users;
  if (q.shared) --q.shared->users;
  kick_peer(q);
  run();
  return e.code(0);
}

} // extern "C"
