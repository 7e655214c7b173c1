// The details of asynchronous events.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/enum_name.hpp>

#include <cstdint>
#include <string_view>

namespace dat { inline namespace v0 {

/// The reason why an endpoint is broken (DAT_EP_REASON, uDAPL 2.0 §A.4).
enum class ep_error : std::uint8_t {
  transfer_to_error = 0, ///< the queue pair failed
  other_error = 1        ///< a request of the peer was invalid, or beyond its rights
};

/// The property of a port that has changed.
enum class port_change : std::uint8_t {
  lid,              ///< its InfiniBand address
  pkey_table,       ///< the partitions it is in
  gid_table,        ///< its global addresses; on RoCE, the IP addresses of its interface
  subnet_manager,   ///< the node that manages the network
  client_reregister ///< the network has forgotten multicast groups and services
};

/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(ep_error value) noexcept {
  return detail::enum_name(value, {"transfer_to_error", "other_error"}, "unknown ep_error");
}
[[nodiscard]] constexpr std::string_view to_string(port_change value) noexcept {
  return detail::enum_name(value, {"lid", "pkey_table", "gid_table", "subnet_manager", "client_reregister"},
                           "unknown port_change");
}

}} // namespace dat::v0
