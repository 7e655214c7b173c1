// Tasks: when they start and end, results and exceptions, several at once, groups, and their destruction.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/coro.hpp>
#include <dat/task.hpp>
#include <dat/try.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

using namespace unit;

namespace {

/// A coroutine waits for a gate until the test resumes it.
struct gate {
  std::coroutine_handle<> waiting;
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> h) noexcept { waiting = h; }
  void await_resume() const noexcept {}
  void open() { std::exchange(waiting, {}).resume(); }
};

dat::task<int> number(int n) { co_return n; }
dat::task<int> through(gate& g, int n) {
  co_await g;
  co_return n;
}
dat::task<> noting(gate& g, events& log, std::string what) {
  log.push_back(what + " starts");
  co_await g;
  log.push_back(what + " ends");
}
dat::task<int> throwing(gate& g) {
  co_await g;
  throw std::runtime_error("thrown");
}
dat::task<dat::expected<int>> failing(gate& g) {
  co_await g;
  co_return dat::error(dat::return_type::length_error);
}
/// Releases `held` when its frame ends.
dat::task<int> holding(gate& g, std::shared_ptr<int> held) {
  co_await g;
  co_return *held;
}

} // namespace

TEST_CASE("a task starts when it is awaited or started, and its end resumes the coroutine that awaits it", "[coro]") {
  gate g;
  events log;
  auto inner = noting(g, log, "inner");
  const auto outer_of = [](dat::task<>& awaited, events& all) -> dat::task<> {
    all.push_back("outer starts");
    co_await awaited;
    all.push_back("outer ends");
  };
  auto outer = outer_of(inner, log);
  CHECK(log.empty());
  outer.start();
  outer.start(); // no effect
  CHECK(log == events{"outer starts", "inner starts"});
  CHECK_FALSE(inner.done());
  g.open();
  CHECK(log == events{"outer starts", "inner starts", "inner ends", "outer ends"});
  CHECK(inner.done());
  CHECK(outer.done());
}

TEST_CASE("a task returns its result, also a move-only one, and throws again what left it", "[coro]") {
  gate g;
  const auto make = []() -> dat::task<std::unique_ptr<int>> { co_return std::make_unique<int>(7); };
  const auto sum = [&](gate& wait) -> dat::task<int> {
    const auto seven = co_await make();
    int all = *seven;
    bool thrown = false;
    try {
      (void)co_await throwing(wait);
    } catch (const std::runtime_error&) {
      thrown = true;
    }
    if (thrown) all += co_await number(10);
    co_return all;
  };
  auto t = sum(g);
  t.start();
  g.open();
  CHECK(t.result() == 17);
  auto bad = throwing(g);
  bad.start();
  g.open();
  REQUIRE(bad.done());
  CHECK_THROWS_AS(bad.result(), std::runtime_error);
}

TEST_CASE("a loop over tasks that end at once needs no stack for them", "[coro]") {
  const auto loop = []() -> dat::task<long> {
    long all = 0;
    for (int i = 0; i < 1'000'000; ++i) all += co_await number(1);
    co_return all;
  };
  auto t = loop();
  t.start();
  CHECK(t.result() == 1'000'000);
}

TEST_CASE("when_all starts all tasks and resumes when the last one has ended", "[coro]") {
  gate first, second;
  const auto both = [](gate& a, gate& b) -> dat::task<int> {
    const auto [x, y, z] = co_await dat::when_all(through(a, 1), through(b, 2), number(4));
    co_return x + y + z;
  };
  auto t = both(first, second);
  t.start();
  REQUIRE(second.waiting); // the second task has started, although the first one waits
  second.open();
  CHECK_FALSE(t.done());
  first.open();
  CHECK(t.result() == 7);

  const auto at_once = []() -> dat::task<int> {
    const auto [x, y] = co_await dat::when_all(number(1), number(2));
    co_return x + y;
  };
  auto u = at_once();
  u.start();
  CHECK(u.result() == 3);
}

