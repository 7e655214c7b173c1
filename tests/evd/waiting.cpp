// Waits for events that need no connection: thresholds, the second waiter, wake-ups, drains, signals, time limits.
// SPDX-License-Identifier: BSL-1.0
#include "../support/asleep.hpp"
#include "../support/worker.hpp"
#include "one_evd.hpp"
#include <support/streams.hpp>

#include <atomic>
#include <csignal>
#include <optional>
#include <pthread.h>
#include <thread>

using namespace one_evd;
using namespace std::chrono_literals;
using dat::return_subtype;
using dat::return_type;
using rig::must;
using rig::patience;
using support::worker;

TEST_CASE("a software event wakes the thread that waits", "[EVD-060][EVD-069][EVENT-058][EVENT-108][REQ-035]") {
  rig::begin();
  queue<soft> q;
  worker poster([&](worker& w) {
    until_waited(q.evd);
    w.check(q.evd.post(7).has_value());
  });
  CHECK(number(must(q.evd.wait(patience))) == 7);
  SHOWS("SAFE-025", "REQ-160");
  poster.join();
}

TEST_CASE("software events wake a waiter on an evd with completions", "[EVD-061][REQ-035]") {
  rig::begin();
  queue<mixed> q;
  worker poster([&](worker& w) {
    until_waited(q.evd);
    w.check(q.evd.post(7).has_value());
  });
  CHECK(std::holds_alternative<dat::software_event>(must(q.evd.wait(patience))));
  poster.join();
}

TEST_CASE("a threshold is reached by events of any kind, and the first is delivered",
          "[EVD-045][EVD-054][EVD-056][EVENT-058][EVENT-062]") {
  rig::begin();
  queue<soft> q;
  for (std::uint64_t i = 0; i < 5; ++i) must(q.evd.post(i));
  auto got = must(q.evd.wait(0us, 2));
  CHECK(number(got.first) == 0);
  CHECK(got.more == 4);
  SHOWS("EVD-052", "EVD-057");

  worker poster([&](worker& w) { // four events are left, so the sixth wait needs two more
    w.check(q.evd.post(5).has_value());
    w.check(q.evd.post(6).has_value());
  });
  got = must(q.evd.wait(patience, 6));
  CHECK(number(got.first) == 1);
  CHECK(got.more == 5);
  SHOWS("EVD-060", "EVD-069");
  poster.join();
}

TEST_CASE("a wait below its threshold takes nothing and returns the number of queued events",
          "[EVD-051][EVD-052][EVD-055][EVD-057][EVENT-056]") {
  rig::begin();
  queue<soft> q;
  must(q.evd.post(1));
  must(q.evd.post(2));
  for (const dat::timeout limit : {dat::timeout(0us), dat::timeout(5ms)}) {
    auto none = q.evd.wait(limit, 3);
    REQUIRE_FALSE(none);
    CHECK(none.error() == dat::error(return_type::timeout_expired));
    CHECK(none.error().index() == 2);
    SHOWS("EVD-060"); // two of three events wake no thread
    CHECK(none.error().message().find("with 2 events queued") != std::string::npos);
  }
  CHECK(number(must(q.evd.dequeue())) == 1);
  CHECK(number(must(q.evd.dequeue())) == 2);
}

TEST_CASE("a threshold outside 1..capacity is refused, whatever is queued", "[EVD-047][EVD-048]") {
  rig::begin();
  queue<soft> q(4);
  must(q.evd.post(1));
  for (const std::size_t bad : {std::size_t{0}, q.evd.capacity() + 1, std::size_t{1} << 40})
    CHECK(q.evd.wait(patience, bad).error() == dat::error(return_type::invalid_parameter, return_subtype::arg3));
  SHOWS("EVD-058");
  must(q.evd.set_unwaitable());
  CHECK(q.evd.wait(patience, 0).error() == dat::error(return_type::invalid_parameter, return_subtype::arg3));
  SHOWS("EVD-046"); // a wrong parameter comes before a wrong state
  must(q.evd.clear_unwaitable());
  for (std::uint64_t i = 2; i <= 4; ++i) must(q.evd.post(i));
  CHECK(must(q.evd.wait(patience, q.evd.capacity())).more == 3);
}

