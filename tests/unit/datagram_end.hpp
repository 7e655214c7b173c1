// One adapter of the fake world with an endpoint for datagrams.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

#include <dat/ud.hpp>

namespace unit {

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
