// The adapters for tests that run in both worlds; here, those of the fake world.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

#include <atomic>

/// The fake has each feature: see the device table.
#define NEEDS_FEATURE(what) static_cast<void>(0)

namespace rig {

using unit::request_on;
using unit::settle;

using unit::automatic;
using unit::manual;
using unit::must;
inline constexpr dat::timeout patience = unit::plenty;

inline void begin() { fake::reset(); }
inline dat::ia open(const dat::ia_options& options = automatic) { return must(dat::ia::open("fk1", options)); }
/// A free port.
inline dat::conn_qual port() {
  static std::uint16_t last = unit::service;
  return must(dat::conn_qual::make(++last));
}

/// The destructor checks that no object is left.
using world = unit::clean_world;
inline constexpr dat::ia_options usual = manual;
/// Takes `n` events, waits for missing ones, and takes any further ones that are queued.
template <dat::streams S>
unit::events take(dat::evd<S>& evd, std::size_t n) {
  auto all = unit::take(evd);
  while (all.size() < n) all.push_back(std::visit(unit::describe{}, must(evd.wait(patience))));
  return all;
}
/// One of two adapters.
struct end : unit::end {
  explicit end(std::size_t which, const dat::ia_options& options = usual)
      : unit::end(which == 0 ? "fk1" : "fk2", options) {}
  static constexpr auto streams = unit::all_streams;
  unit::events take(std::size_t n) { return rig::take(evd, n); }
};
/// While the object exists, the last message of a handshake is lost, and the accepting side waits for it.
struct lost_handshake {
  static constexpr bool possible = true;
  lost_handshake() { fake::hold_events(RDMA_CM_EVENT_ESTABLISHED); }
  lost_handshake(const lost_handshake&) = delete;
  lost_handshake& operator=(const lost_handshake&) = delete;
  ~lost_handshake() { fake::release_events(); }
};

/// Runs some pending work; no result depends on its amount.
inline void some_way(end& a, end& b) {
  (void)a.ia.run();
  (void)b.ia.run();
}

/// The amount of work of the stress test: all of it with ThreadSanitizer.
inline constexpr std::uint64_t stress_events = dat::detail::thread_sanitizer ? 1'000'000 : 200'000;
inline constexpr std::uint64_t stress_messages = 2'000; ///< the messages of each of four connections
/// Rounds, in each of which three threads create one object of each kind.
inline constexpr int thread_rounds = 50;

} // namespace rig
