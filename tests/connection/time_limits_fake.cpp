// The time limits of connections, phase by phase, and the messages that come too late.
// SPDX-License-Identifier: BSL-1.0
#include "attempt.hpp"
#include "world.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

using namespace unit;
using dat::ep_state;

namespace {

/// A time limit that ends a test soon, but only after a busy machine has done the earlier steps.
constexpr auto soon = 1s;

/// Waits for the next event of an evd.
template <dat::streams S>
std::string next(dat::evd<S>& evd) {
  auto e = evd.wait(plenty);
  return e ? std::visit(describe{}, e.value()) : std::string(e.error().message());
}

} // namespace

TEST_CASE_METHOD(
    attempt,
    "a lost response gives connection_timed_out to the active side and accept_completion_error to the passive side",
    "[CONN-025][CONN-041][EPS-010][CR-037][CONN-027]") {
  must(b.ep.post(dat::recv{b.at(0, 8)}.cookie(2)));
  fake::drop_next(RDMA_CM_EVENT_CONNECT_RESPONSE);
  connect(soon);
  must(request_on(b.evd).accept(b.ep));
  CHECK(b.ep.state() == ep_state::completion_pending);
  CHECK(next(a.evd) == "timed_out");
  CHECK(a.take() == events{flushed + " 1"});
  CHECK(a.ep.state() == ep_state::disconnected);
  settle();
  CHECK(b.ep.state() == ep_state::disconnected);
  auto seen = b.take();
  std::sort(seen.begin(), seen.end());
  CHECK(seen == events{"accept_completion_error 4", flushed + " 2"});
}

TEST_CASE_METHOD(attempt, "the time limit of each phase reports which message is missing",
                 "[CONN-024][CONN-025][CONN-026][EPS-011]") {
  SECTION("the address") {
    fake::hold_events(RDMA_CM_EVENT_ADDR_RESOLVED);
    connect(2ms);
    CHECK(next(a.evd) == "unreachable " + std::to_string(ETIMEDOUT));
  }
  SECTION("the route") {
    fake::hold_events(RDMA_CM_EVENT_ROUTE_RESOLVED);
    connect(2ms);
    CHECK(next(a.evd) == "unreachable " + std::to_string(ETIMEDOUT));
  }
  SECTION("the address, which comes when the limit has passed: it is that of the whole attempt") {
    fake::hold_events(RDMA_CM_EVENT_ADDR_RESOLVED);
    connect(2ms);
    std::this_thread::sleep_for(2ms);
    fake::release_events();
    CHECK_FALSE(next(a.evd).starts_with("established"));
    settle();
    CHECK(b.take().empty()); // no request was sent
    SHOWS("CONN-041");
  }
  SECTION("the peer's host does not answer the request") {
    fake::hold_events(RDMA_CM_EVENT_CONNECT_REQUEST);
    connect(soon);
    CHECK(next(a.evd) == "timed_out");
  }
  SECTION("the peer's consumer does not answer the request") {
    connect(soon);
    auto request = request_on(b.evd);
    CHECK(next(a.evd) == "timed_out");
    settle();
    CHECK(b.take().empty()); // the passive side gets no event
    // The peer has given up: accept succeeds, and its outcome is accept_completion_error.
    must(request.accept(b.ep));
    settle();
    CHECK(b.ep.state() == ep_state::disconnected);
    CHECK(b.take() == events{"accept_completion_error " + std::to_string(EINVAL)});
  }
  CHECK(a.take() == events{flushed + " 1"});
  fake::release_events();
  settle();
  CHECK(a.take().empty());
  CHECK(a.ep.state() == ep_state::disconnected);
}

TEST_CASE_METHOD(attempt, "the resolver gets the remaining time limit in whole milliseconds, at most ten seconds",
                 "[CONN-040]") {
  // A failed name lookup is reported only when the resolver's time has passed, however long the consumer's limit is.
  struct limit {
    dat::timeout given;
    int least;
    int most;
  };
  fake::hold_events(RDMA_CM_EVENT_ADDR_RESOLVED);
  for (const limit l :
       {limit{1us, 1, 1}, {999us, 1, 1}, {5s, 1, 5000}, {1h, 10'000, 10'000}, {dat::infinite, 10'000, 10'000}}) {
    must(a.ep.connect(b.ia.address(), service, l.given));
    CHECK(fake::resolve_timeout_ms() >= l.least);
    CHECK(fake::resolve_timeout_ms() <= l.most);
    must(a.ep.disconnect());
    must(a.ep.reset());
    settle();
  }
  fake::release_events();
}

TEST_CASE_METHOD(attempt, "a request whose sender has given up can still be rejected", "[CR-063][CR-013]") {
  connect(soon);
  auto request = request_on(b.evd);
  CHECK(next(a.evd) == "timed_out");
  settle();
  CHECK(text_of(request.private_data()) == "hi");
  must(request.reject(bytes_of("too late")));
  CHECK_FALSE(request);
}

TEST_CASE_METHOD(attempt, "of the peer's reply and the end of the time limit, one decides the attempt",
                 "[connection]") {
  must(b.ep.post(dat::recv{b.at(0, 8)}.cookie(2)));
  fake::hold_events(RDMA_CM_EVENT_CONNECT_RESPONSE);
  connect(soon);
  const auto passed = std::chrono::steady_clock::now() + soon;
  must(request_on(b.evd).accept(b.ep));
  SECTION("the limit passes first") {
    CHECK(next(a.evd) == "timed_out");
    CHECK(a.take() == events{flushed + " 1"});
    fake::release_events();
  }
  SECTION("the reply is there when the limit has passed, and no call was made in between") {
    std::this_thread::sleep_until(passed);
    fake::release_events();
    const auto decided = next(a.evd);
    CAPTURE(decided);
    CHECK(decided == "timed_out");
    CHECK(a.take() == events{flushed + " 1"});
  }
  settle();
  CHECK(a.take().empty());
  CHECK(a.ep.state() == ep_state::disconnected);
  auto seen = b.take();
  std::sort(seen.begin(), seen.end());
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].starts_with("accept_completion_error"));
  CHECK(seen[1] == flushed + " 2");
  SHOWS("CONN-043");
}

TEST_CASE_METHOD(attempt, "the time limit of connect ends when the connection is established", "[CONN-043]") {
  const auto before = std::chrono::steady_clock::now();
  must(a.ep.connect(b.ia.address(), service, soon));
  settle();
  must(request_on(b.evd).accept(b.ep));
  settle();
  REQUIRE(a.take() == events{"established"});
  // The test waits beyond the limit on purpose: no event may come when the limit has passed.
  std::this_thread::sleep_until(before + soon + 1ms);
  settle();
  CHECK(a.take().empty());
  CHECK(a.ep.state() == ep_state::connected);
}
