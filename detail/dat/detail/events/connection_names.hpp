// The names and the usual causes of connection events, by the kind of their record.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/end_reason.hpp>
#include <dat/log.hpp>

#include <dat/detail/events/event_queue.hpp>
#include <dat/detail/text/event_text.hpp>

#include <string_view>

namespace dat { inline namespace v0 { namespace detail {

/// The name of the type of the event. A literal.
[[nodiscard]] constexpr std::string_view name_of(record::kind what) noexcept {
  switch (what) {
  case record::kind::established:
    return "established";
  case record::kind::peer_rejected:
    return "peer_rejected";
  case record::kind::non_peer_rejected:
    return "non_peer_rejected";
  case record::kind::accept_completion_error:
    return "accept_completion_error";
  case record::kind::disconnected:
    return "disconnected";
  case record::kind::broken:
    return "connection_broken";
  case record::kind::timed_out:
    return "connection_timed_out";
  case record::kind::unreachable:
    return "connection_unreachable";
  case record::kind::datagram_established:
    return "ib::datagram_established";
  case record::kind::group_joined:
    return "ib::group_joined";
  default:
    return "";
  }
}

/// The cause() of the event; empty for an event without a cause. A literal.
[[nodiscard]] inline std::string_view cause_of(record::kind what, int reason) noexcept {
  switch (what) {
  case record::kind::peer_rejected:
    return peer_rejected_cause;
  case record::kind::non_peer_rejected:
    return refusal_cause(reason);
  case record::kind::accept_completion_error:
    return accept_completion_cause;
  case record::kind::timed_out:
    return timed_out_cause;
  case record::kind::unreachable:
    return unreachable_cause;
  case record::kind::disconnected:
  case record::kind::broken:
    return usual_cause(static_cast<end_reason>(reason));
  default:
    return {};
  }
}

/// The severity of the event in the log.
[[nodiscard]] constexpr log_level level_of(record::kind what) noexcept {
  switch (what) {
  case record::kind::peer_rejected:
    return log_level::warning;
  case record::kind::non_peer_rejected:
  case record::kind::accept_completion_error:
  case record::kind::broken:
  case record::kind::timed_out:
  case record::kind::unreachable:
    return log_level::error;
  default:
    return log_level::info;
  }
}

}}} // namespace dat::v0::detail
