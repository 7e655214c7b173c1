// Random connection calls in the fake world, checked against the state table.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <support/connection_fuzz.hpp>

#include <cstdlib>
#include <random>

// Instrumented steps take several times as long. The sanitizers check memory and not every order, so fewer steps
// suffice.
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

TEST_CASE("random connection manager events give each connection at most one begin and one end",
          "[CONN-016][CR-019][CONN-066]") {
  const char* given = std::getenv("DAT_TEST_SEED");
  const auto seed = given ? static_cast<std::uint32_t>(std::strtoul(given, nullptr, 10))
                          : static_cast<std::uint32_t>(std::random_device{}());
  INFO("DAT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  const auto bytes = [&](std::uint32_t most) {
    std::string s(below(most + 1), '\0');
    for (char& c : s) c = static_cast<char>(random());
    if (below(4) == 0) s.replace(0, std::min<std::size_t>(3, s.size()), std::string("DAT").substr(0, s.size()));
    return s;
  };
  const auto message = [&](rdma_cm_event_type type, std::uint32_t most) {
    fake::cm_event e{.event = type, .private_data = bytes(most)};
    if (type == RDMA_CM_EVENT_REJECTED) e.status = static_cast<int>(below(40));
    if (type == RDMA_CM_EVENT_UNREACHABLE) e.status = -ETIMEDOUT;
    e.remote_qp_num = below(1u << 24);
    e.responder_resources = static_cast<std::uint8_t>(random());
    e.initiator_depth = static_cast<std::uint8_t>(random());
    return e;
  };
  const unit::clean_world world;
  unit::end a("fk1");
  unit::end b("fk2");
  auto psp = unit::must(b.ia.create_psp(unit::service, b.evd));
  const auto told_once = [](const unit::events& all) {
    int begun = 0;
    int ended = 0;
    for (const auto& e : all) {
      if (e == "established")
        ++begun;
      else if (!e.starts_with("flushed"))
        ++ended;
    }
    CHECK(begun <= 1);
    CHECK(ended <= 1);
  };
  constexpr rdma_cm_event_type any[] = {RDMA_CM_EVENT_ESTABLISHED,   RDMA_CM_EVENT_DISCONNECTED,
                                        RDMA_CM_EVENT_REJECTED,      RDMA_CM_EVENT_UNREACHABLE,
                                        RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_TIMEWAIT_EXIT,
                                        RDMA_CM_EVENT_ADDR_CHANGE,   RDMA_CM_EVENT_CONNECT_RESPONSE};
  const auto follow = [&](unit::end& e, std::uint32_t qp) {
    for (auto n = below(4); n != 0; --n) {
      if (!fake::id_of_qp(qp)) break;
      auto next = message(any[below(static_cast<std::uint32_t>(std::size(any)) - (&e == &b ? 1 : 0))], 100);
      next.qp_num = qp;
      fake::deliver(next);
      if (below(2) == 0) unit::settle(a, b);
    }
    unit::settle(a, b);
  };
  for (int n = 0; n < (instrumented ? 200 : 1500); ++n) {
    // A peer sends a connection request.
    auto asked = message(RDMA_CM_EVENT_CONNECT_REQUEST, 56);
    asked.port = unit::service;
    fake::deliver(asked);
    unit::settle(a, b);
    auto request = unit::request_on(b.evd);
    CHECK(unit::text_of(request.private_data()) ==
          asked.private_data + std::string(56 - asked.private_data.size(), '\0'));
    b.make_ep();
    switch (below(3)) {
    case 0: {
      const auto r = request.accept(b.ep, unit::bytes_of(bytes(56)));
      if (r) follow(b, b.ep.number());
      break;
    }
    case 1:
      (void)request.reject(unit::bytes_of(bytes(56)));
      break;
    default:
      request = {};
    }
    unit::settle(a, b);
    told_once(b.take());
    // A connection request is lost.
    a.make_ep();
    fake::drop_next(RDMA_CM_EVENT_CONNECT_REQUEST);
    unit::must(a.ep.connect(b.ia.address(), unit::service, unit::plenty));
    unit::settle(a, b);
    follow(a, a.ep.number());
    told_once(a.take());
    unit::must(a.ep.close());
    unit::must(b.ep.close());
    unit::settle(a, b);
    CHECK(a.take().empty());
    CHECK(b.take().empty());
  }
}

TEST_CASE("a hundred thousand random calls follow the state table", "[connection]") {
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
  SHOWS("EPS-001", "EPS-007", "EPS-017", "EPS-068", "CONN-016", "CONN-017", "DISC-022", "DISC-028", "DISC-055");
}
