// The raw side of the jobs.
// SPDX-License-Identifier: BSL-1.0
#include "raw.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>

namespace overhead {
namespace {

template <int Segments>
[[gnu::always_inline]] inline void copy(ibv_sge* to, const ibv_sge* from) {
  for (int i = 0; i < Segments; ++i) to[i] = from[i];
}

template <int Segments, unsigned Flags = IBV_SEND_SIGNALED>
[[gnu::always_inline]] inline void send_once(ibv_qp* qp, const ibv_sge* from, long i) {
  ibv_sge sge[Segments];
  copy<Segments>(sge, from);
  ibv_send_wr wr;
  wr.wr_id = static_cast<std::uint64_t>(i);
  wr.next = nullptr;
  wr.sg_list = sge;
  wr.num_sge = Segments;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = Flags;
  post(qp, wr);
}

template <int Segments, unsigned Flags = IBV_SEND_SIGNALED>
[[gnu::noinline]] void counted_send(place& p, long n) {
  ibv_qp* const qp = p.completions_only.ep.native_handle();
  ibv_cq* const cq = p.completions_only.evd.native_handle();
  for (long i = 0; i < n; ++i) {
    send_once<Segments, Flags>(qp, p.sge, i);
    poll_one(cq);
  }
}

[[gnu::noinline]] void counted_bind(place& p, long n) {
  ibv_qp* const qp = p.binding.ep.native_handle();
  ibv_cq* const cq = p.binding.evd.native_handle();
  ibv_mw* const mw = p.window.native_handle();
  ibv_mr* const mr = p.region->native_handle();
  for (long i = 0; i < n; ++i) {
    ibv_mw_bind bind;
    bind.wr_id = static_cast<std::uint64_t>(i);
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info.mr = mr;
    bind.bind_info.addr = reinterpret_cast<std::uintptr_t>(mr->addr);
    bind.bind_info.length = 64;
    bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (ibv_bind_mw(qp, mw, &bind) != 0) wrong();
    poll_one(cq);
  }
}

template <ibv_wr_opcode Opcode>
[[gnu::noinline]] void counted_write(place& p, long n) {
  ibv_qp* const qp = p.completions_only.ep.native_handle();
  ibv_cq* const cq = p.completions_only.evd.native_handle();
  for (long i = 0; i < n; ++i) {
    ibv_sge sge = p.sge[0];
    ibv_send_wr wr;
    begin(wr, i, sge, Opcode);
    if (Opcode == IBV_WR_RDMA_WRITE_WITH_IMM) wr.imm_data = static_cast<std::uint32_t>(i);
    wr.wr.rdma.remote_addr = p.remote_address;
    wr.wr.rdma.rkey = p.rkey;
    post(qp, wr);
    poll_one(cq);
  }
}

[[gnu::noinline]] void counted_recv(place& p, long n) {
  ibv_qp* const qp = p.completions_only.ep.native_handle();
  ibv_cq* const cq = p.completions_only.evd.native_handle();
  for (long i = 0; i < n; ++i) {
    ibv_sge sge = p.sge[0];
    ibv_recv_wr wr;
    begin(wr, i, sge);
    ibv_recv_wr* bad;
    if (ibv_post_recv(qp, &wr, &bad) != 0) wrong();
    poll_one(cq);
  }
}

/// The qp_num of a completion names its connection; a program with one connection does not read it.
[[gnu::noinline]] void counted_shared_recv(place& p, long n) {
  ibv_srq* const srq = p.shared.srq.native_handle();
  ibv_cq* const cq = p.shared.evd.native_handle();
  for (long i = 0; i < n; ++i) {
    ibv_sge sge = p.sge[0];
    ibv_recv_wr wr;
    begin(wr, i, sge);
    ibv_recv_wr* bad;
    if (ibv_post_srq_recv(srq, &wr, &bad) != 0) wrong();
    poll_one(cq);
  }
}

/// The data of a program with many connections on one queue: its free buffers, with a lock because any thread may post,
/// and the connection of each queue pair number.
struct shared_buffers {
  struct connection {
    std::uint32_t qp_num = 0;
    std::uint64_t messages = 0;
  };
  std::mutex mutex;
  std::array<std::uint32_t, 256> free{};
  std::size_t frees = 0;
  std::array<std::uint64_t, 256> cookies{};
  std::array<connection, 64> connections{}; // indexed by the low bits of the number

