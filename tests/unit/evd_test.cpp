// Event dispatchers: software events, thresholds, waitability, resizing. What needs no device.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include "world.hpp"

#include <atomic>
#include <csignal>
#include <pthread.h>
#include <thread>

using namespace unit;
using dat::return_subtype;
using dat::return_type;
using support::worker;

namespace {

constexpr auto soft = dat::software;
constexpr auto mixed = dat::dto | dat::software;

/// An adapter of the fake world and one evd.
template <dat::streams S>
struct queue {
  explicit queue(std::uint32_t qlen = 8, const dat::ia_options& options = automatic)
      : ia(must(dat::ia::open("fk1", options))), evd(must(ia.create_evd<S>(qlen))) {}
  dat::ia ia;
  dat::evd<S> evd;
};

std::uint64_t number(const dat::event<soft>& e) { return std::get<dat::software_event>(e).cookie().value(); }

/// Until another thread waits on the evd, which must be empty: then a dequeue is refused.
template <dat::streams S>
void until_waited(dat::evd<S>& evd) {
  for (;;) {
    const auto e = evd.dequeue();
    if (!e && e.error().subtype() == return_subtype::evd_waiter) return;
    std::this_thread::yield();
  }
}

} // namespace

TEST_CASE("software events come out in the order in which they were posted", "[EVD-069][EVD-072][EVD-073][EVD-045]"
                                                                             "[REQ-160]") {
  fake::reset();
  queue<soft> q;
  int object = 0;
  must(q.evd.post(1));
  must(q.evd.post(&object));
  must(q.evd.post(~std::uint64_t{0}));
  CHECK(number(must(q.evd.wait(plenty))) == 1);
  CHECK(std::get<dat::software_event>(must(q.evd.dequeue())).cookie().as<int*>() == &object);
  CHECK(number(must(q.evd.dequeue())) == ~std::uint64_t{0});
  CHECK(q.evd.dequeue().error() == dat::error(return_type::queue_empty));
}

TEST_CASE("a software event beyond the capacity is refused and disturbs nothing", "[EVENT-070][EVENT-076][EVD-069]"
                                                                                  "[REQ-161]") {
  fake::reset();
  queue<soft> q(4);
  for (std::uint64_t i = 0; i < 4; ++i) must(q.evd.post(i));
  CHECK(q.evd.post(4).error() == dat::error(return_type::queue_full));
  CHECK(number(must(q.evd.dequeue())) == 0);
  must(q.evd.post(5)); // there is room again
  for (const std::uint64_t i : {1u, 2u, 3u, 5u}) CHECK(number(must(q.evd.dequeue())) == i);
}

TEST_CASE("completions and software events fill a merged evd apart from each other", "[EVENT-081]") {
  fake::reset();
  constexpr auto streams = mixed | dat::connection | dat::connection_requests;
  auto ia = must(dat::ia::open("fk1", manual));
  auto pz = must(ia.create_pz());
  auto evd = must(ia.create_evd<streams>(8));
  auto far_evd = must(ia.create_evd<streams>(8));
  std::array<char, 64> memory{};
  auto mem = must(pz.register_memory(memory, all_rights));
  auto near = must(pz.create_ep<dat::rc>(evd));
  auto far = must(pz.create_ep<dat::rc>(far_evd));
  auto psp = must(ia.create_psp(service, far_evd));
  must(near.connect(ia.address(), service, plenty));
  auto request = must(far_evd.wait_for<dat::connection_request>(plenty));
  must(request.accept(far));
  (void)must(evd.wait_for<dat::established>(plenty));
  for (std::uint64_t i = 0; i < 8; ++i) must(evd.post(i));
  for (int i = 0; i < 8; ++i) must(far.post(dat::recv{mem}));
  for (std::uint64_t i = 0; i < 8; ++i) must(near.post(dat::send{}.cookie(i)));
  CHECK(evd.post(9).error() == dat::error(return_type::queue_full));
  std::size_t software = 0;
  std::size_t sent = 0;
  while (evd.drain(dat::overloaded{[&](const dat::software_event&) { ++software; }, [&](const dat::sent&) { ++sent; },
                                   [](const auto&) {}}) != 0) {
  }
  CHECK(software == 8);
  CHECK(sent == 8);
}

