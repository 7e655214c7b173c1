// The link-local addresses of the interfaces of the two adapters.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "support.hpp"

#include <array>
#include <ifaddrs.h>
#include <memory>
#include <string>

namespace device {

struct interface_of {
  std::string name;
  std::string host; ///< its link-local address, without a scope
  /// The address of this interface as a program on the other interface names it.
  [[nodiscard]] dat::ia_address seen_from(const interface_of& other) const {
    return must(dat::ia_address::parse(host + '%' + other.name));
  }
};

/// The addresses of both adapters; empty on hosts where one adapter has none.
inline std::array<interface_of, 2> link_local_interfaces() {
  std::array<interface_of, 2> at;
  ::ifaddrs* list = nullptr;
  REQUIRE(::getifaddrs(&list) == 0);
  const std::unique_ptr<::ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  const auto each = [&](const auto& visit) {
    for (const auto* i = list; i; i = i->ifa_next)
      if (i->ifa_addr)
        if (const auto a = dat::ia_address::from(i->ifa_addr, sizeof(sockaddr_storage))) visit(i->ifa_name, a.value());
  };
  for (std::size_t n = 0; n < 2; ++n) {
    each([&](const char* name, const dat::ia_address& a) {
      if (a == addresses()[n]) at[n].name = name;
    });
    each([&](const char* name, const dat::ia_address& a) {
      const auto text = a.host_string();
      if (at[n].name == name && a.family() == dat::address_family::ipv6 && a.is_link_local())
        at[n].host = text.substr(0, text.find('%'));
    });
    if (at[n].host.empty()) return {};
  }
  return at;
}

} // namespace device
