// Parameters of an endpoint: how to change and query them. Not part of <dat/dat.hpp>.
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

namespace dat { inline namespace v0 {

/// The changes for `ep::modify`. A member that is not set changes nothing (DAT_EP_PARAM_MASK, uDAPL 2.0 §6.6.12).
/// Parameters that no call can change are not here.
struct ep_changes {
  const dat::pz* pz = nullptr;
  evd_ref<streams::dto> recv{};
  evd_ref<streams::dto> request{};
  evd_ref<streams::connection> connect{};
  /// An address of the ia's own interface to connect from, with a port or with 0 for a free one.
  std::optional<ia_address> local_address = std::nullopt;
  /// Can be set once.
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
  std::optional<std::chrono::milliseconds> accept_timeout = std::nullopt;
  std::optional<std::chrono::microseconds> keep_alive = std::nullopt;
  std::optional<completion_notification> recv_completion = std::nullopt; ///< once chosen, while no receive is posted
  std::optional<completion_notification> request_completion = std::nullopt;
  std::optional<dat::qos> qos = std::nullopt; ///< replaces all members
};

/// All parameters of an endpoint at one moment (DAT_EP_PARAM, uDAPL 2.0 §6.6.10).
struct ep_params {
  ep_state state = ep_state::disconnected;
  std::uint32_t number = 0; ///< the queue pair number; 0 while unconfigured
  /// The communicator that was set, or the one of the service point from which the endpoint was accepted; all zero:
  /// none.
  communicator comm;
  /// The ia's address, the address that was set, or that of the connection, with its port once there is one.
  ia_address local_address;
  /// The peer of the connection, of an attempt at one, or of a request that waits for an answer; otherwise empty.
  std::optional<ia_address> remote_address;
  bool has_pz = false;
  evd_id recv;    ///< empty: missing
  evd_id request; ///< empty: missing
  evd_id connect; ///< empty: missing
  srq_ref srq;    ///< the queue that its receives come from; empty: a queue of its own
  /// The attributes as given, with the defaults that dat chose for members that were not. With an srq, max_recv_dtos is
  /// the hard high watermark and max_recv_iov is 0, as in uDAPL.
  ep_attributes attributes;
};

/// DAT_EP_STATE, and whether work is outstanding (uDAPL 2.0 §6.6.9).
struct ep_status {
  ep_state state = ep_state::disconnected;
  bool recv_idle = true;    ///< true when the completion of every posted receive was taken
  bool request_idle = true; ///< like recv_idle, for requests; a suppressed one counts until a later completion is taken
};

/// Receive buffers of an endpoint (uDAPL 2.0 §6.6.11). Empty (DAT_VALUE_UNKNOWN) where adapters do not report them:
/// with an srq, and on an evd of completions alone while receives are posted that may have completed.
struct ep_recv_buffers {
  std::optional<std::uint32_t> allocated = 0; ///< receives that are posted and have not completed
  std::optional<std::uint32_t> span = 0;      ///< messages that can complete before another is posted: the same, on IB
};

}} // namespace dat::v0

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/impl/ep_modify.ipp>
#include <dat/detail/impl/ep_params.ipp>
#endif