TEST_CASE("when_all of a range keeps the tasks, and throws nothing until their results are asked for", "[coro]") {
  std::vector<gate> gates(5);
  std::vector<dat::task<int>> tasks;
  for (int i = 0; i < 4; ++i) tasks.push_back(through(gates[static_cast<std::size_t>(i)], i));
  tasks.push_back(throwing(gates[4]));
  tasks[0].start();
  gates[0].open(); // this task ends before the wait
  const auto all = [](std::vector<dat::task<int>>& which) -> dat::task<> { co_await dat::when_all(which); };
  auto t = all(tasks);
  t.start();
  for (std::size_t i = 4; i > 0; --i) {
    CHECK_FALSE(t.done());
    gates[i].open();
  }
  REQUIRE(t.done());
  t.result();
  CHECK(tasks[3].result() == 3);
  CHECK_THROWS_AS(tasks[4].result(), std::runtime_error);
  std::vector<dat::task<int>> none;
  auto u = all(none);
  u.start();
  CHECK(u.done());
}

TEST_CASE("when_all throws only when all tasks have ended", "[coro]") {
  gate bad, good;
  const auto both = [](gate& a, gate& b) -> dat::task<> { (void)co_await dat::when_all(throwing(a), through(b, 1)); };
  auto t = both(bad, good);
  t.start();
  bad.open();
  CHECK_FALSE(t.done());
  good.open();
  REQUIRE(t.done());
  CHECK_THROWS_AS(t.result(), std::runtime_error);
}

TEST_CASE("a destroyed task destroys what it awaits, where it waits", "[coro]") {
  gate g;
  const auto held = std::make_shared<int>(1);
  const auto outer = [](gate& wait, std::shared_ptr<int> shared) -> dat::task<int> {
    co_return co_await holding(wait, std::move(shared));
  };
  {
    auto t = outer(g, held);
    t.start();
    CHECK(held.use_count() == 2);
    auto moved = std::move(t);
    CHECK_FALSE(t); // NOLINT(bugprone-use-after-move)
    CHECK(held.use_count() == 2);
  }
  CHECK(held.use_count() == 1);
}

TEST_CASE("a group frees tasks that have ended, and destroys the others when it ends", "[coro]") {
  gate one, two;
  const auto held = std::make_shared<int>(1);
  {
    dat::task_group group;
    CHECK(group.empty());
    group.spawn(number(1)); // ends at once
    CHECK(group.empty());
    group.spawn(holding(one, held));
    group.spawn(holding(two, held));
    CHECK(group.size() == 2);
    one.open();
    CHECK(group.size() == 1);
    CHECK(held.use_count() == 2);
  }
  CHECK(held.use_count() == 1);
}

TEST_CASE("a group keeps the first error of its tasks, and passes their exceptions on", "[coro]") {
  gate bad, good, thrower;
  dat::task_group group;
  group.spawn(through(good, 1));
  group.spawn(failing(bad));
  group.spawn(throwing(thrower));
  CHECK_FALSE(group.failure());
  CHECK_THROWS_AS(thrower.open(), std::runtime_error);
  CHECK(group.size() == 2);
  bad.open();
  REQUIRE(group.failure());
  CHECK(group.failure()->type() == dat::return_type::length_error);
  good.open();
  CHECK(group.empty());
}

TEST_CASE("tasks post on a driver, and DAT_CO_TRY passes their errors up", "[coro]") {
  clean_world world;
  unit::pair p;
  dat::coro::driver near(p.a.evd);
  dat::coro::driver far(p.b.evd);
  using queue_driver = decltype(near);
  const auto send = [](queue_driver& d, dat::ep_ref ep, std::uint64_t c) -> dat::task<dat::expected<std::uint64_t>> {
    DAT_CO_TRY(const auto sent, co_await d.post(ep, dat::send{}.cookie(c)));
    co_return sent.cookie().value();
  };
  const auto twice = [&](queue_driver& d, dat::ep_ref ep) -> dat::task<dat::expected<std::uint64_t>> {
    auto [a, b] = co_await dat::when_all(send(d, ep, 3), send(d, ep, 4));
    DAT_CO_TRY(const auto x, std::move(a));
    DAT_CO_TRY(const auto y, std::move(b));
    co_return x* y;
  };
  for (int i = 0; i < 2; ++i) must(p.b.ep.post(dat::recv{}));
  auto t = twice(near, p.a.ep);
  t.start();
  while (!t.done()) {
    p.settle();
    near.poll([](const auto&) {});
  }
  CHECK(must(std::move(t.result())) == 12);
  auto wrong = twice(far, p.a.ep); // its completions do not go to the driver `far`
  wrong.start();
  REQUIRE(wrong.done());
  CHECK(wrong.result().error().type() == dat::return_type::invalid_handle);
}
