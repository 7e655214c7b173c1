// Extended queue pairs, for the atomic writes and flushes that only they post.
// SPDX-License-Identifier: BSL-1.0
#include "objects.hpp"
#include "state.hpp"

#include <cerrno>
#include <cstring>

namespace fake::impl {

namespace {

extended_qp& extended(ibv_qp_ex* ex) { return *reinterpret_cast<extended_qp*>(ex); }

void start(ibv_qp_ex* ex) { extended(ex).begun.clear(); }

/// Adds a request for this remote memory to those that were begun. Returns its part that is still to be filled.
auto& begin(ibv_qp_ex* ex, ibv_wr_opcode opcode, std::uint32_t rkey, std::uint64_t address) {
  ibv_send_wr& wr = extended(ex).begun.emplace_back();
  wr.wr_id = ex->wr_id;
  wr.send_flags = ex->wr_flags;
  wr.opcode = opcode;
  wr.wr.atomic.remote_addr = address;
  wr.wr.atomic.rkey = rkey;
  return wr.wr.atomic;
}

void atomic_write(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address, const void* word) {
  auto& to = begin(ex, IBV_WR_ATOMIC_WRITE, rkey, address);
  std::memcpy(&to.compare_add, word, sizeof to.compare_add);
}

void flush(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address, std::size_t length, std::uint8_t type,
           std::uint8_t level) {
  auto& to = begin(ex, flush_opcode, rkey, address);
  to.compare_add = length;
  to.swap = type | std::uint64_t{level} << 8;
}
/// Sets the member of newer headers; where the header lacks it, it is the next member of extended_qp.
template <class Qp>
void set_flush(Qp& to, extended_qp& x) {
  if constexpr (requires { to.wr_flush; })
    to.wr_flush = flush;
  else
    x.wr_flush = flush;
}

int complete(ibv_qp_ex* ex) {
  auto& x = extended(ex);
  for (std::size_t i = 1; i < x.begun.size(); ++i) x.begun[i - 1].next = &x.begun[i];
  ibv_send_wr* bad = nullptr;
  const int error = op_post_send(x.qp, x.begun.data(), &bad);
  x.begun.clear();
  return error;
}

} // namespace

int op_query_device_ex(ibv_context* context, const ibv_query_device_ex_input*, ibv_device_attr_ex* attr, std::size_t) {
  *attr = {};
  if (const int error = ibv_query_device(context, &attr->orig_attr)) return error;
  const auto& cfg = live_object<context_obj>(context, "ibv_query_device_ex").dev->cfg;
  if (cfg.flushes) attr->device_cap_flags_ex |= std::uint64_t{3} << 38;
  if (cfg.atomic_writes) attr->device_cap_flags_ex |= std::uint64_t{1} << 40;
  return 0;
}

ibv_qp* op_create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* ex) {
  constexpr auto mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  constexpr std::uint64_t with_flush = 1 << 11;
  const auto& cfg = live_object<context_obj>(context, "ibv_create_qp_ex").dev->cfg;
  const std::uint64_t known = IBV_QP_EX_WITH_ATOMIC_WRITE | (cfg.extended_flushes ? with_flush : 0);
  if (ex->comp_mask != mask || ex->send_ops_flags == 0 || (ex->send_ops_flags & ~known) != 0) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  ibv_qp_init_attr init{ex->qp_context, ex->send_cq, ex->recv_cq, ex->srq, ex->cap, ex->qp_type, ex->sq_sig_all};
  ibv_qp* const made = ibv_create_qp(ex->pd, &init);
  if (!made) return nullptr;
  ex->cap = init.cap;
  auto& x = live_object<qp_obj>(made, "ibv_create_qp_ex").extended.emplace();
  x.qp = made;
  x.verbs.wr_start = start;
  if (ex->send_ops_flags & IBV_QP_EX_WITH_ATOMIC_WRITE) x.verbs.wr_atomic_write = atomic_write;
  if (ex->send_ops_flags & with_flush) set_flush(x.verbs, x);
  x.verbs.wr_complete = complete;
  return made;
}

} // namespace fake::impl

using namespace fake::impl;

extern "C" ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  auto& q = live_object<qp_obj>(qp, "ibv_qp_to_qp_ex");
  return q.extended ? &q.extended->verbs : nullptr;
}
