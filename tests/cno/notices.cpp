// Notifications of a cno that need no connection: which waits return which evd, the cno of an evd, closing.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include "one_cno.hpp"
#include <support/streams.hpp>

#include <array>
#include <atomic>
#include <list>
#include <poll.h>
#include <thread>
#include <unistd.h>

using namespace one_cno;
using namespace std::chrono_literals;
using dat::return_subtype;
using dat::return_type;
using rig::must;
using rig::patience;
using support::worker;

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
  // A dequeue ends the notified state, though two events are left.
  CHECK(f.evd.dequeue().has_value());
  must(f.evd.post(4));
  CHECK(must(f.cno.wait(0us)) == f.evd.id());
  // So does a wait, which does not sleep while events are queued.
  CHECK(f.evd.wait(0us).has_value());
  must(f.evd.post(5));
  CHECK(must(f.cno.wait(0us)) == f.evd.id());
}

TEST_CASE("one cno serves many evds and names the latest", "[cno]") {
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
  SHOWS("CNO-001", "MODEL-007", "REQ-154");
  CHECK(f.cno.wait(0us).error().type() == return_type::queue_empty);
  SHOWS("CNO-004");
  CHECK(f.cno.latest() == other.id()); // nor does a wait change the results of the queries
  SHOWS("CNO-036");
  // A cno takes no events: each event is still in its evd.
  CHECK(std::get<dat::software_event>(must(f.evd.dequeue())).cookie() == dat::cookie(1));
  CHECK(std::get<dat::software_event>(must(other.dequeue())).cookie() == dat::cookie(2));
  SHOWS("CNO-003", "REQ-131", "REQ-156");
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
  SHOWS("EVD-069");
  CHECK(std::get<dat::software_event>(must(f.evd.dequeue())).cookie() == dat::cookie(1));
  SHOWS("CNO-029");
}

TEST_CASE("threads create, use and close cnos and evds of one adapter at the same time",
          "[CNO-016][CNO-018][EVENT-107]") {
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
  // An evd that is destroyed without a close releases a waiter, too.
  std::atomic<pid_t> thread{};
  worker waiter([&](worker& w) {
    thread = ::gettid();
    const auto woken = f.cno.wait(patience);
    w.check(woken && !woken.value());
  });
  until_asleep(thread);
  evd = {};
  waiter.join();
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
