// What the tests in tests/events stand on, here: an adapter of the fake world.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

namespace rig {

using unit::automatic;
using unit::manual;
using unit::must;
inline constexpr dat::timeout patience = unit::plenty;

inline void begin() {
  unit::until_nothing_is_left(); // of the test before, whose service thread may still be behind an agent
  fake::reset();
}
inline dat::ia open(const dat::ia_options& options = automatic) { return must(dat::ia::open("fk1", options)); }
inline dat::conn_qual port() { return unit::service; }

/// How much the stress is made of: all of it where ThreadSanitizer looks on.
inline constexpr std::uint64_t stress_events = dat::detail::thread_sanitizer ? 1'000'000 : 200'000;
inline constexpr std::uint64_t stress_messages = 2'000; ///< of each of four connections

} // namespace rig
