// One adapter with one evd, for tests without a connection, on a device or on the fake.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <rig.hpp>
#include <support/streams.hpp>

#include <cstdint>
#include <thread>
#include <variant>

namespace one_evd {

using rig::must;

using support::mixed;
using support::soft;

/// An adapter and one evd.
template <dat::streams S>
struct queue {
  explicit queue(std::uint32_t qlen = 8, const dat::ia_options& options = rig::automatic)
      : ia(rig::open(options)), evd(must(ia.create_evd<S>(qlen))) {}
  dat::ia ia;
  dat::evd<S> evd;
};

/// The objects that unconnected endpoints need.
struct adapter {
  static constexpr auto streams = dat::stream::dto | dat::stream::connection | dat::stream::connection_requests;
  dat::ia ia = rig::open();
  dat::pz pz = must(ia.create_pz());
  dat::evd<streams> evd = must(ia.create_evd<streams>(64));
};

inline std::uint64_t number(const dat::event<soft>& e) { return std::get<dat::software_event>(e).cookie().value(); }

/// Returns when another thread waits on the empty evd, because a dequeue is then refused.
template <dat::streams S>
void until_waited(dat::evd<S>& evd) {
  for (;;) {
    const auto e = evd.dequeue();
    if (!e && e.error().subtype() == dat::return_subtype::evd_waiter) return;
    std::this_thread::yield();
  }
}

} // namespace one_evd
