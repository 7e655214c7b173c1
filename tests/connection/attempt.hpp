// An endpoint that connects to a peer that listens, on the fake.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

#include <dat/ep_params.hpp>

#include <algorithm>

namespace unit {

using dat::ep_state;

inline const std::string flushed(to_string(dat::dto_status::flushed));

/// An endpoint with one receive posted, and a peer that listens.
struct attempt {
  clean_world world;
  end a{"fk1"};
  end b{"fk2"};
  dat::psp psp = must(b.ia.create_psp(service, b.evd));

  explicit attempt(const fake::world& of = {}) : world(of) {
    a.make_ep();
    b.make_ep();
    must(a.ep.post(dat::recv{a.at(0, 8)}.cookie(1)));
  }
  void settle() { unit::settle(a, b); }
  void connect(dat::timeout limit = plenty) {
    must(a.ep.connect(b.ia.address(), service, limit, bytes_of("hi")));
    settle();
  }
  rdma_cm_id* active_id() { return fake::id_of_qp(a.ep.number()); }
  void deliver(rdma_cm_event_type type, int status = 0, const std::string& data = {}) {
    fake::deliver({.event = type, .status = status, .private_data = data, .id = active_id()});
    settle();
  }
  /// Checks that the attempt has ended with this event and no other, and that the endpoint can be used again.
  void ended(const std::string& event) {
    CHECK(a.ep.state() == ep_state::disconnected);
    auto seen = a.take();
    std::sort(seen.begin(), seen.end());
    events expected{event, flushed + " 1"};
    std::sort(expected.begin(), expected.end());
    CHECK(seen == expected);
    settle();
    CHECK(a.take().empty());
    CHECK_FALSE(a.ep.connect(b.ia.address(), service, plenty));
    must(a.ep.reset());
    CHECK(a.ep.state() == ep_state::unconnected);
    fake::release_events();
    b.take();
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle();
    auto again = must(b.pz.create_ep<dat::rc>(b.evd));
    must(request_on(b.evd).accept(again));
    settle();
    CHECK(a.take() == events{"established"});
  }
};

} // namespace unit
