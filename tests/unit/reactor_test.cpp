// The reactor: descriptors, timers, the wake-up, and who may run it.
// SPDX-License-Identifier: BSL-1.0
#include <dat/detail/reactor.hpp>

#include <support/catch.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <poll.h>
#include <random>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using dat::detail::event_source;
using dat::detail::reactor;
using dat::detail::timer;
using dat::detail::wake_fd;

namespace {

struct opened : reactor {
  opened() { REQUIRE(open() == 0); }
  bool ready() const {
    pollfd p{fd(), POLLIN, 0};
    return ::poll(&p, 1, 0) == 1;
  }
};

struct noting : timer {
  std::vector<int>* fired_numbers = nullptr;
  int number = 0;
  explicit noting(std::vector<int>& into, int n) : fired_numbers(&into), number(n) {
    fired = [](timer& t) noexcept {
      auto& self = static_cast<noting&>(t);
      self.fired_numbers->push_back(self.number);
    };
  }
};

const auto now = [] { return dat::detail::clock::now(); };

} // namespace

TEST_CASE("timers fire in the order of their times, whichever order they were armed in") {
  opened r;
  std::vector<int> fired;
  noting a(fired, 1), b(fired, 2), c(fired, 3), d(fired, 4);
  const auto t = now();
  r.arm(c, t - 1ms);
  r.arm(a, t - 3ms);
  r.arm(d, t);
  r.arm(b, t - 2ms);
  r.run(1000);
  CHECK(fired == std::vector<int>{1, 2, 3, 4});
  r.run(0);
  CHECK(fired.size() == 4); // once
}

TEST_CASE("timers for the same time fire in the order in which they were armed") {
  opened r;
  std::vector<int> fired;
  noting a(fired, 1), b(fired, 2), c(fired, 3);
  const auto t = now();
  r.arm(a, t);
  r.arm(b, t);
  r.arm(c, t);
  r.run(1000);
  CHECK(fired == std::vector<int>{1, 2, 3});
}

TEST_CASE("a cancelled timer does not fire, and says whether it was in time") {
  opened r;
  std::vector<int> fired;
  noting a(fired, 1), b(fired, 2);
  CHECK_FALSE(r.cancel(a)); // never armed
  r.arm(a, now());
  r.arm(b, now());
  CHECK(r.cancel(a));
  CHECK_FALSE(r.cancel(a));
  r.run(1000);
  CHECK(fired == std::vector<int>{2});
  CHECK_FALSE(r.cancel(b)); // has fired
}

TEST_CASE("a timer in the future does not fire before its time, and makes the reactor ready then") {
  opened r;
  std::vector<int> fired;
  noting far(fired, 1), near(fired, 2);
  r.arm(far, now() + 1h);
  r.run(0);
  CHECK(fired.empty());
  CHECK_FALSE(r.ready());
  r.arm(near, now() + 1ms); // earlier than the one armed before: the descriptor must follow
  while (fired.empty()) r.run(1000);
  CHECK(fired == std::vector<int>{2});
  CHECK_FALSE(r.ready());
  CHECK(r.cancel(far));
}

TEST_CASE("a timer that was cancelled leaves to others the times they have, sooner or later than its own") {
  opened r;
  std::vector<int> fired;
  noting gone(fired, 1), later(fired, 2), sooner(fired, 3), last(fired, 4);
  r.arm(gone, now() + 20ms);
  REQUIRE(r.cancel(gone));
  const auto late = now() + 40ms;
  r.arm(later, late);
  r.arm(sooner, now() + 5ms);
  while (fired.size() < 2) r.run(1000);
  CHECK(fired == std::vector<int>{3, 2});
  CHECK(now() >= late);
  const auto after = now() + 5ms; // when none is left to look at
  r.arm(last, after);
  while (fired.size() < 3) r.run(1000);
  CHECK(now() >= after);
}

TEST_CASE("what is put off is done once the event has been dealt with; elsewhere nothing can be put off") {
  opened r;
  wake_fd fd;
  REQUIRE(fd.open() == 0);
  struct noted : dat::detail::afterthought {
    std::vector<int> order;
  } thought;
  thought.done = [](dat::detail::afterthought& a) noexcept { static_cast<noted&>(a).order.push_back(2); };
  struct source : event_source {
    opened& r;
    wake_fd& fd;
    noted& thought;
  } s{{[](event_source& e) noexcept {
        auto& self = static_cast<source&>(e);
        self.fd.clear();
        CHECK_FALSE(self.r.put_off(self.thought));
        self.r.putting_off([&]() noexcept {
          CHECK(self.r.put_off(self.thought));
          CHECK_FALSE(self.r.put_off(self.thought)); // it is already
          self.thought.order.push_back(1);
        });
        self.thought.order.push_back(3);
      }},
      r,
      fd,
      thought};
  REQUIRE(r.watch(fd.get(), s) == 0);
  CHECK_FALSE(r.put_off(thought));
  for (int i = 0; i < 2; ++i) {
    fd.raise();
    r.run(1000);
  }
  CHECK(thought.order == std::vector<int>{1, 2, 3, 1, 2, 3});
  r.unwatch(fd.get(), s);
}

