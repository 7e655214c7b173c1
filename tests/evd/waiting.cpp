// Behaviour of an evd that needs no connection: software events, thresholds, waitability, resizing, time limits.
// SPDX-License-Identifier: BSL-1.0
#include "../support/asleep.hpp"
#include "../support/worker.hpp"
#include <rig.hpp>
#include <support/streams.hpp>

#include <dat/ep_params.hpp>

#include <atomic>
#include <csignal>
#include <optional>
#include <pthread.h>
#include <thread>

using namespace std::chrono_literals;
using dat::return_subtype;
using dat::return_type;
using rig::must;
using rig::patience;
using support::worker;

namespace {

using support::mixed;
using support::soft;

/// An adapter and one evd.
template <dat::streams S>
struct queue {
  explicit queue(std::uint32_t qlen = 8, const dat::ia_options& options = rig::automatic)
      : ia(rig::open(options)), evd(must(ia.create_evd<S>(qlen))) {}
  dat::ia ia;
  dat::evd<S> evd;
};

/// The objects that unconnected endpoints need.
struct adapter {
  static constexpr auto streams = dat::stream::dto | dat::stream::connection | dat::stream::connection_requests;
  dat::ia ia = rig::open();
  dat::pz pz = must(ia.create_pz());
  dat::evd<streams> evd = must(ia.create_evd<streams>(64));
};

std::uint64_t number(const dat::event<soft>& e) { return std::get<dat::software_event>(e).cookie().value(); }

/// Returns when another thread waits on the empty evd, because a dequeue is then refused.
template <dat::streams S>
void until_waited(dat::evd<S>& evd) {
  for (;;) {
    const auto e = evd.dequeue();
    if (!e && e.error().subtype() == return_subtype::evd_waiter) return;
    std::this_thread::yield();
  }
}

} // namespace

TEST_CASE("software events are taken in the order of posting", "[EVD-069][EVD-072][EVD-073][EVD-045]"
                                                               "[REQ-160][MODEL-027]") {
  rig::begin();
  queue<soft> q;
  int object = 0;
  must(q.evd.post(1));
  must(q.evd.post(&object));
  must(q.evd.post(~std::uint64_t{0}));
  CHECK(number(must(q.evd.wait(patience))) == 1); // posted before the wait
  SHOWS("EVD-060");
  CHECK(std::get<dat::software_event>(must(q.evd.dequeue())).cookie().as<int*>() == &object);
  CHECK(number(must(q.evd.dequeue())) == ~std::uint64_t{0});
  SHOWS("EVENT-033", "REQ-150");
  CHECK(q.evd.dequeue().error() == dat::error(return_type::queue_empty));
}

TEST_CASE("a software event beyond the capacity is refused and changes nothing", "[EVENT-070][EVENT-076][EVD-069]"
                                                                                 "[REQ-161]") {
  rig::begin();
  queue<soft> q(4);
  for (std::uint64_t i = 0; i < 4; ++i) must(q.evd.post(i));
  CHECK(q.evd.post(4).error() == dat::error(return_type::queue_full));
  CHECK(must(q.evd.query()).qlen == 4); // as many events as it has taken
  CHECK(number(must(q.evd.dequeue())) == 0);
  must(q.evd.post(5)); // there is room again
  for (const std::uint64_t i : {1u, 2u, 3u, 5u}) CHECK(number(must(q.evd.dequeue())) == i);
  SHOWS("EVENT-075", "EVD-002");
  // A disabled and unwaitable evd keeps queueing, and fills up as well.
  must(q.evd.disable());
  must(q.evd.set_unwaitable());
  for (std::uint64_t i = 0; i < 4; ++i) must(q.evd.post(i));
  CHECK(q.evd.post(4).error() == dat::error(return_type::queue_full));
  SHOWS("EVENT-080", "EVD-034");
  CHECK(number(must(q.evd.dequeue())) == 0); // its events can still be taken
  SHOWS("EVENT-060", "EVD-065", "EVENT-102");
  CHECK(q.ia.async_evd().dequeue().error() == dat::error(return_type::queue_empty)); // no overflow is reported
}

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
    SHOWS("EVD-060"); // two of three events release nobody
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

