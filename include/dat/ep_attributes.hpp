// Attributes and states of an endpoint.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/communicator.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include <dat/detail/enum_name.hpp>

namespace dat::inline v0 {

/// DAT_EP_STATE (uDAPL 2.0 §6.6.7).
enum class ep_state : std::uint8_t {
  unconnected = 0,                  ///< may connect, be given to `cr::accept`, and take receives
  unconfigured_unconnected = 1,     ///< a zone or an evd is missing: `modify` supplies it
  reserved = 2,                     ///< belongs to an rsp, waits for its request
  unconfigured_reserved = 3,        ///< the same, with something missing
  passive_connection_pending = 4,   ///< its rsp got the request: `cr::accept` or `cr::reject` it
  unconfigured_passive = 5,         ///< the same, with something missing
  active_connection_pending = 6,    ///< `connect` was called, no answer yet
  tentative_connection_pending = 7, ///< made by dat for a request, and configured by the consumer
  unconfigured_tentative = 8,       ///< made by dat for a request: `modify` configures it
  connected = 9,                    ///< data flows
  disconnect_pending = 10,          ///< graceful disconnect: requests finish, no new ones
  disconnected = 11,                ///< the connection is over; posts complete as flushed; `reset` starts anew
  completion_pending = 12           ///< accepted; the peer's last handshake message is on its way
};

[[nodiscard]] constexpr std::string_view to_string(ep_state s) noexcept {
  switch (s) {
  case ep_state::unconnected:
    return "unconnected";
  case ep_state::unconfigured_unconnected:
    return "unconfigured unconnected";
  case ep_state::reserved:
    return "reserved";
  case ep_state::unconfigured_reserved:
    return "unconfigured reserved";
  case ep_state::passive_connection_pending:
    return "passive connection pending";
  case ep_state::unconfigured_passive:
    return "unconfigured passive connection pending";
  case ep_state::active_connection_pending:
    return "active connection pending";
  case ep_state::tentative_connection_pending:
    return "tentative connection pending";
  case ep_state::unconfigured_tentative:
    return "unconfigured tentative connection pending";
  case ep_state::connected:
    return "connected";
  case ep_state::disconnect_pending:
    return "disconnect pending";
  case ep_state::disconnected:
    return "disconnected";
  case ep_state::completion_pending:
    return "completion pending";
  }
  return "unknown ep_state";
}

/// How to end a connection (uDAPL 2.0 §6.6.17).
enum class close_flags : std::uint8_t {
  abrupt = 0,  ///< now: what is outstanding is flushed
  graceful = 1 ///< after all posted requests have completed
};
/// The enumerator's name; total: a value outside the enumeration gives "unknown ...". Never allocates.
[[nodiscard]] constexpr std::string_view to_string(close_flags value) noexcept {
  return detail::enum_name(value, {"abrupt", "graceful"}, "unknown close_flags");
}

/// How completions of one of an endpoint's queues release who waits on their evd (DAT_COMPLETION_FLAGS as an attribute,
/// uDAPL 2.0 §6.8.1). All that feed one evd must agree. With other than evd_threshold the evd may have no streams but
/// dto and software, and waits on it are for one event.
enum class waking : std::uint8_t {
  solicited_wait = 0x02, ///< receives only: those whose send was `.solicited()` do, and failures
  unsignalled = 0x04,    ///< all but those that were posted `.unsignalled()`; not on an evd of streams::dto alone
  evd_threshold = 0x10   ///< all, once there are as many as the wait asks for
};

/// The enumerator's name; total: a value outside the enumeration gives "unknown ...". Never allocates.
[[nodiscard]] constexpr std::string_view to_string(waking value) noexcept {
  return value == waking::solicited_wait  ? "solicited_wait"
         : value == waking::unsignalled   ? "unsignalled"
         : value == waking::evd_threshold ? "evd_threshold"
                                          : "unknown waking";
}

/// A high watermark that is never reached (DAT_WATERMARK_INFINITE).
inline constexpr std::uint32_t no_watermark = ~std::uint32_t{0};

/// What an endpoint is created with. Every member has a working default; set what matters with designated
/// initialisers: `pz.create_ep<dat::rc>(evd, {.max_recv_dtos = 512})`. `ep::modify` changes them before connecting.
struct ep_attributes {
  std::uint32_t max_request_dtos = 64; ///< sends, RDMA operations outstanding at a time
  std::uint32_t max_recv_dtos = 64;    ///< receives posted at a time; not used with an srq
  std::uint32_t max_request_iov = 4;   ///< segments of one request
  std::uint32_t max_recv_iov = 4;      ///< segments of one receive; not used with an srq
  std::uint32_t max_inline = 0;        ///< bytes that `.inlined()` may copy; the device may grant more
  std::uint32_t max_message_size = 0;  ///< bytes of one send or RDMA operation; 0: what the device can

  /// RDMA reads and atomics that this side runs at a time, and that it serves at a time. Unset: the device's limit, at
  /// most 16. The connection runs with the smaller of this side's and the peer's number. 0 forbids them.
  std::optional<std::uint8_t> max_rdma_read_out = std::nullopt;
  std::optional<std::uint8_t> max_rdma_read_in = std::nullopt;

  /// Times that a request is sent again before the connection counts as broken, 0..6. Seven is refused: some adapters
  /// take it for "for ever", and a dead link would then never be noticed.
  std::uint8_t retry_count = 6;
  /// Times that a send is tried again when the peer has no receive posted; 7 means for ever.
  std::uint8_t rnr_retry_count = 7;
  /// Time to wait for an acknowledgement before sending again. Rounded up to the adapter's scale (4.096 us x 2^n).
  std::chrono::microseconds ack_timeout{67'000};
  /// How long the peer waits before it tries again a send that met no receive here, 10 us to 491.52 ms, rounded up.
  std::chrono::microseconds min_rnr_timer{640};
  /// Which completions wake: see waking.
  waking recv_completion = waking::evd_threshold;
  waking request_completion = waking::evd_threshold;
  /// How many receives may have completed without being taken from the evd: with more than the soft one, an
  /// `ep_soft_high_watermark` event comes once; with more than the hard one, the connection breaks. To find, or cut, a
  /// peer that uses up the buffers of an srq. Not with a recv evd of streams::dto alone. `ep::set_watermark` changes
  /// them. (srq_soft_hw and, with an srq, max_recv_dtos of DAT_EP_ATTR)
  std::uint32_t soft_high_watermark = no_watermark;
  std::uint32_t hard_high_watermark = no_watermark;
  /// What `ep::common_connect` connects as. Unset, an accepted endpoint takes that of the service point.
  communicator comm{};
};

} // namespace dat::inline v0
