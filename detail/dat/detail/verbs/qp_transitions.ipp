// Definitions of the steps of a queue pair.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/verbs/ib_time.hpp>
#include <dat/detail/verbs/qp_transitions.hpp>

#include <cerrno>
#include <sys/random.h>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL int connection_qp_to_init(ibv_qp* qp, const qp_settings& s, qp_init_state& now) noexcept {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = s.pkey_index;
  attr.port_num = s.port;
  attr.qp_access_flags = static_cast<unsigned>(s.access);
  now = {s.access, s.pkey_index};
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

DAT_DECL int datagram_qp_to_rts(ibv_qp* qp, std::uint8_t port, std::uint16_t pkey_index, std::uint32_t qkey) noexcept {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = pkey_index;
  attr.port_num = port;
  attr.qkey = qkey;
  if (const int err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
    return err;
  attr.qp_state = IBV_QPS_RTR;
  if (const int err = ibv_modify_qp(qp, &attr, IBV_QP_STATE)) return err;
  attr.qp_state = IBV_QPS_RTS;
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

/// The three steps. `describe(attr, mask)` sets the part of each step that depends on the peer, or returns an errno.
template <class Describe>
[[nodiscard]] rts_result steps_to_rts(ibv_qp* qp, const qp_settings& s, qp_init_state& now, const char* source,
                                      Describe describe) noexcept {
  rts_result r;
  ibv_qp_attr attr{};
  int mask = 0;
  const auto begin = [&](ibv_qp_state to) {
    attr = {};
    attr.qp_state = to;
    mask = 0;
    r.verb = source;
    r.err = describe(attr, mask);
    return r.err == 0;
  };
  const auto modify = [&] {
    r.verb = "ibv_modify_qp";
    r.err = ibv_modify_qp(qp, &attr, mask);
    return r.err == 0;
  };
  // The queue pair is in INIT. Its rights may have changed since. Where there are partitions, the path may use another
  // partition than the previous attempt.
  if (!s.ethernet || now.access != s.access) {
    if (!begin(IBV_QPS_INIT)) return r;
    attr.qp_access_flags = static_cast<unsigned>(s.access);
    if (attr.pkey_index != now.pkey_index || now.access != s.access) {
      if (!modify()) return r;
      now = {s.access, attr.pkey_index};
    }
  }
  if (!begin(IBV_QPS_RTR)) return r;
  attr.min_rnr_timer = rnr_timer_code(s.min_rnr_timer);
  attr.max_dest_rd_atomic = s.responder_resources;
  set_qos(attr.ah_attr, s.qos);
  if (!modify()) return r;
  r.past_init = true;
  if (!begin(IBV_QPS_RTS)) return r;
  attr.timeout = ack_timeout_code(s.ack_timeout);
  attr.retry_cnt = s.retry_count;
  attr.rnr_retry = s.rnr_retry_count;
  attr.max_rd_atomic = s.initiator_depth;
  (void)modify();
  return r;
}

DAT_DECL rts_result connection_qp_to_rts(ibv_qp* qp, const qp_settings& s, qp_init_state& now,
                                         rdma_cm_id* id) noexcept {
  return steps_to_rts(qp, s, now, "rdma_init_qp_attr", [id](ibv_qp_attr& attr, int& mask) noexcept {
    return rdma_init_qp_attr(id, &attr, &mask) != 0 ? errno : 0;
  });
}

DAT_DECL rts_result connection_qp_to_rts(ibv_qp* qp, const qp_settings& s, qp_init_state& now,
                                         const qp_path& path) noexcept {
  return steps_to_rts(qp, s, now, "ibv_modify_qp", [&](ibv_qp_attr& attr, int& mask) noexcept {
    mask = IBV_QP_STATE;
    switch (attr.qp_state) {
    case IBV_QPS_INIT:
      attr.pkey_index = s.pkey_index;
      attr.port_num = s.port;
      mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
      break;
    case IBV_QPS_RTR:
      attr.ah_attr = path.address;
      attr.path_mtu = path.mtu;
      attr.dest_qp_num = path.dest_qp_num;
      attr.rq_psn = path.rq_psn;
      mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
              IBV_QP_MIN_RNR_TIMER;
      break;
    default:
      attr.sq_psn = path.sq_psn;
      mask |= IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
      break;
    }
    return 0;
  });
}

DAT_DECL rts_result prepare_iwarp_qp(ibv_qp* qp, const qp_settings& s, qp_init_state& now) noexcept {
  rts_result r;
  r.verb = "ibv_modify_qp";
  if (now.access != s.access) r.err = connection_qp_to_init(qp, s, now);
  return r;
}

DAT_DECL std::uint32_t random_psn() noexcept {
  std::uint32_t psn = 0;
  // getrandom returns a few bytes completely. During boot the call waits for entropy.
  while (::getrandom(&psn, sizeof psn, 0) < 0 && errno == EINTR) {
  }
  return psn & 0xff'ffff;
}

}}} // namespace dat::v0::detail
