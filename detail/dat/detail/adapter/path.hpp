// The address of this adapter's port for peers, and the path to a peer for connections that rdma_cm does not make.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>
#include <dat/error.hpp>

#include <dat/detail/adapter/ia_core.hpp>
#include <dat/detail/text/errno.hpp>
#include <dat/detail/text/result.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <cstring>
#include <endian.h>
#include <netinet/in.h>

namespace dat { inline namespace v0 { namespace detail {

/// The address of an endpoint in the form that peers receive.
struct qp_place {
  ibv_gid gid{};
  std::uint16_t lid = 0; ///< 0 on Ethernet
  std::uint32_t qp_num = 0;
  std::uint32_t qkey = 0;
};

/// The index of a GID of this adapter, of the kind that rdma_cm uses; negative when the adapter has no such GID.
[[nodiscard]] inline int gid_index_of(const ia_core& ia, const ibv_port_attr& port, const ibv_gid& gid) noexcept {
  int found = -1;
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid_entry e{};
    if (ibv_query_gid_ex(ia.context(), ia.where().port, static_cast<std::uint32_t>(i), &e, 0) != 0) continue;
    if (std::memcmp(e.gid.raw, gid.raw, sizeof gid.raw) != 0) continue;
    if (e.gid_type == IBV_GID_TYPE_ROCE_V2) return i;
    if (found < 0) found = i;
  }
  return found;
}

/// An IP address in the form of a GID.
[[nodiscard]] inline ibv_gid gid_of(const ia_address& a) noexcept {
  ibv_gid gid{};
  if (a.family() == address_family::ipv4) {
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, &reinterpret_cast<const sockaddr_in*>(a.native_handle())->sin_addr, 4);
  } else {
    std::memcpy(gid.raw, &reinterpret_cast<const sockaddr_in6*>(a.native_handle())->sin6_addr, 16);
  }
  return gid;
}
[[nodiscard]] inline bool is_ipv4(const ibv_gid& gid) noexcept {
  constexpr std::uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, prefix, sizeof prefix) == 0;
}

/// The IP address in a GID; any GID has the form of one.
[[nodiscard]] inline ia_address address_of(const ibv_gid& gid) noexcept {
  sockaddr_in6 a{};
  std::memcpy(&a.sin6_addr, gid.raw, sizeof gid.raw);
  return ia_address(a);
}

/// The adapter's port as peers with the same kind of address reach it.
struct port_place {
  qp_place place;
  int gid_index = -1;
  std::uint8_t link = IBV_LINK_LAYER_UNSPECIFIED;
  bool needs_grh = false; ///< every packet needs a global route header (SR-IOV functions, some fabrics)
  std::uint8_t lmc = 0;   ///< the port has 2^lmc LIDs
  ibv_mtu mtu = IBV_MTU_1024;
};
[[nodiscard]] inline result<port_place> place_of(const ia_core& ia, bool ipv4) noexcept {
  ibv_port_attr port{};
  if (const int err = ibv_query_port(ia.context(), ia.where().port, &port))
    return map_errno(err, return_subtype::resource_device).from("ibv_query_port", err);
  port_place p;
  p.link = port.link_layer;
  p.mtu = port.active_mtu;
  p.needs_grh = (port.flags & IBV_QPF_GRH_REQUIRED) != 0;
  p.lmc = port.lmc;
  if (port.link_layer == IBV_LINK_LAYER_INFINIBAND) {
    p.place.lid = port.lid;
    p.gid_index = 0;
    if (ibv_query_gid(ia.context(), ia.where().port, 0, &p.place.gid) != 0)
      return map_errno(errno, return_subtype::resource_device).from("ibv_query_gid", errno);
    return p;
  }
  const ia_address* own = ia.address(ipv4 ? address_family::ipv4 : address_family::ipv6);
  if (!own) return error(return_type::invalid_address, return_subtype::address_unsupported);
  p.place.gid = gid_of(*own);
  p.gid_index = gid_index_of(ia, port, p.place.gid);
  if (p.gid_index < 0)
    return error(return_type::invalid_address, return_subtype::address_unreachable)
        .hint("The adapter has no GID for its address.");
  return p;
}

/// The path to `to`, for verbs. `route` is the path that rdma_cm knows, or null; without a path record the service
/// level is 0. InfiniBand reaches another subnet through a router, whose LID only a path record has.
[[nodiscard]] inline result<ibv_ah_attr> path_to(const ia_core& ia, const qp_place& to,
                                                 const rdma_route* route = nullptr) noexcept {
  auto own = place_of(ia, is_ipv4(to.gid));
  if (!own) return own.assume_error();
  const port_place& here = own.assume_value();
  ibv_ah_attr path{};
  path.port_num = ia.where().port;
  path.dlid = to.lid;
  bool global = true;
  if (here.link == IBV_LINK_LAYER_INFINIBAND) {
    if (route && route->num_paths > 0) {
      const ibv_sa_path_rec& record = route->path_rec[0];
      path.sl = record.sl;
      path.src_path_bits = static_cast<std::uint8_t>(be16toh(record.slid) & ((1u << here.lmc) - 1));
      if (record.dlid != 0) path.dlid = be16toh(record.dlid);
    }
    constexpr std::size_t prefix = 8;
    const bool same_subnet = std::memcmp(to.gid.raw, here.place.gid.raw, prefix) == 0;
    global = here.needs_grh || !same_subnet || path.dlid == 0;
  }
  if (!global) return path;
  path.is_global = 1;
  path.grh.dgid = to.gid;
  path.grh.sgid_index = static_cast<std::uint8_t>(here.gid_index);
  path.grh.hop_limit = 64;
  return path;
}

/// The error of a verbs call that uses such a path. The kernel resolves the link address of the peer, for at most a
/// second.
[[nodiscard]] inline error no_path(const char* verb, int errnum, return_subtype resource,
                                   bool callers_value = false) noexcept {
  const error e = errnum == ETIMEDOUT ? error(return_type::invalid_address, return_subtype::address_unreachable)
                                      : map_errno(errnum, resource, callers_value);
  return e.from(verb, errnum);
}

}}} // namespace dat::v0::detail
