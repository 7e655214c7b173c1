// The assertions of the tests: what a false one does to its case. <support/catch.hpp> defines them.
// SPDX-License-Identifier: BSL-1.0
#include <support/catch.hpp>

#include <cstdlib>
#include <string>

namespace {

int two() { return 2; }
bool truth() { return true; }

} // namespace

// A case with [!shouldfail] passes when one of its assertions fails. Each has one that does.
TEST_CASE("a false CHECK fails its case", "[support][!shouldfail]") { CHECK(two() == 3); }
TEST_CASE("a CHECK of a false value fails its case", "[support][!shouldfail]") { CHECK(!truth()); }
TEST_CASE("a CHECK_FALSE of what is true fails its case", "[support][!shouldfail]") { CHECK_FALSE(two() == 2); }
TEST_CASE("a false REQUIRE fails and ends its case", "[support][!shouldfail]") {
  REQUIRE(two() < 2);
  std::_Exit(3);
}
TEST_CASE("a REQUIRE_FALSE of what is true fails and ends its case", "[support][!shouldfail]") {
  REQUIRE_FALSE(truth());
  std::_Exit(3);
}

TEST_CASE("a true assertion lets its case go on, and is evaluated once", "[support]") {
  int calls = 0;
  const auto next = [&calls] { return ++calls; };
  CHECK(next() == 1);
  CHECK_FALSE(next() != 2);
  REQUIRE(next() == 3);
  REQUIRE_FALSE(next() == 3);
  CHECK(std::string("a") + "b" == "ab");
  CHECK((two() == 2 && truth()));
  CHECK(calls == 4);
}
