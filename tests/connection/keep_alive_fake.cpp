// Idle connections that test their peer: the time and the result of the tests, and that the consumer does not notice
// them.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/descriptor.hpp>
#include <dat/ep_params.hpp>
#include <dat/srq.hpp>
#include <dat/ud.hpp>

#include <filesystem>
#include <fstream>
#include <string>

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

/// The period is too long to pass during a test: the tests call the functions that the reactor would call.
constexpr dat::ep_attributes hourly{.keep_alive = 1h};

auto& core_of(const dat::ep<dat::rc>& ep) { return *dat::detail::core_access::of(ep); }
void tick(const dat::ep<dat::rc>& ep) { core_of(ep).test_peer(); }
std::size_t posted_requests() { return fake::count(fake::call::ibv_post_send); }

/// A connection of which one side has a completions-only evd for its requests.
struct polled_pair {
  end a{"fk1"};
  end b{"fk2"};
  dat::psp psp = must(b.ia.create_psp(service, b.evd));
  dat::evd<dat::stream::dto> evd = must(a.ia.create_evd<dat::stream::dto>(64));
  dat::ep<dat::rc> ep = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd}, hourly));
  polled_pair() {
    b.make_ep();
    connect();
  }
  void connect() {
    must(ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
    must(request_on(b.evd).accept(b.ep));
    settle(a, b);
    CHECK(a.take() == events{"established"});
    b.take();
  }
};

/// The seconds that are left of the timers of this process which are set to more than a minute.
std::vector<long> long_timers() {
  std::vector<long> all;
  for (const auto& of : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream info(of.path());
    constexpr std::string_view member = "it_value: (";
    for (std::string line; std::getline(info, line);)
      if (line.starts_with(member))
        if (const long seconds = std::stol(line.substr(member.size())); seconds > 60) all.push_back(seconds);
  }
  return all;
}

} // namespace

TEST_CASE(
    "the timer of an idle connection runs at half of keep_alive, because its first run may find an earlier request",
    "[keep_alive]") {
  const clean_world world;
  end a{"fk1"};
  end b{"fk2"};
  a.make_ep(hourly);
  b.make_ep();
  CHECK(long_timers().empty());
  must(a.ep.connect(must(b.ep.export_descriptor()))); // no other timer: such a connection has no time limit
  const auto timers = long_timers();
  REQUIRE(timers.size() == 1);
  CHECK(timers[0] <= 1800);
}

TEST_CASE("an idle connection tests its peer, and neither side sees an event", "[keep_alive]") {
  const clean_world world;
  pair p(hourly);
  const auto before = posted_requests();
  tick(p.a.ep); // the first tick records the requests that were posted until now
  CHECK(posted_requests() == before);
  tick(p.a.ep);
  CHECK(posted_requests() == before + 1);
  p.settle();
  CHECK(p.a.take().empty());
  CHECK(p.b.take().empty());
  tick(p.a.ep);
  CHECK(posted_requests() == before + 2);
  CHECK(p.a.take().empty());
  CHECK(p.a.ep.state() == dat::ep_state::connected);
  // The passive side is tested, too.
  tick(p.b.ep);
  tick(p.b.ep);
  CHECK(posted_requests() == before + 3);
  CHECK(p.b.take().empty());
  // The consumer can still use all places of the queue.
  for (unsigned i = 0; i < 64; ++i) must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.cookie(i)));
  CHECK(p.a.take().size() == 64);
}

TEST_CASE("a connection that has posted a request since the last test needs none", "[keep_alive]") {
  const clean_world world;
  const bool suppressed = GENERATE(false, true);
  CAPTURE(suppressed);
  pair p(hourly);
  tick(p.a.ep);
  auto write = dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()};
  must(p.a.ep.post(suppressed ? write.suppress_completion() : write));
  CHECK(p.a.take().size() == (suppressed ? 0 : 1));
  const auto before = posted_requests();
  tick(p.a.ep);
  CHECK(posted_requests() == before);
  tick(p.a.ep);
  CHECK(posted_requests() == before + 1);
}

TEST_CASE("one test at a time is under way", "[keep_alive]") {
  const clean_world world;
  pair p(hourly);
  fake::hold(p.a.ep.native_handle());
  tick(p.a.ep);
  const auto before = posted_requests();
  for (int i = 0; i < 3; ++i) tick(p.a.ep);
  CHECK(posted_requests() == before + 1);
  fake::hold(p.a.ep.native_handle(), false);
  CHECK(p.a.take().empty());
  tick(p.a.ep);
  CHECK(posted_requests() == before + 2);
}