TEST_CASE("an unwaitable evd refuses waits, and its events can still be taken",
          "[EVD-032][EVD-034][EVENT-063][EVENT-060][EVD-065]") {
  rig::begin();
  queue<soft> q;
  CHECK(q.evd.waitable());
  must(q.evd.post(1));
  for (int twice = 0; twice < 2; ++twice) must(q.evd.set_unwaitable());
  CHECK_FALSE(q.evd.waitable());
  CHECK_FALSE(must(q.evd.query()).waitable);
  CHECK(q.evd.wait(patience).error() == dat::error(return_type::invalid_state, return_subtype::evd_unwaitable));
  SHOWS("EVD-058", "ERR-034");
  CHECK(q.evd.wait(patience, 1).error() == dat::error(return_type::invalid_state, return_subtype::evd_unwaitable));
  must(q.evd.post(2));
  CHECK(number(must(q.evd.dequeue())) == 1);
  for (int twice = 0; twice < 2; ++twice) must(q.evd.clear_unwaitable());
  CHECK(q.evd.waitable());
  CHECK(must(q.evd.query()).waitable);
  CHECK(number(must(q.evd.wait(patience))) == 2);
  SHOWS("EVENT-059");
}

TEMPLATE_TEST_CASE_SIG("making an evd unwaitable releases its waiter, which takes nothing",
                       "[EVENT-057][EVD-033][EVD-035]", ((dat::streams S), S), dat::stream::dto, soft, mixed) {
  rig::begin();
  queue<S> q;
  for (const bool at_once : {false, true}) {
    worker other([&](worker& w) {
      until_waited(q.evd);
      w.check(q.evd.set_unwaitable().has_value());
      if (at_once) w.check(q.evd.clear_unwaitable().has_value()); // the waiter leaves in any case
    });
    CHECK(q.evd.wait(dat::infinite).error() == dat::error(return_type::invalid_state, return_subtype::evd_unwaitable));
    other.join();
    CHECK(q.evd.waitable() == at_once);
    SHOWS("EVD-050");
    must(q.evd.clear_unwaitable());
  }
  CHECK(q.evd.wait(0us).error() == dat::error(return_type::timeout_expired));
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

TEST_CASE("a resize keeps the queued events", "[EVD-036][EVD-037][EVD-039]") {
  rig::begin();
  queue<mixed> q(4);
  for (std::uint64_t i = 0; i < 4; ++i) must(q.evd.post(i));
  CHECK(q.evd.post(4).error() == dat::error(return_type::queue_full));
  must(q.evd.resize(100));
  CHECK(q.evd.capacity() >= 100); // when the call has returned
  SHOWS("EVD-043");
  for (std::uint64_t i = 4; i < 100; ++i) must(q.evd.post(i));
  std::uint64_t next = 0;
  while (q.evd.drain([&](auto& e) {
    if constexpr (std::is_same_v<std::decay_t<decltype(e)>, dat::software_event>) CHECK(e.cookie().value() == next++);
  }) != 0) {
  }
  CHECK(next == 100);
  SHOWS("REQ-152");
  must(q.evd.resize(20));
  CHECK(q.evd.capacity() >= 20);
  for (std::uint64_t i = 0; i < 20; ++i) must(q.evd.post(i));
  CHECK(q.evd.drain([](auto&) {}) == 20);
  must(q.evd.resize(1));
  CHECK(q.evd.capacity() >= 1);
}

TEST_CASE("a resize that would lose events, or is out of range, changes nothing", "[EVD-038][EVD-040][EVD-042]") {
  rig::begin();
  queue<mixed> q(8);
  for (std::uint64_t i = 0; i < 5; ++i) must(q.evd.post(i));
  CHECK(q.evd.resize(3).error().type() == return_type::invalid_state);
  for (const std::uint32_t bad : {0u, 1u << 30, ~0u})
    CHECK(q.evd.resize(bad).error() == dat::error(return_type::invalid_parameter, return_subtype::arg2));
  CHECK(q.evd.capacity() == 8);
  for (std::uint64_t i = 5; i < 8; ++i) must(q.evd.post(i));
  CHECK(q.evd.post(8).error() == dat::error(return_type::queue_full));
  for (std::uint64_t i = 0; i < 8; ++i)
    CHECK(std::get<dat::software_event>(must(q.evd.dequeue())).cookie() == dat::cookie(i));
}

TEST_CASE("a resize lets a wait for a threshold continue", "[EVD-043]") {
  rig::begin();
  queue<soft> q(4);
  worker other([&](worker& w) {
    until_waited(q.evd);
    w.check(q.evd.resize(16).has_value());
    for (std::uint64_t i = 0; i < 3; ++i) w.check(q.evd.post(i).has_value());
  });
  CHECK(must(q.evd.wait(patience, 3)).more == 2);
  other.join();
  CHECK(q.evd.capacity() >= 16);
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

TEST_CASE("a closed or empty evd answers every call with invalid_handle", "[EVD-017][EVENT-103]") {
  rig::begin();
  dat::evd<soft> empty;
  queue<soft> q;
  must(q.ia.close(dat::close_mode::abrupt));
  CHECK(empty.wait(0us, 0).error().type() == return_type::invalid_handle);
  SHOWS("EVD-046"); // a wrong handle comes before a wrong parameter
  for (auto* e : {&empty, &q.evd}) {
    CHECK(e->post(1).error().type() == return_type::invalid_handle);
    CHECK(e->wait(0us).error().type() == return_type::invalid_handle);
    CHECK(e->wait(0us, 1).error().type() == return_type::invalid_handle);
    CHECK(e->dequeue().error().type() == return_type::invalid_handle);
    CHECK(e->wake().error().type() == return_type::invalid_handle);
    CHECK(e->wait_and_drain([](auto&) {}, 0us).error().type() == return_type::invalid_handle);
    CHECK(e->set_unwaitable().error().type() == return_type::invalid_handle);
    CHECK(e->clear_unwaitable().error().type() == return_type::invalid_handle);
    CHECK(e->resize(8).error().type() == return_type::invalid_handle);
    CHECK(e->enable().error().type() == return_type::invalid_handle);
    CHECK(e->disable().error().type() == return_type::invalid_handle);
    CHECK(e->modify_cno({}).error().type() == return_type::invalid_handle);
    CHECK(e->drain([](auto&) {}) == 0);
    CHECK(e->close().error().type() == return_type::invalid_handle);
    SHOWS("EVENT-102", "EVD-027", "EVD-029", "EVD-032", "EVD-069");
  }
}

TEST_CASE("wait_for leaves software events in their order", "[EVENT-040]") {
  rig::begin();
  queue<soft> q;
  must(q.evd.post(1));
  CHECK(must(q.evd.wait_for<dat::software_event>(patience)).cookie().value() == 1);
}

// --- the properties of an evd, and of the null evd
// --------------------------------------------------------------------

TEST_CASE("evd.query reports the parameters of the evd", "[EVD-007][EVD-020][EVD-021][EVD-022][EVENT-102]"
                                                         "[ERR-042]") {
  rig::begin();
  auto ia = rig::open(rig::manual);
  auto evd = must(ia.create_evd<mixed>(5));
  auto a = must(evd.query());
  CHECK(a.streams == mixed);
  CHECK(a.qlen >= 5);
  CHECK(a.enabled);
  CHECK(a.waitable);
  CHECK(a.config == dat::completion_notification::evd_threshold);
  CHECK_FALSE(a.cno);
  CHECK(evd.owner() == ia.identity());
  auto cno = must(ia.create_cno());
  auto other = must(ia.create_cno());
  must(evd.modify_cno(cno));
  // Enabled and waitable change one at a time.
  must(evd.disable());
  CHECK((!must(evd.query()).enabled && must(evd.query()).waitable));
  must(evd.enable());
  must(evd.set_unwaitable());
  CHECK((must(evd.query()).enabled && !must(evd.query()).waitable));
  must(evd.disable());
  must(evd.resize(50));
  a = must(evd.query());
  CHECK(a.qlen >= 50);
  SHOWS("EVD-002");
  CHECK_FALSE(a.enabled);
  CHECK_FALSE(a.waitable);
  CHECK(a.cno == cno);
  CHECK_FALSE(a.cno == other);
  must(evd.modify_cno({}));
  CHECK_FALSE(must(evd.query()).cno);
  const auto nothing = must(dat::evd<mixed>().query()); // the null evd can be queried, and has no other effect
  CHECK(nothing.streams == dat::streams{});
  CHECK(nothing.qlen == 0);
  CHECK_FALSE(nothing.enabled);
  CHECK(dat::evd<mixed>().wait(0s).error().type() == return_type::invalid_handle);
  must(cno.close());
  must(other.close());
  must(ia.close());
  CHECK(evd.query().error().type() == return_type::invalid_handle);
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
          "[CNO-028][CNO-009][CNO-034][EVD-018][EVD-025][EVENT-111]") {
  rig::begin();
  auto ia = rig::open(rig::automatic);
  auto cno = must(ia.create_cno());
  CHECK(cno.wait(0s).error() == dat::error(return_type::queue_empty));
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

// --- completions that wake a thread ----------------------------------------------------------------------------------

TEST_CASE("endpoints that feed one evd must agree on the notification mode",
          "[EVENT-027][EVENT-028][EVENT-029][EVENT-049][EP-016][EP-017]"
          "[EP-018][EP-019][COMP-009][DTO-041]") {
  NEEDS_FEATURE(solicited_waits);
  rig::begin();
  adapter a;
  auto completions_only = must(a.ia.create_evd<dat::stream::dto>(16));
  auto other = must(a.ia.create_evd<dat::stream::dto>(16));
  auto ring = must(a.ia.create_evd<mixed>(16));
  const auto make = [&](const auto& recv, const auto& request, dat::completion_notification on_recv,
                        dat::completion_notification on_request) {
    return a.pz.create_ep<dat::rc>({.recv = recv, .request = request, .connect = a.evd},
                                   {.recv_completion = on_recv, .request_completion = on_request});
  };
  const auto refused = dat::error(return_type::invalid_parameter, return_subtype::arg7);
  CHECK(dat::ep_attributes().recv_completion == dat::completion_notification::evd_threshold);
  CHECK(dat::ep_attributes().request_completion == dat::completion_notification::evd_threshold);
  SHOWS("COMP-027");
  STATIC_REQUIRE(static_cast<int>(dat::completion_notification::solicited_wait) == 0x02);
  STATIC_REQUIRE(static_cast<int>(dat::completion_notification::selective) == 0x04);
  STATIC_REQUIRE(static_cast<int>(dat::completion_notification::evd_threshold) == 0x10);
  SHOWS("EPATTR-005");
  constexpr std::array all{dat::completion_notification::evd_threshold, dat::completion_notification::selective,
                           dat::completion_notification::solicited_wait};
  for (const dat::completion_notification r : all)
    for (const dat::completion_notification q : all) {
      // Queues on one evd need the same mode, and requests cannot be solicited.
      const auto one = make(ring, ring, r, q);
      CHECK(one.has_value() == (r == q && r != dat::completion_notification::solicited_wait));
      if (!one) CHECK(one.error() == refused);
      // The receives of two endpoints on one evd.
      const auto first = make(ring, other, r, dat::completion_notification::evd_threshold);
      REQUIRE(first.has_value());
      CHECK(make(ring, other, q, dat::completion_notification::evd_threshold).has_value() == (r == q));
      // Receives of one endpoint and requests of another.
      CHECK(make(other, ring, dat::completion_notification::evd_threshold, q).has_value() ==
            (r == q && q != dat::completion_notification::solicited_wait));
      CHECK(must(ring.query()).config == r);
    }
  SHOWS("ERR-042", "EVD-021");
  CHECK(must(ring.query()).config == dat::completion_notification::evd_threshold);
  for (const dat::completion_notification q :
       {dat::completion_notification::evd_threshold, dat::completion_notification::selective}) {
    const auto first = must(make(other, ring, dat::completion_notification::evd_threshold, q));
    for (const dat::completion_notification r : all) // the requests of two endpoints
      CHECK(make(other, ring, dat::completion_notification::evd_threshold, r).has_value() == (r == q));
  }
  // A completions-only evd cannot set aside completions without notification; solicited receives need no such room.
  CHECK(make(completions_only, other, dat::completion_notification::selective,
             dat::completion_notification::evd_threshold)
            .error() == refused);
  CHECK(make(completions_only, other, dat::completion_notification::solicited_wait,
             dat::completion_notification::evd_threshold)
            .has_value());
  // With other streams, every completion must notify.
  CHECK(make(a.evd, other, dat::completion_notification::solicited_wait, dat::completion_notification::evd_threshold)
            .error() == refused);
  CHECK(make(a.evd, a.evd, dat::completion_notification::selective, dat::completion_notification::selective).error() ==
        refused);
  const auto of_requests = must(a.ia.create_evd<dat::stream::dto | dat::stream::connection_requests>(16));
  for (const auto how : {dat::completion_notification::selective, dat::completion_notification::solicited_wait})
    CHECK(make(of_requests, other, how, dat::completion_notification::evd_threshold).error() == refused);
  const auto of_connections = must(a.ia.create_evd<dat::stream::dto | dat::stream::connection>(16));
  const auto of_adapter = must(a.ia.create_evd<dat::stream::dto | dat::stream::async>(16));
  for (const auto how : {dat::completion_notification::selective, dat::completion_notification::solicited_wait}) {
    CHECK(make(of_connections, other, how, dat::completion_notification::evd_threshold).error() == refused);
    CHECK(make(of_adapter, other, how, dat::completion_notification::evd_threshold).error() == refused);
  }
  CHECK(make(a.evd, a.evd, dat::completion_notification::evd_threshold, dat::completion_notification::evd_threshold)
            .has_value());
  CHECK(make(ring, ring, static_cast<dat::completion_notification>(0x40), dat::completion_notification::evd_threshold)
            .error() == refused);
}

TEST_CASE("a wait for several events is refused where some completions do not notify", "[EVENT-048][EVD-049][EVD-046]"
                                                                                       "[REQ-162]") {
  rig::begin();
  adapter a;
  auto evd = must(a.ia.create_evd<mixed>(8));
  auto requests = must(a.ia.create_evd<dat::stream::dto>(8));
  must(evd.post(1));
  must(evd.post(2));
  auto ep = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd},
                                         {.recv_completion = dat::completion_notification::selective,
                                          .request_completion = dat::completion_notification::selective}));
  CHECK(evd.wait(patience, 2).error() == dat::error(return_type::invalid_state, return_subtype::evd_config_notify));
  SHOWS("ERR-034");
  CHECK(must(evd.wait(patience, 1)).more == 1); // software events may share such an evd: uDAPL 2.0, lines 2724-2746
  SHOWS("EP-017");
  must(ep.close());
  CHECK(must(evd.query()).config == dat::completion_notification::evd_threshold); // no endpoint feeds the evd now
  CHECK(evd.wait(0s, 2).error().type() == return_type::timeout_expired);
  ep = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = requests, .connect = a.evd},
                                    {.recv_completion = dat::completion_notification::solicited_wait}));
  CHECK(evd.wait(patience, 2).error() == dat::error(return_type::invalid_state, return_subtype::evd_config_solicited));
  SHOWS("ERR-034");
  CHECK(number(std::get<dat::software_event>(must(evd.wait(patience)))) == 2);
  SHOWS("EP-019");
  must(ep.close());
  // The requests of an endpoint suffice.
  ep = must(a.pz.create_ep<dat::rc>({.recv = requests, .request = evd, .connect = a.evd},
                                    {.request_completion = dat::completion_notification::selective}));
  CHECK(evd.wait(0s, 2).error() == dat::error(return_type::invalid_state, return_subtype::evd_config_notify));
}

