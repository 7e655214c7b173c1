// The high watermarks of an endpoint: the counts, and the results of a check.
// SPDX-License-Identifier: BSL-1.0
#include <dat/detail/work/watermarks.hpp>

#include <support/catch.hpp>

using dat::detail::watermarks;

TEST_CASE("a soft watermark is exceeded by one receive more than it, once") {
  watermarks w;
  CHECK(w.off());
  CHECK_FALSE(w.add());
  w.remove();
  w.set(2, dat::no_watermark);
  CHECK_FALSE(w.off());
  CHECK(w.soft() == 2);
  CHECK(w.hard() == dat::no_watermark);
  CHECK_FALSE(w.add());
  CHECK_FALSE(w.add());
  CHECK_FALSE(w.exceeded());
  CHECK_FALSE(w.check(true).soft);
  CHECK(w.add());
  CHECK(w.exceeded());
  const auto v = w.check(true);
  CHECK(v.soft);
  CHECK_FALSE(v.hard);
  CHECK(w.off());
  CHECK_FALSE(w.check(true).soft);
  w.set(2, dat::no_watermark); // arms the watermark again
  CHECK(w.exceeded());
  CHECK(w.check(true).soft);
}

TEST_CASE("a check finds a watermark that was exceeded only for a moment, once") {
  watermarks w;
  w.set(dat::no_watermark, 1);
  CHECK_FALSE(w.add());
  CHECK(w.add());
  w.remove();
  w.remove();
  CHECK_FALSE(w.exceeded());
  CHECK(w.check(true).hard);
  CHECK_FALSE(w.check(true).hard);
}

TEST_CASE("a new life has neither the receives nor the peak of the earlier one") {
  watermarks w;
  w.set(1, 1);
  CHECK_FALSE(w.add());
  CHECK(w.add());
  w.clear();
  CHECK_FALSE(w.exceeded());
  const auto v = w.check(true);
  CHECK_FALSE(v.soft);
  CHECK_FALSE(v.hard);
  CHECK_FALSE(w.add()); // counted from 0
}

TEST_CASE("a watermark of 0 is not exceeded by checks, but by one receive") {
  watermarks w;
  w.set(0, 0);
  for (int i = 0; i < 3; ++i) {
    const auto v = w.check(true);
    CHECK_FALSE(v.soft);
    CHECK_FALSE(v.hard);
  }
  CHECK(w.add());
  CHECK(w.check(true).hard);
}

TEST_CASE("a peak that is forgotten is not found") {
  watermarks w;
  w.set(0, dat::no_watermark);
  CHECK(w.add());
  w.remove();
  w.forget_peak();
  CHECK_FALSE(w.check(false).soft);
}

TEST_CASE("the hard watermark counts while connected, and keeps a soft one that is not lower armed") {
  watermarks w;
  w.set(2, 2);
  for (int i = 0; i < 3; ++i) (void)w.add();
  const auto idle = w.check(false);
  CHECK_FALSE(idle.hard);
  CHECK(idle.soft);
  w.set(2, 2);
  const auto both = w.check(true);
  CHECK(both.hard);
  CHECK_FALSE(both.soft);
  w.set(1, 2);
  const auto lower = w.check(true);
  CHECK(lower.hard);
  CHECK(lower.soft);
}

TEST_CASE("a watermark is a number that DAT can count to, or none") {
  CHECK(dat::detail::is_watermark(0x7fffffff));
  CHECK_FALSE(dat::detail::is_watermark(0x80000000));
  CHECK(dat::detail::is_watermark(dat::no_watermark));
}
