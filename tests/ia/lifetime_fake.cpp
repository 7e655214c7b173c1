// Lifetimes: handles in any order, abrupt closes while threads wait, the service thread as the last owner.
// SPDX-License-Identifier: BSL-1.0
#include "automatic_pair.hpp"
#include "late_handshake.hpp"
#include "world.hpp"

#include <atomic>
#include <thread>

using namespace unit;
using dat::ep_state;

TEST_CASE("handles may be destroyed in any order, and each object lives as long as it is used",
          "[IA-045][PZ-007][EP-038]") {
  const auto order = GENERATE(range(0, 24));
  clean_world world;
  end b("fk2");
  auto psp = must(b.ia.create_psp(service, b.evd));
  b.make_ep();
  {
    auto a = std::make_unique<end>("fk1");
    a->make_ep();
    must(a->ep.connect(b.ia.address(), service, plenty));
    settle(*a, b);
    must(request_on(b.evd).accept(b.ep));
    settle(*a, b);
    std::vector<int> which{0, 1, 2, 3};
    for (int i = 0; i < order; ++i) std::next_permutation(which.begin(), which.end());
    for (const int w : which) {
      if (w == 0) a->ia = {};
      if (w == 1) a->pz = {};
      if (w == 2) a->evd = {};
      if (w == 3) {
        must(a->ep.disconnect());
        a->ep = {};
      }
    }
  }
  for (int i = 0; i < 8; ++i) b.ia.run();
  CHECK(b.take() == events{"established", "disconnected"});
}

TEST_CASE("closing an object in use is refused and changes nothing", "[PZ-005][PZ-006][EVD-015][IA-034]") {
  clean_world world;
  pair p;
  CHECK(p.a.pz.close().error().subtype() == dat::return_subtype::pz_in_use);
  CHECK(p.a.evd.close().error().type() == dat::return_type::invalid_state);
  CHECK(p.a.ia.close(dat::close_mode::graceful).error().subtype() == dat::return_subtype::ia_in_use);
  CHECK(p.b.evd.close().error().type() == dat::return_type::invalid_state);
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 1), p.b.mem.remote()}));
  CHECK(p.a.take() == events{"written 0"});
  must(p.a.ep.close());
  CHECK(p.a.pz.close().error().subtype() == dat::return_subtype::pz_in_use); // the region keeps the zone in use
  must(p.a.mem.close());
  must(p.a.pz.close());
  must(p.a.evd.close());
  must(p.a.ia.close(dat::close_mode::graceful));
  CHECK_FALSE(p.a.ia);
  CHECK(p.a.ia.close().error().type() == dat::return_type::invalid_handle);
  p.b.ia.run();
}

TEST_CASE("every handle returns an error after an abrupt close", "[IA-030][IA-031][IA-033][IA-047][EVENT-105]") {
  clean_world world;
  pair p;
  must(p.a.ep.post(dat::recv{p.a.at(0, 8)}.cookie(1)));
  const auto segment = p.a.at(0, 8);
  must(p.a.ia.close());
  using dat::return_type;
  CHECK(p.a.ep.post(dat::recv{segment}).error().type() == return_type::invalid_handle);
  CHECK(p.a.ep.post(dat::send{segment}).error().type() == return_type::invalid_handle);
  CHECK(p.a.ep.connect(p.b.ia.address(), service, plenty).error().type() == return_type::invalid_handle);
  CHECK(p.a.ep.disconnect().error().type() == return_type::invalid_handle);
  CHECK(p.a.ep.reset().error().type() == return_type::invalid_handle);
  CHECK(p.a.ep.state() == ep_state::disconnected);
  CHECK(p.a.ep.native_handle() == nullptr);
  CHECK(p.a.evd.dequeue().error().type() == return_type::invalid_handle);
  CHECK(p.a.evd.wait(0us).error().type() == return_type::invalid_handle);
  CHECK(p.a.take().empty());
  CHECK(p.a.mem.slice(0, 1).error().type() == return_type::invalid_handle);
  CHECK(p.a.mem.whole().empty());
  CHECK(p.a.pz.register_memory(p.a.memory, all_rights).error().type() == return_type::invalid_handle);
  CHECK(p.a.pz.create_ep<dat::rc>(p.b.evd).error().type() == return_type::invalid_handle);
  CHECK(p.a.ep.close().error().type() == return_type::invalid_handle);
  CHECK(p.a.mem.close().error().type() == return_type::invalid_handle);
  CHECK(p.a.pz.close().error().type() == return_type::invalid_handle);
  CHECK(p.a.evd.close().error().type() == return_type::invalid_handle);
  // The close empties such a handle, too.
  CHECK_FALSE(p.a.ep);
  CHECK_FALSE(p.a.mem);
  CHECK_FALSE(p.a.pz);
  CHECK_FALSE(p.a.evd);
  p.b.ia.run();
  CHECK(p.b.take() == events{"disconnected"});
}

