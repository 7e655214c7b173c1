// Rails in the fake world: failing calls, bad input, and peers that do not follow the protocol.
// SPDX-License-Identifier: BSL-1.0
#include "allocations.hpp"
#include "ends.hpp"

#include <dat/detail/impl/rails_state.hpp>

#include <endian.h>

namespace rails_test {

TEST_CASE("every verbs call fails once, and each message still arrives exactly once", "[rails]") {
  const auto flow = [](const fake::injected& failure) {
    INFO(failure.text());
    simulated = {};
    const dat::rails_options options{.depth = 4, .window = 64, .clock = &the_clock};
    std::optional<dat::error> refused;
    const auto made = [&](dat::expected<dat::rails> r) {
      if (!r) refused = r.error();
      return r ? std::move(r).value() : dat::rails();
    };
    end a, b;
    for (end* e : {&a, &b})
      for (std::size_t i = 0; i < 2 && !refused; ++i) {
        auto ia = dat::ia::open((e == &a ? "a" : "b") + std::to_string(i), unit::manual);
        if (!ia) {
          refused = ia.error();
          break;
        }
        e->ias.push_back(std::move(ia).value());
        const std::string peer = (e == &a ? "10.2." : "10.1.") + std::to_string(i) + ".1";
        e->paths.push_back({&e->ias.back(), must(dat::ia_address::parse(peer)), 7471});
      }
    if (!refused) b.rails = made(dat::rails::listen(b.paths, options));
    if (!refused) a.rails = made(dat::rails::connect(a.paths, options));
    for (end* e : {&a, &b})
      for (auto* m : {&e->from, &e->into})
        if (!refused) {
          auto memory = e->rails.register_memory(m == &e->from ? e->out : e->in);
          if (memory)
            *m = std::move(memory).value();
          else
            refused = memory.error();
        }
    if (refused) { // no rail was started; the error names the failed call
      CHECK(failure.active);
      CHECK_FALSE(refused->message().empty());
      return;
    }
    a.learn(b);
    b.learn(a);
    for (int i = 0; i < 300; ++i) {
      simulated += 50ms;
      if (i == 20) must(a.rails.disconnect(0)); // the protocol of a failure is swept, too
      if (a.written < 20) must(a.write());
      if (b.written < 20) must(b.write(false));
      a.run();
      fake::finish();
      b.run();
      fake::finish();
    }
    exact(a, b);
    exact(b, a);
    CHECK(a.rails.up() == 2);
    CHECK(b.rails.up() == 2);
  };
  const auto result = fake::for_each_failure(flow, {.max_per_call = 12, .start = world_of(2)});
  CHECK(result.runs > 100);
  CHECK(result.dirty.empty());
}

TEST_CASE("bad input of rails is refused with the remedy", "[rails]") {
  const auto invalid = dat::return_type::invalid_parameter;
  const unit::clean_world world(world_of(2));
  end a;
  a.open('a', 2);
  using dat::return_subtype;
  is_error(dat::rails::connect({}), invalid, return_subtype::arg1);
  is_error(dat::rails::connect(std::vector<dat::rail_path>(17, a.paths[0])), invalid, return_subtype::arg1);
  is_error(dat::rails::connect(std::array{dat::rail_path{}}), invalid, return_subtype::arg1);
  STATIC_REQUIRE(to_string(static_cast<dat::rails_spread>(2)) == "unknown rails_spread");
  dat::ia closed;
  is_error(dat::rails::listen(std::array{dat::rail_path{&closed}}), invalid, return_subtype::arg1);
  for (const dat::rails_options& bad : {dat::rails_options{.spread = static_cast<dat::rails_spread>(2)},
                                        {.failover_within = 89ms},
                                        {.failover_within = 61s},
                                        {.cool_down = -1ms},
                                        {.cool_down = 2s, .max_cool_down = 1s},
                                        {.depth = 0},
                                        {.depth = 4097},
                                        {.window = 0},
                                        {.window = 8193},
                                        {.clock = nullptr}}) {
    const auto r = dat::rails::connect(a.paths, bad);
    is_error(r, invalid, return_subtype::arg2);
    CHECK(r.error().message().find("must") != std::string::npos);
  }
  auto r = must(dat::rails::connect(a.paths, {.clock = &the_clock}));
  auto memory = must(r.register_memory(a.out));
  const auto wire = memory.to_wire();
  CHECK(wire.size() == 48);
  const auto there = must(dat::rails_remote::from_wire(wire));
  CHECK(there.size_bytes() == a.out.size());
  is_error(r.write(memory, 1, a.out.size(), there, 0), invalid, return_subtype::arg3);
  is_error(r.write(memory, 0, 10, there, a.out.size() - 9), invalid, return_subtype::arg5);
  is_error(r.write({}, 0, 0, there, 0), dat::return_type::invalid_handle, return_subtype::handle_lmr);
  is_error(r.write(memory, 0, 0, {}, 0), dat::return_type::invalid_handle, return_subtype::handle_lmr);
  const auto one = must(dat::rails_remote::from_wire(std::span(wire).first(24)));
  is_error(r.write(memory, 0, 0, one, 0), invalid);
  is_error(r.disconnect(2), invalid, return_subtype::arg1);
  CHECK(r.health(2).lives == 0);
  CHECK(r.not_done() == 0);
  is_error(dat::rails_remote::from_wire(std::span(wire).first(23)), invalid);
  is_error(dat::rails_remote::from_wire({}), invalid);
  auto other_length = wire;
  other_length[24 + 15] ^= std::byte{1};
  is_error(dat::rails_remote::from_wire(other_length), invalid);
  dat::rails none;
  is_error(none.run([](const auto&) {}), dat::return_type::invalid_handle, return_subtype::handle_ep);
  is_error(none.write(memory, 0, 0, there, 0), dat::return_type::invalid_handle, return_subtype::handle_ep);
  is_error(none.register_memory(a.out), dat::return_type::invalid_handle, return_subtype::handle_ep);
  is_error(none.disconnect(0), dat::return_type::invalid_handle, return_subtype::handle_ep);
  CHECK(none.size() == 0);
  CHECK(none.up() == 0);
  CHECK(none.descriptors().empty());
  none.take_triggers();
  CHECK_FALSE(none);
  none = std::move(r);
  CHECK(none.size() == 2);
  is_error(none.wait([](const auto&) {}, 0us), dat::return_type::timeout_expired);
}

TEST_CASE("a write to rails allocates nothing", "[rails]") {
  if (!unit::counts_allocations) SKIP("this build cannot count requests for memory");
  ends e(2);
  REQUIRE(e.all_up());
  for (std::size_t i = 0; i < 2; ++i) must(e.a.rails.disconnect(i)); // the fake allocates in posts, so there are none
  e.some_turns();
  const auto before = unit::allocations();
  for (int i = 0; i < 100; ++i) must(e.a.write());
  CHECK(unit::allocations() == before);
  CHECK(e.until_later([&] { return e.a.rails.not_done() == 0; }));
  exact(e.a, e.b);
}

TEST_CASE("a peer of another session, number of rails or protocol is rejected, and the rails go on", "[rails]") {
  ends e(2);
  REQUIRE(e.all_up());
  end other; // a second program on the first one's host
  for (auto& ia : e.a.ias) other.paths.push_back({&ia, {}, 7471});
  for (std::size_t i = 0; i < 2; ++i) other.paths[i].remote = e.a.paths[i].remote;
  const dat::rails_options by_the_clock{.clock = &the_clock};
  SECTION("another session") { CHECK((other.rails = must(dat::rails::connect(other.paths, by_the_clock)))); }
  SECTION("another number of rails") {
    CHECK((other.rails = must(dat::rails::connect(std::span(other.paths).first(1), by_the_clock))));
  }
  SECTION("another order") {
    std::swap(other.paths[0].remote, other.paths[1].remote);
    CHECK((other.rails = must(dat::rails::connect(other.paths, by_the_clock))));
  }
  for (int i = 0; i < 20; ++i) {
    other.run();
    e.turn();
  }
  CHECK(other.rails.up() == 0);
  CHECK(other.rails.health(0).cause.find("The peer rejected the rail") == 0);
  CHECK(e.b.rails.up() == 2);
  must(e.a.write());
  CHECK(e.all_done());
  e.some_turns();
  exact(e.a, e.b);
}

TEST_CASE("a peer that names no session is rejected", "[rails]") {
  const unit::clean_world world(world_of(1));
  simulated = {};
  end b;
  b.open('b', 1);
  b.rails = must(dat::rails::listen(b.paths, {.clock = &the_clock}));
  unit::end hand("a0");
  hand.make_ep();
  const auto answer_to = [&](std::uint64_t session) {
    const dat::detail::rail::greeting hello{0, 1, 1, session};
    must(hand.ep.connect(must(dat::ia_address::parse("10.2.0.1")), 7471, unit::plenty, hello.bytes()));
    for (int i = 0; i < 20; ++i) {
      hand.ia.run();
      b.run();
      fake::finish();
    }
    return hand.take();
  };
  CHECK(answer_to(0) == unit::events{"peer_rejected"});
  must(hand.ep.reset());
  CHECK(answer_to(1) == unit::events{"established"});
}

TEST_CASE("a peer that breaks the protocol gets nothing delivered twice, and loses its rail", "[rails]") {
  const unit::clean_world world(world_of(1));
  simulated = {};
  end b;
  b.open('b', 1);
  b.rails = must(dat::rails::listen(b.paths, {.clock = &the_clock}));
  b.register_all();
  const auto there = must(dat::rails_remote::from_wire(b.into.to_wire()));
  // A peer that implements the protocol by its documentation.
  unit::end hand("a0");
  hand.make_ep();
  std::array<std::byte, 20> hello{};
  std::memcpy(hello.data(), "datr", 4);
  hello[4] = std::byte{1};
  hello[6] = std::byte{1};
  hello[11] = std::byte{1};
  hello[19] = std::byte{9};
  const auto turn = [&] {
    for (int i = 0; i < 20; ++i) {
      hand.ia.run();
      fake::finish();
      b.run();
      fake::finish();
    }
  };
  for (int i = 0; i < 8; ++i) must(hand.ep.post(dat::recv{hand.at(std::size_t(i) * 64, 64)}));
  const auto send = [&](std::initializer_list<int> bytes) {
    std::size_t i = 2048;
    std::fill_n(hand.memory.begin() + 2048, 24, char{0});
    for (const int byte : bytes) hand.memory[i++] = static_cast<char>(byte);
    hand.memory[2048 + 23] = 9; // the number of the session
    must(hand.ep.post(dat::send{hand.at(2048, 24)}));
    turn();
  };
  const auto write = [&](std::uint32_t immediate) { // the lowest byte goes first
    must(hand.ep.post(
        dat::rdma_write{dat::local_segment<std::byte, dat::mem_priv::local_read>{}, dat::rails_remote::segment{}}
            .immediate(htole32(immediate))));
    turn();
  };
  must(hand.ep.connect(must(dat::ia_address::parse("10.2.0.1")), 7471, unit::plenty, hello));
  turn();
  REQUIRE(hand.ep.state() == dat::ep_state::connected);
  CHECK(b.rails.up() == 0);
  send({1, 0, 1, 0, 0, 0, 0, 1}); // hello
  REQUIRE(b.rails.up() == 1);
  write(1u << 30 | 1u << 16 | 11); // the second ordered message
  CHECK(b.seen.order.empty());
  write(1u << 30 | 0u << 16 | 10); // the first ordered message
  CHECK(b.seen.order == std::vector<std::uint16_t>{10, 11});
  write(0u << 16 | 20); // unordered
  write(1u << 31 | 1u << 16 | 21);
  CHECK(b.seen.arrived.size() == 3); // the last message was marked to be skipped
  CHECK(b.rails.duplicates() == 0);
  SECTION("sequence numbers that were there, or are too far ahead") {
    write(1u << 30 | 0u << 16 | 10);
    write(0u << 16 | 20);
    write(1u << 30 | (8192u + 2) << 16 | 30);
    CHECK(b.rails.duplicates() == 3);
    CHECK(b.seen.order.size() == 2);
    CHECK(b.seen.arrived.size() == 3);
    CHECK(b.rails.up() == 1);
    // An adapter that delivers a message twice must not make the report count another message, which would be lost.
    must(hand.ep.disconnect());
    turn();
    (void)hand.take();
    must(hand.ep.reset());
    hand.memory.fill(0);
    for (int i = 0; i < 8; ++i) must(hand.ep.post(dat::recv{hand.at(std::size_t(i) * 64, 64)}));
    hello[11] = std::byte{2};
    must(hand.ep.connect(must(dat::ia_address::parse("10.2.0.1")), 7471, unit::plenty, hello));
    turn();
    send({1, 0, 1, 0, 0, 0, 0, 2});
    const std::array<char, 16> report{3, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 4}; // 4 messages of life 1
    CHECK(std::equal(report.begin(), report.end(), hand.memory.begin()));
  }
  SECTION("a control message of an unknown kind") { send({9, 0, 1, 0, 0, 0, 0, 1}); }
  SECTION("a control message of another version") { send({2, 0, 2, 0, 0, 0, 0, 1}); }
  SECTION("a credit for a rail that does not exist") { send({2, 7, 1, 0, 0, 0, 0, 1}); }
  SECTION("a report of a rail that does not exist") { send({3, 1, 1, 0, 0, 0, 0, 1}); }
  SECTION("a credit for another life") { send({2, 0, 1, 0, 0, 0, 0, 2}); }
  SECTION("a control message that is too short") {
    must(hand.ep.post(dat::send{hand.at(2048, 5)}));
    turn();
  }
  if (b.rails.duplicates() == 0) {
    CHECK(b.rails.up() == 0);
    CHECK(b.rails.health(0).cause.find("The peer") == 0);
    CHECK(b.seen.rails == std::vector<std::string>{"up 0", "down 0"});
  }
}

} // namespace rails_test
