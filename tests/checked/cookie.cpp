// Cookies of a checked build, which keep the type that they were made from.
// SPDX-License-Identifier: BSL-1.0
#include "findings.hpp"

#include <cstdint>
#include <type_traits>

using namespace checked_tests;

namespace {

enum class tag : std::uint8_t { one = 1 };
enum class other_tag : std::uint8_t { one = 1 };

} // namespace

TEST_CASE("a cookie that is read as another type is reported", "[checked]") {
  const findings all;
  int number = 0;
  const auto reported = [] {
    const bool one = found.size() == 1 && found[0].what == finding::wrong_cookie_type && found[0].call == "cookie.as";
    found.clear();
    return one;
  };
  (void)dat::cookie(&number).as<int>();
  CHECK(reported());
  (void)dat::cookie(&number).pointer<char>();
  CHECK(reported());
  (void)dat::cookie(7).pointer<int>();
  CHECK(reported());
  (void)dat::cookie(7).as<tag>();
  CHECK(reported());
  (void)dat::cookie(tag::one).as<other_tag>();
  CHECK(reported());
  (void)dat::cookie(tag::one).as<int>();
  CHECK(reported());
  (void)dat::cookie(std::uint64_t{1} << 40).as<int>();
  CHECK(reported());
}

TEST_CASE("a cookie that is read as its own type is no finding, also behind a completion", "[checked]") {
  const clean_world world;
  const findings all;
  int number = 0;
  CHECK(dat::cookie(&number).pointer<int>() == &number);
  CHECK(dat::cookie(&number).as<const int*>() == &number);
  CHECK(dat::cookie(&number).as<void*>() == &number);
  CHECK(dat::cookie(static_cast<void*>(&number)).pointer<int>() == &number);
  CHECK(dat::cookie(-1).as<int>() == -1);
  CHECK(dat::cookie(7u).as<std::int64_t>() == 7);
  CHECK(dat::cookie(tag::one).as<tag>() == tag::one);
  CHECK(dat::cookie().as<int*>() == nullptr);
  STATIC_REQUIRE(dat::cookie(3).as<int>() == 3);
  STATIC_REQUIRE(std::is_trivially_copyable_v<dat::cookie>);
  pair p;
  must(p.a.ep.post(dat::recv{}.cookie(&number)));
  must(p.b.ep.post(dat::send{}.cookie(tag::one)));
  CHECK(must(p.a.evd.wait_for<dat::recv_done>(plenty)).cookie().pointer<int>() == &number);
  CHECK(must(p.b.evd.wait_for<dat::send_done>(plenty)).cookie().as<tag>() == tag::one);
  CHECK(found.empty());
  CHECK(dat::cookie(7) == dat::cookie(7u));
}
