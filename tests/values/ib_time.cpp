// Time codes of queue pairs, against the tables of the InfiniBand specification.
// SPDX-License-Identifier: BSL-1.0
#include <dat/detail/verbs/ib_time.hpp>

#include <support/catch.hpp>

using namespace std::chrono_literals;
using dat::detail::ack_timeout_code;
using dat::detail::rnr_timer_code;
using std::chrono::microseconds;

namespace {

/// 4.096 us * 2^code in nanoseconds, so that nothing is rounded.
constexpr std::int64_t ack_ns(unsigned code) { return std::int64_t{4096} << code; }

/// IBA table 45, in microseconds, by code.
constexpr int rnr_us[] = {655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,   320,
                          480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240, 15360,
                          20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};

} // namespace

TEST_CASE("the code of an ACK timeout is the smallest that lasts long enough", "[CONN-068]") {
  for (const std::int64_t us : {std::int64_t{0}, std::int64_t{1}, std::int64_t{8}, std::int64_t{9}, std::int64_t{16},
                                std::int64_t{17}, std::int64_t{67'000}, std::int64_t{67'108}, std::int64_t{67'109},
                                std::int64_t{1'000'000}, std::int64_t{4'398'046'511}, std::int64_t{8'000'000'000}}) {
    const unsigned code = ack_timeout_code(microseconds(us));
    INFO(us << " us: code " << code);
    CHECK(code >= 1); // a code of zero would mean no limit
    CHECK(ack_ns(code) >= us * 1000);
    if (code > 1) CHECK(ack_ns(code - 1) < us * 1000);
  }
  STATIC_REQUIRE(ack_timeout_code(67ms) == 14);
}

TEST_CASE("an ACK timeout beyond the scale becomes the longest code, not an unlimited one") {
  CHECK(ack_timeout_code(24h) == 31);
  CHECK(ack_timeout_code(microseconds::max()) == 31);
  CHECK(ack_timeout_code(microseconds::min()) == 1);
}

TEST_CASE("the code of an RNR timer is the shortest that lasts long enough", "[CONN-068]") {
  for (unsigned code = 1; code < 32; ++code) {
    CHECK(rnr_timer_code(microseconds(rnr_us[code])) == code);
    if (code > 1) CHECK(rnr_timer_code(microseconds(rnr_us[code - 1] + 1)) == code);
  }
  CHECK(rnr_timer_code(0us) == 1);
  CHECK(rnr_timer_code(491'521us) == 0); // 655.36 ms
  CHECK(rnr_timer_code(655'360us) == 0);
}
