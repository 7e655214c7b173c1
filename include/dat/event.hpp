// Events: what an evd delivers, one type for each thing that can happen.
//
// A type has only what is valid for it: a success has that operation's results, a failure says what failed and why.
// `dat::event<S>` is the std::variant of what an evd with the streams `S` can deliver.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/async.hpp>
#include <dat/cookie.hpp>
#include <dat/cr.hpp>
#include <dat/ep.hpp>
#include <dat/evd_id.hpp>
#include <dat/status.hpp>
#include <dat/streams.hpp>

#include <dat/detail/async_info.hpp>
#include <dat/detail/connection_text.hpp>
#include <dat/detail/type_list.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace dat::inline v0 {

// --- completions (streams::dto) ------------------------------------------------------------------------------------

/// What all completions have. Copyable, refers to the endpoint without keeping it alive.
class completion {
public:
  /// The endpoint it happened on. Valid until the endpoint is closed.
  [[nodiscard]] ep_ref ep() const noexcept { return ep_ref(ep_); }
  /// What was given to `.cookie()` when the operation was posted.
  [[nodiscard]] dat::cookie cookie() const noexcept { return cookie_; }

protected:
  completion(detail::ep_core* ep, dat::cookie c) noexcept : ep_(ep), cookie_(c) {}

private:
  friend struct detail::event_access;
  detail::ep_core* ep_;
  dat::cookie cookie_;
};

/// A completion that moved `bytes()` bytes.
class transfer : public completion {
public:
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

protected:
  transfer(detail::ep_core* ep, dat::cookie c, std::uint32_t bytes) noexcept : completion(ep, c), bytes_(bytes) {}

private:
  friend struct detail::event_access;
  std::uint32_t bytes_;
};

/// A send is done: its memory is free, and the peer's adapter has the message.
class sent : public transfer {
  using transfer::transfer;
  friend struct detail::event_access;
};

/// A message has arrived in the receive that `cookie()` names; `bytes()` is its length.
class received : public transfer {
public:
  /// The key of the rmr that the sender has invalidated by this message (uDAPL 2.0 §6.6.21), whose window is closed
  /// from now on; empty for other messages. `rmr::is(key)` tells which rmr it was.
  [[nodiscard]] std::optional<std::uint32_t> invalidated() const noexcept {
    return invalidated_ != 0 ? std::optional(invalidated_) : std::nullopt;
  }

private:
  using transfer::transfer;
  friend struct detail::event_access;
  std::uint32_t invalidated_ = 0;
};

/// An RDMA write is done: its memory is free, and the data is at the peer.
class rdma_write_done : public transfer {
  using transfer::transfer;
  friend struct detail::event_access;
};

/// An RDMA read is done: the data is in the local memory.
class rdma_read_done : public transfer {
  using transfer::transfer;
  friend struct detail::event_access;
};

/// An operation failed. The connection is broken then, and a connection event says so (uDAPL 2.0 §6.8.2).
class dto_failure : public completion {
public:
  /// What was posted.
  [[nodiscard]] dto_operation operation() const noexcept { return operation_; }
  [[nodiscard]] dto_status status() const noexcept { return status_; }
  /// The adapter's own code for the cause; its manual explains it. 0 where the adapter has none.
  [[nodiscard]] std::uint32_t vendor_code() const noexcept { return vendor_; }
  /// The status as verbs numbers it (ibv_wc_status), for those who know them by heart.
  [[nodiscard]] int verbs_status() const noexcept { return verbs_; }
  /// "rdma_write on ep (qp 17): remote_access: ..." with what usually causes it. Allocates.
  [[nodiscard]] std::string message() const {
    return detail::failure_text(operation_, status_, ep().number(), verbs_, vendor_);
  }

private:
  friend struct detail::event_access;
  dto_failure(detail::ep_core* ep, dat::cookie c, dto_operation op, dto_status s, std::uint32_t vendor,
              std::uint8_t verbs) noexcept
      : completion(ep, c), vendor_(vendor), operation_(op), status_(s), verbs_(verbs) {}
  std::uint32_t vendor_;
  dto_operation operation_;
  dto_status status_;
  std::uint8_t verbs_;
};

