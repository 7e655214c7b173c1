// The end of a connection, coroutine, endpoint, ia or driver: what each outstanding operation of a coroutine returns.
// SPDX-License-Identifier: BSL-1.0
#include "text_tasks.hpp"

#include <dat/coro.hpp>

#include <stop_token>

using namespace text_tasks;
using namespace unit;
using dat::return_type;

TEST_CASE("a disconnect resumes every outstanding operation with a failure", "[coro]") {
  clean_world world;
  driven_pair p;
  const auto fails = [](queue_driver& d, dat::ep_ref ep) -> text_task {
    auto op = d.post(ep, dat::recv{}.cookie(4));
    const auto got = co_await op;
    const auto f = op.failure();
    if (got || !f) co_return "no failure";
    co_return std::string(to_string(f->status())) + " " + std::to_string(f->cookie().value()) + ", " +
        std::string(to_string(got.error().subtype())) + (got.error().hint().empty() ? "" : " with a hint");
  };
  auto one = fails(p.near, p.a.ep);
  auto two = fails(p.far, p.b.ep);
  auto end_of = next<dat::disconnected>(p.far, p.b.ep);
  auto received = next<dat::recv_done>(p.far, p.b.ep);
  must(p.b.ep.post(dat::recv{}.cookie(5))); // no coroutine awaits it
  auto bye = disconnect(p.near, p.a.ep, dat::close_mode::abrupt);
  const events foreign = p.run();
  CHECK(one.result() == "flushed 4, ep_disconnected with a hint");
  CHECK(two.result() == "flushed 4, ep_disconnected with a hint");
  CHECK(bye.result() == "disconnected");
  CHECK(end_of.result() == "disconnected");
  CHECK(received.result() == "invalid_state"); // no message can come after the end
  CHECK(foreign.empty());                      // the receive that no coroutine awaits completed as `recv_done`
  CHECK(disconnect(p.near, p.a.ep, dat::close_mode::graceful).result() == "disconnected"); // ends at once
}

TEST_CASE("an operation that is done keeps its result when the driver ends those of its endpoint", "[coro]") {
  clean_world world;
  driven_pair p;
  const auto asks_twice = [](queue_driver& d, dat::ep_ref ep) -> text_task {
    auto op = d.post(ep, dat::recv{}.cookie(4));
    const auto first = co_await op;
    const auto end = co_await d.next<dat::disconnected>(ep);
    const auto again = co_await op;
    co_return told(first) + ", " + told(end) + ", " + told(again);
  };
  auto result = asks_twice(p.far, p.b.ep);
  must(p.a.ep.post(dat::send{}.suppress_completion()));
  (void)p.run();
  CHECK_FALSE(result.done()); // it waits for the end
  must(p.far.close(p.b.ep));
  (void)p.run();
  CHECK(result.result() == "good, abort, good");
}

TEST_CASE("a graceful disconnect resumes when all posted operations are done", "[coro]") {
  clean_world world;
  driven_pair p;
  auto got = receive(p.far, p.b.ep);
  auto sent = request(p.near, p.a.ep, dat::send{}.cookie(1));
  auto bye = disconnect(p.near, p.a.ep, dat::close_mode::graceful);
  CHECK_FALSE(bye.done());
  must(p.near.run_until([&] { return bye.done(); }, ignore, plenty));
  CHECK(p.run() == events{"disconnected"}); // the peer's event
  CHECK(got.result() == "received");
  CHECK(sent.result() == "0 with 1");
  CHECK(bye.result() == "disconnected");
}

TEST_CASE("a graceful disconnect fails when the connection breaks before all posted operations are done", "[coro]") {
  clean_world world;
  driven_pair p;
  auto sent = request(p.near, p.a.ep, dat::send{}); // the peer has no receive for it
  auto bye = disconnect(p.near, p.a.ep, dat::close_mode::graceful);
  (void)p.run();
  CHECK_FALSE(bye.done());
  REQUIRE(fake::give_up(p.a.ep.native_handle()));
  (void)p.run();
  CHECK(bye.result() == "invalid_state");
  CHECK(sent.done());
}

