// Two sides of the fake world whose datagram endpoints know each other.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "datagram_end.hpp"

#include <dat/descriptor.hpp>
#include <dat/multicast.hpp>
#include <dat/ud.hpp>

namespace unit {

struct ud_end {
  std::array<char, 4096> memory{};
  dat::ia ia;
  dat::pz pz;
  dat::evd<ud_streams> evd;
  region mem;
  dat::ep<dat::ud> ep;
};

/// Two sides whose endpoints have each other's address by descriptors.
struct known_pair {
  ud_end a;
  ud_end b;
  dat::ib::address_handle to_b;
  known_pair() {
    for (auto* e : {&a, &b}) {
      e->ia = must(dat::ia::open(e == &a ? "fk1" : "fk2", manual));
      e->pz = must(e->ia.create_pz());
      e->evd = must(e->ia.create_evd<ud_streams>(64));
      e->mem = must(e->pz.register_memory(e->memory, all_rights));
      e->ep = must(e->pz.create_ep<dat::ud>(e->evd, {.max_request_dtos = 4}));
    }
    to_b = must(a.ep.connect(must(b.ep.export_descriptor())));
  }
  [[nodiscard]] auto out(std::size_t n) { return must(a.mem.slice(0, n)); }
  [[nodiscard]] std::vector<std::string> events_of(ud_end& e) {
    std::vector<std::string> all;
    while (e.evd.drain([&](const auto& x) { all.push_back(describe_datagrams{}(x)); }) != 0) {
    }
    return all;
  }
};

} // namespace unit