TEST_CASE("modify can change which completions wake until a receive is posted",
          "[EP-076][EP-077][EPATTR-007][EVENT-027][EVENT-028]") {
  rig::begin();
  adapter a;
  auto evd = must(a.ia.create_evd<mixed>(8));
  auto other = must(a.ia.create_evd<mixed>(8));
  const auto make = [&](const auto& recv, const auto& request) {
    return must(a.pz.create_ep<dat::rc>({.recv = recv, .request = request, .connect = a.evd}));
  };
  const auto mode = [](auto& of) { return must(of.query()).config; };
  using dat::completion_notification;
  auto ep = make(evd, evd);
  must(ep.modify({.recv_completion = completion_notification::selective,
                  .request_completion = completion_notification::selective}));
  CHECK(mode(evd) == completion_notification::selective);
  CHECK(ep.attributes().recv_completion == completion_notification::selective);
  CHECK(must(ep.query()).attributes.request_completion == completion_notification::selective);
  // Queues on one evd need the same mode, and requests cannot be solicited: modify changes nothing then.
  const auto refused = [&](const dat::ep_changes& c) {
    CHECK(ep.modify(c).error().type() == return_type::invalid_parameter);
    CHECK(mode(evd) == completion_notification::selective);
    CHECK(ep.attributes().recv_completion == completion_notification::selective);
    CHECK(ep.attributes().request_completion == completion_notification::selective);
  };
  refused({.recv_completion = completion_notification::evd_threshold});
  refused({.request_completion = completion_notification::evd_threshold});
  refused({.request_completion = completion_notification::solicited_wait});
  for (const int no_mode : {0x01, 0x08}) // DAT_COMPLETION_SUPPRESS_FLAG and _BARRIER_FENCE_FLAG
    refused({.recv_completion = static_cast<completion_notification>(no_mode),
             .request_completion = static_cast<completion_notification>(no_mode)});
  // Another endpoint that feeds the evd must have the same mode.
  {
    auto second = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = other, .connect = a.evd},
                                               {.recv_completion = completion_notification::selective}));
    refused({.recv_completion = completion_notification::evd_threshold,
             .request_completion = completion_notification::evd_threshold});
    must(second.close());
  }
  // An evd whose completions have another mode is refused, and the endpoint keeps its evd.
  {
    auto third = must(a.ia.create_evd<mixed>(8));
    auto second = must(a.pz.create_ep<dat::rc>({.recv = third, .request = other, .connect = a.evd}));
    const auto before = must(ep.query());
    refused({.recv = third});
    refused({.request = third});
    const auto now = must(ep.query());
    CHECK((now.recv == before.recv && now.request == before.request));
    SHOWS("EP-075");
    must(second.close());
  }
  // modify moves the mode to another evd, and no endpoint feeds the previous evd.
  must(ep.modify({.request = other,
                  .recv_completion = completion_notification::solicited_wait,
                  .request_completion = completion_notification::evd_threshold}));
  CHECK(mode(evd) == completion_notification::solicited_wait);
  CHECK(mode(other) == completion_notification::evd_threshold);
  // Each queue feeds its own evd, so only the value itself is refused.
  const auto why = [&](const dat::ep_changes& c) { return ep.modify(c).error().type(); };
  for (const int no_mode : {0x01, 0x08}) {
    CHECK(why({.recv_completion = static_cast<completion_notification>(no_mode)}) == return_type::invalid_parameter);
    CHECK(why({.request_completion = static_cast<completion_notification>(no_mode)}) == return_type::invalid_parameter);
  }
  CHECK(why({.request_completion = completion_notification::solicited_wait}) == return_type::invalid_parameter);
  CHECK(mode(other) == completion_notification::evd_threshold);
  must(ep.post(dat::recv{}));
  CHECK(ep.modify({.recv_completion = completion_notification::evd_threshold}).error() ==
        dat::error(return_type::invalid_state, return_subtype::ep_notready));
  SHOWS("EP-068");
  CHECK(mode(evd) == completion_notification::solicited_wait);
  // The mode of requests does not affect receives.
  must(ep.modify({.request_completion = completion_notification::selective}));
  CHECK(mode(other) == completion_notification::selective);
  must(ep.close());
  CHECK(mode(evd) == completion_notification::evd_threshold);
  CHECK(mode(other) == completion_notification::evd_threshold);
}