TEST_CASE("the late completion of a destroyed coroutine is dropped, and reaches no coroutine at the same address",
          "[coro]") {
  clean_world world;
  driven_pair p;
  auto first = receive(p.far, p.b.ep, 1);
  first = {};
  auto second = receive(p.far, p.b.ep, 2); // the frame is probably at the same address as the first one
  must(p.a.ep.post(dat::send{}.suppress_completion()));
  p.settle();
  std::size_t foreign = 0;
  CHECK(p.far.poll([&](const auto&) { ++foreign; }) == 1);
  CHECK(foreign == 0);
  CHECK_FALSE(second.done());
  must(p.a.ep.post(dat::send{}.suppress_completion()));
  CHECK(p.run().empty());
  CHECK(second.result() == "received");
}

TEST_CASE("a coroutine may be destroyed at any await, also by another coroutine", "[coro]") {
  clean_world world;
  driven_pair p;
  std::stop_source source;
  events log;
  text_task victims[] = {
      listen(p.far, log, source.get_token()), next<dat::disconnected>(p.far, p.b.ep, source.get_token()),
      receive(p.far, p.b.ep, 0, source.get_token()), disconnect(p.near, p.a.ep, dat::close_mode::abrupt)};
  const auto killer = [](queue_driver& d, dat::ep_ref ep, text_task* all) -> text_task {
    (void)co_await d.next<dat::disconnected>(ep);
    for (int i = 0; i < 4; ++i) all[i] = {};
    co_return "killed";
  };
  auto k = killer(p.near, p.a.ep, victims); // the killer is behind the fourth victim, which has received the event
  source.request_stop();                    // the stop is pending when the victims are destroyed
  p.settle();
  p.near.poll(ignore);
  CHECK(victims[3].done());
  k = killer(p.far, p.b.ep, victims); // two coroutines wait for one event: one gets it, and then both are destroyed
  (void)p.run();
  CHECK(log.empty());
}

TEST_CASE("a ready coroutine that another coroutine destroys is not resumed", "[coro]") {
  clean_world world;
  driven_pair p;
  text_task other;
  const auto closes = [](driven_pair& w, text_task& t) -> text_task {
    (void)co_await w.far.post(w.b.ep, dat::recv{});
    must(w.far.close(w.b.ep)); // makes the other coroutine ready
    t = {};
    co_return "closed";
  };
  auto k = closes(p, other);
  other = receive(p.far, p.b.ep);
  must(p.a.ep.post(dat::send{}.suppress_completion()));
  (void)p.run();
  CHECK(k.result() == "closed");
}

TEST_CASE("driver.close and driver.reset end the operations of that endpoint and no others", "[coro]") {
  clean_world world;
  driven_pair p;
  auto other = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  auto got = receive(p.far, p.b.ep);
  auto event = next<dat::recv_done>(p.far, p.b.ep);
  auto spared = receive(p.far, other);
  auto spared_too = next<dat::connection_request>(p.far);
  CHECK(p.far.reset(p.b.ep).error().type() == return_type::invalid_state); // connected
  p.far.poll(ignore);
  CHECK_FALSE(got.done());
  SECTION("close") {
    must(p.far.close(p.b.ep));
    CHECK_FALSE(p.b.ep);
  }
  SECTION("reset") {
    must(p.b.ep.disconnect());
    must(p.far.reset(p.b.ep));
    CHECK(p.b.ep.state() == dat::ep_state::unconnected);
  }
  p.far.poll(ignore);
  CHECK(got.result() == "abort");
  CHECK(event.result() == "abort");
  CHECK_FALSE(spared.done());
  CHECK_FALSE(spared_too.done());
}

TEST_CASE("an abrupt close of the ia ends every operation with abort", "[coro]") {
  clean_world world;
  driven_pair p;
  events log;
  auto got = receive(p.far, p.b.ep);
  auto all = listen(p.far, log);
  auto request = next<dat::connection_request>(p.far);
  must(p.b.ia.close(dat::close_mode::abrupt));
  CHECK_FALSE(got.done());
  CHECK(p.far.run_once(ignore, plenty).error().type() == return_type::invalid_handle);
  CHECK(got.result() == "abort");
  CHECK(all.result() == "abort");
  CHECK(request.result() == "abort");
}

TEST_CASE("a destroyed driver resumes no coroutine, and its coroutines can still be destroyed", "[coro]") {
  clean_world world;
  driven_pair p;
  std::stop_source source;
  text_task got;
  text_task event;
  {
    queue_driver d{p.b.evd};
    got = receive(d, p.b.ep, 0, source.get_token());
    event = next<dat::recv_done>(d, {}, source.get_token());
  }
  source.request_stop();
  CHECK_FALSE(got.done());
  CHECK_FALSE(event.done());
}
