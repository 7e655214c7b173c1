// The timers of the reactor.
// SPDX-License-Identifier: BSL-1.0
#include "opened_reactor.hpp"

#include <dat/detail/progress/reactor.hpp>

#include <support/catch.hpp>

#include <chrono>
#include <random>
#include <vector>

using namespace std::chrono_literals;

namespace reactors {

TEST_CASE("timers fire in the order of their times, in whatever order they were armed") {
  opened r;
  std::vector<int> fired;
  noting a(fired, 1), b(fired, 2), c(fired, 3), d(fired, 4);
  const auto t = now();
  r.defer(c, t - 1ms);
  r.defer(a, t - 3ms);
  r.defer(d, t);
  r.defer(b, t - 2ms);
  r.run(1000);
  CHECK(fired == std::vector<int>{1, 2, 3, 4});
  r.run(0);
  CHECK(fired.size() == 4); // once
}

TEST_CASE("a timer that is armed for a later time does not delay one that is due before") {
  opened r;
  std::vector<int> fired;
  noting a(fired, 1), b(fired, 2);
  r.defer(a, now() + 1ms);
  r.defer(b, now() + 1h);
  r.run(20'000);
  CHECK(fired == std::vector<int>{1});
  CHECK(r.cancel(b));
}

TEST_CASE("timers for the same time fire in the order in which they were armed") {
  opened r;
  std::vector<int> fired;
  noting a(fired, 1), b(fired, 2), c(fired, 3);
  const auto t = now();
  r.defer(a, t);
  r.defer(b, t);
  r.defer(c, t);
  r.run(1000);
  CHECK(fired == std::vector<int>{1, 2, 3});
}

TEST_CASE("a cancelled timer does not fire, and cancel returns whether it was in time") {
  opened r;
  std::vector<int> fired;
  noting a(fired, 1), b(fired, 2);
  CHECK_FALSE(r.cancel(a)); // the task was never armed
  r.defer(a, now());
  r.defer(b, now());
  CHECK(r.cancel(a));
  CHECK_FALSE(r.cancel(a));
  r.run(1000);
  CHECK(fired == std::vector<int>{2});
  CHECK_FALSE(r.cancel(b)); // the task has run
}

TEST_CASE("a timer does not fire before its time, and makes the reactor's descriptor readable then") {
  opened r;
  std::vector<int> fired;
  noting far(fired, 1), near(fired, 2);
  r.defer(far, now() + 1h);
  r.run(0);
  CHECK(fired.empty());
  CHECK_FALSE(r.ready());
  r.defer(near, now() + 1ms); // earlier than the one armed before: the descriptor must follow
  while (fired.empty()) r.run(1000);
  CHECK(fired == std::vector<int>{2});
  CHECK_FALSE(r.ready());
  CHECK(r.cancel(far));
}

TEST_CASE("cancelling a timer does not change the times of others, earlier or later") {
  opened r;
  std::vector<int> fired;
  noting gone(fired, 1), later(fired, 2), sooner(fired, 3), last(fired, 4);
  r.defer(gone, now() + 20ms);
  REQUIRE(r.cancel(gone));
  const auto late = now() + 40ms;
  r.defer(later, late);
  r.defer(sooner, now() + 5ms);
  while (fired.size() < 2) r.run(1000);
  CHECK(fired == std::vector<int>{3, 2});
  CHECK(now() >= late);
  const auto after = now() + 5ms; // the time when no task is left
  r.defer(last, after);
  while (fired.size() < 3) r.run(1000);
  CHECK(now() >= after);
}

TEST_CASE("a timer may be armed for the beginning of time") {
  opened r;
  std::vector<int> fired;
  noting a(fired, 1);
  r.defer(a);
  r.run(1000);
  CHECK(fired == std::vector<int>{1});
}

TEST_CASE("a firing timer may arm itself and others, and cancel others") {
  opened r;
  struct chain : task {
    opened* r;
    task* victim;
    noting* next;
    int rounds = 0;
  };
  std::vector<int> fired;
  noting victim(fired, 1), next(fired, 2);
  chain c;
  c.r = &r;
  c.victim = &victim;
  c.next = &next;
  c.run = [](task& t) noexcept {
    auto& self = static_cast<chain&>(t);
    if (++self.rounds == 1) {
      self.r->cancel(*self.victim);
      self.r->defer(*self.next);
    }
    if (self.rounds < 3) self.r->defer(self, dat::detail::clock::now());
  };
  const auto t = now();
  r.defer(c, t - 1ms);
  r.defer(victim, t);
  while (c.rounds < 3) r.run(1000);
  CHECK(c.rounds == 3);
  CHECK(fired == std::vector<int>{2});
}

TEST_CASE("after random arming and cancelling, each armed timer fires once, in order") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    opened r;
    std::vector<int> fired;
    std::vector<std::unique_ptr<noting>> timers;
    const auto start = now();
    std::vector<int> expected;
    std::vector<int> when(40);
    for (int i = 0; i < 40; ++i) {
      timers.push_back(std::make_unique<noting>(fired, i));
      when[static_cast<std::size_t>(i)] = static_cast<int>(random() % 1000);
      r.defer(*timers.back(), start - 2ms + std::chrono::microseconds(when[static_cast<std::size_t>(i)]));
    }
    for (int i = 0; i < 40; ++i)
      if (random() % 3 == 0)
        CHECK(r.cancel(*timers[static_cast<std::size_t>(i)]));
      else
        expected.push_back(i);
    std::stable_sort(expected.begin(), expected.end(), [&](int a, int b) {
      return when[static_cast<std::size_t>(a)] < when[static_cast<std::size_t>(b)];
    });
    r.run(1000);
    CHECK(fired == expected);
  }
}

} // namespace reactors
