// How memory windows in the fake world end: by messages, with their connection, and with the objects that they need.
// SPDX-License-Identifier: BSL-1.0
#include "windows_fake.hpp"

#include <dat/rmr.hpp>

#include <dat/detail/events/merged_evd.hpp>
#include <dat/detail/handle/core_access.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

using namespace unit;
using namespace windows;

TEST_CASE("the objects that a window needs may end in any order",
          "[rmr][RMR-009][RMR-010][RMR-012][RMR-013][LMR-033][PZ-005]") {
  const clean_world world;
  const bool for_ep = GENERATE(false, true);
  const bool posted = GENERATE(false, true); // the completion of the bind is not taken
  CAPTURE(for_ep, posted);
  two t;
  dat::rmr rmr = make(t.b, for_ep);
  is_error(t.b.pz.close(), dat::return_type::invalid_state, dat::return_subtype::pz_in_use);
  const window w = must(rmr.bind(t.b.ep, dat::bind{t.b.mem, both}.cookie(1)));
  if (!posted) CHECK(t.b.take() == events{"bind 1"});
  is_error(t.b.mem.close(), dat::return_type::invalid_state, dat::return_subtype::lmr_in_use);

  SECTION("the rmr") {
    rmr = {};
    if (posted) {
      is_error(t.b.mem.close(), dat::return_type::invalid_state, dat::return_subtype::lmr_in_use);
      CHECK(t.b.take() == events{"bind 1"}); // the event comes although the handle is destroyed
    }
    must(t.b.mem.close());
    CHECK(t.write(w) == refused);
  }
  SECTION("the region") {
    t.b.mem = {};
    CHECK_FALSE(must(rmr.query()).binding);
    if (posted) CHECK(t.b.take() == events{"bind 1"});
    CHECK_FALSE(must(rmr.query()).binding);
    const window next = must(rmr.bind(t.b.ep, dat::bind{t.b.own, both}.cookie(2)));
    CHECK(t.b.take() == events{"bind 2"});
    CHECK(t.write(next) == "written 1");
    CHECK(t.write(w) == refused);
  }
  SECTION("the endpoint") {
    must(t.b.ep.close());
    const bool unbound = for_ep || posted;
    CHECK(must(rmr.query()).binding.has_value() != unbound);
    if (unbound) must(t.b.mem.close());
    t.settle();
    (void)t.a.take();
    (void)t.b.take();
    t.b.make_ep();
    t.a.make_ep();
    t.connect(t.a.ep, t.b.ep);
    const window next = must(rmr.bind(t.b.ep, dat::bind{t.b.own, both}.cookie(2)));
    CHECK(t.b.take() == events{"bind 2"});
    CHECK(t.write(next) == "written 1");
  }
  SECTION("the endpoint is reset") {
    must(t.b.ep.disconnect());
    t.settle();
    must(t.b.ep.reset());
    CHECK(must(rmr.query()).binding.has_value() != (for_ep || posted));
    (void)t.b.take();
  }
  SECTION("the endpoint ends, then the ia") {
    must(t.b.ia.close(dat::close_mode::abrupt));
    is_error(rmr.query(), dat::return_type::invalid_handle, dat::return_subtype::handle_rmr);
    is_error(rmr.unbind(t.b.ep), dat::return_type::invalid_handle, dat::return_subtype::handle_rmr);
  }
  SECTION("the zone's handle ends, then all others") {
    t.b.pz = {};
    t.b.mem = {};
    t.b.own = {};
    t.b.ep = {};
    CHECK_FALSE(must(rmr.query()).binding);
  }
}

