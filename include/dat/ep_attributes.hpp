// Attributes and states of an endpoint.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/communicator.hpp>
#include <dat/qos.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include <dat/detail/base/enum_name.hpp>

namespace dat { inline namespace v0 {

/// DAT_EP_STATE (uDAPL 2.0 §6.6.7).
enum class ep_state : std::uint8_t {
  unconnected = 0,                  ///< may connect, be given to `cr::accept`, and take receives
  unconfigured_unconnected = 1,     ///< like unconnected, but a zone or an evd is missing: `modify` supplies it
  reserved = 2,                     ///< belongs to an rsp and waits for its request
  unconfigured_reserved = 3,        ///< like reserved, but a zone or an evd is missing
  passive_connection_pending = 4,   ///< its rsp has received the request: `cr::accept` or `cr::reject` answers it
  unconfigured_passive = 5,         ///< like passive_connection_pending, but a zone or an evd is missing
  active_connection_pending = 6,    ///< `connect` was called, and no answer has arrived
  tentative_connection_pending = 7, ///< dat created it for a request, and the consumer has configured it
  unconfigured_tentative = 8,       ///< dat created it for a request: `modify` configures it
  connected = 9,                    ///< data flows
  /// A graceful disconnect is under way: posted requests complete, new ones are refused.
  disconnect_pending = 10,
  disconnected = 11,      ///< the connection has ended; posts complete as flushed; `reset` makes it unconnected
  completion_pending = 12 ///< accepted; the peer's last handshake message is on its way
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

/// The way to end a connection (uDAPL 2.0 §6.6.17).
enum class close_mode : std::uint8_t {
  abrupt = 0,  ///< at once: outstanding operations are flushed
  graceful = 1 ///< after all posted requests have completed
};
/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(close_mode value) noexcept {
  return detail::enum_name(value, {"abrupt", "graceful"}, "unknown close_mode");
}

/// Selects the completions of a queue of the endpoint that wake a thread that waits on its evd (DAT_COMPLETION_FLAGS as
/// an attribute, uDAPL 2.0 §6.8.1). All queues that are attached to one evd must have the same value. With a value
/// other than evd_threshold, the evd may have only the streams dto, rmr_bind, software and datagrams, and each wait is
/// for one event.
enum class completion_notification : std::uint8_t {
  by_default = 0x00,     ///< the endpoint chooses when it has the evd: see ep_attributes. A query returns its choice
  solicited_wait = 0x02, ///< receives only: a completion wakes if its send was `.solicited()` or if it failed
  selective = 0x04,      ///< DAT_COMPLETION_UNSIGNALLED_FLAG: all but those that were posted with
                         ///< `.suppress_notification()`; not on a completions-only evd
  evd_threshold = 0x10   ///< all completions wake, once there are as many as the wait needs
};

/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(completion_notification value) noexcept {
  return value == completion_notification::by_default       ? "by_default"
         : value == completion_notification::solicited_wait ? "solicited_wait"
         : value == completion_notification::selective      ? "selective"
         : value == completion_notification::evd_threshold  ? "evd_threshold"
                                                            : "unknown completion_notification";
}

/// A high watermark that is never reached (DAT_WATERMARK_INFINITE).
inline constexpr std::uint32_t no_watermark = ~std::uint32_t{0};

/// The settings that `ep_attributes::detect_dead_peer_within` chooses.
struct dead_peer_detection {
  std::chrono::microseconds ack_timeout; ///< a step of the adapter's scale, 4.096 us x 2^n
  std::uint8_t retry_count;
  std::chrono::microseconds keep_alive; ///< the time within which an idle connection tests its peer
  /// The time from a request that the peer does not answer to the break of the connection. `usual` is that of an
  /// adapter that waits exactly for ack_timeout, `longest` that of one that waits four times as long, as InfiniBand
  /// allows.
  std::chrono::microseconds usual;
  std::chrono::microseconds longest;
};

/// The attributes of an endpoint. Every member has a working default. Set those that matter with designated
/// initialisers: `pz.create_ep<dat::rc>(evd, {.max_recv_dtos = 512})`. `ep::modify` changes them before connecting.
struct ep_attributes {
  std::uint32_t max_request_dtos = 64; ///< sends, RDMA operations outstanding at a time; 0: only receives
  std::uint32_t max_recv_dtos = 64;    ///< receives posted at a time, or 0; not used with an srq
  std::uint32_t max_request_iov = 4;   ///< segments of one request
  std::uint32_t max_recv_iov = 4;      ///< segments of one receive; not used with an srq
  std::uint32_t max_inline = 0;        ///< bytes that `.inlined()` may copy; the device may grant more
  /// Bytes of one send or RDMA operation of this side, and of a message that arrives. A longer message breaks the
  /// connection (`local_length`), also when its receive has room: a receive is posted with at most so many bytes, and
  /// `modify` does not change receives that are posted. Buffers of a shared queue and posts by `unchecked` keep their
  /// length. A datagram that arrives has no limit but the MTU. Unset: what the device can. With 0, messages are empty.
  std::optional<std::uint32_t> max_message_size = std::nullopt;

  /// RDMA reads and atomics that this side runs at a time, and that it serves at a time. Unset: the device's limit, at
  /// most 16. The connection runs with the smaller of this side's and the peer's number. 0 forbids them. Devices count
  /// in powers of two: with another `max_rdma_read_out`, this side runs the next lower power of two.
  std::optional<std::uint8_t> max_rdma_read_out = std::nullopt;
  std::optional<std::uint8_t> max_rdma_read_in = std::nullopt;