TEST_CASE("a timer may be armed at the beginning of time") {
  opened r;
  std::vector<int> fired;
  noting a(fired, 1);
  r.arm(a, {});
  r.run(1000);
  CHECK(fired == std::vector<int>{1});
}

TEST_CASE("a firing timer may arm itself and others, and cancel others") {
  opened r;
  struct chain : timer {
    opened* r;
    timer* victim;
    noting* next;
    int rounds = 0;
  };
  std::vector<int> fired;
  noting victim(fired, 1), next(fired, 2);
  chain c;
  c.r = &r;
  c.victim = &victim;
  c.next = &next;
  c.fired = [](timer& t) noexcept {
    auto& self = static_cast<chain&>(t);
    if (++self.rounds == 1) {
      self.r->cancel(*self.victim);
      self.r->arm(*self.next, {});
    }
    if (self.rounds < 3) self.r->arm(self, dat::detail::clock::now());
  };
  const auto t = now();
  r.arm(c, t - 1ms);
  r.arm(victim, t);
  while (c.rounds < 3) r.run(1000);
  CHECK(c.rounds == 3);
  CHECK(fired == std::vector<int>{2});
}

TEST_CASE("random arming and cancelling fires each timer that is left once, in order") {
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
      r.arm(*timers.back(), start - 2ms + std::chrono::microseconds(when[static_cast<std::size_t>(i)]));
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

TEST_CASE("a watched descriptor is handled while it is readable") {
  opened r;
  wake_fd fd;
  REQUIRE(fd.open() == 0);
  struct counting : event_source {
    wake_fd* fd;
    int calls = 0;
  };
  counting source{{[](event_source& s) noexcept {
                    auto& self = static_cast<counting&>(s);
                    if (++self.calls == 2) self.fd->clear();
                  }},
                  &fd};
  REQUIRE(r.watch(fd.get(), source) == 0);
  r.run(0);
  CHECK(source.calls == 0);
  fd.raise();
  CHECK(r.ready());
  r.run(0);
  r.run(0);
  r.run(0);
  CHECK(source.calls == 2);
  CHECK_FALSE(r.ready());
  CHECK(r.watch(-1, source) == EBADF);
}

TEST_CASE("a service thread runs timers, lets signals alone, and ends when told", "[COMP-083]") {
  opened r;
  struct announcing : timer {
    std::promise<std::pair<bool, bool>> seen;
    opened* r;
  };
  announcing t;
  t.r = &r;
  t.fired = [](timer& x) noexcept {
    auto& self = static_cast<announcing&>(x);
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    self.seen.set_value({self.r->on_service_thread(), sigismember(&blocked, SIGINT) == 1 &&
                                                          sigismember(&blocked, SIGUSR1) == 1 &&
                                                          sigismember(&blocked, SIGCHLD) == 1});
  };
  sigset_t before;
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  REQUIRE(r.start(
              [](void* self) -> void* {
                static_cast<opened*>(self)->loop();
                return nullptr;
              },
              &r) == 0);
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  CHECK(sigismember(&before, SIGUSR1) == sigismember(&after, SIGUSR1));
  CHECK_FALSE(r.on_service_thread());
  r.arm(t, {});
  const auto [there, blocked] = t.seen.get_future().get();
  CHECK(there);
  CHECK(blocked);
  r.stop();
  r.stop(); // without effect
  CHECK_FALSE(r.on_service_thread());
}

TEST_CASE("of two threads one runs the reactor, and the other goes on") {
  opened r;
  wake_fd fd;
  REQUIRE(fd.open() == 0);
  struct blocking : event_source {
    wake_fd* fd;
    std::promise<void> entered;
    std::promise<void> leave;
  };
  blocking source;
  source.fd = &fd;
  source.ready = [](event_source& s) noexcept {
    auto& self = static_cast<blocking&>(s);
    self.fd->clear();
    self.entered.set_value();
    self.leave.get_future().wait();
  };
  REQUIRE(r.watch(fd.get(), source) == 0);
  fd.raise();
  std::thread worker([&] { r.run(-1); });
  source.entered.get_future().wait();
  r.run(-1); // returns at once, or this test never ends
  source.leave.set_value();
  worker.join();
  SUCCEED();
}
