// The mutex of merged evds in many orders of its threads. A wake-up that is lost leaves all threads waiting, which the
// scheduler reports.
// SPDX-License-Identifier: BSL-1.0
#include "schedule.hpp"

#include <dat/detail/base/quick_mutex.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <mutex>
#include <utility>

using schedule::session;

namespace {

/// Enters and leaves a mutex `times` times, and counts the threads inside.
struct guarded {
  void enter(int times) {
    for (int i = 0; i < times; ++i) {
      const std::lock_guard lock(m);
      most = std::max(most, ++inside);
      ++turns;
      --inside;
    }
  }
  dat::detail::quick_mutex m;
  int inside = 0, most = 0, turns = 0;
};

} // namespace

TEST_CASE("a quick_mutex admits one thread at a time, and wakes all that wait", "[schedules]") {
  schedule::explore(300, [](session& s) {
    guarded g;
    const auto enter = [&] { g.enter(3); };
    s.together({enter, enter, enter});
    CHECK(g.most == 1);
    CHECK(g.turns == 9);
  });
}

TEST_CASE("threads that set and check marks of a quick_mutex admit each other, in every order", "[schedules]") {
  using dat::detail::quick_mutex;
  const std::size_t orders = schedule::explore_all(3, [](session& s) {
    guarded g;
    bool queued = false; // guarded by the mutex, and marked
    int taken = 0, missed = 0;
    const auto put = [&] {
      const std::lock_guard lock(g.m);
      queued = true;
      g.m.mark(quick_mutex::first_mark);
    };
    const auto take = [&] {
      if (g.m.try_lock_unmarked()) {
        missed += queued;
        g.m.unlock();
        return;
      }
      const std::lock_guard lock(g.m);
      taken += std::exchange(queued, false);
      g.m.unmark(quick_mutex::first_mark);
    };
    s.together({put, [&] { take(), take(); }});
    take();
    CHECK(missed == 0);
    CHECK(taken == 1);
  });
  CAPTURE(orders);
  CHECK(orders > 50);
}

TEST_CASE("a quick_mutex that others mark admits one thread at a time, and wakes all that wait", "[schedules]") {
  schedule::explore(300, [](session& s) {
    guarded g;
    const auto enter = [&] { g.enter(3); };
    s.together({enter, enter, [&] {
                  for (int i = 0; i < 3; ++i) {
                    g.m.mark(dat::detail::quick_mutex::first_mark);
                    g.m.unmark(dat::detail::quick_mutex::first_mark);
                  }
                }});
    CHECK(g.most == 1);
    CHECK(g.turns == 6);
  });
}

TEST_CASE("a quick_mutex admits one thread at a time, in every order", "[schedules]") {
  const std::size_t orders = schedule::explore_all(3, [](session& s) {
    guarded g;
    const auto enter = [&] { g.enter(2); };
    s.together({enter, enter});
    CHECK(g.most == 1);
    CHECK(g.turns == 4);
  });
  CAPTURE(orders);
  CHECK(orders > 100);
}
