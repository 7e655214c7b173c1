// Coroutines that are destroyed while they wait for an object outside of their frame, which continues. Also the other
// order.
// SPDX-License-Identifier: BSL-1.0
#include "driven_pair.hpp"
#include <support/coroutine.hpp>
#include <support/streams.hpp>

#include <dat/coro.hpp>
#include <dat/task.hpp>

#include <array>
#include <optional>
#include <string>
#include <vector>

using namespace unit;
using dat::coro::posted;
using dat::coro::receive_result;
using text_task = support::task<std::string>;

namespace {

using support::ignore;

/// Awaits an object outside of its frame.
template <class Awaited>
text_task await_there(Awaited& what) {
  co_return told(co_await what);
}
template <class Awaited>
text_task await_within(queue_driver& d, Awaited& what, dat::timeout limit) {
  co_return told(co_await d.within(limit, what));
}
text_task await_element(std::array<posted<receive_result>, 2>& all, std::size_t i) { co_return told(co_await all[i]); }
text_task await_all(std::vector<dat::task<std::string>>& all) {
  co_await dat::when_all(all);
  co_return "all";
}
dat::task<std::string> inner(queue_driver& d, dat::ep_ref ep) { co_return told(co_await d.post(ep, dat::recv{})); }
dat::task<dat::expected<int>> inner_within(queue_driver& d, dat::ep_ref ep) {
  if (const auto got = co_await d.post(ep, dat::recv{}); !got) co_return got.error();
  co_return 1;
}
text_task await_task(dat::task<std::string>& what) { co_return co_await what; }

void send_to_far(driven_pair& p) { must(p.a.ep.post(dat::send{}.suppress_completion())); }

} // namespace

TEST_CASE("a destroyed coroutine is not resumed by an operation outside of its frame, which another one can await",
          "[coro]") {
  clean_world world;
  driven_pair p;
  std::array<posted<receive_result>, 2> receives;
  for (auto& r : receives) must(p.far.post(r, p.b.ep, dat::recv{}));
  text_task first = await_there(receives[0]);
  text_task second = await_within(p.far, receives[1], plenty);
  first = {};
  second = {};
  CHECK(p.far.until_timer() == dat::infinite); // the time limit has ended with its coroutine
  const auto arrive = [&] {
    for (int i = 0; i < 2; ++i) send_to_far(p);
    CHECK(p.run().empty());
  };
  const bool done_before = GENERATE(false, true);
  if (done_before) arrive();
  first = await_element(receives, 0);
  second = await_within(p.far, receives[1], plenty);
  CHECK(first.done() == done_before);
  CHECK(second.done() == done_before);
  if (!done_before) arrive();
  CHECK(first.result() == "good");
  CHECK(second.result() == "good");
}

TEST_CASE("a coroutine that is destroyed after its operation is done, and before it is resumed, stays destroyed",
          "[coro]") {
  clean_world world;
  driven_pair p;
  posted<receive_result> received;
  text_task waits;
  const auto closes = [](driven_pair& w, text_task& other, posted<receive_result>& of_other) -> text_task {
    (void)co_await w.far.post(w.b.ep, dat::recv{});
    must(w.far.close(w.b.ep)); // makes the other coroutine ready
    CHECK(of_other.done());
    other = {};
    const auto again = w.far.post(of_other, w.b.ep, dat::recv{}); // no coroutine waits: the operation is free
    co_return told(again);
  };
  auto closer = closes(p, waits, received);
  must(p.far.post(received, p.b.ep, dat::recv{}));
  waits = await_there(received);
  send_to_far(p);
  (void)p.run();
  CHECK(closer.result() == "invalid_handle"); // the error is that of the closed endpoint, not of the operation
}

TEST_CASE("a coroutine may end after the operation that it awaited", "[coro]") {
  clean_world world;
  driven_pair p;
  auto received = std::optional<posted<receive_result>>(std::in_place);
  must(p.far.post(*received, p.b.ep, dat::recv{}));
  text_task waits = await_there(*received);
  received.reset();
  send_to_far(p);
  CHECK(p.run().empty()); // the driver drops the completion
  CHECK_FALSE(waits.done());
  waits = {};
}

TEST_CASE("of two coroutines that await one operation, the last one is resumed, and the first may end at any time",
          "[coro]") {
  clean_world world;
  driven_pair p;
  posted<receive_result> received;
  must(p.far.post(received, p.b.ep, dat::recv{}));
  text_task first = await_there(received);
  text_task second = await_there(received);
  if (GENERATE(false, true)) first = {};
  send_to_far(p);
  CHECK(p.run().empty());
  CHECK(second.result() == "good");
}

TEST_CASE("a slot outside of a destroyed coroutine keeps its value", "[coro]") {
  clean_world world;
  driven_pair p;
  auto place = p.far.make_slot<int>();
  text_task waits = await_there(place);
  waits = {};
  CHECK(place.set(3));
  p.far.poll(ignore);
  waits = await_there(place);
  CHECK(waits.result() == "good");
}

TEST_CASE("a task continues after the coroutine that awaited it is destroyed", "[coro]") {
  clean_world world;
  driven_pair p;
  SECTION("alone") {
    auto t = inner(p.far, p.b.ep);
    text_task outer = await_task(t);
    outer = {};
    send_to_far(p);
    CHECK(p.run().empty());
    CHECK(t.result() == "good");
  }
  SECTION("with a limit") {
    auto t = inner_within(p.far, p.b.ep);
    text_task outer = await_within(p.far, t, plenty);
    outer = {};
    send_to_far(p);
    CHECK(p.run().empty());
    CHECK(t.result().value() == 1);
  }
  SECTION("with others") {
    std::vector<dat::task<std::string>> all;
    for (int i = 0; i < 2; ++i) all.push_back(inner(p.far, p.b.ep));
    text_task outer = await_all(all);
    send_to_far(p);
    CHECK(p.run().empty());
    CHECK_FALSE(outer.done());
    outer = {};
    send_to_far(p);
    CHECK(p.run().empty());
    for (auto& t : all) CHECK(t.result() == "good");
  }
}

TEST_CASE("a task that is destroyed while another coroutine awaits it leaves that coroutine suspended", "[coro]") {
  clean_world world;
  driven_pair p;
  SECTION("alone") {
    auto t = inner(p.far, p.b.ep);
    text_task outer = await_task(t);
    t = {};
    CHECK_FALSE(outer.done());
  }
  SECTION("with others") {
    std::vector<dat::task<std::string>> all;
    for (int i = 0; i < 2; ++i) all.push_back(inner(p.far, p.b.ep));
    text_task outer = await_all(all);
    all[0] = {};
    send_to_far(p); // the driver drops the completion of the destroyed task
    send_to_far(p);
    CHECK(p.run().empty());
    CHECK(all[1].result() == "good");
    CHECK_FALSE(outer.done());
  }
}
