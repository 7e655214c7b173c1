// Events that come between two waits of a coroutine: which and how many a driver keeps, for which wait, and the
// driver's end.
// SPDX-License-Identifier: BSL-1.0
#include <support/coroutine.hpp>
#include <support/streams.hpp>

#include "driven_pair.hpp"

#include <dat/coro.hpp>

#include <array>
#include <stop_token>
#include <vector>

using namespace unit;
using support::task;

namespace {

using support::ignore;

/// Servers and clients on two adapters, a driver at each end, and the events that their visitors got.
struct served_crowd {
  explicit served_crowd(std::size_t clients, std::size_t keep = queue_driver::default_keep) : far(b.evd, keep) {
    for (std::size_t i = 0; i < clients; ++i) {
      active.push_back(must(a.pz.create_ep<dat::rc>(a.evd)));
      passive.push_back(must(b.pz.create_ep<dat::rc>(b.evd)));
    }
  }
  end a{"fk1"};
  end b{"fk2"};
  dat::psp psp = must(b.ia.create_psp(service, b.evd));
  std::vector<dat::ep<dat::rc>> active;
  std::vector<dat::ep<dat::rc>> passive;
  queue_driver near{a.evd};
  queue_driver far;
  std::vector<task<std::string>> attempts;
  events foreign;

  void connect_all() {
    const auto tries = [](queue_driver& d, dat::ep<dat::rc>& ep, dat::ia_address to) -> task<std::string> {
      const auto up = co_await d.connect(ep, to, service, plenty);
      co_return up ? "established" : std::string(to_string(up.error().type()));
    };
    for (auto& ep : active) attempts.push_back(tries(near, ep, b.ia.address()));
  }
  void run() {
    const auto note = [&](const auto& e) { foreign.push_back(describe{}(e)); };
    for (std::size_t n = 1; n != 0;) {
      settle(a, b);
      n = near.poll(ignore) + far.poll(note);
    }
  }
  [[nodiscard]] std::size_t established() {
    std::size_t n = 0;
    for (auto& t : attempts) n += t.done() && t.result() == "established" ? 1 : 0;
    return n;
  }
};

/// The usual loop of a server: requests come while it awaits an accept.
task<int> accept_all(served_crowd& c, std::stop_token stop = {}) {
  int n = 0;
  for (auto& ep : c.passive) {
    auto request = co_await c.far.next<dat::connection_request>(stop);
    if (!request) co_return -n;
    if (const auto up = co_await c.far.accept(request.value(), ep); !up) co_return -n;
    ++n;
  }
  co_return n;
}

} // namespace

TEST_CASE("an accept loop gets the requests of 32 clients that connect at once", "[coro]") {
  clean_world world;
  served_crowd c(32);
  auto server = accept_all(c);
  c.connect_all();
  c.run();
  REQUIRE(server.done());
  CHECK(server.result() == 32);
  CHECK(c.established() == 32);
  CHECK(c.foreign.empty());
  CHECK(c.far.kept() == 0);
}

TEST_CASE("a driver keeps events up to its limit, and its visitor gets the others", "[coro]") {
  clean_world world;
  served_crowd c(8, 3);
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED); // the first accept does not return
  auto server = accept_all(c);
  c.connect_all();
  c.run();
  CHECK(c.far.kept() == 3);
  CHECK(c.foreign == events(4, "request")); // the requests were refused, because the visitor did not move them out
  fake::release_events();
  c.run();
  CHECK_FALSE(server.done()); // the coroutine waits for the fifth request
  CHECK(c.far.kept() == 0);
  CHECK(c.established() == 4);
  server = {};
  settle(c.a, c.b);
}

TEST_CASE("before the first wait, and after one that was stopped or destroyed, no event is kept", "[coro]") {
  clean_world world;
  served_crowd c(1);
  c.connect_all();
  SECTION("before the first wait") { CHECK(c.far.kept() == 0); }
  SECTION("after a stop") {
    std::stop_source source;
    auto server = accept_all(c, source.get_token());
    source.request_stop();
    c.far.poll(ignore);
    CHECK(server.result() == 0);
  }
  SECTION("after the destruction of the coroutine") {
    accept_all(c) = {};
    CHECK(c.far.kept() == 0);
  }
  c.run();
  CHECK(c.far.kept() == 0);
  CHECK(c.foreign == events{"request"});
  CHECK(c.established() == 0);
}