// --- invalid calls -------------------------------------------------------------------------------------------------

TEST_CASE("an invalid call on an evd returns its name, the evd and a remedy, and has no effect",
          "[EVD-015][EVD-038][EVD-047][EVD-048][EVD-049][EVENT-048][EVENT-054][EVENT-063]") {
  rig::begin();
  adapter a;
  auto evd = must(a.ia.create_evd<mixed>(8));
  const auto answered = [&](const dat::error& e, return_type type, std::string_view call, std::string_view remedy) {
    const std::string text = e.message();
    INFO(text);
    CHECK(e.type() == type);
    CHECK(text.starts_with(std::string(call) + " on evd " + std::to_string(evd.id().number())));
    CHECK(text.find(remedy) != std::string::npos);
  };
  for (std::uint64_t i = 0; i < 5; ++i) must(evd.post(i));
  answered(evd.wait(patience, 9).error(), return_type::invalid_parameter, "evd.wait", "at most the evd's capacity");
  answered(evd.resize(3).error(), return_type::invalid_state, "evd.resize", "Take them first");
  must(evd.set_unwaitable());
  answered(evd.wait(patience).error(), return_type::invalid_state, "evd.wait", "Make the evd waitable again");
  must(evd.clear_unwaitable());
  {
    const auto ep = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd},
                                                 {.recv_completion = dat::completion_notification::selective,
                                                  .request_completion = dat::completion_notification::selective}));
    answered(evd.wait(patience, 2).error(), return_type::invalid_state, "evd.wait", "Wait for one event at a time");
    answered(evd.close().error(), return_type::invalid_state, "evd.close", "Free the endpoints");
  }
  for (std::uint64_t i = 0; i < 5; ++i)
    CHECK(std::get<dat::software_event>(must(evd.dequeue())).cookie() == dat::cookie(i));
  std::optional<dat::error> wait, dequeue, close;
  worker other([&](worker& w) {
    until_waited(evd);
    wait = evd.wait(patience).error();
    dequeue = evd.dequeue().error();
    close = evd.close().error();
    w.check(evd.post(5).has_value());
  });
  CHECK(std::get<dat::software_event>(must(evd.wait(patience))).cookie() == dat::cookie(5));
  other.join();
  answered(*wait, return_type::invalid_state, "evd.wait", "Only one thread at a time");
  answered(*dequeue, return_type::invalid_state, "evd.dequeue", "Only one thread at a time");
  answered(*close, return_type::invalid_state, "evd.close", "Release it first");
  must(evd.close());
}

// --- time ------------------------------------------------------------------------------------------------------------

TEST_CASE("no wait ends before its time limit, however many signals interrupt it",
          "[EVD-050][EVD-051][EVD-055][EVD-057][EVD-058][CNO-029][CNO-032][COMP-082][EVENT-055]") {
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
    check(limit, return_type::timeout_expired,
          [&](dat::timeout t) { return completions_only.wait_and_drain([](auto&) {}, t).error(); });
    check(limit, return_type::queue_empty, [&](dat::timeout t) { return cno.wait(t).error(); });
    SHOWS("CNO-031");
  }
  // A longer wait is interrupted repeatedly.
  for (int i = 0; i < 3; ++i) {
    CHECK(completions_only.wait(patience).error() == dat::error(return_type::interrupted_call));
    CHECK(cno.wait(patience).error() == dat::error(return_type::interrupted_call));
    SHOWS("ERR-027", "REQ-036");
  }
  interrupter.request_stop();
  interrupter.join();
  sigaction(SIGUSR1, &before, nullptr);
  CHECK(std::get<dat::software_event>(must(q.evd.wait(0us))).cookie().value() == 1);
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