  explicit shared_buffers(std::uint32_t qp_num) {
    while (frees < free.size()) free[frees] = static_cast<std::uint32_t>(frees), ++frees;
    connections[qp_num % connections.size()].qp_num = qp_num;
  }
};

/// A shared queue with that data beside it, as dat keeps it.
[[gnu::noinline]] void counted_shared_recv_kept(place& p, long n) {
  ibv_srq* const srq = p.shared.srq.native_handle();
  ibv_cq* const cq = p.shared.evd.native_handle();
  static shared_buffers buffers(p.shared.ep.number());
  for (long i = 0; i < n; ++i) {
    std::uint32_t slot;
    {
      const std::lock_guard lock(buffers.mutex);
      if (buffers.frees == 0) wrong();
      slot = buffers.free[--buffers.frees];
    }
    buffers.cookies[slot] = static_cast<std::uint64_t>(i);
    ibv_sge sge = p.sge[0];
    ibv_recv_wr wr;
    begin(wr, slot, sge);
    ibv_recv_wr* bad;
    if (ibv_post_srq_recv(srq, &wr, &bad) != 0) wrong();
    ibv_wc wc;
    while (ibv_poll_cq(cq, 1, &wc) == 0) {
    }
    shared_buffers::connection& whose = buffers.connections[wc.qp_num % buffers.connections.size()];
    if (wc.status != IBV_WC_SUCCESS || whose.qp_num != wc.qp_num) wrong();
    ++whose.messages;
    slot = static_cast<std::uint32_t>(wc.wr_id);
    consumed += buffers.cookies[slot];
    const std::lock_guard lock(buffers.mutex);
    buffers.free[buffers.frees++] = slot;
  }
}

/// Takes all completions that are there, 16 at a time.
[[gnu::always_inline]] inline void poll_all(ibv_cq* cq) {
  ibv_wc wc[at_a_time];
  int k;
  do {
    k = ibv_poll_cq(cq, at_a_time, wc);
    for (int i = 0; i < k; ++i) {
      if (wc[i].status != IBV_WC_SUCCESS) wrong();
      consumed += wc[i].wr_id;
    }
  } while (k == at_a_time);
}

/// Operations are posted one by one, as in most hand-written programs, and completed together.
template <long Group>
[[gnu::noinline]] void counted_one_by_one(place& p, long n) {
  ibv_qp* const qp = p.completions_only.ep.native_handle();
  ibv_cq* const cq = p.completions_only.evd.native_handle();
  for (long i = 0; i < n; i += Group) {
    for (long j = i; j < i + Group; ++j) send_once<1>(qp, p.sge, j);
    poll_all(cq);
  }
}

/// Operations are posted as a chain, with one doorbell.
template <long Group>
[[gnu::noinline]] void counted_chain(place& p, long n) {
  ibv_qp* const qp = p.completions_only.ep.native_handle();
  ibv_cq* const cq = p.completions_only.evd.native_handle();
  for (long i = 0; i < n; i += Group) {
    ibv_sge sge[Group];
    ibv_send_wr wr[Group];
    for (long j = 0; j < Group; ++j) {
      sge[j] = p.sge[0];
      wr[j].wr_id = static_cast<std::uint64_t>(i + j);
      wr[j].next = &wr[j] + 1;
      wr[j].sg_list = &sge[j];
      wr[j].num_sge = 1;
      wr[j].opcode = IBV_WR_SEND;
      wr[j].send_flags = IBV_SEND_SIGNALED;
    }
    wr[Group - 1].next = nullptr;
    post(qp, wr[0]);
    poll_all(cq);
  }
}

[[gnu::noinline]] void counted_drain(place& p, long) { poll_all(p.completions_only.evd.native_handle()); }

void drain(place& p, long n) {
  for (long i = 0; i < n; i += at_a_time) {
    for (long j = i; j < i + at_a_time; ++j) send_once<1>(p.completions_only.ep.native_handle(), p.sge, j);
    side volatile counted = counted_drain; // called through a pointer, so that the compiler makes no clone
    counted(p, at_a_time);
  }
}

[[gnu::noinline]] void counted_empty_poll(place& p, long n) {
  ibv_cq* const cq = p.completions_only.evd.native_handle();
  ibv_wc wc;
  for (long i = 0; i < n; ++i) {
    if (ibv_poll_cq(cq, 1, &wc) != 0) wrong();
    consumed += static_cast<std::uint64_t>(i);
  }
}

constexpr job jobs[] = {
    {"send, 1 segment", counted_send<1>},
    {"send, 2 segments", counted_send<2>},
    {"send, 4 segments", counted_send<4>},
    {"send, inline", counted_send<1, IBV_SEND_SIGNALED | IBV_SEND_INLINE>},
    {"RDMA write", counted_write<IBV_WR_RDMA_WRITE>},
    {"RDMA write with immediate", counted_write<IBV_WR_RDMA_WRITE_WITH_IMM>},
    {"RDMA read", counted_write<IBV_WR_RDMA_READ>},
    {"recv", counted_recv},
    {"send, checks off", counted_send<1>},
    {"send, with counters", counted_send<1>},
    {"send, cached region", counted_send<1>},
    {"rmr bind", counted_bind},
    {"recv, shared queue", counted_shared_recv},
    {"recv, shared queue, kept", counted_shared_recv_kept},
    {"batch of 16", counted_one_by_one<at_a_time>},
    {"batch of 16, chained", counted_chain<at_a_time>},
    {"batch of 16, kept", counted_one_by_one<at_a_time>},
    {"post of 4", counted_one_by_one<4>},
    {"post of 4, chained", counted_chain<4>},
    {"drain, 16 there", drain},
    {"drain, 16 there, merged evd", drain},
    {"send, taken by dequeue", counted_send<1>},
    {"send, merged evd", counted_send<1>},
    {"drain of all, merged evd", counted_one_by_one<1>},
    {"dequeue, merged evd", counted_send<1>},
    {"wait_for, merged evd", counted_send<1>},
    {"coroutine, merged evd", counted_send<1>},
    {"empty poll", counted_empty_poll},
};

} // namespace

std::span<const job> raw_jobs() { return jobs; }

} // namespace overhead
