// Two sides, of which the passive one listens.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "sides.hpp"

namespace connections {
namespace listening {

/// Two sides; the passive one listens.
struct two : sides {
  dat::psp psp = must(b.ia.create_psp(service, b.evd));
  using sides::sides;

  /// Connects an endpoint of `a`.
  dat::cr ask_with(std::string_view data = {}) {
    if (!a.ep) a.make_ep();
    must(a.ep.connect(b.ia.address(), service, patience, bytes_of(data)));
    settle();
    return request();
  }
};

} // namespace listening

using namespace listening;

} // namespace connections