TEST_CASE("a signal ends an empty wait, and a wait with an event returns it", "[EVENT-055][EVD-057][EVD-058]") {
  rig::begin();
  queue<soft> q;
  struct sigaction handler {};
  handler.sa_handler = [](int) {};
  handler.sa_flags = SA_RESTART; // this flag has no effect on the wait
  REQUIRE(sigaction(SIGUSR1, &handler, nullptr) == 0);
  must(q.evd.post(1));
  const pthread_t waiting = pthread_self();
  std::jthread killer([&](const std::stop_token& stop) { // the first signal may come before the thread sleeps
    while (!stop.stop_requested()) {
      pthread_kill(waiting, SIGUSR1);
      std::this_thread::yield();
    }
  });
  const auto interrupted = q.evd.wait(patience, 2);
  killer.request_stop();
  killer.join();
  REQUIRE_FALSE(interrupted);
  CHECK(interrupted.error() == dat::error(return_type::interrupted_call));
  CHECK(interrupted.error().index() == 1);
  CHECK(number(must(q.evd.wait(patience))) == 1);
}

TEST_CASE("a waiter that is released below its threshold takes nothing", "[EVENT-057][EVD-033]") {
  rig::begin();
  queue<soft> q;
  must(q.evd.post(1));
  must(q.evd.post(2));
  std::atomic<pid_t> thread{};
  worker waiter([&](worker& w) {
    thread = ::gettid();
    w.check(q.evd.wait(dat::infinite, 3).error() ==
            dat::error(return_type::invalid_state, return_subtype::evd_unwaitable));
  });
  support::until_asleep(thread, patience);
  must(q.evd.set_unwaitable());
  waiter.join();
  CHECK_FALSE(q.evd.waitable());
  must(q.evd.clear_unwaitable());
  CHECK(must(q.evd.wait(0us, 2)).more == 1);
  CHECK(number(must(q.evd.dequeue())) == 2);
}

TEST_CASE("while a thread waits, a second wait and a dequeue are refused", "[EVENT-054][EVD-064]") {
  rig::begin();
  queue<soft> q;
  worker other([&](worker& w) {
    until_waited(q.evd);
    w.check(q.evd.wait(patience).error() == dat::error(return_type::invalid_state, return_subtype::evd_waiter));
    w.check(q.evd.dequeue().error() == dat::error(return_type::invalid_state, return_subtype::evd_waiter));
    w.check(q.evd.post(3).has_value());
  });
  CHECK(number(must(q.evd.wait(patience))) == 3);
  other.join();
}

TEMPLATE_TEST_CASE_SIG("evd.wake ends the current wait once", "[evd]", ((dat::streams S), S), dat::stream::dto, soft,
                       mixed) {
  rig::begin();
  queue<S> q;
  worker other([&](worker& w) {
    until_waited(q.evd);
    w.check(q.evd.wake().has_value());
  });
  CHECK(q.evd.wait(dat::infinite).error() == dat::error(return_type::interrupted_call));
  other.join();
  CHECK(q.evd.wait(0us).error() == dat::error(return_type::timeout_expired));
}

TEMPLATE_TEST_CASE_SIG("several wakes before a wait count as one and take no event", "[evd]", ((dat::streams S), S),
                       soft, mixed) {
  rig::begin();
  queue<S> q;
  for (int i = 0; i < 3; ++i) must(q.evd.wake());
  must(q.evd.post(1));
  CHECK(q.evd.wait(dat::infinite).error() == dat::error(return_type::interrupted_call));
  CHECK(std::get<dat::software_event>(must(q.evd.wait(patience))).cookie().value() == 1);
  CHECK(q.evd.wait(0us).error() == dat::error(return_type::timeout_expired));
}

