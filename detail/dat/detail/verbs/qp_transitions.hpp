// The steps of a queue pair from RESET to RTS, for connections of every kind and for datagrams.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/qos.hpp>

#include <dat/detail/base/config.hpp>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <chrono>
#include <cstdint>

namespace dat { inline namespace v0 { namespace detail {

/// The outcome of a sequence of verbs calls: the call that failed and its errno.
struct verb_result {
  const char* verb = nullptr;
  int err = 0;
  explicit operator bool() const noexcept { return err == 0; }
};

/// The state that a queue pair reached on its way to RTS.
struct rts_result : verb_result {
  bool past_init = false; ///< returning to INIT would lose the posted receives
};

/// The parameters that an endpoint sets on its queue pair. qp_path has the path to the peer.
struct qp_settings {
  std::uint8_t port = 1;
  std::uint16_t pkey_index = 0;         ///< the P_Key index of the interface
  bool ethernet = true;                 ///< a RoCE port has one partition, so the P_Key index never changes
  int access = 0;                       ///< rights of the peer: IBV_ACCESS_*
  std::uint8_t initiator_depth = 0;     ///< RDMA reads and atomics that this side runs at a time
  std::uint8_t responder_resources = 0; ///< RDMA reads and atomics that this side serves at a time
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
  std::chrono::microseconds ack_timeout{};
  std::chrono::microseconds min_rnr_timer{};
  dat::qos qos{};
};

/// The present attributes of a queue pair in INIT.
struct qp_init_state {
  int access = 0;
  std::uint16_t pkey_index = 0;
};

/// The path to a peer for connections that rdma_cm does not make.
struct qp_path {
  ibv_ah_attr address{};
  ibv_mtu mtu = IBV_MTU_1024;
  std::uint32_t dest_qp_num = 0;
  std::uint32_t rq_psn = 0;
  std::uint32_t sq_psn = 0;
};

/// Sets the members of `q` that are set on the path of packets that this side sends.
inline void set_qos(ibv_ah_attr& path, const qos& q) noexcept {
  path.sl = q.service_level.value_or(path.sl);
  if (path.is_global == 0) return;
  path.grh.traffic_class = q.traffic_class.value_or(path.grh.traffic_class);
  path.grh.flow_label = q.flow_label.value_or(path.grh.flow_label);
}

/// Moves a new queue pair of a connection to INIT, so that receives can be posted before the connection. Returns 0 or
/// errno.
[[nodiscard]] int connection_qp_to_init(ibv_qp* qp, const qp_settings& s, qp_init_state& now) noexcept;
/// Moves a new datagram queue pair to RTS. Returns 0 or errno.
[[nodiscard]] int datagram_qp_to_rts(ibv_qp* qp, std::uint8_t port, std::uint16_t pkey_index,
                                     std::uint32_t qkey) noexcept;

/// Moves a queue pair from INIT to RTS. The path comes from the id of a connection that rdma_cm makes. rdma_cm knows
/// neither the timers nor the rights of the endpoint, so `s` replaces its values.
[[nodiscard]] rts_result connection_qp_to_rts(ibv_qp* qp, const qp_settings& s, qp_init_state& now,
                                              rdma_cm_id* id) noexcept;
/// Moves a queue pair from INIT to RTS along a path that the caller knows.
[[nodiscard]] rts_result connection_qp_to_rts(ibv_qp* qp, const qp_settings& s, qp_init_state& now,
                                              const qp_path& path) noexcept;

/// Prepares a queue pair in INIT for a connection of iWARP: sets the rights of the peer. The kernel makes the further
/// steps.
[[nodiscard]] rts_result prepare_iwarp_qp(ibv_qp* qp, const qp_settings& s, qp_init_state& now) noexcept;

/// A random packet sequence number of 24 bits. A peer that can guess the first number of a connection could forge its
/// packets.
[[nodiscard]] std::uint32_t random_psn() noexcept;

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/verbs/qp_transitions.ipp>
#endif
