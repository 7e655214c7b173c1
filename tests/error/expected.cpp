// dat::expected, DAT_TRY, and one error category for all shared objects.
// SPDX-License-Identifier: BSL-1.0
#include <dat/expected.hpp>
#include <dat/try.hpp>

#include <support/catch.hpp>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

using dat::error;
using dat::expected;
using dat::return_subtype;
using dat::return_type;

namespace {

expected<int> half(int number) {
  if (number % 2 != 0) return error(return_type::invalid_parameter, return_subtype::arg1).at("half");
  return number / 2;
}

expected<void> want_positive(int number) {
  if (number <= 0) return return_type::length_error;
  return dat::success();
}

expected<std::unique_ptr<int>> boxed(int number) {
  if (number < 0) return return_type::invalid_state;
  return std::make_unique<int>(number);
}

} // namespace

TEST_CASE("an expected converts from a value and from an error and distinguishes them", "[ERR-012]") {
  const expected<int> good = half(8);
  CHECK(good);
  CHECK(good.has_value());
  CHECK_FALSE(good.has_error());
  CHECK(good.value() == 4);
  CHECK(good.assume_value() == 4);

  const expected<int> bad = half(7);
  CHECK_FALSE(bad);
  CHECK_FALSE(bad.has_value());
  CHECK(bad.has_error());
  CHECK(bad.error() == error(return_type::invalid_parameter, return_subtype::arg1));
  CHECK(bad.assume_error().call() == "half");

  const expected<std::string> longer = bad.as_failure();
  REQUIRE_FALSE(longer);
  CHECK(longer.error().call() == "half");
}

TEST_CASE("an expected<void> is success or an error", "[ERR-012]") {
  CHECK(want_positive(1).has_value());
  REQUIRE_FALSE(want_positive(0).has_value());
  CHECK(want_positive(0).error().type() == return_type::length_error);
}

TEST_CASE("expecteds compare by what they hold") {
  CHECK(half(8) == expected<int>(4));
  CHECK(half(8) != expected<int>(5));
  CHECK(half(7) != half(8));
  CHECK(half(7) == half(9));
}

TEST_CASE("an expected holds move-only types, also in a variant") {
  auto box = boxed(3);
  REQUIRE(box);
  const std::unique_ptr<int> inside = std::move(box).value();
  CHECK(*inside == 3);
  CHECK_FALSE(boxed(-1));

  using event = std::variant<std::unique_ptr<int>, std::string>;
  expected<event> got = event(std::string("arrived"));
  REQUIRE(got);
  CHECK(std::get<std::string>(got.value()) == "arrived");
  got = return_type::queue_empty;
  REQUIRE_FALSE(got);
  CHECK(got.error().type() == return_type::queue_empty);
}

TEST_CASE("success() makes an expected of its argument's type") {
  const expected<std::vector<int>> three = dat::success(std::vector{1, 2, 3});
  REQUIRE(three);
  CHECK(three.value().size() == 3);
}

TEST_CASE("value() on an error throws a system_error with the error's code and message") {
  CHECK_THROWS_AS(half(7).value(), std::system_error);
  CHECK_NOTHROW(half(8).value());
  try {
    static_cast<void>(half(7).value());
    FAIL("value() returned");
  } catch (const dat::failure& thrown) {
    CHECK(thrown.error() == error(return_type::invalid_parameter, return_subtype::arg1));
    CHECK(thrown.code() == return_type::invalid_parameter);
    CHECK(thrown.code() == std::errc::invalid_argument);
    CHECK(std::string(thrown.what()) == half(7).error().message());
    STATIC_REQUIRE(std::is_nothrow_copy_constructible_v<dat::failure>);
  }
}

TEST_CASE("error() on a value throws a logic_error") {
  CHECK_THROWS_AS(half(8).error(), std::logic_error);
  CHECK_NOTHROW(half(7).error());
}

TEST_CASE("an expected has the size of its value, an error and one word") {
  STATIC_REQUIRE(sizeof(expected<void>) <= sizeof(error) + 8);
  STATIC_REQUIRE(sizeof(expected<std::uint64_t>) <= sizeof(error) + 16);
  STATIC_REQUIRE(std::is_trivially_destructible_v<expected<int>>);
  STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<expected<std::unique_ptr<int>>>);
}

namespace {

expected<std::string> chain(int number) {
  DAT_TRY(const auto first, half(number));
  DAT_TRYV(want_positive(first));
  DAT_TRY(auto box, boxed(std::pair<int, int>{first, 0}.first)); // commas inside the expression
  {
    DAT_TRY(const auto second, half(*box)); // nested: -Wshadow does not warn
    DAT_TRY(box, boxed(second));            // assignment instead of declaration
  }
  auto named = boxed(*box);
  DAT_TRY(const auto moved, std::move(named));
  return std::to_string(*moved);
}

expected<void> one_statement(bool check, int number) {
  if (check)
    DAT_TRYV(want_positive(number));
  else
    DAT_TRYV(half(number)); // drops the value
  return dat::success();
}

} // namespace

TEST_CASE("DAT_TRY unwraps values, moves move-only ones, and returns errors") {
  CHECK(chain(12).value() == "3");
  CHECK(chain(7).error() == error(return_type::invalid_parameter, return_subtype::arg1));
  CHECK(chain(0).error().type() == return_type::length_error);
  CHECK(chain(-4).error().type() == return_type::length_error);
  CHECK(chain(6).error().call() == "half"); // 6 / 2 = 3 is odd
}

TEST_CASE("DAT_TRYV is one statement") {
  CHECK(one_statement(true, 1));
  CHECK(one_statement(false, 2));
  CHECK(one_statement(true, 0).error().type() == return_type::length_error);
  CHECK(one_statement(false, 3).error().type() == return_type::invalid_parameter);
}