TEST_CASE("a waiter is released by an abrupt close of its ia", "[IA-033][EVENT-103]") {
  const auto how = GENERATE(manual, automatic);
  const auto completions_only = GENERATE(false, true);
  clean_world world;
  auto ia = must(dat::ia::open("fk1", how));
  auto completions = must(ia.create_evd<dat::stream::dto>(8));
  auto all = must(ia.create_evd<all_streams>(8));
  std::atomic<bool> waiting = false;
  dat::return_type result = dat::return_type::success;
  std::jthread waiter([&] {
    waiting = true;
    const auto wait = [&](auto& evd) { result = evd.wait(plenty).error().type(); };
    completions_only ? wait(completions) : wait(all);
  });
  while (!waiting) std::this_thread::yield();
  // At this time, the waiter may be asleep, or before its sleep.
  must(ia.close());
  waiter.join();
  CHECK((result == dat::return_type::abort || result == dat::return_type::invalid_handle));
}

TEST_CASE("a wait that begins while its ia is closed uses no object that has ended", "[IA-033][EVENT-103]") {
  const auto how = GENERATE(manual, automatic);
  const auto completions_only = GENERATE(false, true);
  clean_world world;
  for (int round = 0; round < 200; ++round) {
    auto ia = must(dat::ia::open("fk1", how));
    auto completions = must(ia.create_evd<dat::stream::dto>(8));
    auto all = must(ia.create_evd<all_streams>(8));
    std::atomic<bool> ready = false;
    std::atomic<bool> go = false;
    dat::return_type result = dat::return_type::success;
    std::jthread waiter([&] {
      const auto wait = [&](auto& evd) { result = evd.wait(plenty).error().type(); };
      ready = true;
      while (!go) std::this_thread::yield();
      completions_only ? wait(completions) : wait(all);
    });
    while (!ready) std::this_thread::yield();
    go = true;
    must(ia.close());
    waiter.join();
    REQUIRE((result == dat::return_type::abort || result == dat::return_type::invalid_handle));
  }
}

TEST_CASE("a visitor of a drain with a time limit may close the ia abruptly", "[IA-033][EVENT-103]") {
  const auto how = GENERATE(manual, automatic);
  clean_world world;
  auto ia = must(dat::ia::open("fk1", how));
  auto evd = must(ia.create_evd<dat::stream::software>(8));
  must(evd.post(1));
  must(evd.post(1));
  std::size_t visited = 0;
  const auto taken = evd.wait_and_drain(
      [&](const dat::software_event&) {
        ++visited;
        must(ia.close());
      },
      plenty);
  CHECK(must(dat::expected<std::size_t>(taken)) == visited);
  CHECK(visited == 1);
  CHECK(evd.wait(0us).error().type() == dat::return_type::invalid_handle);
}

TEST_CASE("the service thread may release the last reference to an ia", "[IA-043]") {
  clean_world world;
  for (int round = 0; round < 60; ++round) {
    automatic_pair p;
    switch (round % 4) {
    case 0:
      must(p.a.ep.disconnect());
      break;
    case 1:
      must(p.b.ep.disconnect());
      break;
    case 2:
      fake::async(IBV_EVENT_QP_FATAL, p.a.ep.native_handle());
      break;
    default: // a connection attempt under way
      must(p.a.ep.disconnect());
      must(p.a.ep.reset());
      must(p.a.ep.connect(p.b.ia.address(), service, plenty));
    }
    if (round % 8 < 4) {
      must(p.a.ep.close());
      p.a.ia = {};
    }
    // All handles are destroyed here, while messages are in flight.
  }
  // The last threads may still be ending.
  while (fake::live().total() != 0) std::this_thread::yield();
}