TEST_CASE("a connection without keep_alive tests nothing, and neither does one that is not up", "[keep_alive]") {
  const clean_world world;
  SECTION("without keep_alive, the reactor has nothing to do") {
    pair p;
    const auto before = posted_requests();
    p.settle();
    CHECK(posted_requests() == before);
  }
  SECTION("after the end") {
    pair p(hourly);
    tick(p.a.ep);
    must(p.a.ep.disconnect(dat::close_mode::abrupt));
    const auto before = posted_requests();
    tick(p.a.ep);
    tick(p.a.ep);
    CHECK(posted_requests() == before);
    p.settle();
  }
  SECTION("before the connection") {
    end e;
    e.make_ep(hourly);
    const auto before = posted_requests();
    tick(e.ep);
    tick(e.ep);
    CHECK(posted_requests() == before);
  }
}

TEST_CASE("the reactor tests an idle connection when its time has passed", "[keep_alive]") {
  const clean_world world;
  pair p({.keep_alive = 1ms});
  const auto before = posted_requests();
  while (posted_requests() < before + 3) p.a.ia.run(10ms);
  CHECK(p.a.take().empty());
  CHECK(p.a.ep.state() == dat::ep_state::connected);
  // The endpoint ends while a test is due.
  p.a.ep = {};
  p.settle();
  CHECK(p.b.take() == events{"disconnected"});
}

TEST_CASE("an idle connection whose peer is gone breaks", "[keep_alive]") {
  const clean_world world;
  SECTION("a merged evd, of which no thread takes anything") {
    pair p(hourly);
    fake::hold(p.a.ep.native_handle());
    tick(p.a.ep);
    tick(p.a.ep);
    fake::complete(p.a.ep.native_handle(), {}, IBV_WC_RETRY_EXC_ERR);
    while (p.a.ep.state() == dat::ep_state::connected) p.a.ia.run(10ms);
    CHECK(p.a.ep.state() == dat::ep_state::disconnected);
    CHECK(p.a.take() == events{"broken"});
  }
  SECTION("a completions-only evd, when it is polled") {
    polled_pair p;
    fake::hold(p.ep.native_handle());
    tick(p.ep);
    tick(p.ep);
    fake::complete(p.ep.native_handle(), {}, IBV_WC_RETRY_EXC_ERR);
    settle(p.a, p.b);
    CHECK(p.ep.state() == dat::ep_state::connected);
    CHECK(p.evd.drain([](const auto&) { FAIL("the test is no event"); }) == 0);
    CHECK(p.ep.state() == dat::ep_state::disconnected);
    settle(p.a, p.b);
    CHECK(p.a.take() == events{"broken"});
  }
}

TEST_CASE("the test of an idle connection is no event of a completions-only evd", "[keep_alive]") {
  const clean_world world;
  polled_pair p;
  const auto before = posted_requests();
  tick(p.ep);
  tick(p.ep);
  CHECK(posted_requests() == before + 1);
  CHECK(p.evd.drain([](const auto&) { FAIL("the test is no event"); }) == 0);
  // Requests before and after a test complete as they do without one.
  must(p.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.cookie(1)));
  tick(p.ep); // active
  tick(p.ep);
  must(p.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.cookie(2)));
  std::vector<std::uint64_t> cookies;
  fake::finish();
  while (p.evd.drain([&](const auto& e) { cookies.push_back(e.cookie().value()); }) != 0) {
  }
  CHECK(cookies == std::vector<std::uint64_t>{1, 2});
}

