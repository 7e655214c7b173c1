// Agents of a cno: when an agent is called, replaced and removed, and what it may call.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include "one_cno.hpp"
#include <support/streams.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <poll.h>
#include <thread>
#include <type_traits>
#include <unistd.h>

using namespace one_cno;
using namespace std::chrono_literals;
using dat::return_type;
using rig::must;
using rig::patience;
using support::worker;

namespace {
template <class C>
concept cno_query_takes_a_mask = requires(const C& cno, std::uint64_t mask) {
  cno.query(mask);
};
} // namespace

TEST_CASE("an agent is called once for each time that it is set", "[CNO-007][CNO-015][CNO-037][CNO-038][CNO-043]") {
  rig::begin();
  fixture f;
  counting_agent a;
  must(f.cno.modify_agent(a.agent()));
  CHECK(f.cno.agent().instance == &a);
  CHECK(f.cno.owner() == f.ia.identity());
  SHOWS("CNO-041");
  must(f.evd.post(1));
  a.await(1);
  CHECK(a.last == f.evd.id().number());
  SHOWS("MODEL-007");
  CHECK(f.cno.agent().call == nullptr);
  CHECK(f.cno.wait(0us).has_value()); // an agent does not take the trigger from a waiter
  must(f.evd.post(2));
  CHECK(f.cno.wait(patience).has_value());
  CHECK(a.calls == 1);
  must(f.cno.modify_agent(a.agent()));
  must(f.evd.post(3));
  a.await(2);
  // A trigger releases a thread that is blocked, and calls the agent.
  CHECK(f.cno.wait(patience).has_value());
  must(f.cno.modify_agent(a.agent()));
  std::atomic<pid_t> thread{};
  worker waiter([&](worker& w) {
    thread = ::gettid();
    const auto woken = f.cno.wait(patience);
    w.check(woken && woken.value() == f.evd.id());
  });
  until_asleep(thread);
  must(f.evd.post(4));
  a.await(3);
  waiter.join();
  // The agent that a cno was created with is called once, too.
  auto other = must(f.ia.create_cno(a.agent()));
  must(f.evd.modify_cno(other)); // with queued events, which trigger it
  a.await(4);
  CHECK(other.agent().call == nullptr);
  CHECK(a.calls == 4);
  must(f.evd.modify_cno({}));
}

TEST_CASE("an agent replaces the previous one, and an empty one removes it", "[CNO-037][CNO-038][REQ-155]") {
  rig::begin();
  fixture f;
  counting_agent a;
  counting_agent b;
  must(f.cno.modify_agent(a.agent()));
  must(f.cno.modify_agent(b.agent()));
  CHECK(f.cno.agent().instance == &b);
  must(f.evd.post(1));
  b.await(1);
  CHECK(must(f.cno.wait(patience)) == f.evd.id());
  must(f.cno.modify_agent(b.agent()));
  must(f.cno.modify_agent({}));
  CHECK(f.cno.agent().call == nullptr);
  must(f.evd.post(2));
  CHECK(must(f.cno.wait(patience)) == f.evd.id());
  must(f.cno.modify_agent(a.agent()));
  must(f.evd.post(3));
  a.await(1); // agents run one after another, so no earlier call is still pending
  CHECK(b.calls == 1);
  CHECK(a.calls == 1); // `a` was replaced before its first trigger, and set again after `b` was called
}

TEST_CASE("a query of a cno never mixes two of its agents", "[CNO-042]") {
  rig::begin();
  fixture f;
  counting_agent a;
  counting_agent b;
  const dat::wait_proxy_agent other{[](void*, dat::evd_id) noexcept {}, &b};
  std::atomic<bool> over{false};
  worker setter([&](worker& w) {
    for (int i = 0; i < 500; ++i)
      w.check(f.cno.modify_agent(a.agent()) && f.cno.modify_agent(other) && f.cno.modify_agent({}));
    over = true;
  });
  bool whole = true;
  while (!over) {
    const auto now = must(f.cno.query()).agent;
    const void* const expected = !now.call ? nullptr : now.call == other.call ? &b : &a;
    whole = whole && now.instance == expected;
  }
  setter.join();
  CHECK(whole);
}

