// The locks of a cno, of the attachment of an evd to it, and of the reactor's tasks: what waits for each.
// SPDX-License-Identifier: BSL-1.0
#include "lock_waits.hpp"

#include <support/streams.hpp>

#include <dat/detail/events/cno_core.hpp>
#include <dat/detail/events/evd_core.hpp>
#include <dat/detail/handle/core_access.hpp>
#include <dat/detail/progress/reactor.hpp>

#include <csignal>
#include <poll.h>

namespace unit {

struct lock_of_cno {
  friend dat::detail::control_mutex dat::detail::cno_core::*member(lock_of_cno);
};
template struct opened_member<lock_of_cno, &dat::detail::cno_core::mutex_>;

struct lock_of_attachment {
  friend dat::detail::control_mutex dat::detail::evd_core::*member(lock_of_attachment);
};
template struct opened_member<lock_of_attachment, &dat::detail::evd_core::cno_mutex_>;

struct lock_of_tasks {
  friend dat::detail::control_mutex dat::detail::reactor::*member(lock_of_tasks);
};
template struct opened_member<lock_of_tasks, &dat::detail::reactor::mutex_>;

} // namespace unit

using namespace unit;

namespace {

constexpr auto joined_kinds = dat::stream::dto | dat::stream::connection | dat::stream::software;

} // namespace

TEST_CASE("calls on a cno, and triggers, wait for one that is changing it", "[locks][cno]") {
  const clean_world world;
  auto ia = must(dat::ia::open("fk1", manual));
  auto cno = must(ia.create_cno());
  auto evd = must(ia.create_evd<support::soft>(8));
  must(evd.modify_cno(cno));
  while (cno.wait(0us)) { // takes the triggers that modify_cno caused
  }
  const auto core = dat::detail::core_access::of(cno);
  auto& lock = (*core).*member(lock_of_cno());
  SECTION("a trigger") {
    CHECK(locked_out(lock, [&] { (void)evd.post(1); }));
  }
  SECTION("the agent") {
    CHECK(locked_out(lock, [&] { (void)cno.agent(); }));
  }
  SECTION("query") {
    CHECK(locked_out(lock, [&] { (void)cno.query(); }));
  }
  SECTION("modify_agent") {
    CHECK(locked_out(lock, [&] { (void)cno.modify_agent({}); }));
  }
  SECTION("the call of the agent") {
    must(cno.modify_agent({[](void*, dat::evd_id) noexcept {}, nullptr}));
    must(evd.post(1));
    CHECK(locked_out(lock, [&] { ia.run(); }));
  }
  SECTION("the end of the last evd") {
    CHECK(locked_out(lock, [&] { (void)evd.close(); }));
  }
  SECTION("the end of the cno") {
    must(evd.modify_cno({}));
    pollfd triggered{core->fd(), POLLIN, 0};
    int woken = 1;
    CHECK(locked_out(
        lock, [&] { (void)cno.close(); }, [&] { woken = ::poll(&triggered, 1, 0); }));
    CHECK(woken == 0); // nor did the close wake the threads that wait
  }
  SECTION("the begin of a wait, which is counted with the lock") {
    std::uint32_t counted = 1;
    CHECK(locked_out(
        lock, [&] { (void)cno.wait(0us); }, [&] { counted = core->waiters; }));
    CHECK(counted == 0);
  }
  SECTION("the end of a wait") {
    const auto before = std::signal(SIGUSR1, [](int) {});
    other_call waiter([&] { (void)cno.wait(plenty); });
    support::until_asleep(waiter.id(), plenty);
    {
      const std::lock_guard held(lock);
      REQUIRE(::pthread_kill(waiter.native_handle(), SIGUSR1) == 0);
      CHECK(waiter.waits());
    }
    waiter.join();
    CHECK(core->waiters == 0);
    std::signal(SIGUSR1, before);
  }
}