TEST_CASE("windows whose region has ended are bound again, and no other window is lost", "[rmr]") {
  const clean_world world;
  constexpr std::uint64_t half = 300; // more than the table of an ia has chains
  two t;
  std::vector<dat::rmr> all;
  const auto bound = [&](std::uint64_t i, const local_region& to) {
    must(all[i].bind(t.b.ep, dat::bind{to, both}.cookie(i)));
    return t.b.take() == events{"bind " + std::to_string(i)};
  };
  for (std::uint64_t i = 0; i < 2 * half; ++i) {
    all.push_back(make(t.b, false));
    REQUIRE(bound(i, i < half ? t.b.mem : t.b.own));
  }
  t.b.own = {};
  for (std::uint64_t i = half; i < 2 * half; ++i) REQUIRE(bound(i, t.b.mem));
  for (std::uint64_t i = 0; i < half; ++i) {
    must(all[i].unbind(t.b.ep, dat::unbind{}.cookie(i)));
    REQUIRE(t.b.take() == events{"unbind " + std::to_string(i)});
  }
}

TEST_CASE("a window whose unbind has failed is in use until the bind behind it has ended", "[rmr]") {
  const clean_world world;
  two t;
  dat::rmr rmr = make(t.b, true);
  fail_second_bind(t, rmr);
  events first;
  const auto keep = [&](const auto& e) { first.push_back(describe_binds{}(e)); };
  CHECK(t.b.evd.drain(keep, 1) == 1);
  is_error(rmr.close(), dat::return_type::invalid_state);
  t.settle();
  (void)t.b.take();
  must(rmr.close());
}

TEST_CASE("the second completion of a bind that has failed counts as no event where the evd has set it aside",
          "[rmr]") {
  const clean_world world;
  two t;
  dat::rmr rmr = make(t.b, true);
  fail_second_bind(t, rmr);
  static_cast<dat::detail::merged_evd&>(*dat::detail::core_access::of(t.b.evd)).drain(); // sets both aside
  events seen;
  const auto keep = [&](const auto& e) { seen.push_back(describe_binds{}(e)); };
  for (int i = 1; i <= 4; ++i) {
    const std::size_t before = seen.size();
    const std::size_t counted = t.b.evd.drain(keep, 1);
    CHECK(counted == seen.size() - before);
  }
  REQUIRE_FALSE(seen.empty());
  CHECK(std::count_if(seen.begin(), seen.end(), [](const std::string& e) { return e.ends_with(" 2"); }) == 1);
  t.settle();
  (void)t.b.take();
  must(rmr.close());
}

TEST_CASE("an rmr for one endpoint can be bound to another endpoint when the first has no connection", "[rmr]") {
  const clean_world world;
  two t;
  auto far = t.a.new_ep();
  auto near = t.b.new_ep();
  t.connect(far, near);
  dat::rmr rmr = make(t.b, true);
  must(rmr.bind(t.b.ep, dat::bind{t.b.mem, both}));
  (void)t.b.take();
  is_error(rmr.bind(near, dat::bind{t.b.mem, both}), dat::return_type::invalid_state);
  must(t.b.ep.disconnect());
  t.settle();
  (void)t.a.take();
  (void)t.b.take();
  const window w = must(rmr.bind(near, dat::bind{t.b.mem, both}.cookie(3)));
  CHECK(t.b.take() == events{"bind 3"});
  CHECK(t.write(w, far) == "written 1");
}