TEST_CASE("a software event wakes the thread that waits", "[EVD-060][EVD-069][EVENT-058][EVENT-108]") {
  fake::reset();
  queue<soft> q;
  worker poster([&](worker& w) {
    until_waited(q.evd);
    w.check(q.evd.post(7).has_value());
  });
  CHECK(number(must(q.evd.wait(plenty))) == 7);
  poster.join();
}

TEST_CASE("an evd with completions is woken by software events, too", "[EVD-061]") {
  fake::reset();
  queue<mixed> q;
  worker poster([&](worker& w) {
    until_waited(q.evd);
    w.check(q.evd.post(7).has_value());
  });
  CHECK(std::holds_alternative<dat::software_event>(must(q.evd.wait(plenty))));
  poster.join();
}

TEST_CASE("no wake-up is lost between many posters and one waiter", "[EVENT-066][EVD-003][EVENT-003][EVENT-108]") {
  fake::reset();
  constexpr std::uint64_t each = 20'000;
  queue<soft> q(64);
  std::vector<std::thread> posters;
  for (std::uint64_t p = 0; p < 3; ++p)
    posters.emplace_back([&q, p] {
      for (std::uint64_t i = 0; i < each;) {
        if (q.evd.post(p << 32 | i))
          ++i;
        else
          std::this_thread::yield();
      }
    });
  std::array<std::uint64_t, 3> next{};
  for (std::uint64_t n = 0; n < 3 * each; ++n) {
    const std::uint64_t got = number(must(q.evd.wait(plenty)));
    if ((got & 0xffffffff) != next[got >> 32]++) FAIL("out of order, twice, or lost: " << got);
  }
  for (auto& t : posters) t.join();
  CHECK(q.evd.dequeue().error() == dat::error(return_type::queue_empty));
}

TEST_CASE("a threshold is reached by events of any kind, and the first is delivered",
          "[EVD-045][EVD-054][EVD-056][EVENT-058][EVENT-062]") {
  fake::reset();
  queue<soft> q;
  for (std::uint64_t i = 0; i < 5; ++i) must(q.evd.post(i));
  auto got = must(q.evd.wait(0us, 2));
  CHECK(number(got.first) == 0);
  CHECK(got.more == 4);

  worker poster([&](worker& w) { // four are left: the sixth needs two more
    w.check(q.evd.post(5).has_value());
    w.check(q.evd.post(6).has_value());
  });
  got = must(q.evd.wait(plenty, 6));
  CHECK(number(got.first) == 1);
  CHECK(got.more == 5);
  poster.join();
}

TEST_CASE("a wait below its threshold takes nothing and says how many there are",
          "[EVD-051][EVD-052][EVD-055][EVD-057][EVENT-056]") {
  fake::reset();
  queue<soft> q;
  must(q.evd.post(1));
  must(q.evd.post(2));
  for (const dat::timeout limit : {dat::timeout(0us), dat::timeout(5ms)}) {
    auto none = q.evd.wait(limit, 3);
    REQUIRE_FALSE(none);
    CHECK(none.error() == dat::error(return_type::timeout_expired));
    CHECK(none.error().index() == 2);
    CHECK(none.error().message().find("with 2 events queued") != std::string::npos);
  }
  CHECK(number(must(q.evd.dequeue())) == 1);
  CHECK(number(must(q.evd.dequeue())) == 2);
}

