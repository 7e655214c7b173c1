// The raw side of the jobs of the InfiniBand extensions; in a file of its own, so that they do not change what the
// compiler inlines in the other jobs.
// SPDX-License-Identifier: BSL-1.0
#include "raw.hpp"

namespace overhead {
namespace {

[[gnu::noinline]] void counted_send_immediate(place& p, long n) {
  ibv_qp* const qp = p.completions_only.ep.native_handle();
  ibv_cq* const cq = p.completions_only.evd.native_handle();
  for (long i = 0; i < n; ++i) {
    ibv_sge sge = p.sge[0];
    ibv_send_wr wr;
    begin(wr, i, sge, IBV_WR_SEND_WITH_IMM);
    wr.imm_data = static_cast<std::uint32_t>(i);
    post(qp, wr);
    poll_one(cq);
  }
}

template <ibv_wr_opcode Opcode>
[[gnu::noinline]] void counted_atomic(place& p, long n) {
  ibv_qp* const qp = p.completions_only.ep.native_handle();
  ibv_cq* const cq = p.completions_only.evd.native_handle();
  for (long i = 0; i < n; ++i) {
    ibv_sge sge = p.old_sge;
    ibv_send_wr wr;
    begin(wr, i, sge, Opcode);
    wr.wr.atomic.remote_addr = p.word_address;
    wr.wr.atomic.compare_add = Opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? 0 : 1;
    if (Opcode == IBV_WR_ATOMIC_CMP_AND_SWP) wr.wr.atomic.swap = 1;
    wr.wr.atomic.rkey = p.word_key;
    post(qp, wr);
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
    begin(wr, i, sge, IBV_WR_SEND);
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = number;
    wr.wr.ud.remote_qkey = dat::ib::default_qkey;
    post(qp, wr);
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
