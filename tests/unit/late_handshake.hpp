// A connection whose passive side has accepted, and has not heard yet that it is connected.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

namespace unit {

/// `a` has asked `b` for a connection, which `b` has accepted. The event of the last handshake message is held until
/// `fake::release_events`.
struct late_handshake {
  end a{"fk1"};
  end b{"fk2"};
  dat::psp psp = must(b.ia.create_psp(service, b.evd));

  late_handshake() {
    a.make_ep();
    b.make_ep();
  }
  void accept() {
    fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
    must(request_on(b.evd).accept(b.ep));
  }
};

} // namespace unit
