// Several drivers in one thread: events of all, sleeping until one has an event, timers, stops, and the ends.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include "driven_pair.hpp"
#include <support/streams.hpp>

#include <dat/coro_set.hpp>
#include <dat/task.hpp>

#include <atomic>

using namespace unit;
using dat::return_type;
using support::worker;

namespace {

using support::soft;
constexpr auto connection_streams = dat::stream::connection | dat::stream::connection_requests;
constexpr auto transfers = dat::stream::dto;
using text = dat::task<std::string>;
using support::ignore;

/// Two evds of software events, each with a driver.
struct two_drivers {
  explicit two_drivers(const dat::ia_options& how = automatic) : ia(must(dat::ia::open("fk1", how))) {}
  dat::ia ia;
  dat::evd<soft> one = must(ia.create_evd<soft>(64));
  dat::evd<soft> other = must(ia.create_evd<soft>(64));
  dat::coro::driver<soft> first{one};
  dat::coro::driver<soft> second{other};
  dat::coro::driver_set<soft, soft> both = must(dat::coro::driver_set<soft, soft>::create(ia, first, second));
};

/// Takes `n` events from each of two drivers in turn.
dat::task<int> alternate(two_drivers& t, int n) {
  for (int i = 0; i < n; ++i) {
    const auto a = co_await t.first.next<dat::software_event>();
    const auto b = co_await t.second.next<dat::software_event>();
    if (!a || !b || a.value().cookie() != b.value().cookie()) co_return -i;
  }
  co_return n;
}

} // namespace

TEST_CASE("one thread drives a connection on one evd and its transfers on another", "[coro]") {
  clean_world world;
  const auto how = GENERATE(automatic, manual);
  auto ia = must(dat::ia::open("fk1", how));
  auto pz = must(ia.create_pz());
  auto dtos = must(ia.create_evd<transfers>(32));
  auto conn = must(ia.create_evd<connection_streams>(8));
  auto psp = must(ia.create_psp(service, conn));
  const dat::ep_evds evds{.recv = dtos, .request = dtos, .connect = conn};
  auto near = must(pz.create_ep<dat::rc>(evds));
  auto far = must(pz.create_ep<dat::rc>(evds));
  dat::coro::driver connections(conn);
  dat::coro::driver data(dtos);
  auto both = must(dat::coro::driver_set<connection_streams, transfers>::create(ia, connections, data));
  using connection_driver = decltype(connections);
  using data_driver = decltype(data);
  const auto serve = [](connection_driver& c, data_driver& d, dat::ep<dat::rc>& ep) -> dat::task<int> {
    auto got = d.post(ep, dat::recv{});
    auto request = co_await c.next<dat::connection_request>();
    if (!request || !co_await c.accept(request.value(), ep)) co_return -1;
    for (int n = 0;; ++n) {
      if (const auto arrived = co_await got; !arrived) co_return n;
      if (!d.post(got, ep, dat::recv{})) co_return n;
      if (const auto sent = co_await d.post(ep, dat::send{}); !sent) co_return -1;
    }
  };
  const auto ask = [](connection_driver& c, data_driver& d, dat::ep<dat::rc>& ep,
                      dat::ia_address to) -> dat::task<int> {
    if (const auto up = co_await c.connect(ep, to, service, plenty); !up) co_return -1;
    for (int n = 0; n < 50; ++n) {
      auto answer = d.post(ep, dat::recv{});
      if (const auto sent = co_await d.post(ep, dat::send{}); !sent) co_return -n;
      if (const auto got = co_await answer; !got) co_return -n;
    }
    const auto bye = co_await c.disconnect(ep, dat::close_mode::graceful);
    co_return bye ? 50 : -50;
  };
  auto served = serve(connections, data, far);
  auto asked = ask(connections, data, near, ia.address());
  served.start();
  asked.start();
  must(both.run_until([&] { return served.done() && asked.done(); }, ignore, plenty));
  CHECK(served.result() == 50);
  CHECK(asked.result() == 50);
}

TEST_CASE("a set sleeps until any of its evds has an event, and misses none", "[coro]") {
  clean_world world;
  two_drivers t(GENERATE(automatic, manual));
  constexpr int n = 500;
  auto task = alternate(t, n);
  task.start();
  // A driver keeps events of a type once a wait has returned one; earlier ones go to the visitor.
  for (auto* const evd : {&t.one, &t.other}) {
    must(evd->post(0));
    must(t.both.run_once(ignore, plenty));
  }
  std::atomic<bool> over = false;
  worker poster([&](worker&) {
    for (std::uint64_t i = 2; i < 2 * n && !over;) {
      if ((i % 2 == 0 ? t.one : t.other).post(i / 2))
        ++i;
      else
        std::this_thread::yield();
    }
  });
  const auto ran = t.both.run_until([&] { return task.done(); }, ignore, plenty);
  over = true; // if the task has ended early, no thread takes the posted events
  if (!ran) FAIL(ran.error().message());
  poster.join();
  CHECK(task.result() == n);
}