TEST_CASE("a threshold outside 1..capacity is refused, whatever is queued", "[EVD-047][EVD-048]") {
  fake::reset();
  queue<soft> q(4);
  must(q.evd.post(1));
  for (const std::size_t bad : {std::size_t{0}, q.evd.capacity() + 1, std::size_t{1} << 40})
    CHECK(q.evd.wait(plenty, bad).error() == dat::error(return_type::invalid_parameter, return_subtype::arg3));
  for (std::uint64_t i = 2; i <= 4; ++i) must(q.evd.post(i));
  CHECK(must(q.evd.wait(plenty, q.evd.capacity())).more == 3);
}

TEST_CASE("a signal ends a wait that has nothing to give, and one that has takes its event",
          "[EVENT-055][EVD-057][EVD-058]") {
  fake::reset();
  queue<soft> q;
  struct sigaction handler {};
  handler.sa_handler = [](int) {};
  handler.sa_flags = SA_RESTART; // makes no difference
  REQUIRE(sigaction(SIGUSR1, &handler, nullptr) == 0);
  must(q.evd.post(1));
  const pthread_t waiting = pthread_self();
  std::atomic<bool> done{false};
  std::thread killer([&] { // the first signal may come before the thread sleeps
    while (!done) {
      pthread_kill(waiting, SIGUSR1);
      std::this_thread::yield();
    }
  });
  const auto interrupted = q.evd.wait(plenty, 2);
  done = true;
  killer.join();
  REQUIRE_FALSE(interrupted);
  CHECK(interrupted.error() == dat::error(return_type::interrupted_call));
  CHECK(interrupted.error().index() == 1);
  CHECK(number(must(q.evd.wait(plenty))) == 1);
}

TEST_CASE("an unwaitable evd refuses to wait and still gives its events",
          "[EVD-032][EVD-034][EVENT-063][EVENT-060][EVD-065]") {
  fake::reset();
  queue<soft> q;
  CHECK(q.evd.waitable());
  must(q.evd.post(1));
  for (int twice = 0; twice < 2; ++twice) must(q.evd.set_unwaitable());
  CHECK_FALSE(q.evd.waitable());
  CHECK(q.evd.wait(plenty).error() == dat::error(return_type::invalid_state, return_subtype::evd_unwaitable));
  CHECK(q.evd.wait(plenty, 1).error() == dat::error(return_type::invalid_state, return_subtype::evd_unwaitable));
  must(q.evd.post(2));
  CHECK(number(must(q.evd.dequeue())) == 1);
  for (int twice = 0; twice < 2; ++twice) must(q.evd.clear_unwaitable());
  CHECK(number(must(q.evd.wait(plenty))) == 2);
}

TEMPLATE_TEST_CASE_SIG("making an evd unwaitable releases its waiter, which takes nothing",
                       "[EVENT-057][EVD-033][EVD-035]", ((dat::streams S), S), dat::dto, soft, mixed) {
  fake::reset();
  queue<S> q;
  for (const bool at_once : {false, true}) {
    worker other([&](worker& w) {
      until_waited(q.evd);
      w.check(q.evd.set_unwaitable().has_value());
      if (at_once) w.check(q.evd.clear_unwaitable().has_value()); // the waiter has to leave all the same
    });
    CHECK(q.evd.wait(dat::infinite).error() == dat::error(return_type::invalid_state, return_subtype::evd_unwaitable));
    other.join();
    must(q.evd.clear_unwaitable());
  }
  CHECK(q.evd.wait(0us).error() == dat::error(return_type::timeout_expired));
}

TEST_CASE("while a thread waits, a second wait and a dequeue are refused", "[EVENT-054][EVD-064]") {
  fake::reset();
  queue<soft> q;
  worker other([&](worker& w) {
    until_waited(q.evd);
    w.check(q.evd.wait(plenty).error() == dat::error(return_type::invalid_state, return_subtype::evd_waiter));
    w.check(q.evd.dequeue().error() == dat::error(return_type::invalid_state, return_subtype::evd_waiter));
    w.check(q.evd.post(3).has_value());
  });
  CHECK(number(must(q.evd.wait(plenty))) == 3);
  other.join();
}

