// SHOWS and DEVIATES record nothing without an assertion before them.
// SPDX-License-Identifier: BSL-1.0
#include <support/catch.hpp>

using support::record_kind;
using support::recorded;

TEST_CASE("a rule is recorded behind an assertion only", "[support]") {
  CHECK_FALSE(recorded(record_kind::shows, 100, {})); // no assertion has run yet
  const bool behind = recorded(record_kind::shows, 100, {});
  const bool repeated = recorded(record_kind::shows, 100, {});      // the same assertion in a loop
  const bool successive = recorded(record_kind::deviates, 101, {}); // a second record of the same assertion
  const bool later = recorded(record_kind::shows, 150, {});
  CHECK(behind);
  CHECK(repeated);
  CHECK(successive);
  CHECK_FALSE(later);
  CHECK(recorded(record_kind::shows, 150, {}));
}

TEST_CASE("an assertion of an earlier case does not count", "[support]") {
  const bool at_once = recorded(record_kind::shows, 10, {});
  CHECK_FALSE(at_once);
}
