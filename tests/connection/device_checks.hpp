// What the tests of connections on a device check again and again: private data, flushed receives, messages both ways.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "device_table.hpp"

#include <algorithm>

namespace device {

/// Expects `given` with its length, which a reply has room for, as a request of up to 52 bytes or of 56 bytes.
inline void check_private_data(std::span<const std::byte> seen, std::span<const std::byte> given) {
  REQUIRE(seen.size() == given.size());
  CHECK(std::equal(given.begin(), given.end(), seen.begin()));
}

/// Posts `n` receives, all of which must be flushed when the endpoint ends.
inline void post_receives(endpoint& ep, int n) {
  for (int i = 0; i < n; ++i) must(ep.post(dat::recv{}.cookie(1000 + i)));
}

/// Takes an end event E and the `flushed` receives around it, and checks that nothing follows.
template <class E>
E ends_with(queue& evd, std::size_t flushed, place where = place::here()) {
  auto events = take(evd, flushed + 1, where);
  INFO(sequence(events));
  std::optional<E> end;
  std::uint64_t cookie = 1000;
  for (auto& e : events) {
    if (auto* f = std::get_if<dat::dto_failure>(&e)) {
      CHECK(f->status() == dat::dto_status::flushed);
      CHECK(f->cookie() == dat::cookie(cookie++));
    } else if (auto* found = std::get_if<E>(&e)) {
      end.emplace(std::move(*found));
    }
  }
  CHECK(cookie == 1000 + flushed);
  CHECK(is_empty(evd));
  if (!end) fail("the event that ends it did not come: " + sequence(events), where);
  return std::move(*end);
}

/// Sends one message each way, which shows that the connection works.
inline void exchange(queue& evd_a, endpoint& a, queue& evd_b, endpoint& b) {
  must(a.post(dat::recv{}.cookie(1)));
  must(b.post(dat::recv{}.cookie(2)));
  must(a.post(dat::send{}.cookie(3)));
  must(b.post(dat::send{}.cookie(4)));
  for (queue* q : {&evd_a, &evd_b}) {
    const auto events = take(*q, 2);
    INFO(sequence(events));
    CHECK(count_of<dat::send_done>(events) == 1);
    CHECK(count_of<dat::recv_done>(events) == 1);
  }
}
inline void exchange(connected_pair& p) { exchange(p.a.evd, p.active, p.b.evd, p.passive); }

} // namespace device