TEST_CASE("an evd can be resized without losing what is queued", "[EVD-036][EVD-037][EVD-039]") {
  fake::reset();
  queue<mixed> q(4);
  for (std::uint64_t i = 0; i < 4; ++i) must(q.evd.post(i));
  CHECK(q.evd.post(4).error() == dat::error(return_type::queue_full));
  must(q.evd.resize(100));
  CHECK(q.evd.capacity() >= 100);
  for (std::uint64_t i = 4; i < 100; ++i) must(q.evd.post(i));
  std::uint64_t next = 0;
  while (q.evd.drain([&](auto& e) {
    if constexpr (std::is_same_v<std::decay_t<decltype(e)>, dat::software_event>) CHECK(e.cookie().value() == next++);
  }) != 0) {
  }
  CHECK(next == 100);
  must(q.evd.resize(1));
  CHECK(q.evd.capacity() >= 1);
}

TEST_CASE("a resize that would lose events, or is out of range, changes nothing", "[EVD-038][EVD-040][EVD-042]") {
  fake::reset();
  queue<mixed> q(8);
  for (std::uint64_t i = 0; i < 5; ++i) must(q.evd.post(i));
  CHECK(q.evd.resize(3).error().type() == return_type::invalid_state);
  for (const std::uint32_t bad : {0u, 1u << 30, ~0u})
    CHECK(q.evd.resize(bad).error() == dat::error(return_type::invalid_parameter, return_subtype::arg2));
  CHECK(q.evd.capacity() == 8);
  for (std::uint64_t i = 5; i < 8; ++i) must(q.evd.post(i));
  CHECK(q.evd.post(8).error() == dat::error(return_type::queue_full));
}

TEST_CASE("a device that cannot resize its queue leaves the evd as it was", "[EVD-041][EVD-042]") {
  fake::reset();
  queue<mixed> q(8);
  must(q.evd.post(1));
  for (const auto& [err, type] : {std::pair{ENOMEM, return_type::insufficient_resources},
                                  std::pair{EOPNOTSUPP, return_type::model_not_supported}}) {
    fake::fail(fake::call::ibv_resize_cq, 1, err);
    const auto r = q.evd.resize(64);
    REQUIRE_FALSE(r);
    CHECK(r.error().type() == type);
    CHECK(r.error().verb() == "ibv_resize_cq");
    CHECK(q.evd.capacity() == 8);
  }
  must(q.evd.resize(64));
  CHECK(std::get<dat::software_event>(must(q.evd.dequeue())).cookie().value() == 1);
}

TEST_CASE("a resize lets go on a wait for a threshold", "[EVD-043]") {
  fake::reset();
  queue<soft> q(4);
  worker other([&](worker& w) {
    until_waited(q.evd);
    w.check(q.evd.resize(16).has_value());
    for (std::uint64_t i = 0; i < 3; ++i) w.check(q.evd.post(i).has_value());
  });
  CHECK(must(q.evd.wait(plenty, 3)).more == 2);
  other.join();
}

TEMPLATE_TEST_CASE_SIG("a wake ends the wait that is under way, once", "[evd]", ((dat::streams S), S), dat::dto, soft,
                       mixed) {
  fake::reset();
  queue<S> q;
  worker other([&](worker& w) {
    until_waited(q.evd);
    w.check(q.evd.wake().has_value());
  });
  CHECK(q.evd.wait(dat::infinite).error() == dat::error(return_type::interrupted_call));
  other.join();
  CHECK(q.evd.wait(0us).error() == dat::error(return_type::timeout_expired));
}

