// Rails in the fake world: messages over several adapters, links that fail by script at every point, exact counts.
// SPDX-License-Identifier: BSL-1.0
#include "ends.hpp"

#include <random>

namespace rails_test {

TEST_CASE("messages go over all rails in both directions, and arrive once and in order", "[rails]") {
  const auto spread = GENERATE(dat::rails_spread::round_robin, dat::rails_spread::by_bytes);
  ends e(4, {.spread = spread});
  REQUIRE(e.all_up());
  CHECK(e.a.seen.rails.size() == 4);
  CHECK(e.b.seen.rails.size() == 4);
  for (int i = 0; i < 400; ++i) {
    must(e.a.write(i % 2 == 0));
    must(e.b.write(i % 3 == 0));
    if (i % 50 == 49) e.turn();
  }
  CHECK(e.all_done());
  e.some_turns();
  exact(e.a, e.b);
  exact(e.b, e.a);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(e.a.rails.health(i).sent == 100);
    CHECK(e.b.rails.health(i).received == 100);
    CHECK(e.a.rails.health(i).lives == 1);
    CHECK(e.a.rails.health(i).up);
    CHECK(e.a.rails.health(i).cause.empty());
  }
}

TEST_CASE("by bytes, a rail that does not advance gets no more than it can hold, and round robin fills each in turn",
          "[rails]") {
  const bool by_bytes = GENERATE(true, false);
  ends e(2, {.spread = by_bytes ? dat::rails_spread::by_bytes : dat::rails_spread::round_robin});
  REQUIRE(e.all_up());
  fake::hold(qp_of('a', 0));
  for (int i = 0; i < 20; ++i) {
    must(e.a.write(false));
    e.turn();
  }
  CHECK(e.a.rails.health(0).under_way == (by_bytes ? 1 : 10));
  CHECK(e.a.rails.health(1).sent == (by_bytes ? 19 : 10));
  fake::hold(qp_of('a', 0), false);
  CHECK(e.all_done());
  e.some_turns();
  exact(e.a, e.b);
}

TEST_CASE("each rail has receives for the messages that its peer may send and for 32 of the rails themselves",
          "[rails]") {
  ends e(2, {.depth = 10});
  REQUIRE(e.all_up());
  e.some_turns();
  for (const char side : {'a', 'b'})
    for (const std::size_t rail : {0u, 1u}) CHECK(fake::posted_receives(qp_of(side, rail)) == 10 + 32);
}

TEST_CASE("more messages than receives are paced by credits, and a full window is refused", "[rails]") {
  ends e(2, {.depth = 4, .window = 16});
  REQUIRE(e.all_up());
  for (int i = 0; i < 16; ++i) must(e.a.write());
  is_error(e.a.write(), dat::return_type::insufficient_resources, dat::return_subtype::resource_credits);
  CHECK(e.a.rails.health(0).sent == 4); // the peer has not run: no more than its receives
  CHECK(e.a.rails.health(1).sent == 4);
  for (int i = 0; i < 200; ++i) {
    e.turn();
    while (e.a.written < 1000 && e.a.write()) {
    }
  }
  CHECK(e.a.written == 1000);
  CHECK(e.all_done());
  e.some_turns();
  exact(e.a, e.b);
}

TEST_CASE("a rail that fails loses nothing and repeats nothing, wherever its messages are", "[rails]") {
  // Of five messages on the rail, `whole` have arrived and are acknowledged. The acknowledgement of the next message is
  // lost, or not. The others were never sent.
  struct failure {
    int whole;
    bool lost;
    enum { at_sender, at_receiver, link } where;
  };
  for (int whole = 0; whole <= 5; ++whole)
    for (const bool lost : {false, true})
      for (const auto where : {failure::at_sender, failure::at_receiver, failure::link}) {
        if (lost && whole == 5) continue;
        INFO(whole << " whole, acknowledgement " << (lost ? "lost" : "kept") << ", broken at " << int(where));
        ends e(2, {.spread = dat::rails_spread::round_robin});
        REQUIRE(e.all_up());
        ibv_qp* const first = qp_of('a', 0);
        fake::hold(first);
        for (int i = 0; i < 10; ++i) must(e.a.write());
        for (int i = 0; i < 5; ++i) must(e.b.write());
        for (int i = 0; i < whole; ++i) REQUIRE(fake::complete(first));
        if (lost) REQUIRE(fake::lose_acknowledgement(first));
        if (where == failure::at_sender) fake::break_qp(first);
        if (where == failure::at_receiver) fake::break_qp(qp_of('b', 0));
        if (where == failure::link) fake::set_port_state("b0", 1, IBV_PORT_DOWN);
        fake::hold(first, false);
        CHECK(e.until_later([&] { return e.a.rails.not_done() == 0 && e.b.rails.not_done() == 0; }, 200));
        e.some_turns();
        exact(e.a, e.b);
        exact(e.b, e.a);
        fake::set_port_state("b0", 1, IBV_PORT_ACTIVE);
        // The rail is connected again, and carries messages.
        CHECK(e.until_later([&] { return e.a.rails.up() == 2 && e.b.rails.up() == 2; }));
        const auto before = e.a.rails.health(0).sent;
        for (int i = 0; i < 10; ++i) must(e.a.write());
        CHECK(e.all_done());
        e.some_turns();
        exact(e.a, e.b);
        CHECK(e.a.rails.health(0).sent == before + 5);
      }
}

