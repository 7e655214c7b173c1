// Paths between ports: by GIDs that are IP addresses on Ethernet, by LIDs and path records on InfiniBand.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

#include <algorithm>

namespace fake::impl {

bool is_infiniband(const device_state& d, unsigned port) {
  const auto* p = port_of(d, port);
  return p && p->link_layer == IBV_LINK_LAYER_INFINIBAND;
}

ibv_gid gid_of_port(const sockaddr_storage& a) {
  const auto o = owner_of(a);
  return o.dev && is_infiniband(*o.dev, o.port) ? gid_at(*o.dev, o.port, 0) : gid_of(a);
}

ibv_ah_attr path_between(const device_state& d, std::uint8_t port, const sockaddr_storage& from,
                         const sockaddr_storage& to) {
  ibv_ah_attr path{};
  path.port_num = port;
  path.grh.dgid = gid_of_port(to);
  path.grh.sgid_index = std::uint8_t(std::max(0, gid_index(d, port, gid_of_port(from))));
  path.grh.hop_limit = 64;
  path.is_global = 1;
  if (!is_infiniband(d, port)) return path;
  const auto& here = *port_of(d, port);
  path.sl = here.service_level;
  if (const auto o = owner_of(to); o.dev) path.dlid = port_of(*o.dev, o.port)->lid;
  // A path of the subnet has the hop limit 0, and no global route header unless the port needs one.
  const auto own = gid_at(d, port, 0);
  const bool near = std::memcmp(own.raw, path.grh.dgid.raw, 8) == 0;
  if (near && path.dlid != 0 && !(here.flags & IBV_QPF_GRH_REQUIRED)) {
    path.is_global = 0;
    path.grh = {};
  }
  return path;
}

} // namespace fake::impl