TEMPLATE_TEST_CASE_SIG("wakes that come before a wait are one wake, and take no event", "[evd]", ((dat::streams S), S),
                       soft, mixed) {
  fake::reset();
  queue<S> q;
  for (int i = 0; i < 3; ++i) must(q.evd.wake());
  must(q.evd.post(1));
  CHECK(q.evd.wait(dat::infinite).error() == dat::error(return_type::interrupted_call));
  CHECK(std::get<dat::software_event>(must(q.evd.wait(plenty))).cookie().value() == 1);
  CHECK(q.evd.wait(0us).error() == dat::error(return_type::timeout_expired));
}

TEST_CASE("no wake is lost between a thread that wakes and one that waits", "[evd]") {
  fake::reset();
  queue<dat::dto> q;
  std::atomic<int> asked{0};
  std::atomic<int> seen{0};
  constexpr int rounds = 5000;
  worker other([&](worker& w) {
    for (int i = 1; i <= rounds; ++i) {
      asked = i;
      w.check(q.evd.wake().has_value());
      while (seen < i) std::this_thread::yield();
    }
  });
  while (seen < rounds) { // without its wake-up this would end by its time limit
    const auto r = q.evd.wait(plenty);
    if (r || r.error() != dat::error(return_type::interrupted_call)) FAIL("a wake-up is missing");
    seen = asked.load();
  }
  other.join();
}

TEST_CASE("a wake triggers the cno of an evd that nobody waits on", "[evd][cno]") {
  fake::reset();
  queue<dat::dto> q(8, manual);
  auto cno = must(q.ia.create_cno());
  must(q.evd.modify_cno(cno));
  CHECK(must(cno.wait(0us)) == q.evd.id()); // what may have been there before
  CHECK_FALSE(cno.wait(0us));
  worker other([&](worker& w) { w.check(q.evd.wake().has_value()); });
  CHECK(must(cno.wait(plenty)) == q.evd.id());
  other.join();
}

TEST_CASE("a drain with a time limit waits for the first event and takes what is there", "[evd]") {
  fake::reset();
  queue<soft> q;
  std::vector<std::uint64_t> got;
  const auto note = [&](const dat::software_event& e) { got.push_back(e.cookie().value()); };
  CHECK(q.evd.drain(note, 1ms).error() == dat::error(return_type::timeout_expired));
  worker poster([&](worker& w) {
    until_waited(q.evd);
    w.check(q.evd.post(1).has_value());
  });
  CHECK(must(q.evd.drain(note, plenty)) == 1);
  poster.join();
  for (std::uint64_t i = 2; i < 6; ++i) must(q.evd.post(i));
  CHECK(must(q.evd.drain(note, plenty, 3)) == 3);
  CHECK(must(q.evd.drain(note, 0us)) == 1);
  CHECK(got == std::vector<std::uint64_t>{1, 2, 3, 4, 5});
}

TEST_CASE("a drain with a time limit fails as wait does, and for no event at all", "[evd]") {
  fake::reset();
  queue<soft> q;
  must(q.evd.post(1));
  const auto nothing = [](const auto&) {};
  CHECK(q.evd.drain(nothing, plenty, 0).error() == dat::error(return_type::invalid_parameter, return_subtype::arg3));
  must(q.evd.set_unwaitable());
  CHECK(q.evd.drain(nothing, plenty).error() == dat::error(return_type::invalid_state, return_subtype::evd_unwaitable));
  must(q.evd.clear_unwaitable());
  must(q.evd.wake());
  CHECK(q.evd.drain(nothing, plenty).error() == dat::error(return_type::interrupted_call));
  CHECK(must(q.evd.drain(nothing, plenty)) == 1);
}

TEST_CASE("a visitor that throws leaves a drain with a time limit, and the evd as it was", "[evd]") {
  fake::reset();
  queue<soft> q;
  for (std::uint64_t i = 0; i < 2; ++i) must(q.evd.post(i));
  CHECK_THROWS_AS((void)q.evd.drain([](const dat::software_event&) { throw 1; }, plenty), int);
  CHECK(number(must(q.evd.wait(plenty))) == 1);
}

