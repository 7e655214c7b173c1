// A connected pair of endpoints with a coroutine driver on each side.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

#include <support/streams.hpp>

#include <dat/coro.hpp>

#include <string>

namespace unit {

using queue_driver = dat::coro::driver<all_streams>;

/// `good`, or the type of the error.
template <class T>
std::string told(const dat::expected<T>& r, const char* good = "good") {
  return r ? good : std::string(to_string(r.error().type()));
}

struct driven_pair : pair {
  explicit driven_pair(const dat::ep_attributes& attributes = {}) : pair(attributes) {}
  queue_driver near{a.evd};
  queue_driver far{b.evd};
  /// Polls both drivers until no event is left. Returns the events that belonged to no coroutine.
  events run() {
    events foreign;
    const auto note = [&](const auto& e) { foreign.push_back(describe{}(e)); };
    for (std::size_t n = 1; n != 0;) {
      settle();
      n = near.poll(note) + far.poll(note);
    }
    return foreign;
  }
};

} // namespace unit