TEST_CASE("the message behind a failed rail goes by another one at once, and ordered messages wait for it", "[rails]") {
  ends e(2, {.spread = dat::rails_spread::round_robin});
  REQUIRE(e.all_up());
  fake::hold(qp_of('a', 0));
  must(e.a.write(true));  // rail 0: held
  must(e.a.write(true));  // rail 1
  must(e.a.write(false)); // rail 0: held
  must(e.a.write(false)); // rail 1
  e.some_turns();
  CHECK(e.b.seen.order.empty()); // the second ordered message has arrived, and waits for the first
  CHECK(e.b.seen.arrived.size() == 1);
  CHECK(e.a.seen.done.size() == 2);
  fake::break_qp(qp_of('a', 0));
  CHECK(e.all_done()); // no cool-down has passed, because the test passes no time
  e.some_turns();
  exact(e.a, e.b);
  CHECK(e.b.seen.order == std::vector<std::uint16_t>{0, 1});
  CHECK(e.a.seen.rails.back() == "down 0");
  CHECK(e.b.seen.rails.back() == "down 0");
  CHECK(e.a.rails.health(0).lives == 1);
}

TEST_CASE("while all rails are down messages wait, and the first rail that is back carries them", "[rails]") {
  ends e(3);
  REQUIRE(e.all_up());
  for (std::size_t i = 0; i < 3; ++i) fake::hold(qp_of('a', i));
  for (int i = 0; i < 30; ++i) must(e.a.write());
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE(fake::complete(qp_of('a', i)));
    REQUIRE(fake::lose_acknowledgement(qp_of('a', i)));
  }
  for (const char* device : {"b0", "b1", "b2"}) fake::set_port_state(device, 1, IBV_PORT_DOWN);
  e.some_turns();
  CHECK(e.a.rails.up() == 0);
  CHECK(e.a.rails.not_done() == 27);
  must(e.a.write());
  for (int i = 0; i < 100; ++i) {
    simulated += 1s;
    e.turn();
  }
  CHECK(e.a.rails.not_done() == 28);
  fake::set_port_state("b1", 1, IBV_PORT_ACTIVE);
  CHECK(e.until_later([&] { return e.a.rails.not_done() == 0; }));
  e.some_turns();
  CHECK(e.a.rails.up() == 1);
  exact(e.a, e.b);
}

TEST_CASE("a rail connects again after its cool-down, which doubles with each failed attempt", "[rails]") {
  ends e(2, {.cool_down = 1s, .max_cool_down = 4s});
  REQUIRE(e.all_up());
  const auto attempts = [&] { return e.a.rails.health(0).lives; };
  must(e.a.rails.disconnect(0));
  e.some_turns();
  CHECK(e.a.rails.up() == 1);
  CHECK(attempts() == 1);
  fake::fail(fake::call::rdma_resolve_addr, 1);
  fake::fail(fake::call::rdma_resolve_addr, 2);
  fake::fail(fake::call::rdma_resolve_addr, 3);
  for (const int seconds : {1, 2, 4, 4}) {
    const auto before = attempts();
    simulated += std::chrono::seconds(seconds) - 1ms;
    e.some_turns();
    CHECK(attempts() == before);
    simulated += 1ms;
    e.some_turns();
    CHECK(attempts() == before + 1);
  }
  CHECK(e.a.rails.up() == 2);
  CHECK(e.b.rails.up() == 2);
  // A rail that reconnected and then fails again starts with the shortest cool-down.
  must(e.a.rails.disconnect(0));
  e.some_turns();
  const auto before = attempts();
  simulated += 1s - 1ms;
  e.some_turns();
  CHECK(attempts() == before);
  simulated += 1ms;
  e.some_turns();
  CHECK(attempts() == before + 1);
}

TEST_CASE("an idle rail is probed, and its failure is noticed without messages", "[rails]") {
  ends e(2, {.failover_within = 2s});
  REQUIRE(e.all_up());
  e.some_turns();
  const auto posts = [] { return fake::count(fake::call::ibv_post_send); };
  auto before = posts();
  simulated += 499ms;
  e.turn();
  CHECK(posts() == before);
  simulated += 1ms;
  e.turn();
  CHECK(posts() == before + 4); // both rails of both ends
  before = posts();
  e.some_turns();
  CHECK(posts() == before);
  fake::set_port_state("a1", 1, IBV_PORT_DOWN);
  e.some_turns();
  CHECK(e.a.rails.up() == 2); // nothing was sent yet
  simulated += 500ms;
  e.some_turns();
  CHECK(e.a.rails.up() == 1);
  CHECK(e.b.rails.up() == 1);
  CHECK_FALSE(e.a.rails.health(1).cause.empty());
}

