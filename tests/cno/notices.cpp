// Behaviour of a cno that needs no connection: waiting, the descriptor, the agent.
// SPDX-License-Identifier: BSL-1.0
#include "../support/asleep.hpp"
#include "../support/worker.hpp"
#include <rig.hpp>
#include <support/streams.hpp>

#include <array>
#include <atomic>
#include <cstdlib>
#include <fcntl.h>
#include <list>
#include <poll.h>
#include <string>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <thread>
#include <type_traits>
#include <unistd.h>

using namespace std::chrono_literals;
using dat::return_subtype;
using dat::return_type;
using rig::must;
using rig::patience;
using support::worker;

namespace {

using support::soft;

struct fixture {
  explicit fixture(const dat::ia_options& options = rig::automatic) : ia(rig::open(options)) {
    must(evd.modify_cno(cno));
  }
  dat::ia ia;
  dat::cno cno = must(ia.create_cno());
  dat::evd<soft> evd = must(ia.create_evd<soft>(8));
};

bool readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, 0) == 1;
}

bool selected(int fd) {
  fd_set set;
  FD_ZERO(&set);
  FD_SET(fd, &set);
  timeval none{};
  return ::select(fd + 1, &set, nullptr, nullptr, &none) == 1;
}

void until_asleep(const std::atomic<pid_t>& thread) { support::until_asleep(thread, patience); }

/// Counts its calls and remembers the evd of the last call.
struct counting_agent {
  std::atomic<int> calls{0};
  std::atomic<std::uint32_t> last{~0u};
  dat::wait_proxy_agent agent() {
    return {[](void* self, dat::evd_id evd) noexcept {
              auto& a = *static_cast<counting_agent*>(self);
              a.last = evd.number();
              ++a.calls;
            },
            this};
  }
  void await(int n) const {
    while (calls < n) std::this_thread::yield();
  }
};

} // namespace

TEST_CASE("a cno returns the triggering evd once", "[CNO-003][CNO-006][CNO-030][CNO-031][EVENT-064][EVENT-061]") {
  rig::begin();
  fixture f;
  CHECK(f.cno.wait(0us).error() == dat::error(return_type::queue_empty));
  CHECK_FALSE(f.cno.latest());
  for (int i = 0; i < 3; ++i) must(f.evd.post(1));
  CHECK(must(f.cno.wait(0us)) == f.evd.id());
  SHOWS("EVD-069");
  CHECK(f.cno.latest() == f.evd.id());
  // Two events are still queued, but their notification was taken.
  CHECK(f.cno.wait(0us).error() == dat::error(return_type::queue_empty));
  SHOWS("ERR-024", "CNO-036"); // nor has `latest` triggered it
  CHECK(f.evd.dequeue().has_value());
  CHECK(f.evd.wait(0us).has_value()); // a wait does not sleep while events are queued
  // A dequeue has ended the notified state, though an event is left.
  must(f.evd.post(4));
  CHECK(must(f.cno.wait(0us)) == f.evd.id());
}

TEST_CASE("one cno serves many evds and names the latest", "[CNO-001][CNO-003][CNO-004][CNO-036][MODEL-007]"
                                                           "[REQ-154][REQ-156]") {
  rig::begin();
  fixture f;
  auto other = must(f.ia.create_evd<soft>(8));
  must(other.modify_cno(f.cno));
  CHECK(other.id() != f.evd.id());
  must(f.evd.post(1));
  must(other.post(2));
  CHECK(f.cno.latest() == other.id());
  CHECK(must(f.cno.query()).latest == other.id());
  CHECK(must(f.cno.wait(patience)) == other.id()); // the queries have not taken the trigger
  CHECK(f.cno.wait(0us).error().type() == return_type::queue_empty);
  CHECK(f.cno.latest() == other.id()); // nor does a wait change the results of the queries
  // A cno takes no events: each event is still in its evd.
  CHECK(std::get<dat::software_event>(must(f.evd.dequeue())).cookie() == dat::cookie(1));
  CHECK(std::get<dat::software_event>(must(other.dequeue())).cookie() == dat::cookie(2));
  SHOWS("REQ-131");
}

