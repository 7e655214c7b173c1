// Time limits: their unit, and the deadlines made from them.
// SPDX-License-Identifier: BSL-1.0
#include <dat/timeout.hpp>

#include <dat/detail/base/deadline.hpp>

#include <support/catch.hpp>

#include <type_traits>

using namespace std::chrono_literals;
using dat::detail::deadline;

TEST_CASE("a time limit is in microseconds, and coarser durations convert to it", "[EVD-050][CONN-040]") {
  STATIC_REQUIRE(dat::timeout(2s).count() == 2'000'000);
  STATIC_REQUIRE(dat::timeout(3ms).count() == 3000);
  STATIC_REQUIRE(std::is_convertible_v<std::chrono::minutes, dat::timeout>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<std::chrono::nanoseconds, dat::timeout>); // loses precision
  STATIC_REQUIRE_FALSE(std::is_convertible_v<int, dat::timeout>);
}

TEST_CASE("infinite and durations near it never expire", "[EVD-050]") {
  CHECK(deadline::in(dat::infinite).never());
  CHECK(deadline::in(dat::infinite - 1us).never());
  CHECK(deadline::in(24h * 365 * 1000).never());
  CHECK_FALSE(deadline::in(24h * 365 * 100).never()); // the sum does not overflow
  CHECK_FALSE(deadline::in(24h * 365 * 100).passed());
  CHECK_FALSE(deadline::in(dat::infinite).passed());
}

TEST_CASE("a limit of zero or less has passed at once", "[EVD-052]") {
  for (const dat::timeout t : {dat::timeout(0), dat::timeout(-1), dat::timeout::min()}) {
    const auto d = deadline::in(t);
    CHECK(d.passed());
    CHECK(d.left().tv_sec == 0);
    CHECK(d.left().tv_nsec == 0);
    pollfd none{-1, 0, 0};
    CHECK(dat::detail::poll_until(&none, 1, d) == 0);
  }
}

TEST_CASE("the rest of a limit never exceeds the limit") {
  const auto d = deadline::in(1h);
  CHECK_FALSE(d.passed());
  const auto left = d.left();
  CHECK(left.tv_sec <= 3600);
  CHECK(left.tv_sec >= 3500);
  CHECK((left.tv_nsec >= 0 && left.tv_nsec < 1'000'000'000));
}