TEST_CASE("a test does not end a graceful disconnect, nor complete requests behind it", "[keep_alive]") {
  const clean_world world;
  SECTION("merged evd") {
    pair p(hourly);
    fake::hold(p.a.ep.native_handle());
    tick(p.a.ep);
    tick(p.a.ep);
    must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.cookie(1).suppress_completion()));
    must(p.a.ep.disconnect(dat::close_mode::graceful));
    fake::complete(p.a.ep.native_handle(), {}, IBV_WC_SUCCESS); // the test
    p.settle();
    CHECK(p.a.ep.state() == dat::ep_state::disconnect_pending);
    fake::hold(p.a.ep.native_handle(), false);
    while (p.a.ep.state() != dat::ep_state::disconnected) p.a.ia.run(10ms);
    p.settle();
    CHECK(p.a.take() == events{"disconnected"});
    CHECK(p.b.take() == events{"disconnected"});
  }
  SECTION("completions-only evd") {
    polled_pair p;
    fake::hold(p.ep.native_handle());
    tick(p.ep);
    tick(p.ep);
    must(p.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.cookie(1).suppress_completion()));
    must(p.ep.disconnect(dat::close_mode::graceful));
    fake::complete(p.ep.native_handle(), {}, IBV_WC_SUCCESS); // the test
    CHECK(p.evd.drain([](const auto&) {}) == 0);
    CHECK(p.ep.state() == dat::ep_state::disconnect_pending);
    fake::hold(p.ep.native_handle(), false);
    CHECK(p.evd.drain([](const auto&) {}) == 0);
    settle(p.a, p.b);
    CHECK(p.ep.state() == dat::ep_state::disconnected);
    CHECK(p.a.take() == events{"disconnected"});
  }
}

TEST_CASE("a reset ends a test, and the next connection has tests of its own", "[keep_alive]") {
  const clean_world world;
  pair p(hourly);
  fake::hold(p.a.ep.native_handle());
  tick(p.a.ep);
  tick(p.a.ep);
  must(p.a.ep.disconnect(dat::close_mode::abrupt));
  p.settle();
  p.a.take();
  p.b.take();
  must(p.a.ep.reset());
  must(p.b.ep.reset());
  p.connect();
  tick(p.a.ep);
  const auto before = posted_requests();
  tick(p.a.ep);
  CHECK(posted_requests() == before + 1);
  CHECK(p.a.take().empty());
}

TEST_CASE("a test whose completion was not taken before a reset does not stop later tests", "[keep_alive]") {
  const clean_world world;
  polled_pair p;
  fake::hold(p.ep.native_handle());
  tick(p.ep);
  tick(p.ep);
  must(p.ep.disconnect(dat::close_mode::abrupt));
  must(p.ep.reset()); // the completion is in the device's queue, which only the consumer polls
  settle(p.a, p.b);
  must(p.b.ep.reset());
  p.a.take();
  p.b.take();
  p.connect();
  tick(p.ep);
  const auto before = posted_requests();
  tick(p.ep);
  CHECK(posted_requests() == before + 1);
  CHECK_FALSE(p.evd.dequeue());
}

TEST_CASE("a test that the device refuses is an asynchronous event, and the connection goes on", "[keep_alive]") {
  const clean_world world;
  pair p(hourly);
  tick(p.a.ep);
  fake::fail(fake::call::ibv_post_send, 1, ENOMEM);
  tick(p.a.ep);
  int failures = 0;
  p.a.ia.async_evd().drain([&](const auto& e) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(e)>, dat::provider_internal_error>) {
      ++failures;
      CHECK(std::string_view(e.verb()) == "ibv_post_send");
      CHECK(e.code() == ENOMEM);
    }
  });
  CHECK(failures == 1);
  CHECK(p.a.ep.state() == dat::ep_state::connected);
  const auto before = posted_requests();
  tick(p.a.ep);
  CHECK(posted_requests() == before + 1);
}

TEST_CASE("keep_alive takes places of its own, and can be changed before the connection", "[keep_alive]") {
  const clean_world world;
  pair p;
  for (const auto keep_alive : {1h, 2h, 0h}) {
    must(p.a.ep.disconnect(dat::close_mode::abrupt));
    p.settle();
    p.a.take();
    p.b.take();
    must(p.a.ep.reset());
    must(p.b.ep.reset());
    must(p.a.ep.modify({.keep_alive = keep_alive}));
    CHECK(p.a.ep.attributes().keep_alive == keep_alive);
    p.connect();
    if (keep_alive == 0h) break;
    fake::hold(p.a.ep.native_handle());
    tick(p.a.ep);
    tick(p.a.ep);
    // The consumer can still use all places of the queue and of the evd.
    for (unsigned i = 0; i < 64; ++i) must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.cookie(i)));
    fake::hold(p.a.ep.native_handle(), false);
    CHECK(p.a.take().size() == 64);
  }
  must(p.a.ep.disconnect(dat::close_mode::abrupt));
  p.settle();
  must(p.a.ep.reset());
  is_error(p.a.ep.modify({.keep_alive = -1us}), return_type::invalid_parameter, return_subtype::arg7);
  is_error(p.a.pz.create_ep<dat::rc>(p.a.evd, {.keep_alive = -1us}), return_type::invalid_parameter,
           return_subtype::arg7);
}