  /// The number of times that a request is sent again before the connection breaks, 0..6. Seven is refused: some
  /// adapters then retry indefinitely, and a dead link would never be detected.
  std::uint8_t retry_count = 6;
  /// The number of times that a send is repeated when the peer has no receive posted; 7 means indefinitely. Soft-RoCE
  /// breaks the connection nevertheless, after about ack_timeout times retry_count: its ACK timer keeps running.
  std::uint8_t rnr_retry_count = 7;
  /// Time to wait for an acknowledgement before sending again, 1 us to 8796 s. Rounded up to the adapter's scale
  /// (4.096 us x 2^n).
  std::chrono::microseconds ack_timeout{67'000};
  /// The time that the peer waits before it repeats a send that met no receive here, 0 to 655.36 ms. Rounded up to one
  /// of the 32 times of the adapter, of which 10 us is the shortest.
  std::chrono::microseconds min_rnr_timer{640};
  /// The time that an accepted connection waits for the peer's last handshake message, or for its first data. After it
  /// the connect evd gets `accept_completion_error`. The kernel ends the attempt after about 68 s in any case. At least
  /// 1 ms.
  std::chrono::milliseconds accept_timeout{30'000};
  /// The time within which a connection without a request tests its peer, up to 8760 h, 0 for never. The test comes
  /// after half of this time or later. It is a request that moves no data, an RDMA write of length 0: it needs no
  /// receive and no memory of the peer, and causes no event on either side. If the peer does not answer, the connection
  /// breaks as by any other request. A side that only receives notices a dead peer by its `keep_alive`.
  ///
  /// The service thread posts it. With progress::manual, ia::run or a call that does its work posts it (see progress).
  /// It takes one more place of the request queue and of its evd. A completions-only evd must be polled for the break
  /// to be detected. The peer's queue pair must allow RDMA writes, as those of dat do. No effect on datagrams.
  std::chrono::microseconds keep_alive{0};
  /// The completions that wake a waiting thread: see completion_notification.
  /// By default `selective` if the queues that feed the recv evd are so. With a shared receive queue also if no queue
  /// feeds the evd, and it has no streams but dto, rmr_bind, software and datagrams. Otherwise `evd_threshold`.
  completion_notification recv_completion = completion_notification::by_default;
  /// By default `selective` if the receives on the same evd, or the queues that feed the evd, are so. Otherwise
  /// `evd_threshold`.
  completion_notification request_completion = completion_notification::by_default;
  /// The number of receives that may have completed without being taken from the evd (srq_soft_hw and, with an srq,
  /// max_recv_dtos of DAT_EP_ATTR). Above the soft watermark, dat queues one `ep_soft_high_watermark` event. Above the
  /// hard watermark, the connection breaks. The watermarks detect, or disconnect, a peer that uses up the buffers of an
  /// srq. They need a merged recv evd. `ep::set_watermark` changes them.
  std::uint32_t soft_high_watermark = no_watermark;
  std::uint32_t hard_high_watermark = no_watermark;
  /// The communicator of `ep::common_connect`. If it is not set, an accepted endpoint uses that of the service point.
  communicator comm{};
  /// The quality of service of connections and datagrams of the endpoint. Members that are not set are those of
  /// ia_options::qos.
  dat::qos qos{};

  /// Sets ack_timeout, retry_count and keep_alive so that a connection breaks within `limit` when the peer, or the way
  /// to it, no longer answers, also when the connection is idle. Returns what it chose. It prefers six repetitions. If
  /// ack_timeout would be below 4.2 ms, it chooses fewer, but at least two. keep_alive gets the remaining time, at
  /// least a quarter. For a limit below 67 ms, `longest` and keep_alive together are more than the limit. A limit that
  /// is not positive sets an ack_timeout of 0, which `pz::create_ep` and `ep::modify` refuse.
  ///
  ///     dat::ep_attributes a{.max_recv_dtos = 512};
  ///     const auto chosen = a.detect_dead_peer_within(2s); // 34 ms, 6 repetitions: 235 to 940 ms; idle 1.06 s
  ///
  /// Not for iWARP, where TCP repeats and decides.
  constexpr dead_peer_detection detect_dead_peer_within(std::chrono::microseconds limit) noexcept {
    constexpr std::int64_t scale = 4096; // ns
    constexpr int shortest = 10;         // 4.2 ms
    constexpr int slowest = 4;           // times as long as ack_timeout
    const std::int64_t most = limit.count() - limit.count() / 4;
    const auto fits = [most](int code, int repetitions) {
      return (scale << code) / 1000 * slowest * (repetitions + 1) <= most;
    };
    int repetitions = 6;
    while (repetitions > 2 && !fits(shortest, repetitions)) --repetitions;
    int code = shortest;
    while (code < 31 && fits(code + 1, repetitions)) ++code;
    ack_timeout = std::chrono::microseconds((scale << code) / 1000);
    if (limit <= limit.zero()) ack_timeout = limit.zero();
    retry_count = static_cast<std::uint8_t>(repetitions);
    const auto usual = ack_timeout * (repetitions + 1);
    const auto rest = limit - usual * slowest;
    keep_alive = rest > shortest_keep_alive ? rest : shortest_keep_alive;
    return {ack_timeout, retry_count, keep_alive, usual, usual * slowest};
  }
  /// The shortest keep_alive that detect_dead_peer_within chooses.
  static constexpr std::chrono::microseconds shortest_keep_alive{10'000};
};

}} // namespace dat::v0
