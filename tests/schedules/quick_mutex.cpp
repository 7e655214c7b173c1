// The mutex of merged evds in many orders of its threads. A wake-up that is lost leaves all threads waiting, which the
// scheduler reports.
// SPDX-License-Identifier: BSL-1.0
#include "schedule.hpp"

#include <dat/detail/base/quick_mutex.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <mutex>

using schedule::session;

TEST_CASE("a quick_mutex admits one thread at a time, and wakes all that wait", "[schedules]") {
  schedule::explore(300, [](session& s) {
    dat::detail::quick_mutex m;
    int inside = 0, most = 0, turns = 0;
    const auto enter = [&] {
      for (int i = 0; i < 3; ++i) {
        const std::lock_guard lock(m);
        most = std::max(most, ++inside);
        ++turns;
        --inside;
      }
    };
    s.together({enter, enter, enter});
    CHECK(most == 1);
    CHECK(turns == 9);
  });
}
