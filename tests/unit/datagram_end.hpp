// One adapter of the fake world with an endpoint for datagrams, and its events in words.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

#include <dat/multicast.hpp>
#include <dat/ud.hpp>

namespace unit {

/// An event in words, those of datagrams and groups included.
struct describe_datagrams : describe {
  using describe::operator();
  std::string operator()(const dat::ib::datagram_send_done& e) const {
    return "sent " + std::to_string(e.cookie().value());
  }
  std::string operator()(const dat::ib::datagram_recv_done& e) const {
    return "received " + std::to_string(e.cookie().value());
  }
  std::string operator()(const dat::ib::datagram_established&) const { return "known"; }
  std::string operator()(const dat::ib::group_joined&) const { return "joined"; }
  std::string operator()(const dat::ib::datagram_request&) const { return "asked"; }
};

struct datagram_end {
  explicit datagram_end(const char* device, const dat::ia_options& options = manual,
                        const dat::ep_attributes& attributes = {})
      : ia(must(dat::ia::open(device, options))),
        pz(must(ia.create_pz())),
        evd(must(ia.create_evd<ud_streams>(64))),
        ep(must(pz.create_ep<dat::ud>(evd, attributes))) {}
  dat::ia ia;
  dat::pz pz;
  dat::evd<ud_streams> evd;
  dat::ep<dat::ud> ep;
};

} // namespace unit