TEST_CASE("each trigger wakes one of several waiters", "[CNO-005][CNO-010][CNO-035]"
                                                       "[REQ-157]") {
  rig::begin();
  fixture f;
  constexpr int waiters = 4;
  std::atomic<int> woken{0};
  std::list<worker> threads;
  for (int i = 0; i < waiters; ++i)
    threads.emplace_back([&](worker& w) {
      w.check(f.cno.wait(patience).has_value());
      ++woken;
    });
  for (int i = 0; i < waiters; ++i) {
    must(f.evd.post(1));
    while (woken <= i) std::this_thread::yield(); // every waiter returns
    CHECK(f.evd.dequeue().has_value());
    SHOWS("REQ-035");
  }
  for (auto& t : threads) t.join();
}

TEST_CASE("the descriptor works in poll and in epoll, level and edge",
          "[CNO-017][CNO-019][CNO-020][CNO-046][MODEL-015]") {
  rig::begin();
  fixture f;
  const int descriptor = f.cno.fd();
  const int level = ::epoll_create1(0);
  const int edge = ::epoll_create1(0);
  epoll_event e{};
  e.events = EPOLLIN;
  REQUIRE(::epoll_ctl(level, EPOLL_CTL_ADD, f.cno.fd(), &e) == 0);
  e.events = EPOLLIN | EPOLLET;
  REQUIRE(::epoll_ctl(edge, EPOLL_CTL_ADD, f.cno.fd(), &e) == 0);
  const auto ready = [&](int set) { return ::epoll_wait(set, &e, 1, 0); };
  CHECK_FALSE(readable(f.cno.fd()));
  CHECK_FALSE(selected(f.cno.fd()));
  for (int round = 0; round < 3; ++round) {
    must(f.evd.post(1));
    CHECK(readable(f.cno.fd()));
    CHECK(selected(f.cno.fd()));
    CHECK(ready(level) == 1);
    CHECK(ready(level) == 1); // the descriptor is readable until the trigger is taken
    CHECK(ready(edge) == 1);
    CHECK(ready(edge) == 0);
    must(f.evd.post(2)); // a second trigger gives a second edge
    CHECK(ready(edge) == 1);
    std::uint64_t taken = 0;
    REQUIRE(::read(f.cno.fd(), &taken, sizeof taken) == sizeof taken);
    CHECK(taken == f.evd.id().number());
    SHOWS("CNO-002", "REQ-154"); // the evd was attached once, and triggers in each round
    CHECK_FALSE(readable(f.cno.fd()));
    CHECK(ready(level) == 0);
    while (f.evd.dequeue()) {
    }
  }
  ::close(level);
  ::close(edge);
  // Of two evds that trigger, a read names the later one.
  auto other = must(f.ia.create_evd<soft>(8));
  must(other.modify_cno(f.cno));
  must(f.evd.post(1));
  must(other.post(2));
  std::uint64_t latest = 0;
  REQUIRE(::read(f.cno.fd(), &latest, sizeof latest) == sizeof latest);
  CHECK(latest == other.id().number());
  SHOWS("CNO-021");
  CHECK(f.cno.latest().number() == latest);
  SHOWS("CNO-036");
  CHECK(f.cno.fd() == descriptor); // one descriptor for the life of the cno
}

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
  CHECK(a.last == g.evd.id().number()); // the one agent is told the evd of either ia
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

TEST_CASE("a disabled evd queues its events, and notifies when it is enabled",
          "[CNO-008][EVD-028][EVD-029][EVD-031][EVENT-080][MODEL-007]") {
  rig::begin();
  fixture f;
  CHECK(f.evd.enabled());
  for (int twice = 0; twice < 2; ++twice) must(f.evd.disable());
  CHECK_FALSE(f.evd.enabled());
  must(f.evd.post(1));
  CHECK(f.cno.wait(0us).error().type() == return_type::queue_empty);
  SHOWS("EVD-005", "EVENT-061");
  CHECK(must(f.evd.wait(0us)).index() == 0); // a wait on the evd itself works
  must(f.evd.post(2));
  must(f.evd.enable());
  CHECK(must(f.cno.wait(0us)) == f.evd.id());
  must(f.evd.enable()); // the evd is enabled already, so no other trigger comes
  CHECK(f.cno.wait(0us).error().type() == return_type::queue_empty);
  while (f.evd.dequeue()) {
  }
  must(f.evd.post(3));
  CHECK(must(f.cno.wait(0us)) == f.evd.id());
  // Whether threads may wait on the evd makes no difference to its cno.
  must(f.evd.set_unwaitable());
  CHECK(std::get<dat::software_event>(must(f.evd.dequeue())).cookie() == dat::cookie(3));
  must(f.evd.post(4));
  CHECK(must(f.cno.wait(0us)) == f.evd.id());
  SHOWS("EVD-034");
}

