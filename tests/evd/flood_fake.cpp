// Events of one kind cost no event of another, and drains that stop early lose nothing.
// SPDX-License-Identifier: BSL-1.0
#include "async_events.hpp"
#include "world.hpp"

#include <vector>

using namespace unit;
using dat::ep_state;

namespace {

constexpr auto everything = all_streams | dat::stream::software;

/// A connection between two evds of 16 events.
struct connection {
  end a{"fk1"};
  end b{"fk2"};
  dat::evd<everything> near = must(a.ia.create_evd<everything>(16));
  dat::evd<everything> far = must(b.ia.create_evd<everything>(16));
  dat::psp psp = must(b.ia.create_psp(service, far));
  dat::ep_attributes small{.max_request_dtos = 4, .max_recv_dtos = 4};
  dat::ep<dat::rc> ep = must(a.pz.create_ep<dat::rc>(near, small));
  dat::ep<dat::rc> peer = must(b.pz.create_ep<dat::rc>(far, small));

  void settle() { unit::settle(a, b); }
  void connect() {
    must(ep.connect(b.ia.address(), service, plenty));
    settle();
    must(must(far.wait_for<dat::connection_request>(plenty)).accept(peer));
    settle();
  }
};

} // namespace

TEST_CASE("a flood of connection requests costs no connection event", "[evd][connection]") {
  const clean_world clean;
  connection c;
  c.connect();
  (void)take(c.near);
  (void)take(c.far);
  std::vector<dat::ep<dat::rc>> attackers;
  for (int i = 0; i < 20; ++i) {
    attackers.push_back(must(c.a.pz.create_ep<dat::rc>(c.a.evd, c.small)));
    must(attackers.back().connect(c.b.ia.address(), service, plenty));
    c.settle();
  }
  must(c.ep.disconnect());
  c.settle();
  std::size_t requests = 0;
  std::size_t ends = 0;
  while (c.far.drain(dat::overloaded{[&](dat::cr&) { ++requests; }, [&](const dat::disconnected&) { ++ends; },
                                     [](const auto&) {}}) != 0) {
  }
  CHECK(requests == 16); // the other requests were refused
  CHECK(ends == 1);
  CHECK(take_async<dat::evd_overflow>(c.b.ia) == 0);
}

TEST_CASE("software events cost no connection event", "[evd][connection]") {
  const clean_world clean;
  connection c;
  for (std::uint64_t i = 0; i < 16; ++i) must(c.near.post(i));
  CHECK_FALSE(c.near.post(16));
  c.connect();
  CHECK(c.ep.state() == ep_state::connected);
  must(c.ep.disconnect());
  c.settle();
  std::size_t software = 0;
  std::size_t up = 0;
  std::size_t down = 0;
  while (c.near.drain(dat::overloaded{[&](const dat::software_event&) { ++software; },
                                      [&](const dat::established&) { ++up; }, [&](const dat::disconnected&) { ++down; },
                                      [](const auto&) {}}) != 0) {
  }
  CHECK(software == 16);
  CHECK(up == 1);
  CHECK(down == 1);
}

TEST_CASE("each endpoint has two places for its connection events, whatever else the evd holds", "[evd][connection]") {
  const clean_world clean;
  end a;
  end b("fk2");
  auto evd = must(a.ia.create_evd<dat::stream::connection>(1));
  auto data = must(a.ia.create_evd<dat::stream::dto>(64));
  auto psp = must(b.ia.create_psp(service, b.evd));
  const dat::ep_attributes small{.max_request_dtos = 4, .max_recv_dtos = 4};
  std::vector<dat::ep<dat::rc>> near;
  std::vector<dat::ep<dat::rc>> far;
  for (int i = 0; i < 4; ++i) {
    near.push_back(must(a.pz.create_ep<dat::rc>({.recv = data, .request = data, .connect = evd}, small)));
    far.push_back(must(b.pz.create_ep<dat::rc>(b.evd, small)));
  }
  const auto life = [&](std::size_t i) {
    must(near[i].connect(b.ia.address(), service, plenty));
    settle(a, b);
    must(must(b.evd.wait_for<dat::connection_request>(plenty)).accept(far[i]));
    settle(a, b);
    must(far[i].disconnect());
    settle(a, b);
    must(near[i].reset());
    must(far[i].reset());
    (void)b.take();
  };
  for (int k = 0; k < 6; ++k) life(0); // takes all places
  CHECK(take_async<dat::evd_overflow>(a.ia) == 1);
  for (std::size_t i = 1; i < 4; ++i) life(i);
  near[1] = {}; // returns the places of this endpoint and, because the evd is too full, removes its events
  CHECK(take(evd).size() >= 8 + 2 + 2);
  CHECK(take_async<dat::evd_overflow>(a.ia) == 0);
}