TEST_CASE("calls that attach an evd or read its attachment wait for a call that changes the attachment",
          "[locks][cno]") {
  const clean_world world;
  pair p;
  auto cno = must(p.a.ia.create_cno());
  auto evd = must(p.a.ia.create_evd<joined_kinds>(16));
  const auto core = dat::detail::core_access::of(evd);
  auto& lock = (*core).*member(lock_of_attachment());
  const auto create = [&] { return p.a.pz.create_ep<dat::rc>({.recv = p.a.evd, .request = evd, .connect = p.a.evd}); };
  SECTION("post") {
    CHECK(locked_out(lock, [&] { (void)evd.post(1); }));
  }
  SECTION("modify_cno") {
    CHECK(locked_out(lock, [&] { (void)evd.modify_cno(cno); }));
  }
  SECTION("query") {
    CHECK(locked_out(lock, [&] { (void)evd.query(); }));
  }
  SECTION("close") {
    CHECK(locked_out(lock, [&] { (void)evd.close(); }));
  }
  SECTION("the creation of an endpoint") {
    CHECK(locked_out(lock, [&] { (void)create(); }));
  }
  SECTION("the end of an endpoint") {
    auto ep = must(create());
    CHECK(locked_out(lock, [&] { ep = {}; }));
  }
  SECTION("a mode that an endpoint gives back") {
    CHECK(locked_out(lock, [&] { core->restore_mode(dat::completion_notification::evd_threshold); }));
  }
  SECTION("the first connection") {
    auto ep = must(create());
    CHECK(locked_out(lock, [&] { core->watch_connection(); }));
    core->unwatch_connection();
  }
  SECTION("the check for broken connections") {
    auto ep = must(create());
    auto peer = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
    p.connect(ep, peer);
    must(ep.post(dat::rdma_write{p.a.at(0, 1), p.b.mem.remote()}));
    fake::finish();
    const auto armings = [] { return fake::count(fake::call::ibv_req_notify_cq); };
    const auto before = armings();
    CHECK(locked_out(lock, [&] {
      while (armings() == before) p.a.ia.run();
    }));
    (void)take(evd);
  }
  SECTION("the end of a completion channel") {
    must(evd.modify_cno(cno));
    auto ep = must(create());
    const auto reads = [] { return fake::count(fake::call::ibv_get_cq_event); };
    for (unsigned n = 1; n <= 8; ++n) fake::fail(fake::call::ibv_get_cq_event, n, EIO);
    fake::forge(evd.native_handle(), ibv_wc{});
    const auto before = reads();
    CHECK(locked_out(lock, [&] {
      while (reads() < before + 8) p.a.ia.run();
    }));
  }
  p.settle();
}

TEST_CASE("the end of an evd waits until the reactor has left its channel", "[locks][cno]") {
  const clean_world world;
  pair p;
  auto cno = must(p.a.ia.create_cno());
  auto evd = must(p.a.ia.create_evd<dat::stream::dto>(16));
  must(evd.modify_cno(cno));
  auto ep = must(p.a.pz.create_ep<dat::rc>({.recv = p.a.evd, .request = evd, .connect = p.a.evd}));
  must(ep.close());
  must(evd.enable());
  p.settle();
  const auto ready = [&] {
    pollfd pending{p.a.ia.fd(), POLLIN, 0};
    return ::poll(&pending, 1, 0) == 1;
  };
  REQUIRE_FALSE(ready());
  std::atomic<bool> closed{false};
  std::optional<other_call> closes;
  bool early = true;
  int reads = 0;
  fake::intercept(fake::call::ibv_get_cq_event, [&] {
    if (++reads != 2) return; // the channel is empty again
    closes.emplace([&] {
      must(evd.close());
      closed = true;
    });
    while (!closed && !ready()) std::this_thread::yield(); // the end wakes the reactor
    early = closed;
  });
  fake::forge(evd.native_handle(), ibv_wc{});
  while (reads < 2) p.a.ia.run();
  closes.reset();
  fake::intercept(fake::call::ibv_get_cq_event, {});
  CHECK(closed);
  CHECK_FALSE(early);
}

TEST_CASE("every use of the reactor's tasks waits for the others", "[locks][reactor]") {
  using namespace dat::detail;
  reactor r;
  REQUIRE(r.open() == 0);
  struct counting : dat::detail::task {
    int runs = 0;
  } t;
  t.run = [](dat::detail::task& self) noexcept { ++static_cast<counting&>(self).runs; };
  auto& lock = r.*member(lock_of_tasks());
  SECTION("defer") {
    CHECK(locked_out(lock, [&] { r.defer(t); }));
    CHECK(r.cancel(t));
  }
  SECTION("cancel") {
    CHECK(locked_out(lock, [&] { r.cancel(t); }));
  }
  SECTION("tasks that are due at once") {
    r.defer(t);
    CHECK(r.cancel(t)); // the reactor is to look for tasks, and finds none
    CHECK(locked_out(lock, [&] { r.run(0); }));
  }
  SECTION("tasks that have become due") {
    r.defer(t, clock::now());
    CHECK(locked_out(lock, [&] {
      while (t.runs == 0) r.run(0);
    }));
    CHECK(t.runs == 1);
  }
}
