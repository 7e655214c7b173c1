// Posting, and the effect of a posted request: it moves bytes, completes, waits or fails.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

#include <algorithm>
#include <cerrno>

namespace fake::impl {

namespace {

std::uint64_t total(const std::vector<ibv_sge>& sges) {
  std::uint64_t n = 0;
  for (const auto& s : sges) n += s.length;
  return n;
}

ibv_wc_opcode wc_opcode(ibv_wr_opcode o) {
  switch (static_cast<int>(o)) {
  case IBV_WR_RDMA_WRITE:
  case IBV_WR_RDMA_WRITE_WITH_IMM:
    return IBV_WC_RDMA_WRITE;
  case IBV_WR_RDMA_READ:
    return IBV_WC_RDMA_READ;
  case IBV_WR_ATOMIC_CMP_AND_SWP:
    return IBV_WC_COMP_SWAP;
  case IBV_WR_ATOMIC_FETCH_AND_ADD:
    return IBV_WC_FETCH_ADD;
  case flush_opcode:
    return static_cast<ibv_wc_opcode>(8); // IBV_WC_FLUSH
  case IBV_WR_ATOMIC_WRITE:
    return IBV_WC_ATOMIC_WRITE;
  case IBV_WR_LOCAL_INV:
    return IBV_WC_LOCAL_INV;
  case IBV_WR_BIND_MW:
    return IBV_WC_BIND_MW;
  default:
    return IBV_WC_SEND;
  }
}

bool takes_receive(ibv_wr_opcode o) {
  return o == IBV_WR_SEND || o == IBV_WR_SEND_WITH_IMM || o == IBV_WR_SEND_WITH_INV || o == IBV_WR_RDMA_WRITE_WITH_IMM;
}
bool is_atomic(ibv_wr_opcode o) { return o == IBV_WR_ATOMIC_CMP_AND_SWP || o == IBV_WR_ATOMIC_FETCH_AND_ADD; }
bool has_imm(ibv_wr_opcode o) { return o == IBV_WR_SEND_WITH_IMM || o == IBV_WR_RDMA_WRITE_WITH_IMM; }
bool is_iba() { return the_world().cfg.wc_statuses == statuses::iba; }

} // namespace

[[gnu::no_sanitize_address]] void dma_copy(std::byte* to, const std::byte* from, std::size_t n) {
  const volatile std::byte* in = from;
  volatile std::byte* out = to;
  if (to <= from) // source and target may overlap
    for (std::size_t i = 0; i < n; ++i) out[i] = in[i];
  else
    for (; n != 0; --n) out[n - 1] = in[n - 1];
}

namespace {

/// False if a segment is not readable through this queue pair's domain.
bool gather(qp_obj& q, const send_wqe& s, std::vector<std::byte>& out) {
  if (s.is_inline) {
    out = s.inlined;
    return true;
  }
  for (const auto& g : s.sges) {
    if (g.length == 0) continue;
    const auto* m = local_region(q, g, false);
    if (!m) return false;
    const auto* p = pointer_into(*m, g.addr);
    out.resize(out.size() + g.length);
    dma_copy(out.data() + out.size() - g.length, p, g.length);
  }
  return true;
}

/// Puts n bytes into the segments; false if a segment that it needs is not writable. The caller checked the length.
bool scatter(qp_obj& q, const std::vector<ibv_sge>& sges, const std::byte* data, std::uint64_t n) {
  for (const auto& g : sges) {
    const auto part = std::min<std::uint64_t>(n, g.length);
    if (part == 0) continue;
    const auto* m = local_region(q, {g.addr, std::uint32_t(part), g.lkey}, true);
    if (!m) return false;
    dma_copy(pointer_into(*m, g.addr), data, part);
    data += part;
    n -= part;
  }
  return true;
}

void complete_send(qp_obj& q, const send_wqe& s, std::uint32_t bytes) {
  if (!q.sig_all && !(s.wr.send_flags & IBV_SEND_SIGNALED)) return;
  ibv_wc wc{};
  wc.wr_id = s.wr.wr_id;
  wc.opcode = wc_opcode(s.wr.opcode);
  const bool returns_data = wc.opcode == IBV_WC_RDMA_READ || is_atomic(s.wr.opcode);
  wc.byte_len = returns_data || !the_world().ways.lengths_of_reads ? bytes : 0xdbdbdbdb;
  wc.qp_num = q.qp_num;
  if (has_imm(s.wr.opcode)) {
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.imm_data = s.wr.imm_data;
  }
  push_wc(*q.scq, wc, false);
}

void fail_receive(qp_obj& q, std::uint64_t wr_id, ibv_wc_status status) {
  push_wc(*q.rcq, failed_wc(q, wr_id, status), true);
  to_error(q);
}

bool link_works(const qp_obj& q, const qp_obj& peer) {
  const auto up = [](const qp_obj& x) {
    const auto* p = port_of(*x.ctx->dev, x.attr.port_num);
    return p && p->state == IBV_PORT_ACTIVE && !x.ctx->dev->removed;
  };
  return up(q) && up(peer);
}

/// The queue pair at the other end, if it answers.
qp_obj* answering_peer(qp_obj& q) {
  auto* p = find_qp(q.attr.dest_qp_num);
  if (!p || p->attr.dest_qp_num != q.qp_num) return nullptr;
  const auto s = p->true_state();
  if (s != IBV_QPS_RTR && s != IBV_QPS_RTS && s != IBV_QPS_SQD) return nullptr;
  const auto& path = q.attr.ah_attr;
  if (path.is_global && !has_gid(*p->ctx->dev, path.grh.dgid)) return nullptr;
  if (!path.is_global && !is_iwarp(*q.ctx->dev) && path.dlid != port_of(*p->ctx->dev, p->attr.port_num)->lid)
    return nullptr;
  return link_works(q, *p) ? p : nullptr;
}

std::optional<recv_wqe> take_receive(qp_obj& p) {
  auto& rq = p.shared ? p.shared->rq : p.rq;
  if (rq.empty()) return std::nullopt;
  std::optional<recv_wqe> r{std::move(rq.front())};
  rq.pop_front();
  if (p.shared) check_limit(*p.shared);
  return r;
}

/// A refusal by the responder moves the responder's queue pair to ERR without a completion.
void refuse(qp_obj& q, qp_obj& peer, const send_wqe& s, ibv_wc_status status) {
  to_error(peer);
  fail_send(q, s, status);
}

void receive_wc(qp_obj& p, const qp_obj& from, const recv_wqe& r, const send_wqe& s, std::uint64_t bytes) {
  ibv_wc wc{};
  wc.wr_id = r.wr_id;
  wc.opcode = s.wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  wc.byte_len = std::uint32_t(bytes);
  wc.qp_num = p.qp_num;
  wc.src_qp = from.qp_num;
  wc.wc_flags = from.attr.ah_attr.is_global ? IBV_WC_GRH : 0;
  wc.slid = from.attr.ah_attr.is_global ? 0 : port_of(*from.ctx->dev, from.attr.port_num)->lid;
  if (has_imm(s.wr.opcode)) {
    wc.wc_flags |= IBV_WC_WITH_IMM;
    wc.imm_data = s.wr.imm_data;
  }
  if (s.wr.opcode == IBV_WR_SEND_WITH_INV) {
    // rxe sets the kernel's bit, which has another meaning in libibverbs.
    wc.wc_flags |= is_iba() ? IBV_WC_WITH_INV : IBV_WC_IP_CSUM_OK;
    wc.invalidated_rkey = s.wr.invalidate_rkey;
  }
  push_wc(*p.rcq, wc, (s.wr.send_flags & IBV_SEND_SOLICITED) != 0);
}

bool do_send(qp_obj& q, qp_obj& p, send_wqe& s, const std::vector<std::byte>& data) {
  const auto r = take_receive(p);
  const bool fits = total(r->sges) >= data.size();
  if (!fits || !scatter(p, r->sges, data.data(), data.size())) {
    fail_receive(p, r->wr_id, is_iba() ? (fits ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_LEN_ERR) : IBV_WC_LOC_QP_OP_ERR);
    fail_send(q, s, is_iba() && !fits ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR);
    return true;
  }
  if (s.wr.opcode == IBV_WR_SEND_WITH_INV && !invalidate_window(p, s.wr.invalidate_rkey))
    fail_receive(p, r->wr_id, IBV_WC_REM_INV_REQ_ERR); // only windows can be invalidated; the sender gets no error
  else
    receive_wc(p, q, *r, s, data.size());
  complete_send(q, s, std::uint32_t(data.size()));
  return true;
}

bool do_write(qp_obj& q, qp_obj& p, send_wqe& s, const std::vector<std::byte>& data) {
  if (!(p.attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE)) return refuse(q, p, s, IBV_WC_REM_INV_REQ_ERR), true;
  if (!data.empty()) {
    const auto& to = s.wr.wr.rdma;
    auto* m = remote_memory(p, to.rkey, to.remote_addr, data.size(), IBV_ACCESS_REMOTE_WRITE);
    if (!m) return refuse(q, p, s, IBV_WC_REM_ACCESS_ERR), true;
    dma_copy(m, data.data(), data.size());
  }
  if (s.wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    const auto r = take_receive(p);
    receive_wc(p, q, *r, s, data.size());
  }
  complete_send(q, s, std::uint32_t(data.size()));
  return true;
}

bool do_read(qp_obj& q, qp_obj& p, send_wqe& s) {
  if (s.is_inline) return fail_send(q, s, IBV_WC_LOC_PROT_ERR), true;
  if (!(p.attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) || p.attr.max_dest_rd_atomic == 0)
    return refuse(q, p, s, IBV_WC_REM_INV_REQ_ERR), true;
  const auto n = total(s.sges);
  if (n) {
    const auto& from = s.wr.wr.rdma;
    const auto* m = remote_memory(p, from.rkey, from.remote_addr, n, IBV_ACCESS_REMOTE_READ);
    if (!m) return refuse(q, p, s, IBV_WC_REM_ACCESS_ERR), true;
    if (!scatter(q, s.sges, m, n)) return fail_send(q, s, IBV_WC_LOC_PROT_ERR), true;
  }
  complete_send(q, s, std::uint32_t(n));
  return true;
}

bool do_atomic(qp_obj& q, qp_obj& p, send_wqe& s) {
  const auto& a = s.wr.wr.atomic;
  if (!(p.attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) || p.attr.max_dest_rd_atomic == 0)
    return refuse(q, p, s, IBV_WC_REM_INV_REQ_ERR), true;
  auto* target = remote_memory(p, a.rkey, a.remote_addr, 8, IBV_ACCESS_REMOTE_ATOMIC);
  if (!target) return refuse(q, p, s, IBV_WC_REM_ACCESS_ERR), true;
  std::uint64_t old = 0;
  dma_copy(reinterpret_cast<std::byte*>(&old), target, 8);
  if (!scatter(q, s.sges, reinterpret_cast<const std::byte*>(&old), 8))
    return fail_send(q, s, IBV_WC_LOC_PROT_ERR), true;
  const bool add = s.wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  const auto now = add ? old + a.compare_add : old == a.compare_add ? a.swap : old;
  dma_copy(target, reinterpret_cast<const std::byte*>(&now), 8);
  complete_send(q, s, 8);
  return true;
}

bool do_atomic_write(qp_obj& q, qp_obj& p, send_wqe& s) {
  const auto& a = s.wr.wr.atomic;
  if (!(p.attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE)) return refuse(q, p, s, IBV_WC_REM_INV_REQ_ERR), true;
  auto* target = remote_memory(p, a.rkey, a.remote_addr, 8, IBV_ACCESS_REMOTE_WRITE);
  if (!target) return refuse(q, p, s, IBV_WC_REM_ACCESS_ERR), true;
  dma_copy(target, reinterpret_cast<const std::byte*>(&a.compare_add), 8);
  complete_send(q, s, 8);
  return true;
}

bool do_flush(qp_obj& q, qp_obj& p, send_wqe& s) {
  const auto& a = s.wr.wr.atomic;
  const auto type = unsigned(a.swap & 0xff);
  const unsigned access = type << 8; // IBV_ACCESS_FLUSH_* are the placement types, 8 bits higher
  if ((p.attr.qp_access_flags & access) != access || p.attr.max_dest_rd_atomic == 0)
    return refuse(q, p, s, IBV_WC_REM_INV_REQ_ERR), true;
  const bool region = a.swap >> 8 != 0;
  if (!(region ? remote_region(p, a.rkey, access)
               : remote_memory(p, a.rkey, a.remote_addr, a.compare_add, access) != nullptr))
    return refuse(q, p, s, IBV_WC_REM_ACCESS_ERR), true;
  the_world().flushed.push_back({a.remote_addr, a.compare_add, type, region});
  complete_send(q, s, 0);
  return true;
}

int check_send(const qp_obj& q, const ibv_send_wr& wr) {
  if (wr.num_sge < 0 || std::uint32_t(wr.num_sge) > q.asked.max_send_sge) return EINVAL;
  if (const int error = iwarp_refuses(q, wr)) return error;
  std::uint32_t length = 0; // 32 bits that wrap around, as in the provider
  for (int i = 0; i < wr.num_sge; ++i) length += wr.sg_list[i].length;
  if ((wr.send_flags & IBV_SEND_INLINE) && length > q.asked.max_inline_data) return EINVAL;
  if (is_atomic(wr.opcode) && length < 8) return EINVAL;
  if ((wr.opcode == IBV_WR_ATOMIC_WRITE || wr.opcode == flush_opcode) && q.extended && !q.extended->begun.empty())
    return 0;
  if (wr.opcode == IBV_WR_TSO || wr.opcode > IBV_WR_TSO) return EOPNOTSUPP;
  return 0;
}

send_wqe make_wqe(const ibv_send_wr& wr, bool held) {
  send_wqe s;
  s.wr = wr;
  s.wr.next = nullptr;
  s.wr.sg_list = nullptr;
  s.held = held;
  s.sges = copy_sges(wr.sg_list, wr.num_sge);
  if (wr.opcode == IBV_WR_BIND_MW) s.window_key = wr.bind_mw.mw->rkey;
  s.is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  if (s.is_inline && wr.opcode != IBV_WR_RDMA_READ)
    for (const auto& g : s.sges) {
      const auto* p = reinterpret_cast<const std::byte*>(g.addr);
      s.inlined.insert(s.inlined.end(), p, p + g.length);
    }
  return s;
}

} // namespace

std::vector<ibv_sge> copy_sges(const ibv_sge* list, int n) {
  return n > 0 ? std::vector<ibv_sge>(list, list + n) : std::vector<ibv_sge>{};
}

void fail_send(qp_obj& q, const send_wqe& s, ibv_wc_status status) {
  push_wc(*q.scq, failed_wc(q, s.wr.wr_id, status), true);
  to_error(q);
}

bool execute(qp_obj& q, send_wqe& s) {
  const auto op = s.wr.opcode;
  const auto wait = [&](send_wqe::wait w) {
    s.waits = w;
    return false;
  };
  if (op == IBV_WR_LOCAL_INV)
    return invalidate_window(q, s.wr.invalidate_rkey) ? complete_send(q, s, 0) : fail_send(q, s, IBV_WC_LOC_QP_OP_ERR),
           true;
  if (op == IBV_WR_BIND_MW)
    return bind_window(q, s) ? complete_send(q, s, 0) : fail_send(q, s, IBV_WC_MW_BIND_ERR), true;
  const bool reads = op == IBV_WR_RDMA_READ || is_atomic(op);
  if (reads && q.attr.max_rd_atomic == 0) return wait(send_wqe::wait::forever);
  if (is_atomic(op) && (s.wr.wr.atomic.remote_addr & 7)) return wait(send_wqe::wait::forever);
  std::vector<std::byte> data;
  if (!reads && !gather(q, s, data))
    return fail_send(q, s, is_iba() ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_QP_OP_ERR), true;
  if (q.qp_type == IBV_QPT_UD) {
    deliver_datagram(q, s, data);
    return complete_send(q, s, std::uint32_t(data.size())), true;
  }
  auto* p = answering_peer(q);
  if (!p) return q.attr.retry_cnt == 7 ? wait(send_wqe::wait::peer) : (fail_send(q, s, IBV_WC_RETRY_EXC_ERR), true);
  if (takes_receive(op) && (p->shared ? p->shared->rq : p->rq).empty())
    return q.attr.rnr_retry != 0 ? wait(send_wqe::wait::receive) : (fail_send(q, s, IBV_WC_RNR_RETRY_EXC_ERR), true);
  if (op == IBV_WR_RDMA_READ) return do_read(q, *p, s);
  if (is_atomic(op)) return do_atomic(q, *p, s);
  if (op == flush_opcode) return do_flush(q, *p, s);
  if (op == IBV_WR_ATOMIC_WRITE) return do_atomic_write(q, *p, s);
  if (op == IBV_WR_RDMA_WRITE || op == IBV_WR_RDMA_WRITE_WITH_IMM) return do_write(q, *p, s, data);
  return do_send(q, *p, s, data);
}

void run() {
  auto& w = the_world();
  while (!w.work.empty()) {
    auto& q = *w.work.back();
    w.work.pop_back();
    while (q.alive && q.true_state() == IBV_QPS_RTS && !q.sq.empty() && !q.sq.front().held && !q.sq.front().parked) {
      // The entry is removed from the queue first, because a failure flushes the rest of the queue.
      auto s = std::move(q.sq.front());
      q.sq.pop_front();
      if (execute(q, s)) continue;
      q.sq.push_front(std::move(s));
      break;
    }
  }
}

int op_post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  entry e{call::ibv_post_send};
  auto& q = e.use<qp_obj>(qp);
  if (e.fault()) {
    *bad = wr;
    return e.code(e.fault());
  }
  const auto state = q.true_state();
  const bool ready = state == IBV_QPS_RTS || state == IBV_QPS_SQD;
  int error = 0;
  for (; wr; wr = wr->next) {
    error = check_send(q, *wr);
    if (!error && q.sq.size() >= q.sq_depth) error = ENOMEM;
    if (error) {
      *bad = wr;
      break;
    }
    if (state == IBV_QPS_ERR) {
      flush_wc(q, false, wr->wr_id);
    } else if (ready || e.w.cfg.rejected_sends_stay) {
      q.sq.push_back(make_wqe(*wr, q.held || e.w.cfg.hold_sends));
      q.sq.back().parked = !ready;
    } else {
      *bad = wr;
      break;
    }
  }
  // The provider fills its ring before it calls the kernel, so bad_wr is not set when the state is wrong.
  if (!ready && state != IBV_QPS_ERR) return e.code(EINVAL);
  for (auto& s : q.sq) s.parked = false;
  kick(q);
  run();
  return e.code(error);
}

int op_post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  entry e{call::ibv_post_recv};
  auto& q = e.use<qp_obj>(qp);
  if (e.fault()) {
    *bad = wr;
    return e.code(e.fault());
  }
  int error = 0;
  for (; wr && !error; wr = wr->next) {
    if (q.true_state() == IBV_QPS_RESET || q.shared || wr->num_sge < (is_iwarp(*q.ctx->dev) ? 1 : 0) ||
        std::uint32_t(wr->num_sge) > q.asked.max_recv_sge)
      error = EINVAL;
    else if (q.rq.size() >= q.rq_depth)
      error = ENOMEM;
    else if (q.true_state() == IBV_QPS_ERR && e.w.cfg.flush_late_receives)
      flush_wc(q, true, wr->wr_id);
    else
      q.rq.push_back({wr->wr_id, copy_sges(wr->sg_list, wr->num_sge)});
    if (error) *bad = wr;
  }
  kick_peer(q);
  run();
  return e.code(error);
}

} // namespace fake::impl
