// Both ways of posting, in hand-written verbs: ibv_post_send, and ibv_wr_* of an extended queue pair.
// SPDX-License-Identifier: BSL-1.0
#include "raw.hpp"

namespace overhead {
namespace {

/// A request, posted by ibv_post_send.
template <ibv_wr_opcode Opcode, unsigned Flags = IBV_SEND_SIGNALED>
[[gnu::noinline]] void counted_post_send(place& p, long n) {
  ibv_qp* const qp = p.completions_only.ep.native_handle();
  ibv_cq* const cq = p.completions_only.evd.native_handle();
  for (long i = 0; i < n; ++i) {
    ibv_sge sge = p.sge[0];
    ibv_send_wr wr;
    begin(wr, i, sge, Opcode);
    wr.send_flags = Flags;
    if (Opcode != IBV_WR_SEND) {
      wr.wr.rdma.remote_addr = p.remote_address;
      wr.wr.rdma.rkey = p.rkey;
    }
    post(qp, wr);
    poll_one(cq);
  }
}

/// Begins a request on an extended queue pair.
[[gnu::always_inline]] inline void begin_extended(ibv_qp_ex* to, std::uint64_t id, unsigned flags, ibv_wr_opcode opcode,
                                                  std::uint64_t address, std::uint32_t key) {
  to->wr_id = id;
  to->wr_flags = flags;
  if (opcode == IBV_WR_SEND)
    ibv_wr_send(to);
  else if (opcode == IBV_WR_RDMA_WRITE)
    ibv_wr_rdma_write(to, key, address);
  else
    ibv_wr_rdma_read(to, key, address);
}

template <ibv_wr_opcode Opcode, unsigned Flags = IBV_SEND_SIGNALED>
[[gnu::noinline]] void counted_extended(place& p, long n) {
  ibv_qp_ex* const to = p.extended;
  ibv_cq* const cq = p.completions_only.evd.native_handle();
  for (long i = 0; i < n; ++i) {
    const ibv_sge& sge = p.sge[0];
    ibv_wr_start(to);
    begin_extended(to, static_cast<std::uint64_t>(i), Flags, Opcode, p.remote_address, p.rkey);
    if ((Flags & IBV_SEND_INLINE) != 0)
      ibv_wr_set_inline_data(to, reinterpret_cast<void*>(sge.addr), sge.length);
    else
      ibv_wr_set_sge(to, sge.lkey, sge.addr, sge.length);
    if (ibv_wr_complete(to) != 0) wrong();
    poll_one(cq);
  }
}

/// Takes the 16 completions that are there.
[[gnu::always_inline]] inline void poll_16(ibv_cq* cq) {
  ibv_wc wc[at_a_time];
  if (ibv_poll_cq(cq, at_a_time, wc) != at_a_time) wrong();
  for (const ibv_wc& c : wc) {
    if (c.status != IBV_WC_SUCCESS) wrong();
    consumed += c.wr_id;
  }
}

/// Fills a chain of 16 sends.
[[gnu::always_inline]] inline void fill(ibv_send_wr* wr, ibv_sge* sge, const place& p, long first) {
  for (long j = 0; j < at_a_time; ++j) {
    sge[j] = p.sge[0];
    begin(wr[j], first + j, sge[j], IBV_WR_SEND);
    wr[j].next = &wr[j] + 1;
  }
  wr[at_a_time - 1].next = nullptr;
}

[[gnu::noinline]] void counted_chain(place& p, long n) {
  ibv_qp* const qp = p.completions_only.ep.native_handle();
  ibv_cq* const cq = p.completions_only.evd.native_handle();
  for (long i = 0; i < n; i += at_a_time) {
    ibv_sge sge[at_a_time];
    ibv_send_wr wr[at_a_time];
    fill(wr, sge, p, i);
    post(qp, wr[0]);
    poll_16(cq);
  }
}

[[gnu::noinline]] void counted_extended_batch(place& p, long n) {
  ibv_qp_ex* const to = p.extended;
  ibv_cq* const cq = p.completions_only.evd.native_handle();
  for (long i = 0; i < n; i += at_a_time) {
    ibv_wr_start(to);
    for (long j = 0; j < at_a_time; ++j) {
      const ibv_sge& sge = p.sge[0];
      begin_extended(to, static_cast<std::uint64_t>(i + j), IBV_SEND_SIGNALED, IBV_WR_SEND, 0, 0);
      ibv_wr_set_sge(to, sge.lkey, sge.addr, sge.length);
    }
    if (ibv_wr_complete(to) != 0) wrong();
    poll_16(cq);
  }
}

/// Posts a chain by an extended queue pair. dat would post like this, because its path fills links of a chain.
[[nodiscard, gnu::always_inline]] inline int post_links(ibv_qp_ex* to, const ibv_send_wr* wr) {
  ibv_wr_start(to);
  for (; wr; wr = wr->next) {
    begin_extended(to, wr->wr_id, wr->send_flags, wr->opcode, wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
    if ((wr->send_flags & IBV_SEND_INLINE) != 0)
      ibv_wr_set_inline_data(to, reinterpret_cast<void*>(wr->sg_list->addr), wr->sg_list->length);
    else
      ibv_wr_set_sge_list(to, static_cast<std::size_t>(wr->num_sge), wr->sg_list);
  }
  return ibv_wr_complete(to);
}
/// Called through a pointer, so that the compiler does not know the operation, as in dat's path of all operations.
using post_function = int (*)(ibv_qp_ex*, const ibv_send_wr*);
post_function volatile post_links_of_any_kind = [](ibv_qp_ex* to, const ibv_send_wr* wr) { return post_links(to, wr); };

[[gnu::noinline]] void counted_link_extended(place& p, long n) {
  ibv_qp_ex* const to = p.extended;
  ibv_cq* const cq = p.completions_only.evd.native_handle();
  for (long i = 0; i < n; ++i) {
    ibv_sge sge = p.sge[0];
    ibv_send_wr wr;
    begin(wr, i, sge, IBV_WR_RDMA_WRITE);
    wr.wr.rdma.remote_addr = p.remote_address;
    wr.wr.rdma.rkey = p.rkey;
    if (post_links_of_any_kind(to, &wr) != 0) wrong();
    poll_one(cq);
  }
}

[[gnu::noinline]] void counted_chain_extended(place& p, long n) {
  ibv_qp_ex* const to = p.extended;
  ibv_cq* const cq = p.completions_only.evd.native_handle();
  for (long i = 0; i < n; i += at_a_time) {
    ibv_sge sge[at_a_time];
    ibv_send_wr wr[at_a_time];
    fill(wr, sge, p, i);
    if (post_links_of_any_kind(to, wr) != 0) wrong();
    poll_16(cq);
  }
}

constexpr unsigned inlined = IBV_SEND_SIGNALED | IBV_SEND_INLINE;

constexpr job one_way[] = {
    {"ibv_wr: send", counted_post_send<IBV_WR_SEND>},
    {"ibv_wr: RDMA write", counted_post_send<IBV_WR_RDMA_WRITE>},
    {"ibv_wr: write, inline", counted_post_send<IBV_WR_RDMA_WRITE, inlined>},
    {"ibv_wr: RDMA read", counted_post_send<IBV_WR_RDMA_READ>},
    {"ibv_wr: batch of 16", counted_chain},
    {"ibv_wr: write, from a link", counted_post_send<IBV_WR_RDMA_WRITE>},
    {"ibv_wr: 16, from a chain", counted_chain},
};
constexpr job other_way[] = {
    {"ibv_wr: send", counted_extended<IBV_WR_SEND>},
    {"ibv_wr: RDMA write", counted_extended<IBV_WR_RDMA_WRITE>},
    {"ibv_wr: write, inline", counted_extended<IBV_WR_RDMA_WRITE, inlined>},
    {"ibv_wr: RDMA read", counted_extended<IBV_WR_RDMA_READ>},
    {"ibv_wr: batch of 16", counted_extended_batch},
    {"ibv_wr: write, from a link", counted_link_extended},
    {"ibv_wr: 16, from a chain", counted_chain_extended},
};

} // namespace

std::span<const job> post_send_jobs() { return one_way; }
std::span<const job> extended_jobs() { return other_way; }

} // namespace overhead
