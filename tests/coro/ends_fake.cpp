// How waits of coroutines end without their event: by stops, by the end of their endpoint, and by exceptions.
// SPDX-License-Identifier: BSL-1.0
#include "driven_pair.hpp"

#include <support/streams.hpp>

#include <dat/coro.hpp>
#include <dat/task.hpp>

#include <stdexcept>
#include <stop_token>

using namespace unit;
using dat::return_type;

namespace {

using soft_driver = dat::coro::driver<support::soft>;

dat::task<> note_next(soft_driver& d, events& log) { log.push_back(told(co_await d.next<dat::software_event>())); }
dat::task<> note_any(soft_driver& d, events& log) { log.push_back(told(co_await d.next())); }
dat::task<> note_sleep(soft_driver& d, events& log) { log.push_back(told(co_await d.sleep_for(1h))); }
dat::task<> fails() {
  throw std::runtime_error("thrown");
  co_return;
}
dat::task<> succeeds() { co_return; }
template <class Task>
std::string outcome_of(Task& t) {
  REQUIRE(t.done());
  try {
    (void)t.result();
    return "no exception";
  } catch (const std::runtime_error& e) {
    return e.what();
  }
}

} // namespace

TEST_CASE("a poll counts each wait that the stop of the driver has ended, once", "[coro]") {
  const clean_world world;
  auto ia = must(dat::ia::open("fk1", manual));
  auto evd = must(ia.create_evd<support::soft>(8));
  soft_driver driver(evd);
  events log;
  auto a = note_next(driver, log);
  auto b = note_any(driver, log);
  auto c = note_sleep(driver, log);
  a.start();
  b.start();
  c.start();
  CHECK(driver.poll(support::ignore) == 0);
  driver.stop();
  CHECK(driver.poll(support::ignore) == 3);
  CHECK(log == events(3, "interrupted_call"));
  CHECK(driver.poll(support::ignore) == 0);
  auto d = note_next(driver, log); // also a later wait
  d.start();
  CHECK(d.done());
  CHECK(log.size() == 4);
}

TEST_CASE("a stop ends an attempt to connect whose endpoint was closed by itself", "[coro]") {
  const clean_world world;
  driven_pair p;
  auto ep = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  std::stop_source source;
  auto attempt = p.near.connect(ep, p.b.ia.address(), service, plenty, {}, source.get_token());
  CHECK_FALSE(attempt.done());
  must(ep.close()); // not by the driver: no event comes for the endpoint
  p.run();
  CHECK_FALSE(attempt.done());
  source.request_stop();
  p.near.poll(support::ignore);
  REQUIRE(attempt.done());
  const auto r = attempt.await_resume();
  REQUIRE_FALSE(r);
  CHECK(r.error().type() == return_type::interrupted_call);
  CHECK(r.error().call() == "ep.connect");
  CHECK(r.error().object() == dat::object_kind::ep);
}

TEST_CASE("the exception of a task without a value leaves through the wait for several tasks", "[coro]") {
  const auto both = []() -> dat::task<> { (void)co_await dat::when_all(succeeds(), fails()); };
  auto t = both();
  t.start();
  CHECK(outcome_of(t) == "thrown");
}
