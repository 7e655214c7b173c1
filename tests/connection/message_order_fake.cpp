// Messages of connections that cross or overtake each other.
// SPDX-License-Identifier: BSL-1.0
#include "attempt.hpp"
#include "world.hpp"

#include <dat/ep_params.hpp>

#include <algorithm>
#include <chrono>
#include <thread>

using namespace unit;
using dat::ep_state;

TEST_CASE("when both sides disconnect at once, each side gets one event", "[DISC-027][DISC-018][CONN-016][EPS-056]") {
  clean_world world;
  for (const bool a_first : {false, true}) {
    pair p;
    must((a_first ? p.a : p.b).ep.disconnect());
    must((a_first ? p.b : p.a).ep.disconnect());
    p.settle();
    CHECK(p.a.take() == events{"disconnected"});
    CHECK(p.b.take() == events{"disconnected"});
    must(p.a.ep.disconnect()); // this call has no effect
    p.settle();
    CHECK(p.a.take().empty());
  }
}

TEST_CASE("a disconnect that crosses another message gives one event on each side, in every order",
          "[DISC-022][DISC-023][EPS-017][DISC-021]") {
  // Held events are released in every order.
  std::vector<std::size_t> order{0, 1, 2};
  do {
    attempt t;
    t.connect();
    auto request = request_on(t.b.evd);
    fake::hold_events();
    must(request.accept(t.b.ep)); // the event CONNECT_RESPONSE of a
    must(t.a.ep.disconnect());    // the event REJECTED of b ends the attempt
    must(t.b.ep.disconnect());
    t.settle();
    for (const auto i : order) {
      fake::release_event(i);
      t.settle();
    }
    fake::release_events();
    t.settle();
    auto seen = t.a.take();
    std::erase(seen, flushed + " 1");
    CHECK(seen == events{"disconnected"});
    CHECK(t.b.take() == events{"disconnected"});
    CHECK(t.a.ep.state() == ep_state::disconnected);
    CHECK(t.b.ep.state() == ep_state::disconnected);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("late messages of an old connection do not reach the new one", "[DISC-049][EPS-069][DISC-055]") {
  fake::world w;
  w.timewait_exit = GENERATE(false, true);
  clean_world world(w);
  pair p;
  fake::hold_events(RDMA_CM_EVENT_DISCONNECTED);
  must(p.a.ep.disconnect());
  must(p.b.ep.disconnect());
  p.settle();
  CHECK(p.a.take() == events{"disconnected"});
  CHECK(p.b.take() == events{"disconnected"});
  must(p.a.ep.reset());
  must(p.b.ep.reset());
  p.connect();
  const auto undisturbed = [&] {
    fake::release_events();
    p.settle();
    CHECK(p.a.ep.state() == ep_state::connected);
    CHECK(p.b.ep.state() == ep_state::connected);
    CHECK(p.a.take().empty());
    CHECK(p.b.take().empty());
  };
  undisturbed();
  // A reject that comes after its attempt was cancelled.
  must(p.a.ep.disconnect());
  p.settle();
  CHECK(p.a.take() == events{"disconnected"});
  CHECK(p.b.take() == events{"disconnected"});
  must(p.a.ep.reset());
  must(p.b.ep.reset());
  fake::hold_events(RDMA_CM_EVENT_REJECTED);
  must(p.a.ep.connect(p.b.ia.address(), service, plenty));
  p.settle();
  must(request_on(p.b.evd).reject());
  p.settle();
  must(p.a.ep.disconnect());
  CHECK(p.a.take() == events{"disconnected"});
  must(p.a.ep.reset());
  p.connect();
  undisturbed();
  SHOWS("DISC-041");
}

TEST_CASE("a disconnect comes after data that has arrived before the last handshake message",
          "[DISC-024][DISC-019][CR-036]") {
  const bool by_peer = GENERATE(false, true);
  CAPTURE(by_peer);
  attempt t;
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  must(t.b.ep.post(dat::recv{t.b.at(0, 8)}.cookie(5)));
  must(t.b.ep.post(dat::recv{t.b.at(8, 8)}.cookie(6)));
  t.connect();
  must(request_on(t.b.evd).accept(t.b.ep));
  t.settle();
  must(t.a.ep.post(dat::send{t.a.at(0, 8)}));
  const auto before = fake::count(fake::call::rdma_disconnect);
  must((by_peer ? t.a : t.b).ep.disconnect());
  CHECK(fake::count(fake::call::rdma_disconnect) > before); // by this side, not in answer to the peer
  t.settle();
  fake::release_events();
  t.settle();
  events got = t.b.take();
  CHECK(std::erase(got, flushed + " 6") == 1); // failures have no order
  CHECK(got == events{"established", "received 5", "disconnected"});
  CHECK(t.b.ep.state() == ep_state::disconnected);
}

TEST_CASE("an event comes after data that has arrived before the last handshake message", "[CR-036]") {
  struct report {
    rdma_cm_event_type type;
    int status;
    const char* end; ///< "" if no event comes because the connection stays
  };
  for (const report& r : {report{RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, ""},
                          {RDMA_CM_EVENT_REJECTED, 28, "disconnected"},
                          {RDMA_CM_EVENT_CONNECT_ERROR, -EINVAL, "broken"},
                          {RDMA_CM_EVENT_DEVICE_REMOVAL, 0, "broken"}}) {
    INFO(rdma_event_str(r.type) << ", " << r.status);
    attempt t;
    fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
    must(t.b.ep.post(dat::recv{t.b.at(0, 8)}.cookie(5)));
    t.connect();
    must(request_on(t.b.evd).accept(t.b.ep));
    t.settle();
    must(t.a.ep.post(dat::send{t.a.at(0, 8)}));
    fake::deliver({.event = r.type, .status = r.status, .qp_num = t.b.ep.number()});
    t.settle();
    events expected{"established", "received 5"};
    if (*r.end != 0) expected.emplace_back(r.end);
    CHECK(t.b.take() == expected);
    CHECK(t.b.ep.state() == (*r.end != 0 ? ep_state::disconnected : ep_state::connected));
    fake::release_events();
    t.settle();
    CHECK(t.b.take().empty());
  }
}

TEST_CASE("data that has arrived keeps accept_timeout from ending the connection", "[CR-036]") {
  attempt t;
  t.b.make_ep({.accept_timeout = 1ms});
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  must(t.b.ep.post(dat::recv{t.b.at(0, 8)}.cookie(5)));
  t.connect();
  must(request_on(t.b.evd).accept(t.b.ep));
  while (t.a.ep.state() != ep_state::connected) { // b does not read the clock during this time
    fake::finish();
    t.a.ia.run();
  }
  must(t.a.ep.post(dat::send{t.a.at(0, 8)}));
  std::this_thread::sleep_for(2ms); // longer than the limit
  t.settle();
  CHECK(t.b.ep.state() == ep_state::connected);
  CHECK(t.b.take() == events{"established", "received 5"});
  fake::release_events();
}

TEST_CASE("a disconnect before any data cancels an accept", "[CONN-020]") {
  attempt t;
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  must(t.b.ep.post(dat::recv{t.b.at(0, 8)}.cookie(5)));
  t.connect();
  must(request_on(t.b.evd).accept(t.b.ep));
  t.settle();
  must(t.b.ep.disconnect());
  t.settle();
  events got = t.b.take();
  CHECK(std::erase(got, flushed + " 5") == 1);
  CHECK(got == events{"disconnected"});
  fake::release_events();
}

TEST_CASE("data that arrives before the last handshake message establishes the connection",
          "[CR-036][EPS-024][DISC-024][EVENT-035][CONN-020]") {
  attempt t;
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  SECTION("one merged evd for all events") {
    must(t.b.ep.post(dat::recv{t.b.at(0, 8)}.cookie(5)));
    t.connect();
    must(request_on(t.b.evd).accept(t.b.ep));
    t.settle();
    CHECK(t.a.take() == events{"established"});
    CHECK(t.b.ep.state() == ep_state::completion_pending);
    CHECK(t.b.take().empty());
    must(t.a.ep.post(dat::send{t.a.at(0, 8)}));
    t.b.take();
    t.settle();
    CHECK(t.b.ep.state() == ep_state::connected);
  }
  SECTION("a completions-only evd for completions") {
    auto completions = must(t.b.ia.create_evd<dat::stream::dto>(16));
    t.b.ep = must(t.b.pz.create_ep<dat::rc>({.recv = completions, .request = completions, .connect = t.b.evd}));
    must(t.b.ep.post(dat::recv{t.b.at(0, 8)}.cookie(5)));
    t.connect();
    must(request_on(t.b.evd).accept(t.b.ep));
    t.settle();
    CHECK(t.b.ep.state() == ep_state::completion_pending);
    must(t.a.ep.post(dat::send{t.a.at(0, 8)}));
    CHECK(unit::take(completions) == events{"received 5"});
    CHECK(t.b.ep.state() == ep_state::connected);
    CHECK(t.b.take() == events{"established"});
    must(t.b.ep.post(dat::send{}));
    must(t.b.ep.close());
    fake::release_events();
    t.settle();
    return;
  }
  SECTION("a second merged evd for completions") {
    auto completions = must(t.b.ia.create_evd<dat::stream::dto | dat::stream::connection>(16));
    t.b.ep = must(t.b.pz.create_ep<dat::rc>({.recv = completions, .request = completions, .connect = t.b.evd}));
    must(t.b.ep.post(dat::recv{t.b.at(0, 8)}.cookie(5)));
    t.connect();
    must(request_on(t.b.evd).accept(t.b.ep));
    t.settle();
    must(t.a.ep.post(dat::send{t.a.at(0, 8)}));
    CHECK(unit::take(completions) == events{"received 5"});
    t.settle();
    CHECK(t.b.ep.state() == ep_state::connected);
    CHECK(t.b.take() == events{"established"});
    must(t.b.ep.close());
    fake::release_events();
    return;
  }
  const auto first = t.b.take();
  CHECK(first == events{"established", "received 5"});
  CHECK(fake::count(fake::call::rdma_notify) == 0); // see ep_core::arrived
  fake::release_events();
  t.settle();
  CHECK(t.b.take().empty());
  CHECK(t.b.ep.state() == ep_state::connected);
}