TEST_CASE("a thread that waits on the evd gets the event, and the cno is not triggered",
          "[EVENT-065][EVD-030][CNO-008]") {
  const bool by_hand = GENERATE(false, true);
  const bool disabled = GENERATE(false, true); // makes no difference to the thread that waits
  rig::begin();
  fixture f(by_hand ? rig::manual : rig::automatic);
  counting_agent a;
  must(f.cno.modify_agent(a.agent()));
  worker poster([&](worker& w) {
    for (;;) { // returns when the other thread waits
      const auto e = f.evd.dequeue();
      if (!e && e.error().subtype() == return_subtype::evd_waiter) break;
      std::this_thread::yield();
    }
    if (disabled) w.check(f.evd.disable().has_value());
    w.check(f.evd.post(1).has_value()); // one of the two events that the wait needs
    w.check(f.evd.dequeue().error().subtype() == return_subtype::evd_waiter);
    w.check(!readable(f.cno.fd()));
    w.check(f.evd.post(2).has_value());
  });
  CHECK(must(f.evd.wait(patience, 2)).more == 1);
  poster.join();
  CHECK(f.evd.dequeue().has_value());
  if (disabled) must(f.evd.enable());
  CHECK_FALSE(readable(f.cno.fd()));
  f.ia.run(); // with manual progress, this would call the agent
  CHECK(a.calls == 0);
  CHECK(f.cno.wait(0us).error().type() == return_type::queue_empty);
  SHOWS("EVD-005");
  must(f.evd.post(3)); // no thread waits now
  CHECK(readable(f.cno.fd()));
  CHECK(f.cno.wait(0us).has_value());
  f.ia.run();
  a.await(1);
  CHECK(a.calls == 1);
}

TEST_CASE("while threads sleep in both waits, every other call on the evd and its cno returns", "[EVENT-109]") {
  rig::begin();
  fixture f;
  std::atomic<pid_t> on_evd{};
  std::atomic<pid_t> on_cno{};
  worker of_evd([&](worker& w) {
    on_evd = ::gettid();
    w.check(f.evd.wait(dat::infinite).error().subtype() == return_subtype::evd_unwaitable);
  });
  worker of_cno([&](worker& w) {
    on_cno = ::gettid();
    const auto woken = f.cno.wait(dat::infinite);
    w.check(woken && woken.value() == f.evd.id());
  });
  until_asleep(on_evd);
  until_asleep(on_cno);
  const auto waited = f.evd.dequeue();
  CHECK(waited.error() == dat::error(return_type::invalid_state, return_subtype::evd_waiter));
  CHECK(f.evd.disable().has_value());
  CHECK(f.evd.enable().has_value());
  CHECK(f.evd.clear_unwaitable().has_value());
  CHECK(must(f.evd.query()).waitable);
  CHECK(must(f.cno.query()).latest == dat::evd_id());
  SHOWS("EVD-029");
  until_asleep(on_evd); // none of these calls has ended a wait
  until_asleep(on_cno);
  CHECK(f.evd.set_unwaitable().has_value());
  SHOWS("EVD-032");
  of_evd.join();
  CHECK(f.evd.post(1).has_value());
  of_cno.join();
  SHOWS("EVD-069", "SAFE-043", "SAFE-047");
  CHECK(std::get<dat::software_event>(must(f.evd.dequeue())).cookie() == dat::cookie(1));
  SHOWS("CNO-029");
}

TEST_CASE("threads create, use and close cnos and evds of one adapter at the same time",
          "[CNO-016][CNO-018][EVENT-006][EVENT-107]") {
  rig::begin();
  auto ia = rig::open(rig::automatic);
  constexpr int rounds = 50;
  std::atomic<int> done{0};
  std::list<worker> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&](worker& w) {
      for (std::uint64_t round = 0; round < rounds; ++round) {
        auto cno = must(ia.create_cno());
        auto evd = must(ia.create_evd<soft>(4));
        w.check(cno.fd() >= 0);
        w.check(evd.modify_cno(cno).has_value());
        w.check(evd.disable().has_value() && evd.set_unwaitable().has_value());
        w.check(evd.enable().has_value() && evd.clear_unwaitable().has_value());
        w.check(evd.post(round).has_value());
        const auto woken = cno.wait(patience);
        w.check(woken && woken.value() == evd.id() && cno.latest() == evd.id());
        const auto e = evd.wait(patience);
        w.check(e && std::get<dat::software_event>(e.value()).cookie() == dat::cookie(round));
        w.check(evd.dequeue().error().type() == return_type::queue_empty);
        if (evd.close() && cno.close()) ++done;
      }
    });
  for (auto& t : threads) t.join();
  CHECK(done == 4 * rounds);
  SHOWS("CNO-036", "EVD-009", "REQ-152");
}

