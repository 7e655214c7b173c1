// Random calls about connections in the fake world, against the table of states.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <support/connection_fuzz.hpp>

#include <cstdlib>
#include <random>

// Instrumented steps take several times as long; what takes them wants to see their memory, not all of their orders.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DAT_TESTS_INSTRUMENTED 1
#endif
#endif
#ifdef DAT_TESTS_INSTRUMENTED
static constexpr bool instrumented = true;
#else
static constexpr bool instrumented = false;
#endif

TEST_CASE("a hundred thousand random calls do what the table of states says", "[EPS-001][EPS-007][EPS-017][EPS-068]"
                                                                              "[CONN-016][CONN-017][DISC-022][DISC-055]"
                                                                              "[DISC-028]") {
  const char* given = std::getenv("DAT_TEST_SEED");
  const auto seed = given ? static_cast<std::uint32_t>(std::strtoul(given, nullptr, 10))
                          : static_cast<std::uint32_t>(std::random_device{}());
  INFO("DAT_TEST_SEED=" << seed);
  unit::clean_world world;
  std::string what;
  try {
    fuzz::walk walk(unit::must(dat::ia_address::parse("10.99.1.1")), unit::must(dat::ia_address::parse("10.99.2.1")),
                    7000, seed);
    const unsigned steps = instrumented ? 10'000 : 100'000;
    walk.run(steps);
    if (!instrumented) CHECK(walk.met() == fuzz::every_state);
    CHECK(walk.connections() > steps / 300);
  } catch (const fuzz::wrong& w) {
    what = w.what();
  }
  CHECK(what == "");
}
