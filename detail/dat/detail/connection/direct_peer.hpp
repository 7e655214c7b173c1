// The contents of a descriptor, which connects endpoints without a connection manager.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/adapter/path.hpp>
#include <dat/detail/text/errno.hpp>

#include <cstdint>

namespace dat { inline namespace v0 { namespace detail {

/// The numbers in a descriptor.
struct direct_peer {
  static constexpr std::uint8_t connections = 1;
  static constexpr std::uint8_t datagrams = 2;

  qp_place place;
  std::uint32_t psn = 0;
  std::uint8_t service = 0; ///< connections or datagrams
  std::uint8_t link = 0;
  std::uint8_t mtu = 0;
  std::uint8_t reads_in = 0;
};

/// Checks that an endpoint of the ia and of that service can reach the endpoint of the descriptor.
[[nodiscard]] inline expected<void> check_descriptor(const ia_core& ia, const direct_peer& peer,
                                                     std::uint8_t service) noexcept {
  const auto bad = [](const char* hint) {
    return error(return_type::invalid_parameter, return_subtype::arg2).hint(hint);
  };
  ibv_port_attr port{};
  if (const int err = ibv_query_port(ia.context(), ia.where().port, &port))
    return map_errno(err, return_subtype::resource_device).from("ibv_query_port", err);
  if (peer.place.qp_num == 0) return bad("The descriptor is empty.");
  if (peer.service != service)
    return bad("The peer's endpoint is of the other service: connections go to connections, datagrams to datagrams.");
  if (peer.link != port.link_layer)
    return bad("The peer's adapter has another link layer: InfiniBand and Ethernet do not reach each other.");
  return success();
}

}}} // namespace dat::v0::detail
