// Two connected sides of the fake world with service threads of their own.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

namespace unit {

/// Two sides with service threads of their own.
struct automatic_pair {
  end a{"fk1", automatic};
  end b{"fk2", automatic};
  dat::psp psp = must(b.ia.create_psp(service, b.evd));
  automatic_pair() {
    a.make_ep();
    b.make_ep();
    connect();
  }
  void connect() {
    must(a.ep.connect(b.ia.address(), service, plenty));
    must(must(b.evd.wait_for<dat::connection_request>(plenty)).accept(b.ep));
    must(a.evd.wait_for<dat::established>(plenty));
    must(b.evd.wait_for<dat::established>(plenty));
  }
};

} // namespace unit