TEST_CASE("a lost connection event is reported again only when the evd has had a free place meanwhile",
          "[evd][connection]") {
  const clean_world clean;
  end a;
  const auto remote = must(dat::ia_address::parse("10.99.2.1"));
  auto evd = must(a.ia.create_evd<dat::stream::connection>(4));
  auto data = must(a.ia.create_evd<dat::stream::dto>(64));
  const auto make = [&] { return must(a.pz.create_ep<dat::rc>({.recv = data, .request = data, .connect = evd})); };
  auto first = make();
  auto second = make();
  const auto fail = [&](dat::ep<dat::rc>& ep) { // no service listens there
    must(ep.connect(remote, service, plenty));
    for (int i = 0; i < 12; ++i) a.ia.run();
    REQUIRE(ep.state() == ep_state::disconnected);
    must(ep.reset());
  };
  for (int i = 0; i < 5; ++i) fail(first);
  CHECK(take_async<dat::evd_overflow>(a.ia) == 1);
  fail(second); // has a place of its own, so the evd has five events
  CHECK(take_async<dat::evd_overflow>(a.ia) == 0);
  must(evd.dequeue()); // all four places are taken
  fail(first);
  CHECK(take_async<dat::evd_overflow>(a.ia) == 0);
  must(evd.dequeue()); // frees a place
  fail(first);
  CHECK(take_async<dat::evd_overflow>(a.ia) == 0);
  fail(first);
  CHECK(take_async<dat::evd_overflow>(a.ia) == 1);
  CHECK(take(evd).size() == 4);
}

TEST_CASE("an event of a closed endpoint does not give access to the consumer's context", "[evd][ep]") {
  const clean_world clean;
  pair p;
  int session = 0;
  must(p.b.ep.set_context(&session));
  must(p.a.ep.disconnect());
  p.settle(); // disconnected is queued at b
  must(p.b.ep.close());
  std::size_t events = 0;
  p.b.evd.drain(dat::overloaded{[&](const dat::disconnected& e) {
                                  ++events;
                                  CHECK(e.ep().context<int>() == nullptr);
                                },
                                [](const auto&) {}});
  CHECK(events == 1);
}

TEMPLATE_TEST_CASE_SIG("a drain that leaves events leaves the cno triggered", "[evd][cno]", ((dat::streams S), S),
                       dat::stream::dto, dat::stream::dto | dat::stream::software) {
  const clean_world clean;
  pair p({.max_request_dtos = 64, .max_recv_dtos = 64});
  auto evd = must(p.a.ia.create_evd<S>(64));
  auto cno = must(p.a.ia.create_cno());
  auto ep = must(p.a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = p.a.evd}));
  auto far = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  p.connect(ep, far);
  must(evd.modify_cno(cno));
  (void)cno.wait(0us);
  for (int i = 0; i < 8; ++i) {
    must(far.post(dat::recv{}));
    must(ep.post(dat::send{}));
  }
  std::size_t taken = 0;
  const std::size_t most = GENERATE(std::size_t{1}, std::size_t{3}, std::size_t{8});
  while (cno.wait(0us)) taken += evd.drain([](const auto&) {}, most); // one drain for each trigger
  CHECK(taken == 8);
  CHECK(evd.drain([](const auto&) {}) == 0);
}
