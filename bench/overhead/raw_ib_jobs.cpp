// The jobs of the InfiniBand extensions, the raw side. In a file of their own, so that what they make the compiler
// inline changes nothing for the others. SPDX-License-Identifier: BSL-1.0
#include "jobs.hpp"

#include <infiniband/verbs.h>

namespace overhead {
namespace {

/// Polls until one completion is there, and checks it.
[[gnu::always_inline]] inline void poll_one(ibv_cq* cq) {
  ibv_wc wc;
  while (ibv_poll_cq(cq, 1, &wc) == 0) {
  }
  if (wc.status != IBV_WC_SUCCESS) wrong();
  consumed += wc.wr_id;
}

[[gnu::noinline]] void counted_send_immediate(place& p, long n) {
  ibv_qp* const qp = p.lean.ep.native_handle();
  ibv_cq* const cq = p.lean.evd.native_handle();
  for (long i = 0; i < n; ++i) {
    ibv_sge sge = p.sge[0];
    ibv_send_wr wr;
    wr.wr_id = static_cast<std::uint64_t>(i);
    wr.next = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.imm_data = static_cast<std::uint32_t>(i);
    ibv_send_wr* bad;
    if (ibv_post_send(qp, &wr, &bad) != 0) wrong();
    poll_one(cq);
  }
}

template <ibv_wr_opcode Opcode>
[[gnu::noinline]] void counted_atomic(place& p, long n) {
  ibv_qp* const qp = p.lean.ep.native_handle();
  ibv_cq* const cq = p.lean.evd.native_handle();
  for (long i = 0; i < n; ++i) {
    ibv_sge sge = p.old_sge;
    ibv_send_wr wr;
    wr.wr_id = static_cast<std::uint64_t>(i);
    wr.next = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = Opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.atomic.remote_addr = p.word_address;
    wr.wr.atomic.compare_add = Opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? 0 : 1;
    if (Opcode == IBV_WR_ATOMIC_CMP_AND_SWP) wr.wr.atomic.swap = 1;
    wr.wr.atomic.rkey = p.word_key;
    ibv_send_wr* bad;
    if (ibv_post_send(qp, &wr, &bad) != 0) wrong();
    poll_one(cq);
  }
}

[[gnu::noinline]] void counted_ud(place& p, long n) {
  ibv_qp* const qp = p.ud.native_handle();
  ibv_cq* const cq = p.ud_evd.native_handle();
  ibv_ah* const ah = p.peer.native_handle();
  const std::uint32_t number = p.peer.qp_number();
  for (long i = 0; i < n; ++i) {
    ibv_sge sge = p.sge[0];
    ibv_send_wr wr;
    wr.wr_id = static_cast<std::uint64_t>(i);
    wr.next = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = number;
    wr.wr.ud.remote_qkey = dat::ib::default_qkey;
    ibv_send_wr* bad;
    if (ibv_post_send(qp, &wr, &bad) != 0) wrong();
    poll_one(cq);
  }
}

constexpr job jobs[] = {
    {"send with immediate", counted_send_immediate},
    {"fetch and add", counted_atomic<IBV_WR_ATOMIC_FETCH_AND_ADD>},
    {"compare and swap", counted_atomic<IBV_WR_ATOMIC_CMP_AND_SWP>},
    {"UD send", counted_ud},
};

} // namespace

std::span<const job> raw_ib_jobs() { return jobs; }

} // namespace overhead
