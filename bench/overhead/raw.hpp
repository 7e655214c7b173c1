// Parts that the raw jobs share: verbs as a programmer writes them when only speed counts. They set only the members of
// a work request that the operation needs, and remember nothing about posted work but the wr_id.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "jobs.hpp"

#include <infiniband/verbs.h>

#include <cstdint>

namespace overhead {

/// Polls until a completion arrives, and checks it.
[[gnu::always_inline]] inline void poll_one(ibv_cq* cq) {
  ibv_wc wc;
  while (ibv_poll_cq(cq, 1, &wc) == 0) {
  }
  if (wc.status != IBV_WC_SUCCESS) wrong();
  consumed += wc.wr_id;
}

/// The members that every signaled request of one segment needs.
[[gnu::always_inline]] inline void begin(ibv_send_wr& wr, long i, ibv_sge& sge, ibv_wr_opcode opcode) {
  wr.wr_id = static_cast<std::uint64_t>(i);
  wr.next = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
}
/// The members that every receive needs.
[[gnu::always_inline]] inline void begin(ibv_recv_wr& wr, long i, ibv_sge& sge) {
  wr.wr_id = static_cast<std::uint64_t>(i);
  wr.next = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
}

[[gnu::always_inline]] inline void post(ibv_qp* qp, ibv_send_wr& wr) {
  ibv_send_wr* bad;
  if (ibv_post_send(qp, &wr, &bad) != 0) wrong();
}

} // namespace overhead