TEST_CASE("a closed or empty evd answers every call with invalid_handle", "[EVD-017][EVENT-103]") {
  fake::reset();
  dat::evd<soft> empty;
  queue<soft> q;
  must(q.ia.close(dat::close_flags::abrupt));
  for (auto* e : {&empty, &q.evd}) {
    CHECK(e->post(1).error().type() == return_type::invalid_handle);
    CHECK(e->wait(0us).error().type() == return_type::invalid_handle);
    CHECK(e->wait(0us, 1).error().type() == return_type::invalid_handle);
    CHECK(e->dequeue().error().type() == return_type::invalid_handle);
    CHECK(e->wake().error().type() == return_type::invalid_handle);
    CHECK(e->drain([](auto&) {}, 0us).error().type() == return_type::invalid_handle);
    CHECK(e->set_unwaitable().error().type() == return_type::invalid_handle);
    CHECK(e->clear_unwaitable().error().type() == return_type::invalid_handle);
    CHECK(e->resize(8).error().type() == return_type::invalid_handle);
    CHECK(e->drain([](auto&) {}) == 0);
  }
}

TEST_CASE("wait_for leaves software events in their place", "[EVENT-040]") {
  fake::reset();
  queue<soft> q;
  must(q.evd.post(1));
  CHECK(must(q.evd.wait_for<dat::software_event>(plenty)).cookie().value() == 1);
}

// --- what an evd is like, and none at all --------------------------------------------------------------------------

TEST_CASE("an evd tells what it is like", "[EVD-007][EVD-020][EVD-021][EVD-022][EVENT-102]"
                                          "[ERR-042]") {
  const clean_world clean;
  auto ia = must(dat::ia::open("fk1", manual));
  auto evd = must(ia.create_evd<mixed>(5));
  auto a = must(evd.query());
  CHECK(a.which == mixed);
  CHECK(a.qlen >= 5);
  CHECK(a.enabled);
  CHECK(a.waitable);
  CHECK_FALSE(a.cno);
  auto cno = must(ia.create_cno());
  auto other = must(ia.create_cno());
  must(evd.modify_cno(cno));
  must(evd.disable());
  must(evd.set_unwaitable());
  must(evd.resize(50));
  a = must(evd.query());
  CHECK(a.qlen >= 50);
  CHECK_FALSE(a.enabled);
  CHECK_FALSE(a.waitable);
  CHECK(a.cno == cno);
  CHECK_FALSE(a.cno == other);
  must(evd.modify_cno({}));
  CHECK_FALSE(must(evd.query()).cno);
  const auto nothing = must(dat::evd<mixed>().query()); // the null evd can be asked, and does nothing else
  CHECK(nothing.which == dat::streams{});
  CHECK(nothing.qlen == 0);
  CHECK_FALSE(nothing.enabled);
  CHECK(dat::evd<mixed>().wait(0s).error().type() == return_type::invalid_handle);
  must(cno.close());
  must(other.close());
  must(ia.close());
  CHECK(evd.query().error().type() == return_type::invalid_handle);
}

