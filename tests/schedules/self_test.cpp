// Tests of the scheduler: it finds results that depend on the order of threads, replays an order, and handles time and
// deadlocks.
// SPDX-License-Identifier: BSL-1.0
#include "schedule.hpp"

#include <support/catch.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

using schedule::session;
using namespace std::chrono_literals;

namespace {

/// Two threads that add without an atomic addition; returns the sum.
int lost_update(std::uint64_t seed) {
  session s(seed);
  std::atomic<int> n{0};
  const auto add = [&] { n.store(n.load() + 1); };
  s.together({add, add});
  return n;
}

/// The order in which three threads pass their points.
std::string order(std::uint64_t seed) {
  session s(seed);
  std::atomic<int> n{0};
  std::array<char, 12> out{};
  const auto pass = [&](char name) {
    return [&n, &out, name] {
      for (int i = 0; i < 4; ++i) out[static_cast<std::size_t>(n++)] = name;
    };
  };
  s.together({pass('a'), pass('b'), pass('c')});
  return {out.begin(), out.end()};
}

/// The exit code and the standard error of a function that runs in a child.
template <class F>
std::pair<int, std::string> in_child(F f) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], 2);
    f();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text(4096, '\0');
  std::size_t n = 0;
  for (ssize_t r = 0; (r = ::read(ends[0], text.data() + n, text.size() - n)) > 0;) n += static_cast<std::size_t>(r);
  ::close(ends[0]);
  text.resize(n);
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
}

} // namespace

TEST_CASE("schedules find a lost update, and not in a program without one", "[schedules]") {
  std::set<int> sums;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) sums.insert(lost_update(seed));
  CHECK(sums == std::set<int>{1, 2});

  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    session s(seed);
    std::atomic<int> n{0};
    s.together({[&] { ++n; }, [&] { ++n; }});
    CHECK(n == 2);
  }
}

TEST_CASE("a seed replays its schedule, and seeds differ", "[schedules]") {
  std::set<std::string> all;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const std::string first = order(seed);
    CHECK(std::count(first.begin(), first.end(), 'b') == 4);
    CHECK(order(seed) == first);
    all.insert(first);
  }
  CHECK(all.size() > 5);
}

TEST_CASE("schedules respect mutexes and condition variables", "[schedules]") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    session s(seed);
    std::mutex m;
    std::condition_variable changed;
    int inside = 0, most = 0, turns = 0;
    bool go = false;
    const auto enter = [&] {
      std::unique_lock lock(m);
      changed.wait(lock, [&] { return go; });
      most = std::max(most, ++inside);
      lock.unlock();
      lock.lock();
      --inside;
      ++turns;
    };
    s.together({enter, enter, [&] {
                  const std::lock_guard lock(m);
                  go = true;
                  changed.notify_all();
                }});
    CHECK(turns == 2);
    CHECK(most >= 1);
  }
}

TEST_CASE("waits for descriptors end by a write, by a timer, or by their limit, without real time", "[schedules]") {
  const auto real = [] { return std::chrono::system_clock::now(); };
  const auto before = real();
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    session s(seed);
    const int event = ::eventfd(0, EFD_NONBLOCK);
    const int timer = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    const itimerspec in_an_hour{{}, {3600, 0}};
    REQUIRE(::timerfd_settime(timer, 0, &in_an_hour, nullptr) == 0);
    const auto start = std::chrono::steady_clock::now();
    int written = -1, limited = -1, expired = -1;
    s.together({[&] {
                  pollfd p{event, POLLIN, 0};
                  written = ::poll(&p, 1, -1);
                },
                [&] {
                  std::this_thread::sleep_for(10s);
                  pollfd p{timer, POLLIN, 0};
                  limited = ::poll(&p, 1, 60'000);
                  expired = ::poll(&p, 1, -1);
                },
                [&] {
                  const std::uint64_t one = 1;
                  CHECK(::write(event, &one, sizeof one) == sizeof one);
                }});
    CHECK(written == 1);
    CHECK(limited == 0);
    CHECK(expired == 1);
    const auto took = std::chrono::steady_clock::now() - start;
    CHECK(took >= 3600s);
    CHECK(took < 3700s);
    ::close(event);
    ::close(timer);
  }
  CHECK(real() - before < 1000s);
}

TEST_CASE("a loop that spins lets the others run", "[schedules]") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    session s(seed);
    std::atomic<bool> ready{false};
    bool seen = false;
    s.together({[&] {
                  while (!ready) {
                  }
                  seen = true;
                },
                [&] { ready = true; }});
    CHECK(seen);
  }
}

TEST_CASE("a deadlock is reported with its seed, and threads that take mutexes in one order have none", "[schedules]") {
  const auto pass = [](bool crossed) {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
      session s(seed);
      std::mutex a, b;
      const auto take = [](std::mutex& x, std::mutex& y) {
        const std::lock_guard first(x);
        const std::lock_guard second(y);
      };
      s.together({[&] { take(a, b); }, [&] { crossed ? take(b, a) : take(a, b); }});
    }
  };
  CHECK(in_child([&] { pass(false); }).first == 0);
  const auto [code, text] = in_child([&] { pass(true); });
  CHECK(code == 3);
  CHECK_THAT(text, support::contains_text("deadlock in the schedule of seed "));
  CHECK_THAT(text, support::contains_text("thread 1: pthread_mutex_lock"));
}