TEST_CASE("modify_cno moves notifications to the new cno, those that are due included",
          "[EVD-023][EVD-024][EVD-025][EVD-027][CNO-002]"
          "[REQ-154]") {
  rig::begin();
  fixture f;
  auto next = must(f.ia.create_cno());
  must(f.evd.disable());
  must(f.evd.post(1));
  must(f.evd.modify_cno(next));
  must(f.evd.enable());
  CHECK(must(next.wait(0us)) == f.evd.id());
  CHECK(f.cno.wait(0us).error().type() == return_type::queue_empty);
  SHOWS("REQ-131");    // an evd has one cno at a time
  must(f.cno.close()); // the previous cno can be closed at once
  must(f.evd.modify_cno({}));
  must(f.evd.post(2));
  CHECK(next.wait(0us).error().type() == return_type::queue_empty);
  SHOWS("EVD-005", "EVENT-061");
  must(f.evd.modify_cno(next)); // two events are queued without a notification
  CHECK(next.wait(0us).has_value());
}

TEST_CASE("a cno in use cannot be closed and stays usable", "[CNO-025][CNO-026]") {
  rig::begin();
  fixture f;
  CHECK(f.cno.close().error() == dat::error(return_type::invalid_state, return_subtype::cno_in_use));
  SHOWS("REQ-005", "ERR-034");
  must(f.evd.post(1));
  CHECK(f.cno.wait(0us).has_value());
  must(f.evd.modify_cno({}));
  must(f.cno.close());
  CHECK(f.cno.wait(0us).error() == dat::error(return_type::invalid_handle, return_subtype::handle_cno));
  SHOWS("CNO-029");
  CHECK(f.cno.close().error().type() == return_type::invalid_handle);
  CHECK(f.cno.modify_agent({}).error().type() == return_type::invalid_handle);
  SHOWS("CNO-040");
  CHECK(f.cno.query().error() == dat::error(return_type::invalid_handle, return_subtype::handle_cno));
  SHOWS("CNO-036", "CNO-042");
  CHECK(f.cno.fd() == -1);
  const auto next = must(f.ia.create_cno());
  CHECK(f.cno.query().error().type() == return_type::invalid_handle); // a new cno does not revive the handle
}