TEST_CASE("no wake is lost when one thread wakes and another waits", "[evd]") {
  rig::begin();
  queue<dat::stream::dto> q;
  std::atomic<int> asked{0};
  std::atomic<int> seen{0};
  constexpr auto rounds = static_cast<int>(rig::stress_messages);
  worker other([&](worker& w) {
    for (int i = 1; i <= rounds; ++i) {
      asked = i;
      w.check(q.evd.wake().has_value());
      while (seen < i) std::this_thread::yield();
    }
  });
  while (seen < rounds) { // a lost wake-up would let this wait reach its time limit
    const auto r = q.evd.wait(patience);
    if (r || r.error() != dat::error(return_type::interrupted_call)) FAIL("a wake-up is missing");
    seen = asked.load();
  }
  other.join();
}

TEST_CASE("evd.wake triggers the cno of an evd without a waiter", "[evd][cno]") {
  rig::begin();
  queue<dat::stream::dto> q(8, rig::manual);
  auto cno = must(q.ia.create_cno());
  must(q.evd.modify_cno(cno));
  CHECK(must(cno.wait(0us)) == q.evd.id()); // takes an earlier trigger
  CHECK_FALSE(cno.wait(0us));
  worker other([&](worker& w) { w.check(q.evd.wake().has_value()); });
  CHECK(must(cno.wait(patience)) == q.evd.id());
  other.join();
}

TEST_CASE("a drain with a time limit waits for the first event and takes what is there", "[evd]") {
  rig::begin();
  queue<soft> q;
  std::vector<std::uint64_t> got;
  const auto note = [&](const dat::software_event& e) { got.push_back(e.cookie().value()); };
  CHECK(q.evd.wait_and_drain(note, 1ms).error() == dat::error(return_type::timeout_expired));
  worker poster([&](worker& w) {
    until_waited(q.evd);
    w.check(q.evd.post(1).has_value());
  });
  CHECK(must(q.evd.wait_and_drain(note, patience)) == 1);
  poster.join();
  for (std::uint64_t i = 2; i < 6; ++i) must(q.evd.post(i));
  CHECK(must(q.evd.wait_and_drain(note, patience, 3)) == 3);
  CHECK(must(q.evd.wait_and_drain(note, 0us)) == 1);
  CHECK(got == std::vector<std::uint64_t>{1, 2, 3, 4, 5});
}

TEST_CASE("a drain with a time limit fails as wait does, and for a maximum of 0", "[evd]") {
  rig::begin();
  queue<soft> q;
  must(q.evd.post(1));
  const auto nothing = [](const auto&) {};
  CHECK(q.evd.wait_and_drain(nothing, patience, 0).error() ==
        dat::error(return_type::invalid_parameter, return_subtype::arg3));
  must(q.evd.set_unwaitable());
  CHECK(q.evd.wait_and_drain(nothing, patience).error() ==
        dat::error(return_type::invalid_state, return_subtype::evd_unwaitable));
  must(q.evd.clear_unwaitable());
  must(q.evd.wake());
  CHECK(q.evd.wait_and_drain(nothing, patience).error() == dat::error(return_type::interrupted_call));
  CHECK(must(q.evd.wait_and_drain(nothing, patience)) == 1);
}

TEST_CASE("an exception of the visitor leaves a drain with a time limit, and the evd stays usable", "[evd]") {
  rig::begin();
  queue<soft> q;
  for (std::uint64_t i = 0; i < 2; ++i) must(q.evd.post(i));
  CHECK_THROWS_AS((void)q.evd.wait_and_drain([](const dat::software_event&) { throw 1; }, patience), int);
  CHECK(number(must(q.evd.wait(patience))) == 1);
}