TEST_CASE("an agent may post a software event", "[EVD-069]") {
  rig::begin();
  fixture f;
  auto other = must(f.ia.create_evd<soft>(8));
  must(f.cno.modify_agent(
      {[](void* to, dat::evd_id evd) noexcept { (void)static_cast<dat::evd<soft>*>(to)->post(evd.number()); },
       &other}));
  must(f.evd.post(1));
  const auto posted = must(other.wait(patience));
  CHECK(std::get<dat::software_event>(posted).cookie() == dat::cookie(f.evd.id().number()));
  must(f.evd.modify_cno({}));
  must(f.cno.close()); // the agent has returned from `other`, which may end now
}

TEST_CASE("an agent that is set after the trigger is called at once", "[CNO-039]") {
  rig::begin();
  fixture f;
  counting_agent a;
  must(f.evd.post(1));
  must(f.cno.modify_agent(a.agent()));
  a.await(1);
  CHECK(f.cno.wait(0us).has_value());
  must(f.cno.modify_agent(a.agent())); // the previous trigger was taken, so it does not call the agent
  CHECK(f.cno.wait(0us).error().type() == return_type::queue_empty);
  CHECK(a.calls == 1);
  must(f.cno.modify_agent({}));
}

TEST_CASE("an agent that sets itself again is called for every trigger", "[CNO-038][CNO-047]") {
  rig::begin();
  fixture f;
  struct self_arming {
    dat::cno* cno;
    dat::evd<soft>* evd;
    std::atomic<int> events{0};
    std::atomic<pid_t> thread{0};
    static void call(void* self, dat::evd_id) noexcept {
      auto& a = *static_cast<self_arming*>(self);
      a.thread = ::gettid();
      (void)a.cno->modify_agent({&call, self}); // sets the agent before it takes events, so that no event is missed
      while (a.evd->dequeue()) ++a.events;
    }
  } a{&f.cno, &f.evd, {}, {}};
  must(f.cno.modify_agent({&self_arming::call, &a}));
  constexpr int n = 1000;
  for (int i = 0; i < n;)
    if (f.evd.post(i)) ++i;
  while (a.events < n) std::this_thread::yield();
  must(f.cno.modify_agent({}));
  must(f.evd.modify_cno({}));
  must(f.cno.close()); // after close the agent no longer runs
  CHECK(a.events == n);
  CHECK(a.thread != ::gettid()); // the service thread
}

TEST_CASE("one agent can serve the cnos of two ias", "[CNO-044][REQ-009][EVENT-010]"
                                                     "[REQ-155]") {
  rig::begin();
  fixture f;
  fixture g;
  counting_agent a;
  must(f.cno.modify_agent(a.agent()));
  must(g.cno.modify_agent(a.agent()));
  must(f.evd.post(1));
  a.await(1);
  CHECK(a.last == f.evd.id().number());
  CHECK(f.cno.agent().call == nullptr);
  CHECK(g.cno.agent().instance == &a); // the call has taken it from the cno that was triggered alone
  DEVIATES("CNO-045");
  must(g.evd.post(1));
  a.await(2);
  CHECK(a.calls == 2);
  CHECK(a.last == g.evd.id().number()); // the one agent gets the evd of either ia
  SHOWS("REQ-010");
  STATIC_REQUIRE(std::is_aggregate_v<dat::wait_proxy_agent>); // a value of the program, which is no object of dat
  SHOWS("SAFE-005");
  // One poll set may hold the descriptors of both cnos.
  std::array<pollfd, 2> both{{{f.cno.fd(), POLLIN, 0}, {g.cno.fd(), POLLIN, 0}}};
  CHECK(::poll(both.data(), both.size(), 0) == 2);
  (void)must(f.cno.wait(0us));
  CHECK(::poll(both.data(), both.size(), 0) == 1);
  CHECK((both[1].revents & POLLIN) != 0);
}