TEST_CASE("an ia connects to itself, and two ias of one adapter connect to each other", "[CONN-070][IA-046]") {
  clean_world world;
  end one("fk1");
  end two("fk1");
  auto psp = must(one.ia.create_psp(service, one.evd));
  one.make_ep();
  auto other = must(one.pz.create_ep<dat::rc>(one.evd));
  must(one.ep.connect(one.ia.address(), service, plenty));
  settle(one, two);
  must(request_on(one.evd).accept(other));
  settle(one, two);
  CHECK(one.take() == events{"established", "established"});
  must(other.post(dat::recv{one.at(0, 8)}.cookie(1)));
  must(one.ep.post(dat::send{one.at(8, 8)}.cookie(2)));
  auto seen = one.take();
  CHECK(seen.size() == 2);
  two.make_ep();
  must(two.ep.connect(one.ia.address(), service, plenty));
  settle(one, two);
  auto third = must(one.pz.create_ep<dat::rc>(one.evd));
  must(request_on(one.evd).accept(third));
  settle(one, two);
  CHECK(two.take() == events{"established"});
  must(one.ia.close());
  settle(two, two);
  CHECK(two.take() == events{"disconnected"});
}

TEST_CASE("a visitor may post, accept, reset and end endpoints", "[EVENT-002]") {
  clean_world world;
  SECTION("merged") {
    pair p;
    for (std::uint64_t i = 0; i < 4; ++i) must(p.b.ep.post(dat::recv{p.b.at(0, 8)}.cookie(i)));
    for (int i = 0; i < 4; ++i) must(p.a.ep.post(dat::send{}));
    int count = 0;
    p.b.evd.drain(dat::overloaded{[&](const dat::recv_done& r) {
                                    if (++count == 1) must(r.ep().post(dat::recv{p.b.at(0, 8)}));
                                    if (count == 2) must(p.b.ep.close());
                                  },
                                  [](const auto&) { FAIL_CHECK("another event"); }});
    CHECK(count == 2); // the other sends were dropped with their endpoint
    p.settle();
    p.a.evd.drain(dat::overloaded{[&](const dat::disconnected& d) {
                                    CHECK(d.ep() == p.a.ep);
                                    must(p.a.ep.reset());
                                    must(p.a.ep.close());
                                    CHECK(d.ep().number() != 0); // the event keeps its endpoint
                                  },
                                  [](const auto&) {}});
    CHECK_FALSE(p.a.ep);
  }
  SECTION("lean") {
    pair p;
    auto completions = must(p.b.ia.create_evd<dat::stream::dto>(16));
    auto completions_only =
        must(p.b.pz.create_ep<dat::rc>({.recv = completions, .request = completions, .connect = p.b.evd}));
    for (std::uint64_t i = 0; i < 4; ++i) must(completions_only.post(dat::recv{p.b.at(0, 8)}.cookie(i)));
    auto near = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
    must(near.connect(p.b.ia.address(), service, plenty));
    p.settle();
    p.b.evd.drain(dat::overloaded{[&](dat::cr& r) { must(r.accept(completions_only)); }, [](const auto&) {}});
    p.settle();
    for (int i = 0; i < 4; ++i) must(near.post(dat::send{}));
    int count = 0;
    completions.drain(dat::overloaded{[&](const dat::recv_done&) {
                                        if (++count == 2) must(completions_only.close());
                                      },
                                      [](const auto&) { FAIL_CHECK("another event"); }});
    CHECK(count == 2);
  }
}

TEST_CASE("a graceful close of an ia ends a connection that still waits for the last message of its peer", "[ia]") {
  const clean_world world;
  late_handshake l;
  l.accept();
  must(l.b.ep.close()); // the accept is called off, and the id waits
  must(l.psp.close());
  must(l.b.mem.close());
  must(l.b.evd.close());
  must(l.b.pz.close());
  CHECK(fake::live().ids == 2);
  const auto kept = std::move(l.b.ia.async_evd()); // keeps the adapter open
  must(l.b.ia.close(dat::close_mode::graceful));
  CHECK(fake::live().ids == 1);
  CHECK(fake::live().contexts == 2);
  fake::release_events();
}

TEST_CASE("after an abrupt close of an ia, its context ends with the last handle of an object", "[ia]") {
  const clean_world world;
  auto ia = must(dat::ia::open("fk1", manual));
  {
    const auto pz = must(ia.create_pz());
    must(ia.close(dat::close_mode::abrupt));
    CHECK(fake::live().pds == 0);
    CHECK(fake::live().contexts == 1);
  }
  CHECK(fake::live().contexts == 0);
}
