// Parameters of an endpoint: changing them before connecting, and asking for them. Not part of <dat/dat.hpp>.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/communicator.hpp>
#include <dat/ep.hpp>
#include <dat/ep_attributes.hpp>
#include <dat/evd.hpp>
#include <dat/evd_id.hpp>
#include <dat/pz.hpp>
#include <dat/srq.hpp>

#include <chrono>
#include <cstdint>
#include <optional>

namespace dat::inline v0 {

/// What `ep::modify` is to change; what is not named stays (DAT_EP_PARAM_MASK, uDAPL 2.0 §6.6.12). Parameters that no
/// call can change are not here.
struct ep_changes {
  const dat::pz* pz = nullptr;
  evd_ref<dto> recv{};
  evd_ref<dto> request{};
  evd_ref<connection> connect{};
  /// An address of the ia's own interface to connect from, with a port or with 0 for a free one.
  std::optional<ia_address> local_address = std::nullopt;
  /// Once: it cannot be changed again.
  std::optional<communicator> comm = std::nullopt;

  // As in ep_attributes.
  std::optional<std::uint32_t> max_request_dtos = std::nullopt;
  std::optional<std::uint32_t> max_recv_dtos = std::nullopt;
  std::optional<std::uint32_t> max_request_iov = std::nullopt;
  std::optional<std::uint32_t> max_recv_iov = std::nullopt;
  std::optional<std::uint32_t> max_inline = std::nullopt;
  std::optional<std::uint32_t> max_message_size = std::nullopt;
  std::optional<std::uint8_t> max_rdma_read_out = std::nullopt;
  std::optional<std::uint8_t> max_rdma_read_in = std::nullopt;
  std::optional<std::uint8_t> retry_count = std::nullopt;
  std::optional<std::uint8_t> rnr_retry_count = std::nullopt;
  std::optional<std::chrono::microseconds> ack_timeout = std::nullopt;
  std::optional<std::chrono::microseconds> min_rnr_timer = std::nullopt;
  std::optional<waking> recv_completion = std::nullopt; ///< only while no receive is posted
  std::optional<waking> request_completion = std::nullopt;
};

/// Everything about an endpoint at one moment (DAT_EP_PARAM, uDAPL 2.0 §6.6.10).
struct ep_params {
  ep_state state = ep_state::disconnected;
  std::uint32_t number = 0; ///< the queue pair's; 0 while unconfigured
  /// As set, or inherited from the service point it was accepted from; all zero: none.
  communicator comm;
  /// The ia's, the one that was set, or the connection's, with the port as soon as there is one.
  ia_address local_address;
  /// Of the connection, of an attempt at one, or of a request that waits for an answer. Else nothing.
  std::optional<ia_address> remote_address;
  bool has_pz = false;
  evd_id recv;    ///< empty: missing
  evd_id request; ///< empty: missing
  evd_id connect; ///< empty: missing
  srq_ref srq;    ///< where its receives come from; empty: from a queue of its own
  /// As given, with the defaults that dat chose for what was not. With an srq, max_recv_dtos is the hard high watermark
  /// and max_recv_iov 0, as uDAPL has it.
  ep_attributes attributes;
};

/// DAT_EP_STATE and what is outstanding (uDAPL 2.0 §6.6.9).
struct ep_status {
  ep_state state = ep_state::disconnected;
  bool recv_idle = true;    ///< no receive is posted whose completion was not taken
  bool request_idle = true; ///< the same for requests; suppressed ones count until a later completion is taken
};

/// Receive buffers of an endpoint (uDAPL 2.0 §6.6.11). Empty where nobody can know (DAT_VALUE_UNKNOWN): adapters do not
/// tell what an endpoint has taken from an srq and not completed.
struct ep_recv_buffers {
  std::optional<std::uint32_t> allocated = 0; ///< posted, and not taken as completed
  std::optional<std::uint32_t> span = 0; ///< messages that can complete before another one is posted: the same, on IB
};

} // namespace dat::inline v0

#include <dat/detail/ep_params_impl.hpp> // definitions
