// Consumer notification objects: tests that need a connection, or that count the remaining objects. notices.cpp,
// agents.cpp and descriptor.cpp have the other tests.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/detail/handle/core_access.hpp>

#include <atomic>
#include <cerrno>
#include <poll.h>
#include <thread>
#include <unistd.h>

using namespace unit;

namespace {

struct fixture {
  dat::ia ia = must(dat::ia::open("fk1", automatic));
  dat::cno cno = must(ia.create_cno());
  dat::evd<dat::stream::software> evd = must(ia.create_evd<dat::stream::software>(8));
  fixture() { must(evd.modify_cno(cno)); }
};

} // namespace

TEST_CASE("no agent runs after close has returned, not even an agent that sets itself again", "[CNO-026][CNO-047]"
                                                                                              "[IA-038]") {
  struct agent_data {
    dat::cno* cno;
    std::atomic<bool> freed = false;
    std::atomic<int> late = 0;
    static void call(void* self, dat::evd_id) noexcept {
      auto& a = *static_cast<agent_data*>(self);
      (void)a.cno->modify_agent({&call, self});
      std::this_thread::yield();
      if (a.freed) ++a.late;
    }
  };
  fake::reset();
  for (int round = 0; round < 200; ++round) {
    fixture f;
    agent_data a{&f.cno};
    must(f.cno.modify_agent({&agent_data::call, &a}));
    must(f.evd.post(1));
    must(f.evd.post(2));
    must(f.evd.modify_cno({}));
    must(f.cno.close());
    a.freed = true;
    if (round % 10 == 0) std::this_thread::sleep_for(1ms);
    CHECK(a.late == 0);
  }
  // The agent's thread may have had the last reference to an adapter, and release it when the thread ends.
  while (fake::live().total() != 0) std::this_thread::yield();
}

TEST_CASE("with manual progress a wait on the cno does the work that leads to its event", "[cno][progress]") {
  const clean_world clean;
  end a;
  auto cno = must(a.ia.create_cno());
  must(a.evd.modify_cno(cno));
  while (cno.wait(0us)) { // takes the trigger that modify_cno caused
  }
  a.make_ep();
  must(a.ep.connect(must(dat::ia_address::parse("10.99.2.1")), service, plenty)); // no program listens on this port
  CHECK(must(cno.wait(plenty)) == a.evd.id());
  CHECK(a.ep.state() == dat::ep_state::disconnected);
}

TEST_CASE("a completion triggers the cno without a call of the consumer", "[CNO-011][EVD-011][EVENT-045][EVD-001]") {
  fake::reset();
  auto ia = must(dat::ia::open("fk1", automatic));
  auto pz = must(ia.create_pz());
  auto cno = must(ia.create_cno());
  auto dtos = must(ia.create_evd<dat::stream::dto>(32));
  auto merged = must(ia.create_evd<dat::stream::dto | dat::stream::software>(32));
  auto events = must(ia.create_evd<dat::stream::connection | dat::stream::connection_requests>(8));
  auto psp = must(ia.create_psp(service, events));
  auto near = must(pz.create_ep<dat::rc>({.recv = dtos, .request = dtos, .connect = events}));
  auto far = must(pz.create_ep<dat::rc>({.recv = merged, .request = merged, .connect = events}));
  must(near.connect(ia.address(), service, plenty));
  must(must(events.wait_for<dat::connection_request>(plenty)).accept(far));
  (void)must(events.wait_for<dat::established>(near, plenty));
  (void)must(events.wait_for<dat::established>(far, plenty));
  must(dtos.modify_cno(cno));
  must(merged.modify_cno(cno));
  while (cno.wait(0us)) { // takes the triggers that modify_cno caused
  }
  constexpr int rounds = 200;
  for (int i = 0; i < rounds; ++i) {
    must(far.post(dat::recv{}));
    must(near.post(dat::send{}));
    int taken = 0;
    while (taken < 2) { // one completion on each side
      (void)must(cno.wait(plenty));
      taken += static_cast<int>(dtos.drain([](auto&) {}) + merged.drain([](auto&) {}));
    }
    CHECK(taken == 2);
  }
}