/// An rmr was bound or unbound (streams::rmr_bind; uDAPL 2.0 §6.7.3.5). A bind that failed is a dto_failure.
class bind_done : public completion {
public:
  /// `bind` or `unbind`.
  [[nodiscard]] dto_operation operation() const noexcept { return operation_; }
  /// Whether it was a bind of `which`.
  [[nodiscard]] bool is_of(const rmr& which) const noexcept;

private:
  friend struct detail::event_access;
  bind_done(detail::ep_core* ep, dat::cookie c, dto_operation op, const void* window) noexcept
      : completion(ep, c), window_(window), operation_(op) {}
  const void* window_;
  dto_operation operation_;
};

/// Completions of the InfiniBand extensions.
namespace ib {

/// A send with immediate data has arrived.
class received_immediate : public transfer {
public:
  /// The 32 bits as the peer gave them; the consumers agree on the byte order.
  [[nodiscard]] std::uint32_t immediate() const noexcept { return immediate_; }

private:
  friend struct detail::event_access;
  received_immediate(detail::ep_core* ep, dat::cookie c, std::uint32_t bytes, std::uint32_t imm) noexcept
      : transfer(ep, c, bytes), immediate_(imm) {}
  std::uint32_t immediate_;
};

/// The peer has written here by RDMA, with immediate data: all `bytes()` are in place. The receive named by `cookie()`
/// was consumed, its buffer not touched.
class received_write_immediate : public transfer {
public:
  [[nodiscard]] std::uint32_t immediate() const noexcept { return immediate_; }

private:
  friend struct detail::event_access;
  received_write_immediate(detail::ep_core* ep, dat::cookie c, std::uint32_t bytes, std::uint32_t imm) noexcept
      : transfer(ep, c, bytes), immediate_(imm) {}
  std::uint32_t immediate_;
};

/// An RDMA write with immediate data is done.
class rdma_write_immediate_done : public transfer {
  using transfer::transfer;
  friend struct detail::event_access;
};

/// A fetch-and-add is done: the old value is in the local word.
class fetch_and_add_done : public transfer {
  using transfer::transfer;
  friend struct detail::event_access;
};

/// A compare-and-swap is done: the old value is in the local word. The peer's word was replaced if that equals what was
/// compared.
class compare_and_swap_done : public transfer {
  using transfer::transfer;
  friend struct detail::event_access;
};

} // namespace ib

// --- connection events (streams::connection) -----------------------------------------------------------------------

/// What all connection events have. Copyable; keeps what it refers to.
class connection_event {
public:
  [[nodiscard]] ep_ref ep() const noexcept { return ep_ref(ep_.get()); }

protected:
  connection_event(detail::ref<detail::ep_core> ep, detail::ref<detail::connection_base> source, int reason) noexcept
      : ep_(std::move(ep)), source_(std::move(source)), reason_(reason) {}
  [[nodiscard]] std::span<const std::byte> data() const noexcept {
    return source_ ? source_->private_data() : std::span<const std::byte>();
  }
  [[nodiscard]] bool passive() const noexcept { return source_ && source_->passive(); }
  [[nodiscard]] const detail::connection_base* source() const noexcept { return source_.get(); }
  [[nodiscard]] int code() const noexcept { return reason_; }

private:
  friend struct detail::event_access;
  detail::ref<detail::ep_core> ep_;
  detail::ref<detail::connection_base> source_;
  int reason_;
};

/// The connection is up; requests may be posted (DAT_CONNECTION_EVENT_ESTABLISHED).
class established : public connection_event {
public:
  /// Active side: what the peer gave to `accept`, followed by zeros: the wire does not carry the length, so 56 bytes
  /// are given, or 196 when a program that is not dat filled more. Passive side: empty.
  /// Valid as long as this event.
  [[nodiscard]] std::span<const std::byte> private_data() const noexcept {
    return passive() ? std::span<const std::byte>() : data();
  }

private:
  using connection_event::connection_event;
  friend struct detail::event_access;
};

/// The peer's consumer said no (DAT_CONNECTION_EVENT_PEER_REJECTED).
class peer_rejected : public connection_event {
public:
  /// What the peer gave to `reject`, exactly. Valid as long as this event.
  [[nodiscard]] std::span<const std::byte> private_data() const noexcept { return data(); }

private:
  using connection_event::connection_event;
  friend struct detail::event_access;
};

