// Attempts to connect a rail, and writes to it, that fail at once: what they leave behind, and what comes next.
// SPDX-License-Identifier: BSL-1.0
#include "ends.hpp"

#include <cerrno>

namespace rails_test {

TEST_CASE("an attempt of a rail that fails at once doubles the pause before the next one, up to the limit", "[rails]") {
  struct {
    fake::call verb;
    const char* cause;
  } const all[] = {{fake::call::ibv_create_qp, "The adapter has no endpoint left."},
                   {fake::call::rdma_create_id, "The adapter cannot connect to that address."}};
  for (const auto& [verb, cause] : all) {
    INFO(fake::name(verb));
    ends e(1, {.cool_down = 1s, .max_cool_down = 20s});
    REQUIRE(e.all_up());
    must(e.a.rails.disconnect(0));
    e.some_turns();
    const auto attempts = [&] { return e.a.rails.health(0).lives; };
    for (const int seconds : {1, 2, 4, 8, 16, 20, 20}) {
      const auto before = attempts();
      fake::fail(verb, 1, ENOMEM);
      simulated += std::chrono::seconds(seconds) - 1ns;
      e.some_turns();
      CHECK(attempts() == before);
      simulated += 1ns;
      e.some_turns();
      CHECK(attempts() == before + 1);
      CHECK(fake::forget_faults() == 0);
      CHECK(e.a.rails.health(0).cause == cause);
      CHECK(qp_of('a', 0) == nullptr);
    }
    simulated += 20s;
    CHECK(e.all_up());
  }
}

TEST_CASE("a rail whose adapter has no endpoint for a connection keeps nothing of it, and accepts the next one",
          "[rails]") {
  // No queue pair, or one that cannot be connected: the first change of its state belongs to its creation.
  const bool made = GENERATE(false, true);
  ends e(1, {.cool_down = 1s, .max_cool_down = 1s});
  for (int i = 0; i < 400 && e.b.rails.health(0).lives == 0; ++i) {
    e.a.run();
    fake::finish();
    fake::fail(made ? fake::call::ibv_modify_qp : fake::call::ibv_create_qp, made ? 2 : 1, ENOMEM);
    e.b.run();
    fake::forget_faults();
  }
  CHECK(e.b.rails.health(0).cause == "The adapter cannot accept the connection.");
  CHECK(qp_of('b', 0) == nullptr);
  REQUIRE(e.until_later([&] { return e.b.rails.up() == 1; }));
  must(e.a.write());
  CHECK(e.all_done());
}

TEST_CASE("a rail whose adapter refuses a message ends, and another one carries the message", "[rails]") {
  ends e(2, {.spread = dat::rails_spread::round_robin});
  REQUIRE(e.all_up());
  e.some_turns();
  fake::fail(fake::call::ibv_post_send, 1, EIO);
  must(e.a.write());
  CHECK(e.a.rails.up() == 1);
  const std::size_t ended = e.a.rails.health(0).up ? 1 : 0;
  CHECK(e.a.rails.health(ended).cause == "The adapter refuses requests.");
  CHECK(e.a.rails.health(1 - ended).sent == 1);
  CHECK(e.all_done());
  exact(e.a, e.b);
}

} // namespace rails_test
