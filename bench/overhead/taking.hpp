// How dat's jobs take their completions.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "jobs.hpp"

namespace overhead {

/// Adds the cookies of the events of type `E`; any other event ends the program.
template <class E>
constexpr auto take() noexcept {
  return dat::overloaded{[](const E& e) noexcept { consumed += e.cookie().value(); },
                         [](const auto&) noexcept { wrong(); }};
}

/// Takes events until one has arrived.
template <class E, class Evd>
[[gnu::always_inline]] inline void take_one(Evd& evd) {
  while (evd.drain(take<E>(), 1) == 0) {
  }
}

} // namespace overhead