TEST_CASE("after an exception has ended a thread inside the library, its ia can be closed, and others work",
          "[REQ-034]") {
  struct lost {};
  rig::begin();
  auto other = rig::open();
  auto others = must(other.create_evd<soft>(8));
  auto ia = rig::open();
  auto pz = must(ia.create_pz());
  auto evd = must(ia.create_evd<mixed>(8));
  auto ep = must(pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = {}}));
  must(evd.post(1));
  bool ended = false;
  std::jthread thread([&] {
    try {
      (void)evd.wait_and_drain([](const auto&) { throw lost(); }, patience);
    } catch (const lost&) { // a handler of the program that ends the thread
      ended = true;
    }
  });
  thread.join();
  CHECK(ended);
  must(ia.close());
  CHECK(evd.dequeue().error().type() == return_type::invalid_handle);
  must(others.post(2));
  CHECK(std::get<dat::software_event>(must(others.wait(patience))).cookie() == dat::cookie(2));
}

TEST_CASE("while a thread waits, closing is refused and clearing changes nothing",
          "[EVENT-052][EVENT-053][EVENT-059][EVENT-111][EVD-016][EVD-032]") {
  rig::begin();
  queue<soft> q;
  must(q.evd.clear_unwaitable());
  must(q.evd.clear_unwaitable());
  CHECK(q.evd.waitable());
  worker waiter([&](worker& w) {
    w.check(q.evd.wait(patience).error() == dat::error(return_type::invalid_state, return_subtype::evd_unwaitable));
  });
  until_waited(q.evd);
  CHECK(q.evd.close().error() == dat::error(return_type::invalid_state, return_subtype::evd_waiter));
  SHOWS("EVENT-106");
  must(q.evd.clear_unwaitable());
  CHECK(q.evd.dequeue().error().subtype() == return_subtype::evd_waiter); // the waiter still waits
  must(q.evd.set_unwaitable());
  waiter.join();
  must(q.evd.set_unwaitable());
  CHECK_FALSE(q.evd.waitable());
  must(q.evd.post(1));
  must(q.evd.close()); // an event is in the queue
  CHECK(q.evd.dequeue().error().type() == return_type::invalid_handle);
}

TEST_CASE("a temporary evd releases a thread that waits on its cno, whichever is destroyed first",
          "[CNO-028][CNO-009][EVD-018][EVD-025][EVENT-111]") {
  rig::begin();
  auto ia = rig::open(rig::automatic);
  auto cno = must(ia.create_cno());
  CHECK(cno.wait(0s).error() == dat::error(return_type::queue_empty));
  const auto begun = std::chrono::steady_clock::now();
  CHECK(cno.wait(10ms).error() == dat::error(return_type::queue_empty));
  CHECK(std::chrono::steady_clock::now() - begun >= 10ms);
  SHOWS("CNO-034");
  for (const bool attach_first : {true, false}) {
    auto temporary = must(ia.create_evd<soft>(1));
    if (attach_first) must(temporary.modify_cno(cno));
    must(temporary.post(1));
    if (!attach_first) must(temporary.modify_cno(cno));
    if (attach_first) (void)must(temporary.dequeue()); // another thread took the event: the trigger stays
    CHECK(must(cno.wait(patience)) == temporary.id());
    CHECK(temporary.dequeue().has_value() == !attach_first);
    must(temporary.modify_cno({}));
    must(temporary.close());
  }
  // The thread is blocked, and the cno ends first.
  auto temporary = must(ia.create_evd<soft>(1));
  std::atomic<pid_t> thread{};
  worker waiter([&](worker& w) {
    thread = ::gettid();
    const auto woken = cno.wait(dat::infinite);
    w.check(woken && woken.value() == temporary.id());
  });
  support::until_asleep(thread, patience);
  must(temporary.modify_cno(cno));
  must(temporary.post(2));
  waiter.join();
  must(temporary.modify_cno({}));
  CHECK(cno.close().has_value());
  SHOWS("CNO-035");
  CHECK(number(must(temporary.dequeue())) == 2);
  must(temporary.close());
}

