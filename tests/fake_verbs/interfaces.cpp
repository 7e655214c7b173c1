// getifaddrs over the simulated world: the host has one network interface per port of a fake device, and a loopback.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

#include <cerrno>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

namespace {

/// One entry with all data that it points to, so that freeing walks the list.
struct entry_storage {
  ifaddrs entry{};
  sockaddr_storage address{};
  char name[IF_NAMESIZE]{};
};

/// Entries in the order in which they are added.
struct interface_list {
  ifaddrs* first = nullptr;
  ifaddrs** end = &first;

  void add(const std::string& name, unsigned flags, const sockaddr_storage* address) {
    auto* e = new entry_storage;
    name.copy(e->name, sizeof e->name - 1);
    e->entry.ifa_name = e->name;
    e->entry.ifa_flags = flags;
    if (address) {
      e->address = *address;
      e->entry.ifa_addr = reinterpret_cast<sockaddr*>(&e->address);
    }
    *end = &e->entry;
    end = &e->entry.ifa_next;
  }
};

} // namespace

extern "C" {

int getifaddrs(ifaddrs** list) noexcept {
  const fake::impl::inside_mark mark;
  const std::lock_guard hold{fake::impl::mutex()};
  interface_list all;
  const auto loopback = fake::impl::parse_address("127.0.0.1");
  all.add("lo", IFF_UP | IFF_LOOPBACK, &loopback);
  all.add("tun0", IFF_UP, nullptr); // tunnels have no address
  for (const auto& d : fake::impl::the_world().devices) {
    if (d->removed) continue;
    for (std::size_t p = 0; p < d->cfg.ports.size(); ++p)
      for (std::size_t i = 0; i < d->cfg.ports[p].addresses.size(); ++i) {
        const auto& port = d->cfg.ports[p];
        const auto address = fake::impl::parse_address(port.addresses[i]);
        const bool named = i < port.interfaces.size();
        all.add(named ? port.interfaces[i] : "net-" + d->cfg.name + "-" + std::to_string(p + 1), IFF_UP, &address);
      }
  }
  *list = all.first;
  return 0;
}

void freeifaddrs(ifaddrs* list) noexcept {
  while (list) {
    auto* next = list->ifa_next;
    delete reinterpret_cast<entry_storage*>(list); // the address is the first member
    list = next;
  }
}

} // extern "C"
