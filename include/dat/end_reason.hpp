// dat::end_reason: why a connection has ended.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/enum_name.hpp>

#include <cstdint>
#include <string_view>

namespace dat { inline namespace v0 {

/// The reason why a connection has ended, for the events `disconnected` and `connection_broken`. uDAPL has no such
/// number.
enum class end_reason : std::uint8_t {
  local,              ///< this side called `disconnect`
  peer,               ///< the peer disconnected, or its process ended
  operation_failed,   ///< an operation of this side failed
  completions_lost,   ///< an evd of the endpoint was full and lost completions
  too_many_receives,  ///< more receives had completed and were not taken than the hard high watermark allows
  device_failed,      ///< the device reported an error of the endpoint, failed, or was removed
  connection_manager, ///< the connection manager reported an error
};

/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(end_reason value) noexcept {
  return detail::enum_name(value,
                           {"local", "peer", "operation_failed", "completions_lost", "too_many_receives",
                            "device_failed", "connection_manager"},
                           "unknown end_reason");
}

/// One sentence about this reason, with its remedy if there is one.
[[nodiscard]] constexpr std::string_view usual_cause(end_reason reason) noexcept {
  switch (reason) {
  case end_reason::local:
    return "This side ended the connection.";
  case end_reason::peer:
    return "The peer ended the connection, closed its endpoint, or its process is gone.";
  case end_reason::operation_failed:
    return "An operation of this side failed: its dto_failure has the cause.";
  case end_reason::completions_lost:
    return "An evd of the endpoint was full and lost completions. Create the evd again, with room for all completions "
           "that its endpoints can have outstanding.";
  case end_reason::too_many_receives:
    return "More receives had completed and were not taken than the hard high watermark of the endpoint allows.";
  case end_reason::device_failed:
    return "The device reported an error of the endpoint, failed, or was removed: see the events of streams::async.";
  case end_reason::connection_manager:
    return "The connection manager reported an error: the address of the adapter is gone, or the peer did not complete "
           "the connection.";
  }
  return "A reason that this version does not know.";
}

}} // namespace dat::v0
