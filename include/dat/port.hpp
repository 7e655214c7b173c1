// The state and the link layer of a device's port.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string_view>

namespace dat { inline namespace v0 {

/// The state of a port. Only an active port carries data.
enum class port_state : std::uint8_t { unknown, down, initialising, armed, active, active_deferred };

/// The link layer of a port: Ethernet for RoCE, Soft-RoCE and iWARP.
enum class link_layer : std::uint8_t { unspecified, infiniband, ethernet };

/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(port_state s) noexcept {
  switch (s) {
  case port_state::unknown:
    return "unknown";
  case port_state::down:
    return "down";
  case port_state::initialising:
    return "initialising";
  case port_state::armed:
    return "armed";
  case port_state::active:
    return "active";
  case port_state::active_deferred:
    return "active, deferred";
  }
  return "unknown port_state";
}
[[nodiscard]] constexpr std::string_view to_string(link_layer l) noexcept {
  switch (l) {
  case link_layer::unspecified:
    return "unspecified";
  case link_layer::infiniband:
    return "InfiniBand";
  case link_layer::ethernet:
    return "Ethernet";
  }
  return "unknown link_layer";
}

}} // namespace dat::v0
