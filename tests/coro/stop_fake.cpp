// Stops of coroutines: what a stop ends, and what has completed before it.
// SPDX-License-Identifier: BSL-1.0
#include "text_tasks.hpp"

#include "../support/worker.hpp"

#include <dat/coro.hpp>

#include <atomic>
#include <stop_token>
#include <thread>

using namespace text_tasks;
using namespace unit;
using support::task;
using support::worker;

TEST_CASE("a stop ends a wait for events and loses none of them", "[coro]") {
  clean_world world;
  driven_pair p;
  std::stop_source source;
  events log;
  auto all = listen(p.far, log, source.get_token());
  auto one = next<dat::recv_done>(p.far, {}, source.get_token());
  source.request_stop();
  CHECK_FALSE(all.done()); // a stop takes effect in the driver's calls, not in the requesting thread
  must(p.b.ep.post(dat::recv{}.cookie(1)));
  must(p.a.ep.post(dat::send{}.suppress_completion()));
  p.settle();
  CHECK(p.run() == events{"received 1"});
  CHECK(all.result() == "interrupted_call");
  CHECK(one.result() == "interrupted_call");
  CHECK(log.empty());
  CHECK(listen(p.far, log, source.get_token()).result() == "interrupted_call"); // already stopped: no wait
  CHECK(next<dat::recv_done>(p.far, {}, source.get_token()).result() == "interrupted_call");
}

TEST_CASE("a stop ends a posted operation by ending its connection", "[coro]") {
  clean_world world;
  driven_pair p;
  std::stop_source source;
  auto stopped = receive(p.near, p.a.ep, 0, source.get_token());
  auto beside = receive(p.near, p.a.ep);
  auto far = receive(p.far, p.b.ep);
  source.request_stop();
  CHECK(p.run() == events{"disconnected", "disconnected"});
  CHECK(stopped.result() == "interrupted_call");
  CHECK(beside.result() == "invalid_state");
  CHECK(far.result() == "invalid_state");
  CHECK(receive(p.near, p.a.ep, 0, source.get_token()).result() == "interrupted_call");
}

TEST_CASE("an operation that completes before the stop takes effect is a success", "[coro]") {
  clean_world world;
  driven_pair p;
  std::stop_source source;
  auto got = receive(p.far, p.b.ep, 0, source.get_token());
  must(p.a.ep.post(dat::send{}.suppress_completion()));
  p.settle();
  source.request_stop();
  CHECK(p.run() == events{"disconnected", "disconnected"});
  CHECK(got.result() == "received");
}

TEST_CASE("a stop that is requested after an operation has completed does not end its connection", "[coro]") {
  clean_world world;
  driven_pair p;
  std::stop_source source;
  dat::coro::posted<dat::transfer> sent;
  must(p.b.ep.post(dat::recv{}.cookie(1)));
  must(p.near.post(sent, p.a.ep, dat::send{}, source.get_token()));
  CHECK(p.run() == events{"received 1"});
  CHECK(sent.await_resume().has_value());
  source.request_stop();
  CHECK(p.run().empty());
  CHECK(p.a.ep.state() == dat::ep_state::connected);
}

TEST_CASE("a stop cannot end a receive without a connection, but the driver's close can", "[coro]") {
  clean_world world;
  end e{"fk1"};
  e.make_ep();
  queue_driver d{e.evd};
  std::stop_source source;
  auto got = receive(d, e.ep, 0, source.get_token());
  source.request_stop();
  CHECK(d.poll(ignore) == 1); // the request to stop counts as one
  CHECK_FALSE(got.done());
  must(d.close(e.ep));
  CHECK_FALSE(got.done());
  d.poll(ignore);
  CHECK(got.result() == "abort");
}

TEST_CASE("a stop cancels a connection attempt, also one that has just succeeded", "[coro]") {
  clean_world world;
  end a{"fk1"};
  end b{"fk2"};
  auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  b.make_ep();
  queue_driver near{a.evd};
  queue_driver far{b.evd};
  std::stop_source source;
  const auto foreign = [&] {
    events all;
    const auto note = [&](const auto& e) { all.push_back(describe{}(e)); };
    for (std::size_t n = 1; n != 0;) {
      settle(a, b);
      n = near.poll(note) + far.poll(note);
    }
    return all;
  };
  SECTION("the peer does not answer") {
    auto up = connect(near, a.ep, b.ia.address(), source.get_token());
    settle(a, b);
    source.request_stop();
    near.poll(ignore);
    CHECK(up.result() == "interrupted_call, disconnected");
  }
  SECTION("the peer has accepted, and the driver has not taken the event") {
    auto up = connect(near, a.ep, b.ia.address(), source.get_token());
    auto taken = accept(far, b.ep);
    for (int i = 0; i < 4; ++i) {
      settle(a, b);
      far.poll(ignore);
    }
    REQUIRE(a.ep.state() == dat::ep_state::connected);
    source.request_stop();
    CHECK(foreign() == events{"disconnected"}); // the peer's event
    CHECK(up.result() == "interrupted_call, disconnected");
    CHECK(taken.result() == "established");
  }
  SECTION("on the passive side") {
    auto up = connect(near, a.ep, b.ia.address());
    auto taken = accept(far, b.ep, source.get_token());
    fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
    settle(a, b);
    far.poll(ignore);
    source.request_stop();
    far.poll(ignore);
    CHECK(taken.result() == "interrupted_call");
    fake::release_events();
    (void)foreign();
    CHECK(up.done());
  }
  SECTION("before the attempt begins") {
    source.request_stop();
    CHECK(connect(near, a.ep, b.ia.address(), source.get_token()).result() == "interrupted_call");
    CHECK(a.ep.state() == dat::ep_state::unconnected);
  }
  CHECK(b.ep.state() != dat::ep_state::connected);
}

TEST_CASE("a stop turns a graceful disconnect into an abrupt one", "[coro]") {
  clean_world world;
  driven_pair p;
  std::stop_source source;
  auto sent = request(p.near, p.a.ep, dat::send{}); // the peer has no receive for the send
  auto bye = disconnect(p.near, p.a.ep, dat::close_mode::graceful, source.get_token());
  (void)p.run();
  CHECK_FALSE(bye.done());
  source.request_stop();
  (void)p.run();
  CHECK(bye.result() == "interrupted_call");
  CHECK(sent.result() == "invalid_state");
}

TEST_CASE("several threads may request stops while the driver runs", "[coro]") {
  clean_world world;
  end e{"fk1", automatic};
  queue_driver d{e.evd};
  std::stop_source all;
  static constexpr int rounds = 300;
  std::atomic<std::stop_source*> current{nullptr};
  worker asker([&](worker&) {
    for (int i = 0; i < rounds;)
      if (const auto* s = current.exchange(nullptr)) {
        std::stop_source own = *s; // a copy, because the other thread may destroy its own before the request ends
        own.request_stop();
        ++i;
      } else {
        std::this_thread::yield();
      }
    all.request_stop();
  });
  const auto waits = [](queue_driver& q, std::atomic<std::stop_source*>& shown) -> task<int> {
    int n = 0;
    for (; n < rounds; ++n) {
      std::stop_source source;
      events log;
      // Some of these coroutines are destroyed while they are being stopped.
      auto beside = listen(q, log, source.get_token());
      shown = &source;
      (void)co_await q.next<dat::disconnected>(source.get_token());
    }
    co_return n;
  };
  auto t = waits(d, current);
  must(d.run_until(all.get_token(), ignore));
  while (!t.done()) must(d.run_until([&] { return t.done(); }, ignore, plenty));
  asker.join();
  CHECK(t.result() == rounds);
}
