// What rails report of themselves, and how long they wait.
// SPDX-License-Identifier: BSL-1.0
#include "ends.hpp"

namespace rails_test {

TEST_CASE("rails without a peer have no rails, no messages and no health", "[rails]") {
  dat::rails none;
  CHECK(none.size() == 0);
  CHECK(none.up() == 0);
  CHECK(none.not_done() == 0);
  CHECK(none.duplicates() == 0);
  CHECK(none.descriptors().empty());
  none.take_triggers();
  const auto h = none.health(0);
  CHECK_FALSE(h.up);
  CHECK(h.lives == 0);
  CHECK(dat::rails_memory().size_bytes() == 0);
  CHECK(dat::rails_remote().size_bytes() == 0);
  is_error(none.disconnect(0), dat::return_type::invalid_handle, dat::return_subtype::handle_ep);
}

TEST_CASE("the health of a rail follows its connection, and keeps the cause of the latest failure", "[rails]") {
  ends e(2);
  REQUIRE(e.all_up());
  for (std::size_t i = 0; i < 2; ++i) {
    const auto h = e.a.rails.health(i);
    CHECK(h.up);
    CHECK(h.lives == 1);
    CHECK(h.cause.empty());
    CHECK(h.sent == 0);
    CHECK(h.received == 0);
    CHECK(h.under_way == 0);
    CHECK(h.bytes_under_way == 0);
  }
  CHECK(e.a.rails.health(2).lives == 0); // of no rail
  must(e.a.rails.disconnect(0));
  CHECK_FALSE(e.a.rails.health(0).up);
  const std::string cause(e.a.rails.health(0).cause);
  CHECK(cause.ends_with('.'));
  CHECK(e.a.rails.health(1).cause.empty());
  REQUIRE(e.until([&] { return e.b.rails.up() == 1; }));
  CHECK(e.b.rails.health(0).cause.ends_with('.'));
  REQUIRE(e.until_later([&] { return e.a.rails.up() == 2; }));
  CHECK(e.a.rails.health(0).lives >= 2);
  CHECK(e.a.rails.health(0).cause == cause);
  CHECK(e.a.rails.health(0).bytes_under_way == 0);
}

TEST_CASE("a rail whose adapter refuses a probe ends", "[rails]") {
  ends e(1);
  REQUIRE(e.all_up());
  e.some_turns();
  simulated += 10s; // no message has arrived since, so the rail is probed
  fake::fail(fake::call::ibv_post_send, 1, EIO);
  e.a.run();
  CHECK_FALSE(e.a.rails.health(0).up);
  CHECK(e.a.rails.health(0).cause == "The adapter refuses requests.");
  REQUIRE(e.until_later([&] { return e.a.rails.up() == 1; }));
}

TEST_CASE("a rail does not repeat a grant of credits to its peer", "[rails]") {
  ends e(1);
  REQUIRE(e.all_up());
  for (int i = 0; i < 100; ++i) {
    must(e.a.write());
    e.turn();
  }
  REQUIRE(e.all_done());
  e.some_turns();
  const auto posted = fake::count(fake::call::ibv_post_send);
  e.some_turns();
  CHECK(fake::count(fake::call::ibv_post_send) == posted);
  exact(e.a, e.b);
}

TEST_CASE("a wait of rails ends at its limit, at once where there is no time, and by an event", "[rails]") {
  ends e(2);
  REQUIRE(e.all_up());
  e.some_turns();
  is_error(e.a.rails.wait(e.a.seen, 0s), dat::return_type::timeout_expired);
  is_error(e.a.rails.wait(e.a.seen, 1ms), dat::return_type::timeout_expired);
  must(e.b.write());
  for (int i = 0; i < 1000 && e.a.seen.arrived.empty(); ++i) {
    e.b.run();
    (void)e.a.rails.wait(e.a.seen, 1ms);
  }
  CHECK(e.a.seen.arrived.size() == 1);
  dat::rails none;
  is_error(none.wait(e.a.seen, 1ms), dat::return_type::invalid_handle, dat::return_subtype::handle_ep);
}

} // namespace rails_test