TEST_CASE("the consumer may also post to the object that an agent feeds", "[cno][REQ-011]") {
  rig::begin();
  fixture f;
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const auto put = [&](char c) { REQUIRE(::write(pipe[1], &c, 1) == 1); };
  const auto get = [&] {
    char c = 0;
    REQUIRE(::read(pipe[0], &c, 1) == 1);
    return c;
  };
  const dat::wait_proxy_agent agent{
      [](void* fd, dat::evd_id) noexcept { (void)!::write(*static_cast<int*>(fd), "a", 1); }, &pipe[1]};
  put('c');
  must(f.cno.modify_agent(agent));
  must(f.evd.post(1));
  CHECK(get() == 'c');
  CHECK(get() == 'a');
  SHOWS("MODEL-015");
  put('c');
  CHECK(get() == 'c');
  must(f.cno.modify_agent(agent));
  CHECK(f.evd.dequeue().has_value());
  must(f.evd.post(2));
  CHECK(get() == 'a');
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_CASE("an agent with data and no function is refused", "[CNO-016][CNO-040]") {
  rig::begin();
  fixture f;
  int data = 0;
  CHECK(f.ia.create_cno({nullptr, &data}).error().type() == return_type::invalid_parameter);
  CHECK(f.cno.modify_agent({nullptr, &data}).error().type() == return_type::invalid_parameter);
  counting_agent a;
  must(f.cno.modify_agent(a.agent()));
  CHECK((f.cno.agent().call == a.agent().call && f.cno.agent().instance == &a)); // set when the call returns
  must(f.cno.modify_agent({}));
  CHECK(f.cno.agent().call == nullptr);
  CHECK(f.cno.wait(-1us).error().type() == return_type::invalid_parameter);
  SHOWS("CNO-029");
}

TEST_CASE("with manual progress the waiting thread itself calls the agent", "[CNO-007][CNO-047]") {
  rig::begin();
  fixture f(rig::manual);
  counting_agent a;
  must(f.cno.modify_agent(a.agent()));
  must(f.evd.post(1));
  CHECK(a.calls == 0);
  CHECK(readable(f.ia.fd()));
  CHECK(f.cno.wait(patience).has_value());
  CHECK(a.calls == 1);
  // A disabled evd triggers neither the descriptor nor the agent.
  must(f.evd.disable());
  must(f.cno.modify_agent(a.agent()));
  must(f.evd.post(2));
  f.ia.run();
  CHECK_FALSE(readable(f.cno.fd()));
  CHECK(a.calls == 1);
  must(f.evd.enable());
  CHECK(readable(f.cno.fd()));
  CHECK(f.cno.wait(patience).has_value());
  CHECK(a.calls == 2);
  SHOWS("CNO-008");
}

TEST_CASE("create_cno sets the agent of the new cno", "[cno]") {
  rig::begin();
  auto ia = rig::open();
  counting_agent a;
  auto cno = must(ia.create_cno(a.agent()));
  CHECK(cno.agent().call == a.agent().call);
  CHECK(cno.agent().instance == &a);
  CHECK(must(cno.query()).agent.call == a.agent().call);
  CHECK(must(cno.query()).agent.instance == &a);
  CHECK_FALSE(must(cno.query()).latest);
  STATIC_REQUIRE_FALSE(cno_query_takes_a_mask<dat::cno>); // a query returns all members, so no mask can be wrong
  SHOWS("CNO-042");
  CHECK(cno.fd() >= 0);
  CHECK_FALSE(cno.latest());
  CHECK(cno.wait(0us).error().type() == return_type::queue_empty);
  SHOWS("CNO-001", "CNO-014", "CNO-017");
  must(cno.close()); // no evd or waiter uses the cno
  CHECK(a.calls == 0);
  CHECK(cno.agent().call == nullptr);
  CHECK(must(ia.create_cno()).agent().call == nullptr);
  CHECK(must(must(ia.create_cno()).query()).agent.call == nullptr);
  SHOWS("CNO-015", "CNO-041", "REQ-155");
}
