// Definitions of common service points: the addresses at which they may listen.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/connection/service_point.hpp>
#include <dat/detail/discovery/find_adapter.hpp>

namespace dat { inline namespace v0 { namespace detail {

/// A communicator is invalid if its parts do not fit together. A valid communicator that dat does not support is
/// refused as unsupported.
[[nodiscard]] DAT_DECL expected<void> check_comm(const communicator& c) noexcept {
  const auto invalid = [](const char* hint) {
    return error(return_type::invalid_parameter, return_subtype::arg2).hint(hint);
  };
  if (c.domain <= 0 || c.type <= 0 || c.protocol < 0)
    return invalid("A communicator needs a domain and a type: {AF_INET, SOCK_STREAM}.");
  if ((c.type == SOCK_STREAM && c.protocol == IPPROTO_UDP) || (c.type == SOCK_DGRAM && c.protocol == IPPROTO_TCP))
    return invalid("The communicator's protocol is not of its type.");
  if (!is_supported(c))
    return error(return_type::comm_not_supported)
        .hint("Supported communicators are {AF_INET or AF_INET6, SOCK_STREAM, 0}.");
  return success();
}

DAT_DECL result<ref<service_point>> create_csp(const ref<ia_core>& ia, communicator comm, const ia_address* address,
                                               const ref<evd_core>& evd) noexcept {
  static constexpr const char* call = "ia.create_csp";
  const auto at = [&](error e) { return e.at(call, object_kind::csp, address ? address->port() : 0); };
  const auto invalid = [&](const char* hint) {
    return at(error(return_type::invalid_parameter, return_subtype::arg3)).hint(hint);
  };
  if (auto ok = check_comm(comm); !ok) return at(ok.assume_error());
  comm.protocol = IPPROTO_TCP;
  ia_address where;
  if (address) {
    where = *address;
    if (!where.check(address_role::local)) return invalid("A service point cannot listen at such an address.");
    if (!fits(comm, where)) return invalid("The address is not of the communicator's domain.");
    if (!where.is_any()) {
      probe p;
      if (!p.ready()) return at(probe_failed(p));
      if (!p.bind(where) || p.device() != ia->name() || p.port() != ia->where().port)
        return invalid("The address must be one of the ia's own interface, or 0.0.0.0 or [::].");
    }
  } else {
    const auto family = comm.domain == AF_INET ? address_family::ipv4 : address_family::ipv6;
    const ia_address* own = ia->address(family);
    if (!own) return invalid("The adapter has no address of the communicator's domain.");
    where = *own;
  }
  return service_point::create(
      ia, evd, {.call = call, .kind = service_kind::csp, .port = where.port(), .only = &where, .comm = comm});
}

}}} // namespace dat::v0::detail