/// Nobody listens, the queue of requests is full, the peer's process is gone, or this side could not complete the
/// connection (DAT_CONNECTION_EVENT_NON_PEER_REJECTED).
class non_peer_rejected : public connection_event {
public:
  /// The InfiniBand reject reason (8: no listener, 10: stale connection, 28: peer gone, 35: refused by its library), or
  /// the errno of the local step that failed.
  [[nodiscard]] int reason() const noexcept { return code(); }

private:
  using connection_event::connection_event;
  friend struct detail::event_access;
};

/// An accepted connection did not come up (DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR).
class accept_completion_error : public connection_event {
public:
  /// As non_peer_rejected::reason.
  [[nodiscard]] int reason() const noexcept { return code(); }

private:
  using connection_event::connection_event;
  friend struct detail::event_access;
};

/// One of the two sides ended the connection (DAT_CONNECTION_EVENT_DISCONNECTED).
class disconnected : public connection_event {
  using connection_event::connection_event;
  friend struct detail::event_access;
};

/// The connection failed (DAT_CONNECTION_EVENT_BROKEN); a dto_failure tells why, where an operation of this side did.
class broken : public connection_event {
  using connection_event::connection_event;
  friend struct detail::event_access;
};

/// The peer's host is there, but nobody answered in time (DAT_CONNECTION_EVENT_TIMED_OUT).
class timed_out : public connection_event {
  using connection_event::connection_event;
  friend struct detail::event_access;
};

/// No way to the peer's host, or it does not respond (DAT_CONNECTION_EVENT_UNREACHABLE).
class unreachable : public connection_event {
public:
  /// The errno that the connection manager gave.
  [[nodiscard]] int reason() const noexcept { return code(); }

private:
  using connection_event::connection_event;
  friend struct detail::event_access;
};

// --- connection requests (streams::connection_requests) ------------------------------------------------------------

/// A request has arrived at a service point: the event is the request itself. See cr.hpp. An event that nobody takes
/// out refuses the request when it goes.
using connection_request = cr;

// --- software events (streams::software) ---------------------------------------------------------------------------

/// What `evd::post` put into the queue (DAT_SOFTWARE_EVENT). Copyable.
class software_event {
public:
  /// What was posted: a number or a pointer, which dat neither reads nor owns.
  [[nodiscard]] dat::cookie cookie() const noexcept { return cookie_; }

private:
  friend struct detail::event_access;
  explicit software_event(dat::cookie c) noexcept : cookie_(c) {}
  dat::cookie cookie_;
};

// --- asynchronous events (streams::async) --------------------------------------------------------------------------

/// What all asynchronous events have. Copyable.
class async_event {
public:
  /// Whether it happened on this ia: for an evd that takes the events of several.
  [[nodiscard]] bool is_of(const ia& a) const noexcept;

protected:
  explicit async_event(const detail::async_info& what) noexcept : what_(what) {}
  [[nodiscard]] const detail::async_info& what() const noexcept { return what_; }

private:
  friend struct detail::event_access;
  detail::async_info what_;
};

/// An evd was full and has lost events (DAT_ASYNC_ERROR_EVD_OVERFLOW). Told once, and again only when the evd has had
/// room meanwhile. Lost connection events: the endpoints' states are right, and the evd goes on. Lost completions: the
/// connections of all its endpoints are broken, and the evd is of no more use than to give what it still holds. Lost
/// asynchronous events: this is the last event of that evd, until there is room again. (uDAPL 2.0 §6.3.1.3)
class evd_overflow : public async_event {
public:
  [[nodiscard]] evd_id evd() const noexcept { return evd_id(what().number); }

private:
  using async_event::async_event;
  friend struct detail::event_access;
};

/// The device failed or was removed (DAT_ASYNC_ERROR_IA_CATASTROPHIC). All connections are broken; close the ia.
class ia_catastrophic : public async_event {
  using async_event::async_event;
  friend struct detail::event_access;
};

/// The device reported an error of an endpoint (DAT_ASYNC_ERROR_EP_BROKEN). Its connection, if there was one, is
/// broken: the connect evd tells that, too. Keeps what it refers to.
class ep_broken : public async_event {
public:
  [[nodiscard]] ep_ref ep() const noexcept { return ep_ref(ep_.get()); }
  [[nodiscard]] ep_error reason() const noexcept { return static_cast<ep_error>(what().reason); }

private:
  ep_broken(const detail::async_info& what, detail::ref<detail::ep_core> ep) noexcept
      : async_event(what), ep_(std::move(ep)) {}
  friend struct detail::event_access;
  detail::ref<detail::ep_core> ep_;
};

