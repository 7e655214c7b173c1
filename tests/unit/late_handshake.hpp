// Connections that have begun: one that the passive side has still to answer, and one whose end of the handshake is
// late. SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

namespace unit {

/// `b` listens, and `a` can ask it for a connection.
struct asking_ends {
  end a{"fk1"};
  end b{"fk2"};
  dat::psp psp = must(b.ia.create_psp(service, b.evd));

  asking_ends() {
    a.make_ep();
    b.make_ep();
  }
  /// Connects `a` to `b`. Returns the request, which `b` has still to answer.
  [[nodiscard]] dat::cr ask() {
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
    return request_on(b.evd);
  }
};

/// `b` has accepted. The event of the last handshake message is held until `fake::release_events`, so `b` has not heard
/// yet that it is connected.
struct late_handshake : asking_ends {
  void accept() {
    fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
    must(ask().accept(b.ep));
  }
};

} // namespace unit