TEST_CASE("events of an endpoint that nobody wants are dropped, and free its places",
          "[EVENT-101][EVENT-102][EP-006]") {
  const clean_world clean;
  const auto how = GENERATE(dat::progress::manual, dat::progress::automatic);
  auto ia = must(dat::ia::open("fk1", {.progress = how}));
  auto pz = must(ia.create_pz());
  std::array<char, 64> memory{};
  auto mem = must(pz.register_memory(memory, all_rights));
  auto evd = must(ia.create_evd<dat::dto | dat::connection | dat::connection_requests>(64));
  auto psp = must(ia.create_psp(service, evd));
  auto mute = must(pz.create_ep<dat::rc>(dat::ep_evds{dat::drop_events, dat::drop_events, dat::drop_events},
                                         {.max_request_dtos = 4, .max_recv_dtos = 4}));
  auto heard = must(pz.create_ep<dat::rc>(evd));
  must(mute.connect(ia.address(), service, plenty));
  must(must(evd.wait_for<dat::connection_request>(plenty)).accept(heard));
  (void)must(evd.wait_for<dat::established>(heard, plenty));
  while (mute.state() != dat::ep_state::connected) ia.run();
  for (std::uint64_t i = 0; i < 40;) {
    must(heard.post(dat::recv{}.cookie(i)));
    for (;;) {
      auto posted = mute.post(dat::send{});
      if (posted) break;
      REQUIRE(posted.error().type() == return_type::insufficient_resources); // until the reactor has looked
      ia.run();
      std::this_thread::yield();
    }
    CHECK(must(evd.wait_for<dat::received>(plenty)).cookie() == i++);
  }
  for (int i = 0; i < 40; ++i) { // and receives
    for (;;) {
      auto posted = mute.post(dat::recv{});
      if (posted) break;
      ia.run();
      std::this_thread::yield();
    }
    must(heard.post(dat::send{}));
    (void)must(evd.wait_for<dat::sent>(plenty));
  }
  // A failure breaks the connection all the same, suppressed or not; the peer hears of it.
  fake::hold(mute.native_handle());
  must(mute.post(dat::send{}.suppress()));
  REQUIRE(fake::complete(mute.native_handle(), {}, IBV_WC_RETRY_EXC_ERR));
  (void)must(evd.wait_for<dat::disconnected>(heard, plenty));
  CHECK(mute.state() == dat::ep_state::disconnected);
  must(mute.reset());
  must(mute.close());
  must(heard.close());
  must(psp.close());
  must(evd.close());
}

TEST_CASE("an evd handle that names nothing is a mistake, and no wish for no events", "[EVENT-102][EP-008]") {
  const clean_world clean;
  end a;
  dat::evd<dat::dto> none;
  auto dtos = must(a.ia.create_evd<dat::dto>(8));
  CHECK(a.pz.create_ep<dat::rc>({.recv = none, .request = dtos, .connect = a.evd}).error() ==
        dat::error(return_type::invalid_handle, return_subtype::handle_evd_recv));
  // Some of them: the streams that are wanted come.
  auto ep = must(a.pz.create_ep<dat::rc>({.recv = dtos, .request = dat::drop_events, .connect = dat::drop_events}));
  CHECK(dtos.close().error().subtype() == return_subtype::evd_in_use);
  must(ep.close());
  must(dtos.close());
}

TEST_CASE("a broken connection is noticed though nobody takes the completions of its evd", "[EPS-060][COMP-030]") {
  const clean_world clean;
  const auto lean = GENERATE(true, false);
  pair p;
  auto dtos = must(p.a.ia.create_evd<dat::dto>(8));
  auto merged = must(p.a.ia.create_evd<dat::dto | dat::software>(8));
  auto ep = must(lean ? p.a.pz.create_ep<dat::rc>({.recv = dtos, .request = dtos, .connect = p.a.evd})
                      : p.a.pz.create_ep<dat::rc>({.recv = merged, .request = merged, .connect = p.a.evd}));
  p.b.ep = must(p.b.pz.create_ep<dat::rc>(p.b.evd)); // the pair's own goes
  p.settle();
  (void)p.a.take();
  must(ep.connect(p.b.ia.address(), service, plenty));
  p.settle();
  must(request_on(p.b.evd).accept(p.b.ep));
  p.settle();
  CHECK(p.a.take() == events{"established"});
  CHECK(p.b.take() == events{"established"});
  fake::hold(ep.native_handle());
  must(ep.post(dat::send{}.cookie(1)));
  REQUIRE(fake::complete(ep.native_handle(), {}, IBV_WC_RNR_RETRY_EXC_ERR));
  // Only the connection's evd is looked at, and the adapter works.
  CHECK(must(p.a.evd.wait_for<dat::broken>(ep, plenty)).ep() == ep);
  p.b.ia.run();
  CHECK(p.b.take() == events{"disconnected"});
  auto failure = lean ? describe{}(std::get<dat::dto_failure>(must(dtos.dequeue())))
                      : describe{}(std::get<dat::dto_failure>(must(merged.dequeue())));
  CHECK(failure == "receiver not ready 1");
}