TEST_CASE("a send can close a window of the peer, and the receive names the window", "[rmr][dto]") {
  const auto statuses = GENERATE(fake::statuses::rxe, fake::statuses::iba);
  const clean_world world({.wc_statuses = statuses});
  const bool completions_only = GENERATE(false, true);
  two t(completions_only);
  dat::rmr rmr = make(t.b, true);
  const window w = must(rmr.bind(t.b.ep, dat::bind{t.b.mem, both}));
  (void)t.b.take();
  must(t.b.ep.post(dat::recv{t.b.own}.cookie(1)));
  must(t.b.ep.post(dat::recv{}.cookie(2)));
  must(t.b.ep.post(dat::recv{}.cookie(3)));
  must(t.a.ep.post(dat::send{}.cookie(8))); // takes the first receive
  must(t.a.ep.post(dat::send_with_invalidate{w}.cookie(9)));
  CHECK(t.a.take() == events{"sent 8", "sent 9"});
  SHOWS("DTO-107");
  CHECK(t.b.take() == events{"received 1", "received 2 invalidating"});
  SHOWS("DTO-101", "DTO-106");
  CHECK_FALSE(must(rmr.query()).binding);
  must(t.b.mem.close());

  // The window can be bound again, and closed by a message with data.
  const window next = must(rmr.bind(t.b.ep, dat::bind{t.b.own, both}));
  (void)t.b.take();
  CHECK(t.write(next) == "written 1");
  SHOWS("DTO-116");
  must(t.b.ep.post(dat::recv{t.b.own}.cookie(4)));
  must(t.a.ep.post(dat::send{}.cookie(8)));
  must(t.a.ep.post(dat::send_with_invalidate{must(t.a.mem.slice(0, 8)), next}.solicited().cookie(9)));
  CHECK(t.a.take() == events{"sent 8", "sent 9"});
  CHECK(t.b.take() == events{"received 3", "received 4 invalidating"});
  if (!completions_only) { // an event that a wait takes names the window, too
    const window last = must(rmr.bind(t.b.ep, dat::bind{t.b.own, both}));
    (void)t.b.take();
    must(t.b.ep.post(dat::recv{}.cookie(5)));
    must(t.a.ep.post(dat::send_with_invalidate{last}));
    fake::finish();
    const auto closing = must(t.b.evd.wait_for<dat::recv_done>(plenty));
    REQUIRE(closing.invalidated());
    CHECK(rmr.is(*closing.invalidated()));
    SHOWS("DTO-115", "DTO-117");
    CHECK_FALSE(must(rmr.query()).binding);
    (void)t.a.take();
  }
  CHECK(t.write(next) == refused);
  SHOWS("DTO-100", "DTO-105", "RMR-020");
}

TEST_CASE("a message may close a window before the completion of its bind is taken", "[rmr][dto][DTO-105][RMR-020]") {
  const clean_world world;
  two t;
  auto near = t.a.new_ep();
  auto far = must(t.b.pz.create_ep<dat::rc>(dat::ep_evds{t.b.evd, t.b.completions, t.b.evd}));
  t.connect(near, far);
  dat::rmr rmr = make(t.b, true);
  for (std::uint64_t round = 0; round < 3; ++round) {
    must(far.post(dat::recv{t.b.own}.cookie(1)));
    const window w = must(rmr.bind(far, dat::bind{t.b.mem, both}.cookie(2)));
    must(near.post(dat::send_with_invalidate{w}.cookie(9)));
    CHECK(t.a.take() == events{"sent 9"});
    events first;
    while (t.b.evd.drain([&](const auto& e) { first.push_back(describe_binds{}(e)); }) != 0) {
    }
    CHECK(first == events{"received 1 invalidating"});
    is_error(rmr.bind(far, dat::bind{t.b.mem, both}), dat::return_type::invalid_state); // the first bind is outstanding
    CHECK(t.b.take() == events{"bind 2"});
    CHECK_FALSE(must(rmr.query()).binding);
  }
  must(t.b.mem.close()); // nothing is bound to it
  CHECK(far.state() == dat::ep_state::connected);
}

TEST_CASE("an invalid key in a send with invalidate fails at the receiver", "[rmr][dto]") {
  const clean_world world;
  two t;
  auto open_region = must(t.b.pz.register_memory(t.b.inbox, local_rights | dat::remote_write));
  must(t.b.ep.post(dat::recv{}.cookie(1)));
  must(t.a.ep.post(dat::send_with_invalidate{open_region.remote()}.cookie(2)));
  CHECK(t.a.take().front() == "sent 2");
  CHECK(t.b.take().front() == failed(dat::dto_status::local_ep, 1));
  t.settle();
  CHECK(t.b.ep.state() == dat::ep_state::disconnected);
}