/// DAT_ASYNC_ERROR_TIMED_OUT. Not raised on verbs: what can time out has an event of its own.
class operation_timed_out : public async_event {
  using async_event::async_event;
  friend struct detail::event_access;
};

/// A call of verbs or of the connection manager failed where no call of the consumer could tell
/// (DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR).
class provider_internal_error : public async_event {
public:
  /// The evd that may miss events by it; empty when it concerns the whole ia.
  [[nodiscard]] evd_id evd() const noexcept { return evd_id(what().number); }
  /// The call that failed and its errno.
  [[nodiscard]] const char* verb() const noexcept { return what().verb; }
  [[nodiscard]] int code() const noexcept { return what().reason; }

private:
  using async_event::async_event;
  friend struct detail::event_access;
};

/// DAT_HA_DOWN_TO_1 and DAT_HA_UP_TO_MULTI_PATH. Not raised: rdma_cm sets up no second path.
class ha_down_to_1 : public async_event {
  using async_event::async_event;
  friend struct detail::event_access;
};
class ha_up_to_multi_path : public async_event {
  using async_event::async_event;
  friend struct detail::event_access;
};

/// The ia's port went down, or is up again. Connections survive a short break. (verbs; uDAPL has no number for them)
class port_down : public async_event {
  using async_event::async_event;
  friend struct detail::event_access;
};
class port_active : public async_event {
  using async_event::async_event;
  friend struct detail::event_access;
};

/// Something that the port has was changed; connections that exist may go on or not. (verbs)
class port_changed : public async_event {
public:
  [[nodiscard]] port_change change() const noexcept { return static_cast<port_change>(what().reason); }

private:
  using async_event::async_event;
  friend struct detail::event_access;
};

/// What the events of a shared receive queue have. Copyable, keeps what it refers to.
class srq_event : public async_event {
public:
  /// The queue, for posting more buffers or looking at its context. Include <dat/srq.hpp>.
  [[nodiscard]] srq_ref srq() const noexcept;

protected:
  srq_event(const detail::async_info& what, detail::ref<detail::srq_core> queue) noexcept
      : async_event(what), queue_(std::move(queue)) {}

private:
  friend struct detail::event_access;
  detail::ref<detail::srq_core> queue_;
};

/// A shared receive queue has fewer buffers than `srq::set_low_watermark` said (DAT_SRQ_LOW_WATERMARK_EVENT). A notice,
/// not an error, and the only one until the watermark is set again.
class srq_low_watermark : public srq_event {
  using srq_event::srq_event;
  friend struct detail::event_access;
};

/// The device cannot read a shared receive queue any more (DAT_SRQ_TRANSFER_TO_ERROR). Endpoints of it break when they
/// need a buffer. Told once: close them, then the queue.
class srq_error : public srq_event {
  using srq_event::srq_event;
  friend struct detail::event_access;
};

/// An endpoint has more completed receives, not yet taken, than its soft high watermark
/// (DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT). A notice, not an error, and the only one until the watermark is set again.
/// Keeps what it refers to.
class ep_soft_high_watermark : public async_event {
public:
  [[nodiscard]] ep_ref ep() const noexcept { return ep_ref(ep_.get()); }

private:
  ep_soft_high_watermark(const detail::async_info& what, detail::ref<detail::ep_core> ep) noexcept
      : async_event(what), ep_(std::move(ep)) {}
  friend struct detail::event_access;
  detail::ref<detail::ep_core> ep_;
};

// --- all together --------------------------------------------------------------------------------------------------

/// What an evd with the streams `S` can deliver.
template <streams S>
using event = detail::variant_of<detail::event_list<S>>;

/// What a wait for several events gives.
template <streams S>
struct waited {
  event<S> first;   ///< the first event of the queue
  std::size_t more; ///< events that are left there
};

/// Builds one visitor out of several lambdas: `evd.drain(dat::overloaded{[](const dat::received&) {...}, ...})`.
template <class... F>
struct overloaded : F... {
  using F::operator()...;
};
template <class... F>
overloaded(F...) -> overloaded<F...>;

} // namespace dat::inline v0