// --- some more rules of the event model ------------------------------------------------------------------------------

TEST_CASE("while a thread waits, closing is refused and clearing changes nothing",
          "[EVENT-052][EVENT-053][EVENT-059][EVENT-111][EVD-016][EVD-032]") {
  const clean_world clean;
  queue<soft> q;
  must(q.evd.clear_unwaitable());
  must(q.evd.clear_unwaitable());
  worker waiter([&](worker& w) {
    w.check(q.evd.wait(plenty).error() == dat::error(return_type::invalid_state, return_subtype::evd_unwaitable));
  });
  until_waited(q.evd);
  CHECK(q.evd.close().error() == dat::error(return_type::invalid_state, return_subtype::evd_waiter));
  must(q.evd.clear_unwaitable());
  CHECK(q.evd.dequeue().error().subtype() == return_subtype::evd_waiter); // still there
  must(q.evd.set_unwaitable());
  waiter.join();
  must(q.evd.set_unwaitable());
  CHECK_FALSE(q.evd.waitable());
  must(q.evd.post(1));
  must(q.evd.close()); // with an event queued
}

TEST_CASE("a temporary evd releases who waits on a cno, whichever is first",
          "[CNO-028][CNO-009][CNO-034][EVD-018][EVD-025]") {
  const clean_world clean;
  auto ia = must(dat::ia::open("fk1", automatic));
  auto cno = must(ia.create_cno());
  CHECK(cno.wait(0s).error() == dat::error(return_type::queue_empty));
  for (const bool attach_first : {true, false}) {
    auto temporary = must(ia.create_evd<soft>(1));
    if (attach_first) must(temporary.modify_cno(cno));
    must(temporary.post(1));
    if (!attach_first) must(temporary.modify_cno(cno));
    if (attach_first) (void)must(temporary.dequeue()); // somebody else took it: the notice stays
    CHECK(must(cno.wait(plenty)) == temporary.id());
    CHECK(temporary.dequeue().has_value() == !attach_first);
    must(temporary.modify_cno({}));
    must(temporary.close());
  }
}

TEST_CASE("completions that one taker leaves, and those that come later, trigger the cno again",
          "[CNO-012][EVD-068][EVD-005][EVENT-039]") {
  const clean_world clean;
  pair p;
  auto evd = must(p.b.ia.create_evd<mixed>(16));
  auto cno = must(p.b.ia.create_cno());
  must(evd.modify_cno(cno));
  auto far = must(p.b.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = p.b.evd}));
  auto near = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  must(near.connect(p.b.ia.address(), service, plenty));
  p.settle();
  must(request_on(p.b.evd).accept(far));
  p.settle();
  while (cno.wait(0s)) {
  }
  for (std::uint64_t i = 0; i < 4; ++i) must(far.post(dat::recv{}.cookie(i)));
  for (int i = 0; i < 3; ++i) must(near.post(dat::send{}));
  must(evd.post(9)); // came after them, in this thread
  CHECK(describe{}(std::get<dat::received>(must(evd.dequeue()))) == "received 0");
  CHECK(must(cno.wait(0s)) == evd.id());
  CHECK(cno.wait(0s).error().type() == return_type::queue_empty);
  must(near.post(dat::send{}));
  CHECK(must(cno.wait(0s)) == evd.id());
  CHECK(take(evd) == events{"received 1", "received 2", "software 9", "received 3"});
}