TEST_CASE("a wait that ends without an event ends the keeping that an earlier wait began", "[coro]") {
  clean_world world;
  served_crowd c(1);
  const auto take = [](served_crowd& w, std::stop_token stop) -> task<int> {
    int n = 0;
    while (co_await w.far.next<dat::connection_request>(stop)) ++n; // each request is refused
    co_return n;
  };
  std::stop_source source;
  auto server = take(c, source.get_token());
  c.connect_all();
  c.run();
  CHECK_FALSE(server.done()); // it waits for the second request
  CHECK(c.foreign.empty());
  SECTION("by a stop") {
    source.request_stop();
    c.far.poll(ignore);
    CHECK(server.result() == 1);
  }
  SECTION("with its coroutine") {
    server = {};
    CHECK(c.far.kept() == 0);
  }
  dat::ep<dat::rc> late = must(c.a.pz.create_ep<dat::rc>(c.a.evd));
  must(late.connect(c.b.ia.address(), service, plenty));
  c.run();
  CHECK(c.far.kept() == 0);
  CHECK(c.foreign == events{"request"});
}

TEST_CASE("a wait takes the oldest kept event that it asks for", "[coro]") {
  clean_world world;
  served_crowd c(2);
  events log;
  auto server = accept_all(c);
  c.connect_all();
  c.run();
  REQUIRE(c.established() == 2);
  const auto any = [](served_crowd& w, events& all) -> task<int> {
    const auto e = co_await w.far.next();
    if (e) all.push_back(std::visit(describe{}, e.value()));
    co_return 0;
  };
  const auto end_of = [](served_crowd& w, dat::ep_ref of, events& all) -> task<int> {
    const auto e = co_await w.far.next<dat::disconnected>(of);
    all.push_back(e && e.value().ep() == of ? "its end" : "another");
    co_return 0;
  };
  dat::ep<dat::rc> third = must(c.a.pz.create_ep<dat::rc>(c.a.evd));
  must(third.connect(c.b.ia.address(), service, plenty));
  auto first = any(c, log); // from now on, events of all types are kept
  c.run();
  REQUIRE(first.done());
  CHECK(log == events{"request"});
  must(c.active[0].disconnect());
  must(c.active[1].disconnect());
  c.run();
  CHECK(c.far.kept() == 2);
  (void)end_of(c, c.passive[1], log);
  CHECK(c.far.kept() == 1);
  (void)any(c, log);
  CHECK(c.far.kept() == 0);
  CHECK(log == events{"request", "its end", "disconnected"});
  CHECK(c.foreign.empty());
}

TEST_CASE("a driver that closes or resets an endpoint drops the events that it keeps of it", "[coro]") {
  clean_world world;
  served_crowd c(3);
  auto server = accept_all(c);
  c.connect_all();
  c.run();
  REQUIRE(c.established() == 3);
  const auto ended = [](served_crowd& w) -> task<int> {
    (void)co_await w.far.next<dat::disconnected>();
    co_return 0;
  };
  auto one = ended(c);
  for (auto& ep : c.active) must(ep.disconnect());
  c.run();
  CHECK(one.done());
  REQUIRE(c.far.kept() == 2);
  must(c.far.close(c.passive[0]));
  must(c.far.reset(c.passive[1]));
  must(c.far.close(c.passive[2]));
  CHECK(c.far.kept() == 0);
}

TEST_CASE("a driver that closes an endpoint drops the asynchronous events that it keeps of it", "[coro]") {
  clean_world world;
  end a;
  auto evd = must(a.ia.create_evd<dat::stream::async>(8));
  dat::coro::driver driver(evd);
  std::array<dat::ep<dat::rc>, 3> eps;
  for (auto& ep : eps) ep = must(a.pz.create_ep<dat::rc>(a.evd));
  const auto first = [](decltype(driver)& d) -> task<bool> { co_return co_await d.next<dat::ep_broken>(); };
  auto one = first(driver);
  for (auto* qp : fake::qps()) fake::async(IBV_EVENT_QP_FATAL, qp);
  a.ia.run();
  driver.poll(ignore);
  CHECK(one.done());
  REQUIRE(driver.kept() == 2);
  must(driver.close(eps[0]));
  CHECK(driver.kept() == 2); // those of the others
  must(driver.close(eps[1]));
  CHECK(driver.kept() == 1);
  must(driver.reset(eps[2]));
  CHECK(driver.kept() == 0);
}

TEST_CASE("requests that a driver keeps when it ends, or its ia, are refused", "[coro]") {
  clean_world world;
  served_crowd c(3);
  {
    queue_driver own{c.b.evd};
    const auto first = [](queue_driver& d) -> task<bool> { co_return co_await d.next<dat::connection_request>(); };
    auto server = first(own);
    c.connect_all();
    for (int i = 0; i < 3; ++i) settle(c.a, c.b), own.poll(ignore);
    REQUIRE(server.done());
    REQUIRE(own.kept() == 2);
    SECTION("the driver") { CHECK(c.b.ia); }
    SECTION("the ia") {
      must(c.b.ia.close(dat::close_mode::abrupt));
      own.poll(ignore);
      CHECK(own.kept() == 0);
    }
  }
  c.run();
  for (auto& t : c.attempts) CHECK((t.done() && t.result() == "invalid_state"));
}