TEST_CASE("a cno of another ia is refused", "[CNO-001][REQ-010][EVD-006][MODEL-007]") {
  rig::begin();
  fixture f;
  fixture g;
  CHECK(f.evd.modify_cno(g.cno).error() == dat::error(return_type::invalid_handle, return_subtype::handle_cno));
  SHOWS("EVENT-010", "REQ-131", "EVD-027");
  must(f.evd.post(1));
  CHECK(f.cno.wait(0us).has_value()); // the previous cno is still attached
  // A closed ia creates neither an evd nor a cno.
  must(g.ia.close(dat::close_mode::abrupt));
  const auto closed = dat::error(return_type::invalid_handle, return_subtype::handle_ia);
  CHECK(g.ia.create_cno().error() == closed);
  SHOWS("CNO-016", "CNO-018");
  CHECK(g.ia.create_evd<soft>(8).error() == closed);
  CHECK(f.evd.modify_cno(g.cno).error() == dat::error(return_type::invalid_handle, return_subtype::handle_cno));
  CHECK(must(f.evd.query()).cno == f.cno); // the evd takes neither the cno of another ia nor a closed one
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

TEST_CASE("closing the last evd of a cno releases the present waiters with an empty id, and no later waiter",
          "[CNO-033][CNO-034]") {
  rig::begin();
  fixture f;
  counting_agent a;
  CHECK(f.cno.wait(1ms).error().type() == return_type::queue_empty);
  // The evd has triggered the cno before. The release of the waiters must not name it.
  must(f.evd.post(1));
  CHECK(must(f.cno.wait(0us)) == f.evd.id());
  CHECK(f.evd.dequeue().has_value());
  std::array<std::atomic<pid_t>, 3> threads{};
  {
    std::list<worker> waiters;
    for (auto& thread : threads)
      waiters.emplace_back([&](worker& w) {
        thread = ::gettid();
        const auto woken = f.cno.wait(patience);
        w.check(woken && !woken.value());
      });
    for (const auto& thread : threads) until_asleep(thread);
    must(f.evd.modify_cno({}));
    CHECK(f.cno.close().error() ==
          dat::error(return_type::invalid_state, return_subtype::cno_in_use)); // its waiters use it
    SHOWS("CNO-025");
    must(f.evd.modify_cno(f.cno));
    auto other = must(f.ia.create_evd<soft>(4));
    must(other.modify_cno(f.cno));
    must(other.close());
    for (const auto& thread : threads) until_asleep(thread); // one evd is left in the cno
    must(f.cno.modify_agent(a.agent()));
    must(f.evd.close());
  }
  a.await(1);
  CHECK(a.last == 0); // an armed agent is called with no evd
  CHECK(f.cno.wait(0us).error().type() == return_type::queue_empty);
  // Another evd can still trigger the cno.
  auto evd = must(f.ia.create_evd<dat::stream::software>(4));
  must(evd.modify_cno(f.cno));
  must(evd.post(1));
  CHECK(must(f.cno.wait(patience)) == evd.id());
}

TEST_CASE("an abrupt close of the ia releases the waiters of cnos and calls armed agents with no evd",
          "[EVENT-104][CNO-033][CNO-048]"
          "[IA-032]") {
  rig::begin();
  fixture f;
  counting_agent a;
  counting_agent b;
  auto quiet = must(f.ia.create_cno(a.agent()));
  // The other cno has an evd that has triggered it before.
  must(f.evd.post(1));
  CHECK(must(f.cno.wait(0us)) == f.evd.id());
  must(f.cno.modify_agent(b.agent()));
  auto bare = must(f.ia.create_cno()); // no evd uses it, so only the end of the ia can wake its waiters
  std::array<std::atomic<pid_t>, 4> threads{};
  std::list<worker> waiters;
  for (auto& thread : threads)
    waiters.emplace_back([&, &cno = waiters.empty() ? f.cno : bare](worker& w) {
      thread = ::gettid();
      const auto woken = cno.wait(dat::infinite);
      w.check(woken && !woken.value());
    });
  for (const auto& thread : threads) until_asleep(thread);
  must(f.ia.close(dat::close_mode::abrupt));
  for (auto& waiter : waiters) waiter.join();
  a.await(1);
  CHECK(a.last == 0);
  CHECK(a.calls == 1);
  b.await(1);
  CHECK(b.last == 0);
  CHECK(b.calls == 1);
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

TEST_CASE("an evd with a cno can be closed while completions arrive", "[EVD-012][EVD-063]"
                                                                      "[SAFE-030]") {
  rig::begin();
  auto ia = rig::open(rig::automatic);
  auto cno = must(ia.create_cno());
  for (int i = 0; i < 200; ++i) {
    auto evd = must(ia.create_evd<dat::stream::dto | dat::stream::software>(8));
    must(evd.modify_cno(cno));
    must(evd.post(1));
    must(evd.close());
  }
  CHECK(cno.close().has_value()); // no evd of the cno is left
}

// --- the descriptor, and the parts of a cno
// ---------------------------------------------------------------------------

TEST_CASE("create_cno sets the agent of the new cno",
          "[CNO-001][CNO-014][CNO-015][CNO-017][CNO-041][CNO-042][REQ-155]") {
  rig::begin();
  auto ia = rig::open();
  counting_agent a;
  auto cno = must(ia.create_cno(a.agent()));
  CHECK(cno.agent().call == a.agent().call);
  CHECK(cno.agent().instance == &a);
  CHECK(must(cno.query()).agent.call == a.agent().call);
  CHECK(must(cno.query()).agent.instance == &a);
  CHECK_FALSE(must(cno.query()).latest);
  CHECK(cno.fd() >= 0);
  CHECK_FALSE(cno.latest());
  CHECK(cno.wait(0us).error().type() == return_type::queue_empty);
  must(cno.close()); // no evd or waiter uses the cno
  CHECK(a.calls == 0);
  CHECK(cno.agent().call == nullptr);
  CHECK(must(ia.create_cno()).agent().call == nullptr);
  CHECK(must(must(ia.create_cno()).query()).agent.call == nullptr);
}

TEST_CASE("without file descriptors, creating a cno or an evd fails, and existing objects stay usable",
          "[CNO-018][EVD-004]") {
  rig::begin();
  fixture f;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  // The limit of descriptors grows from none to enough, so that each descriptor is once the first that is missing.
  const auto with_few = [&](auto create) {
    int made = 0;
    for (int room = 0; room < 4; ++room) {
      const int next = ::dup(f.cno.fd()); // the lowest free descriptor
      ::close(next);
      rlimit tight = before;
      tight.rlim_cur = static_cast<rlim_t>(next + room);
      REQUIRE(::setrlimit(RLIMIT_NOFILE, &tight) == 0);
      const auto r = create();
      REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
      if (r)
        ++made;
      else
        CHECK(r.error().type() == return_type::insufficient_resources);
      if (room == 0) CHECK_FALSE(r);
    }
    CHECK(made > 0);
  };
  with_few([&] { return f.ia.create_cno(); });
  with_few([&] { return f.ia.create_evd<dat::stream::dto>(8); });
  must(f.evd.post(1));
  SHOWS("CNO-016");
  CHECK(must(f.cno.wait(0us)) == f.evd.id());
}

TEST_CASE("a cno works after the program has closed its descriptor by close_fd", "[cno][CNO-023][CNO-018]") {
  rig::begin();
  fixture f;
  const int fd = f.cno.fd();
  REQUIRE(fd >= 0);
  // The cno does not detect a close(2) of its descriptor by the program: it still reports the number.
  const int copy = ::dup(fd);
  REQUIRE(::close(fd) == 0);
  CHECK(f.cno.fd() == fd);
  DEVIATES("CNO-022");
  REQUIRE(::dup2(copy, fd) == fd);
  ::close(copy);
  must(f.cno.close_fd());
  CHECK(f.cno.fd() == -1);
  must(f.evd.post(1));
  CHECK(must(f.cno.wait(patience)) == f.evd.id());
  counting_agent a;
  must(f.cno.modify_agent(a.agent()));
  must(f.evd.post(2));
  a.await(1);
  const auto again = f.cno.close_fd();
  CHECK(again.error() == dat::error(return_type::invalid_state));
  CHECK(again.error().message().find("cno.close_fd") != std::string::npos);
  CHECK(f.cno.fd() == -1);
  must(f.evd.modify_cno({}));
  must(f.cno.close());
}

TEST_CASE("a cno's descriptor is closed on exec", "[COMP-085]") {
  rig::begin();
  fixture f;
  const std::string number = std::to_string(f.cno.fd());
  CHECK((::fcntl(f.cno.fd(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(std::system(("test -e /proc/self/fd/0 && test ! -e /proc/self/fd/" + number).c_str()) == 0);
  must(f.evd.post(1));
  CHECK(must(f.cno.wait(0us)) == f.evd.id());
}

TEST_CASE("closing a cno wakes a thread that polls its descriptor", "[CNO-027]") {
  rig::begin();
  fixture f;
  must(f.evd.modify_cno({}));
  pollfd p{f.cno.fd(), POLLIN, 0};
  std::atomic<pid_t> thread{};
  worker poller([&](worker& w) {
    thread = ::gettid();
    const timespec limit{patience / 1s, 0};
    w.check(::ppoll(&p, 1, &limit, nullptr) == 1);
  });
  until_asleep(thread);
  must(f.cno.close());
  CHECK(f.cno.fd() == -1);
  errno = 0;
  CHECK(::fcntl(p.fd, F_GETFD) == -1); // the descriptor itself is closed
  CHECK(errno == EBADF);
  poller.join();
}

TEST_CASE("an event during modify_cno triggers one of the two cnos", "[EVD-026][CNO-002]") {
  rig::begin();
  fixture f;
  auto other = must(f.ia.create_cno());
  for (int i = 0; i < 200; ++i) {
    worker poster([&](worker& w) { w.check(f.evd.post(1).has_value()); });
    must(f.evd.modify_cno(i % 2 == 0 ? other : f.cno));
    pollfd both[2] = {{f.cno.fd(), POLLIN, 0}, {other.fd(), POLLIN, 0}};
    if (::poll(both, 2, static_cast<int>(patience / 1ms)) < 1) FAIL("neither was told");
    poster.join();
    CHECK(f.evd.dequeue().has_value());
    for (dat::cno* c : {&f.cno, &other})
      while (c->wait(0us)) {
      }
  }
}
