// The events of streams::async, one type for each thing that happens to an adapter and its objects.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/async.hpp>
#include <dat/ep.hpp>
#include <dat/evd_id.hpp>

#include <dat/detail/adapter/async_info.hpp>
#include <dat/detail/handle/event_key.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace dat { inline namespace v0 {

/// The common part of all asynchronous events. Copyable.
class async_event {
public:
  /// Whether the event is of this ia, for an evd that takes the events of several ias.
  [[nodiscard]] bool is_of(const ia& a) const noexcept;

  async_event(detail::event_key, const detail::async_info& what) noexcept : what_(what) {}

protected:
  [[nodiscard]] std::string text(detail::async_kind kind) const { return detail::async_message(kind, what_); }
  [[nodiscard]] const detail::async_info& what() const noexcept { return what_; }

private:
  detail::async_info what_;
};

/// An evd was full and has lost events (DAT_ASYNC_ERROR_EVD_OVERFLOW, uDAPL 2.0 §6.3.1.3). It is reported once, and
/// again only after the evd has had room.
/// - Lost connection events: the states of the endpoints are right, and the evd stays usable.
/// - Lost completions: the connections of all its endpoints are broken. The evd only delivers the events that it holds.
/// - Lost asynchronous events: this is the last event of that evd until it has room.
class evd_overflow : public async_event {
public:
  static constexpr std::string_view name = "evd_overflow";
  [[nodiscard]] std::string message() const { return text(detail::async_kind::evd_overflow); }
  [[nodiscard]] static constexpr std::string_view cause() noexcept { return detail::evd_overflow_cause; }
  [[nodiscard]] evd_id evd() const noexcept { return evd_id(what().number); }

  using async_event::async_event;
};

/// The device failed or was removed (DAT_ASYNC_ERROR_IA_CATASTROPHIC). All connections are broken; close the ia.
class ia_catastrophic : public async_event {
public:
  static constexpr std::string_view name = "ia_catastrophic";
  [[nodiscard]] std::string message() const { return text(detail::async_kind::ia_catastrophic); }

  using async_event::async_event;
};

/// The device reported an error of an endpoint (DAT_ASYNC_ERROR_EP_BROKEN). A connection of the endpoint is broken, and
/// the connect evd reports that as well. Keeps the endpoint alive.
class ep_broken : public async_event {
public:
  static constexpr std::string_view name = "ep_broken";
  [[nodiscard]] std::string message() const { return text(detail::async_kind::ep_broken); }
  [[nodiscard]] ep_ref ep() const noexcept { return ep_ref(ep_.get()); }
  [[nodiscard]] ep_error reason() const noexcept { return static_cast<ep_error>(what().reason); }

  ep_broken(detail::event_key key, const detail::async_info& what, detail::ref<detail::ep_core> ep) noexcept
      : async_event(key, what), ep_(std::move(ep)) {}

private:
  detail::ref<detail::ep_core> ep_;
};

/// DAT_ASYNC_ERROR_TIMED_OUT. Never delivered with verbs: time limits have their own events.
class operation_timed_out : public async_event {
public:
  static constexpr std::string_view name = "operation_timed_out";
  [[nodiscard]] std::string message() const { return text(detail::async_kind::operation_timed_out); }

  using async_event::async_event;
};

/// A call of verbs or of the connection manager failed, and no call of the consumer could return the error
/// (DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR). After ia_catastrophic dat no longer reports this event, because the
/// device then fails every call.
class provider_internal_error : public async_event {
public:
  static constexpr std::string_view name = "provider_internal_error";
  [[nodiscard]] std::string message() const { return text(detail::async_kind::provider_internal_error); }
  /// The evd that may lack events because of the failure; empty when the failure concerns the whole ia.
  [[nodiscard]] evd_id evd() const noexcept { return evd_id(what().number); }
  /// The call that failed, and its errno.
  [[nodiscard]] const char* verb() const noexcept { return what().verb; }
  [[nodiscard]] int code() const noexcept { return what().reason; }