TEST_CASE("no wait ends before its time limit, however many signals interrupt it", "[evd]") {
  rig::begin();
  queue<mixed> q;
  auto completions_only = must(q.ia.create_evd<dat::stream::dto>(8));
  auto cno = must(q.ia.create_cno());
  must(q.evd.post(1));
  struct sigaction handler {};
  handler.sa_handler = [](int) {};
  struct sigaction before {};
  REQUIRE(sigaction(SIGUSR1, &handler, &before) == 0);
  const pthread_t waiting = pthread_self();
  std::jthread interrupter([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pthread_kill(waiting, SIGUSR1);
      std::this_thread::sleep_for(7ms);
    }
  });
  // A wait was either interrupted, and is repeated for the rest of the time, or has lasted for its whole limit.
  const auto check = [](dat::timeout limit, return_type over, auto wait) {
    const auto start = std::chrono::steady_clock::now();
    for (bool passed = false; !passed;) {
      const auto begin = std::chrono::steady_clock::now();
      const auto why = wait(limit);
      passed = why.type() == over;
      if (passed)
        CHECK(std::chrono::steady_clock::now() - begin >= limit);
      else
        CHECK(why == dat::error(return_type::interrupted_call));
      if (std::chrono::steady_clock::now() - start > patience) FAIL("it does not end");
    }
  };
  for (const dat::timeout limit : {0us, 1us, 700us, 5'000us}) {
    check(limit, return_type::timeout_expired, [&](dat::timeout t) { return completions_only.wait(t).error(); });
    check(limit, return_type::timeout_expired, [&](dat::timeout t) {
      const auto e = q.evd.wait(t, 2); // the evd has one event of two
      CHECK(e.error().index() == 1);
      return e.error();
    });
    SHOWS("EVD-055", "EVD-057");
    check(limit, return_type::timeout_expired,
          [&](dat::timeout t) { return completions_only.wait_and_drain([](auto&) {}, t).error(); });
    check(limit, return_type::queue_empty, [&](dat::timeout t) { return cno.wait(t).error(); });
    SHOWS("CNO-029", "CNO-031", "EVD-050");
  }
  // A longer wait is interrupted repeatedly.
  for (int i = 0; i < 3; ++i) {
    CHECK(completions_only.wait(patience).error() == dat::error(return_type::interrupted_call));
    CHECK(cno.wait(patience).error() == dat::error(return_type::interrupted_call));
    SHOWS("CNO-032", "COMP-082", "ERR-027", "REQ-036");
    const auto below = q.evd.wait(patience, 2);
    CHECK((below.error().type() == return_type::interrupted_call && below.error().index() == 1));
    SHOWS("EVENT-055");
  }
  interrupter.request_stop();
  interrupter.join();
  sigaction(SIGUSR1, &before, nullptr);
  CHECK(std::get<dat::software_event>(must(q.evd.wait(0us))).cookie().value() == 1);
  SHOWS("EVD-051");
}

TEST_CASE("a signal handler that interrupts no call of the adapter can close it", "[evd]") {
  if (dat::detail::thread_sanitizer) SKIP("ThreadSanitizer wants no memory freed in a handler");
  rig::begin();
  auto ia = rig::open();
  auto evd = must(ia.create_evd<mixed>(8));
  must(evd.post(1));
  static dat::ia* now;
  static std::optional<bool> closed;
  now = &ia;
  closed.reset();
  struct sigaction handler {};
  handler.sa_handler = [](int) { closed = now->close().has_value(); };
  struct sigaction before {};
  REQUIRE(sigaction(SIGUSR2, &handler, &before) == 0);
  pthread_kill(pthread_self(), SIGUSR2);
  sigaction(SIGUSR2, &before, nullptr);
  CHECK(closed == true);
  SHOWS("EVENT-110");
  CHECK_FALSE(ia);
  CHECK(evd.wait(0us).error().type() == return_type::invalid_handle);
}