TEST_CASE("a set passes on what its drivers pass on, and work that one gives to another", "[coro]") {
  clean_world world;
  two_drivers t;
  events log;
  const auto note = [&](const dat::software_event& e) { log.push_back(std::to_string(e.cookie().value())); };
  must(t.one.post(1));
  must(t.other.post(2));
  CHECK(must(t.both.run_once(note, plenty)) == 2);
  CHECK(log == events{"1", "2"});
  auto slot = t.first.make_slot<int>();
  const auto setter = [](two_drivers& w, dat::coro::slot<int>& s) -> text {
    (void)co_await w.second.next<dat::software_event>();
    s.set(1);
    co_return "set";
  };
  const auto taker = [](dat::coro::slot<int>& s) -> text { co_return told(co_await s); };
  auto sets = setter(t, slot);
  auto takes = taker(slot);
  sets.start();
  takes.start();
  must(t.other.post(3));
  must(t.both.run_once(note, plenty));
  CHECK(takes.done());
}

TEST_CASE("a set waits for the timers of all its drivers, and no longer than it was told", "[coro]") {
  clean_world world;
  two_drivers t;
  CHECK(t.both.run_once(ignore, 0us).error().type() == return_type::timeout_expired);
  CHECK(t.both.run_until([] { return false; }, ignore, 1ms).error().type() == return_type::timeout_expired);
  const auto naps = [](dat::coro::driver<soft>& d, dat::timeout limit) -> text {
    co_return told(co_await d.sleep_for(limit));
  };
  auto late = naps(t.first, plenty);
  auto soon = naps(t.second, 1ms);
  late.start();
  soon.start();
  must(t.both.run_until([&] { return soon.done(); }, ignore, plenty));
  CHECK(soon.result() == "good");
  CHECK_FALSE(late.done());
}

TEST_CASE("a stop of a set from another thread ends the waits of all its drivers", "[coro]") {
  clean_world world;
  two_drivers t;
  dat::task_group group;
  std::vector<std::string> ends;
  const auto waits = [](dat::coro::driver<soft>& d, std::vector<std::string>& all) -> dat::task<> {
    all.push_back(told(co_await d.next<dat::software_event>()));
  };
  group.spawn(waits(t.first, ends));
  group.spawn(waits(t.second, ends));
  worker other([&](worker&) { t.both.stop(); });
  must(t.both.run_until([&] { return group.empty(); }, ignore, plenty));
  other.join();
  CHECK(ends == std::vector<std::string>(2, "interrupted_call"));
}

TEST_CASE("the end of the ia ends all waits of a set, and the end of a set frees the evds", "[coro]") {
  clean_world world;
  two_drivers t;
  const auto waits = [](dat::coro::driver<soft>& d) -> text { co_return told(co_await d.next<dat::software_event>()); };
  {
    two_drivers gone;
    auto one = waits(gone.first);
    auto other = waits(gone.second);
    one.start();
    other.start();
    must(gone.ia.close(dat::close_mode::abrupt));
    CHECK(gone.both.run_until([] { return false; }, ignore, plenty).error().type() == return_type::invalid_handle);
    CHECK(one.result() == "abort");
    CHECK(other.result() == "abort");
  }
  { const auto moved = std::move(t.both); }
  auto cno = must(t.ia.create_cno());
  must(t.one.post(1));
  CHECK(cno.wait(0us).error().type() == return_type::queue_empty); // the evd is attached to no cno
  dat::coro::driver<soft> none{dat::evd<soft>()};
  using set_of_one = dat::coro::driver_set<soft>;
  CHECK(set_of_one::create(t.ia, none).error().type() == return_type::invalid_handle);
}

TEST_CASE("a coroutine that throws in a set costs no event", "[coro]") {
  clean_world world;
  two_drivers t;
  for (std::uint64_t i = 0; i < 3; ++i) must(t.one.post(i));
  int n = 0;
  const auto throws = [&](const dat::software_event&) {
    if (++n == 1) throw 7;
  };
  CHECK_THROWS_AS((void)t.both.run_once(throws, plenty), int);
  must(t.both.run_until([&] { return n == 3; }, throws, plenty));
}