  using async_event::async_event;
};

/// DAT_HA_DOWN_TO_1 and DAT_HA_UP_TO_MULTI_PATH. Never delivered: rdma_cm sets up no second path.
class ha_down_to_1 : public async_event {
public:
  static constexpr std::string_view name = "ha_down_to_1";
  [[nodiscard]] std::string message() const { return text(detail::async_kind::ha_down_to_1); }

  using async_event::async_event;
};
/// DAT_HA_UP_TO_MULTI_PATH. Never delivered, as ha_down_to_1.
class ha_up_to_multi_path : public async_event {
public:
  static constexpr std::string_view name = "ha_up_to_multi_path";
  [[nodiscard]] std::string message() const { return text(detail::async_kind::ha_up_to_multi_path); }

  using async_event::async_event;
};

/// The ia's port went down. Connections survive a short break. (verbs; uDAPL has no number for it)
class port_down : public async_event {
public:
  static constexpr std::string_view name = "port_down";
  [[nodiscard]] std::string message() const { return text(detail::async_kind::port_down); }

  using async_event::async_event;
};
/// The ia's port is active again. (verbs; uDAPL has no number for it)
class port_active : public async_event {
public:
  static constexpr std::string_view name = "port_active";
  [[nodiscard]] std::string message() const { return text(detail::async_kind::port_active); }

  using async_event::async_event;
};

/// A property of the port has changed; existing connections may continue or break. (verbs)
class port_changed : public async_event {
public:
  static constexpr std::string_view name = "port_changed";
  [[nodiscard]] std::string message() const { return text(detail::async_kind::port_changed); }
  [[nodiscard]] port_change change() const noexcept { return static_cast<port_change>(what().reason); }

  using async_event::async_event;
};

/// The common part of the events of a shared receive queue. Copyable; keeps the queue alive.
class srq_event : public async_event {
public:
  /// The queue, for example to post more buffers. Include <dat/srq.hpp>.
  [[nodiscard]] srq_ref srq() const noexcept;

  srq_event(detail::event_key key, const detail::async_info& what, detail::ref<detail::srq_core> queue) noexcept
      : async_event(key, what), queue_(std::move(queue)) {}

private:
  detail::ref<detail::srq_core> queue_;
};

/// A shared receive queue has fewer buffers than its low watermark (DAT_SRQ_LOW_WATERMARK_EVENT). A notice, not an
/// error. It comes once for each `srq::set_low_watermark`.
class srq_low_watermark : public srq_event {
public:
  static constexpr std::string_view name = "srq_low_watermark";
  [[nodiscard]] std::string message() const { return text(detail::async_kind::srq_low_watermark); }

  using srq_event::srq_event;
};

/// The device can no longer read a shared receive queue (DAT_SRQ_TRANSFER_TO_ERROR). Its endpoints break when they need
/// a buffer. Reported once: close the endpoints, then the queue.
class srq_error : public srq_event {
public:
  static constexpr std::string_view name = "srq_error";
  [[nodiscard]] std::string message() const { return text(detail::async_kind::srq_error); }

  using srq_event::srq_event;
};

/// An endpoint has more completed receives that were not taken than its soft high watermark
/// (DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT). A notice, not an error. It is reported once for each setting of the watermark.
/// Keeps the endpoint alive.
class ep_soft_high_watermark : public async_event {
public:
  static constexpr std::string_view name = "ep_soft_high_watermark";
  [[nodiscard]] std::string message() const { return text(detail::async_kind::ep_soft_high_watermark); }
  [[nodiscard]] ep_ref ep() const noexcept { return ep_ref(ep_.get()); }

  ep_soft_high_watermark(detail::event_key key, const detail::async_info& what,
                         detail::ref<detail::ep_core> ep) noexcept
      : async_event(key, what), ep_(std::move(ep)) {}

private:
  detail::ref<detail::ep_core> ep_;
};

}} // namespace dat::v0
