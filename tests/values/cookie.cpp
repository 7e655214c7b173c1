// dat::cookie keeps 64 bits of any kind.
// SPDX-License-Identifier: BSL-1.0
#include <dat/cookie.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <limits>
#include <type_traits>
#include <unordered_set>

using dat::cookie;

namespace {
enum class stage : std::int8_t { before = -1, after = 7 };
struct numbered_request {
  int number;
};
} // namespace

TEST_CASE("a cookie returns any integer of up to 64 bits") {
  STATIC_REQUIRE(sizeof(cookie) == (dat::detail::checked_build ? 16 : 8));
  STATIC_REQUIRE(std::is_trivially_copyable_v<cookie>);
  STATIC_REQUIRE(cookie().value() == 0);
  STATIC_REQUIRE(cookie(7).value() == 7);
  STATIC_REQUIRE(cookie(std::numeric_limits<std::uint64_t>::max()).value() == 0xFFFF'FFFF'FFFF'FFFF);
  STATIC_REQUIRE(cookie(-5).as<int>() == -5);
  STATIC_REQUIRE(cookie(std::numeric_limits<std::int64_t>::min()).as<std::int64_t>() ==
                 std::numeric_limits<std::int64_t>::min());
  STATIC_REQUIRE(cookie(std::uint8_t{200}).as<std::uint8_t>() == 200);
}

TEST_CASE("a cookie returns an enumerator, and takes it without a cast") {
  STATIC_REQUIRE(cookie(stage::before).as<stage>() == stage::before);
  STATIC_REQUIRE(cookie(stage::after).as<stage>() == stage::after);
  STATIC_REQUIRE(std::is_convertible_v<stage, cookie>);
  STATIC_REQUIRE(std::is_convertible_v<int, cookie>);
}

TEST_CASE("a cookie returns a pointer to const and to non-const") {
  numbered_request r{3};
  const cookie c = &r;
  CHECK(c.as<numbered_request*>() == &r);
  CHECK(c.pointer<numbered_request>()->number == 3);
  const numbered_request& constant = r;
  CHECK(cookie(&constant).as<const numbered_request*>() == &r);
  CHECK(cookie(static_cast<void*>(nullptr)).as<void*>() == nullptr);
}

TEST_CASE("a bool, a floating-point number and a function are no cookies") {
  STATIC_REQUIRE_FALSE(std::is_convertible_v<bool, cookie>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<double, cookie>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<void (*)(), cookie>);
  STATIC_REQUIRE(std::is_convertible_v<char*, cookie>);
}

TEST_CASE("cookies compare and hash by their 64 bits") {
  STATIC_REQUIRE(cookie(1) == cookie(1U));
  STATIC_REQUIRE(cookie(1) != cookie(2));
  STATIC_REQUIRE(cookie(1) < cookie(2));
  const std::unordered_set<cookie> set{1, 2, 2, 3};
  CHECK(set.size() == 3);
  CHECK(set.count(2) == 1);
  CHECK(set.count(4) == 0);
}