TEST_CASE("an agent that is set behind a trigger is called for it once, unless a thread has taken the trigger",
          "[cno]") {
  const clean_world world;
  auto ia = must(dat::ia::open("fk1", manual));
  auto cno = must(ia.create_cno());
  auto evd = must(ia.create_evd<dat::stream::software>(8));
  must(evd.modify_cno(cno));
  int calls = 0;
  const dat::wait_proxy_agent agent{[](void* n, dat::evd_id) noexcept { ++*static_cast<int*>(n); }, &calls};
  while (cno.wait(0us)) { // takes the triggers that modify_cno caused
  }
  must(evd.post(1));
  CHECK(must(cno.wait(0us)) == evd.id());
  must(cno.modify_agent(agent));
  ia.run();
  CHECK(calls == 0);
  must(cno.modify_agent({}));
  must(evd.post(2));
  must(cno.modify_agent(agent));
  ia.run();
  CHECK(calls == 1);
  must(cno.modify_agent(agent));
  ia.run();
  CHECK(calls == 1);
  // The end of the last evd is a trigger, too, which names no evd.
  (void)cno.wait(0us);
  must(evd.close());
  ia.run();
  CHECK(calls == 2);
  CHECK(must(cno.wait(0us)) == dat::evd_id());
}

TEST_CASE("a wait on a cno fails at once when one of its descriptors is closed", "[cno]") {
  const clean_world world;
  auto ia = must(dat::ia::open("fk1", manual));
  auto cno = must(ia.create_cno());
  const bool its_own = GENERATE(true, false); // or the one that ends its waits
  CAPTURE(its_own);
  const int fd = its_own ? cno.fd() : dat::detail::core_access::of(cno)->ia().closing.get();
  const int copy = ::dup(fd);
  REQUIRE(::close(fd) == 0);
  const auto failed = cno.wait(plenty);
  REQUIRE(::dup2(copy, fd) == fd);
  ::close(copy);
  CHECK(failed.error().sys_errno() == EIO);
  CHECK(failed.error().verb() == "ppoll");
}

TEST_CASE("a cno that is attached to an evd is triggered by completions that the device has already", "[cno]") {
  const clean_world world;
  pair p;
  constexpr auto kinds = dat::stream::dto | dat::stream::connection;
  auto evd = must(p.a.ia.create_evd<kinds>(16));
  auto ep = must(p.a.pz.create_ep<dat::rc>(evd));
  auto peer = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  p.connect(ep, peer);
  CHECK(take(evd) == events{"established"});
  auto cno = must(p.a.ia.create_cno());
  must(evd.modify_cno(cno));
  is_error(cno.wait(0us), dat::return_type::queue_empty); // nothing is queued
  must(evd.modify_cno({}));
  const auto write = [&] {
    must(ep.post(dat::rdma_write{p.a.at(0, 1), p.b.mem.remote()}));
    fake::finish();
  };
  write(); // the device is still armed, so that the first completion notifies
  p.a.ia.run();
  (void)take(evd);
  write();
  must(evd.modify_cno(cno));
  CHECK(must(cno.wait(0us)) == evd.id());
}

TEST_CASE("a cno whose agent waits for the reactor leaves nothing behind when all handles end", "[cno]") {
  const clean_world world;
  int calls = 0;
  const dat::wait_proxy_agent agent{[](void* n, dat::evd_id) noexcept { ++*static_cast<int*>(n); }, &calls};
  {
    auto ia = must(dat::ia::open("fk1", manual));
    auto cno = must(ia.create_cno(agent));
    auto evd = must(ia.create_evd<dat::stream::software>(8));
    must(evd.modify_cno(cno));
    must(evd.post(1)); // the agent is to be called by the next call that runs the reactor, and none follows
    must(evd.modify_cno({}));
    if (GENERATE(false, true)) must(cno.close());
  }
  CHECK(calls == 0);
}

TEST_CASE("completions that arrive during a drain, and that the drain takes, trigger no cno", "[cno]") {
  const clean_world world;
  pair p;
  auto cno = must(p.b.ia.create_cno());
  must(p.b.evd.modify_cno(cno));
  const auto arrive = [&] {
    for (int i = 0; i < 3; ++i) {
      must(p.b.ep.post(dat::recv{}));
      must(p.a.ep.post(dat::send{}.suppress_completion()));
    }
    fake::finish();
  };
  arrive();
  while (cno.wait(0us)) {
  }
  int seen = 0;
  CHECK(p.b.evd.drain([&](const auto&) {
    if (++seen == 1) arrive();
  }) == 6);
  pollfd triggered{cno.fd(), POLLIN, 0};
  CHECK(::poll(&triggered, 1, 0) == 0);
}
