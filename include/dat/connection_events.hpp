// The events of streams::connection, one type for each thing that happens to a connection.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/end_reason.hpp>
#include <dat/ep.hpp>

#include <dat/detail/handle/event_key.hpp>
#include <dat/detail/text/event_text.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace dat { inline namespace v0 {

/// The common part of all connection events. Copyable; keeps the objects that it refers to alive.
class connection_event {
public:
  [[nodiscard]] ep_ref ep() const noexcept { return ep_ref(ep_.get()); }

  connection_event(detail::event_key, detail::ref<detail::ep_core> ep, detail::ref<detail::connection_base> source,
                   int reason) noexcept
      : ep_(std::move(ep)), source_(std::move(source)), reason_(reason) {}

protected:
  [[nodiscard]] std::string text(std::string_view name, std::string_view cause = {}) const {
    return detail::connection_text(name, ep().number(), cause);
  }
  [[nodiscard]] std::span<const std::byte> data() const noexcept {
    return source_ ? source_->private_data() : std::span<const std::byte>();
  }
  [[nodiscard]] bool passive() const noexcept { return source_ && source_->passive(); }
  [[nodiscard]] const detail::connection_base* source() const noexcept { return source_.get(); }
  [[nodiscard]] int code() const noexcept { return reason_; }

private:
  detail::ref<detail::ep_core> ep_;
  detail::ref<detail::connection_base> source_;
  int reason_;
};

/// The connection is up; requests may be posted (DAT_CONNECTION_EVENT_ESTABLISHED).
class established : public connection_event {
public:
  static constexpr std::string_view name = "established";
  [[nodiscard]] std::string message() const { return text(name); }
  /// On the active side: the data that the peer gave to `accept`, with its length. If the peer's program does not use
  /// dat, the data is followed by zeros: 56 bytes, or 196 if the program sent more. On iWARP the length arrives anyway.
  /// On the passive side: empty. Valid as long as this event.
  [[nodiscard]] std::span<const std::byte> private_data() const noexcept {
    return passive() ? std::span<const std::byte>() : data();
  }

  using connection_event::connection_event;
};

/// The peer's consumer rejected the connection (DAT_CONNECTION_EVENT_PEER_REJECTED).
class peer_rejected : public connection_event {
public:
  static constexpr std::string_view name = "peer_rejected";
  [[nodiscard]] std::string message() const { return text(name, cause()); }
  /// The usual cause, a sentence.
  [[nodiscard]] static constexpr std::string_view cause() noexcept { return detail::peer_rejected_cause; }
  /// The data that the peer gave to `reject`, with its length. Valid as long as this event.
  [[nodiscard]] std::span<const std::byte> private_data() const noexcept { return data(); }

  using connection_event::connection_event;
};

/// The connection was refused without a decision of the peer's consumer (DAT_CONNECTION_EVENT_NON_PEER_REJECTED): no
/// service point listens, its queue of requests is full, the peer's process has ended, or this side could not complete
/// the connection.
class non_peer_rejected : public connection_event {
public:
  static constexpr std::string_view name = "non_peer_rejected";
  [[nodiscard]] std::string message() const { return text(name, cause()); }
  /// The usual cause, a sentence.
  [[nodiscard]] std::string_view cause() const noexcept { return detail::refusal_cause(reason()); }
  /// The InfiniBand reject reason (8: no listener, 10: stale connection, 28: peer gone, 35: refused by its library), or
  /// the errno of the local step that failed.
  [[nodiscard]] int reason() const noexcept { return code(); }

  using connection_event::connection_event;
};

/// An accepted connection was not established (DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR).
class accept_completion_error : public connection_event {
public:
  static constexpr std::string_view name = "accept_completion_error";
  [[nodiscard]] std::string message() const { return text(name, cause()); }
  /// The usual cause, a sentence.
  [[nodiscard]] static constexpr std::string_view cause() noexcept { return detail::accept_completion_cause; }
  /// As non_peer_rejected::reason.
  [[nodiscard]] int reason() const noexcept { return code(); }

  using connection_event::connection_event;
};

/// One of the two sides ended the connection (DAT_CONNECTION_EVENT_DISCONNECTED).
class disconnected : public connection_event {
public:
  static constexpr std::string_view name = "disconnected";
  [[nodiscard]] std::string message() const { return text(name, cause()); }
  /// The usual cause, a sentence.
  [[nodiscard]] std::string_view cause() const noexcept { return usual_cause(reason()); }
  /// `local` or `peer`.
  [[nodiscard]] end_reason reason() const noexcept { return static_cast<end_reason>(code()); }

  using connection_event::connection_event;
};

/// The connection failed (DAT_CONNECTION_EVENT_BROKEN). If an operation of this side was the cause, its dto_failure has
/// the reason.
class connection_broken : public connection_event {
public:
  static constexpr std::string_view name = "connection_broken";
  [[nodiscard]] std::string message() const { return text(name, cause()); }
  /// The usual cause, a sentence.
  [[nodiscard]] std::string_view cause() const noexcept { return usual_cause(reason()); }
  [[nodiscard]] end_reason reason() const noexcept { return static_cast<end_reason>(code()); }

  using connection_event::connection_event;
};

/// The peer's host is reachable, but no answer arrived in time (DAT_CONNECTION_EVENT_TIMED_OUT).
class connection_timed_out : public connection_event {
public:
  static constexpr std::string_view name = "connection_timed_out";
  [[nodiscard]] std::string message() const { return text(name, cause()); }
  /// The usual cause, a sentence.
  [[nodiscard]] static constexpr std::string_view cause() noexcept { return detail::timed_out_cause; }

  using connection_event::connection_event;
};

/// No path leads to the peer's host, or the host does not respond (DAT_CONNECTION_EVENT_UNREACHABLE).
class connection_unreachable : public connection_event {
public:
  static constexpr std::string_view name = "connection_unreachable";
  [[nodiscard]] std::string message() const { return text(name, cause()); }
  /// The usual cause, a sentence.
  [[nodiscard]] static constexpr std::string_view cause() noexcept { return detail::unreachable_cause; }
  /// The errno of the connection manager.
  [[nodiscard]] int reason() const noexcept { return code(); }

  using connection_event::connection_event;
};

}} // namespace dat::v0