TEST_CASE("the adapters of rails repeat requests for less than failover_within, and a shorter time is refused",
          "[rails]") {
  for (const auto limit : {90ms, 2000ms, 60'000ms}) {
    CAPTURE(limit.count());
    ends e(2, {.failover_within = limit});
    REQUIRE(e.all_up());
    REQUIRE(fake::qps().size() == 4);
    for (ibv_qp* qp : fake::qps()) {
      ibv_qp_attr attr{};
      ibv_qp_init_attr init{};
      REQUIRE(ibv_query_qp(qp, &attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT, &init) == 0);
      // InfiniBand allows an adapter to wait up to four times the time of the code.
      const auto longest = std::chrono::nanoseconds(4096LL << attr.timeout) * 4 * (attr.retry_cnt + 1);
      CHECK(longest <= limit);
      CHECK(longest > limit / 4); // the time is long enough not to break a working rail
    }
  }
}

TEST_CASE("a message of its own fault fails alone, and the ordered messages behind it arrive", "[rails]") {
  ends e(2, {.spread = dat::rails_spread::round_robin});
  REQUIRE(e.all_up());
  std::vector<std::byte> gone(64);
  auto closed = must(e.b.rails.register_memory(gone));
  const auto there = must(dat::rails_remote::from_wire(closed.to_wire()));
  closed = {};
  must(e.a.write());
  must(e.a.rails.write(e.a.from, 0, 64, there, 0, {.cookie = 77, .tag = 77, .ordered = true}));
  must(e.a.write());
  must(e.a.write());
  CHECK(e.until_later([&] { return e.a.rails.not_done() == 0; }));
  e.some_turns();
  CHECK(e.a.seen.failed == std::map<std::uint64_t, int>{{77, 1}});
  CHECK(e.a.seen.done.size() == 3);
  CHECK(e.b.seen.order == std::vector<std::uint16_t>{0, 1, 2});
  CHECK(e.b.seen.arrived.size() == 3);
}

TEST_CASE("messages of no bytes notify", "[rails]") {
  ends e(1);
  REQUIRE(e.all_up());
  must(e.a.write(true, 0));
  CHECK(e.all_done());
  e.some_turns();
  CHECK(e.b.seen.order == std::vector<std::uint16_t>{0});
}

TEST_CASE("any schedule of losses around the protocol ends with each message exactly once", "[rails]") {
  // The rails fail while they connect, while they report, and while reports are repeated.
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const std::size_t n = 1 + seed % 4;
    ends e(n, {.spread = seed % 2 ? dat::rails_spread::by_bytes : dat::rails_spread::round_robin,
               .cool_down = 200ms,
               .max_cool_down = 400ms,
               .depth = 1 + seed % 7,
               .window = 64});
    for (int step = 0; step < 250; ++step) {
      const std::size_t rail = random() % n;
      const char side = random() % 2 ? 'a' : 'b';
      ibv_qp* const qp = qp_of(side, rail);
      switch (random() % 12) {
      case 0:
      case 1:
      case 2:
        for (int i = 0; i < 3 && e.a.written < 1000; ++i) (void)e.a.write(random() % 2 == 0);
        for (int i = 0; i < 3 && e.b.written < 1000; ++i) (void)e.b.write(random() % 2 == 0);
        break;
      case 3:
        if (qp) fake::hold(qp);
        break;
      case 4:
        if (qp) fake::hold(qp, false);
        break;
      case 5:
        if (qp) (void)fake::lose_acknowledgement(qp);
        break;
      case 6:
        if (qp && random() % 3 == 0) fake::break_qp(qp);
        break;
      case 7:
        fake::set_port_state(side + std::to_string(rail), 1, random() % 2 ? IBV_PORT_DOWN : IBV_PORT_ACTIVE);
        break;
      case 8:
        if (random() % 3 == 0) fake::drop_next(random() % 2 ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_DISCONNECTED);
        break;
      case 9:
        if (random() % 4 == 0) must(e.a.rails.disconnect(rail));
        if (random() % 4 == 0) must(e.b.rails.disconnect(rail));
        break;
      case 10:
        simulated += std::chrono::milliseconds(random() % 500);
        break;
      default:
        random() % 2 ? e.a.run() : e.b.run();
      }
      if (random() % 3 == 0) e.turn();
    }
    for (ibv_qp* qp : fake::qps()) fake::hold(qp, false);
    for (std::size_t i = 0; i < n; ++i)
      for (const std::string side : {"a", "b"}) fake::set_port_state(side + std::to_string(i), 1, IBV_PORT_ACTIVE);
    REQUIRE(e.until_later([&] { return e.a.rails.not_done() == 0 && e.b.rails.not_done() == 0; }));
    e.some_turns();
    exact(e.a, e.b);
    exact(e.b, e.a);
  }
}

} // namespace rails_test
