// Rails on a device: a rail is disconnected under load and comes back, and every message arrives once.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/rails.hpp>

namespace device {

TEST_CASE("several connections stand in for each other, and one that has failed is made again to the same address",
          "[rails][HA-004][HA-005][HA-009][HA-022]") {
  constexpr std::uint64_t messages = 600;
  constexpr std::size_t slots = 64;
  dat::ia first = must(dat::ia::open(addresses()[0]));
  dat::ia second = must(dat::ia::open(addresses()[1]));
  // Each adapter is the passive side of a rail.
  const std::array connecting{dat::rail_path{&first, second.address(), next_port()},
                              dat::rail_path{&second, first.address(), next_port()}};
  const std::array listening{dat::rail_path{&second, {}, connecting[0].port},
                             dat::rail_path{&first, {}, connecting[1].port}};
  const dat::rails_options options{.failover_within = 20s, .cool_down = 1ms};
  if (!has(feature::immediate_data)) {
    CHECK(error_of(dat::rails::listen(listening, options)).type() == type::model_not_supported);
    CHECK(error_of(dat::rails::connect(connecting, options)).type() == type::model_not_supported);
    SKIP("rails need immediate data");
  }
  auto b = must(dat::rails::listen(listening, options));
  auto a = must(dat::rails::connect(connecting, options));
  std::vector<std::uint64_t> out(messages);
  std::vector<std::uint64_t> in(slots, messages);
  const auto from = must(a.register_memory(out));
  const auto into = must(b.register_memory(in));
  const auto there = must(dat::rails_remote::from_wire(into.to_wire()));

  std::uint64_t done = 0;
  std::uint64_t taken = 0;
  std::uint64_t wrong = 0;
  std::size_t downs = 0;
  const auto turn = [&] {
    must(a.run(dat::overloaded{[&](const dat::rails_write_done&) { ++done; }, [&](const dat::rail_down&) { ++downs; },
                               [](const auto&) {}}));
    must(b.run(dat::overloaded{[&](const dat::rails_message& m) {
                                 wrong += m.tag != taken || in[m.tag % slots] != taken || !m.ordered;
                                 ++taken;
                               },
                               [](const auto&) {}}));
  };
  const auto both_up = [&] {
    turn();
    return a.up() == 2 && b.up() == 2;
  };
  REQUIRE(comes_true(both_up));
  std::uint64_t written = 0;
  CHECK(comes_true([&] {
    // A slot of the peer is free when its previous message was taken there.
    for (; written < messages && written < taken + slots; ++written) {
      if (written % 100 == 50)
        must((written / 100 % 2 ? a : b).disconnect(written / 200 % 2)); // either side, either rail
      out[written] = written;
      must(a.write(from, written * 8, 8, there, written % slots * 8,
                   {.cookie = written, .tag = static_cast<std::uint16_t>(written), .ordered = true}));
    }
    turn();
    return done == messages && taken == messages;
  }));
  CHECK(wrong == 0);
  CHECK(downs > 0);
  CHECK(a.duplicates() + b.duplicates() == 0);
  CHECK(comes_true(both_up));
  CHECK(a.health(0).lives + a.health(1).lives > 2);
  CHECK(b.health(0).received > 0);
  CHECK(b.health(1).received > 0);
}

} // namespace device
