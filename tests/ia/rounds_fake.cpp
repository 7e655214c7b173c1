// One round of the reactor: how much of a flood it handles.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <vector>

using namespace unit;

TEST_CASE("a flood of events of the device or of requests leaves a round of the reactor to the other work",
          "[reactor]") {
  const clean_world clean;
  SECTION("events of the device") {
    auto ia = must(dat::ia::open("fk1", manual));
    constexpr std::size_t flood = 600;
    auto evd = must(ia.create_evd<dat::stream::async>(flood));
    for (std::size_t i = 0; i < flood; ++i) fake::async(IBV_EVENT_PORT_ACTIVE, ia.native_handle());
    ia.run();
    CHECK(fake::count(fake::call::ibv_get_async_event) < flood / 2);
    for (int i = 0; i < 20; ++i) ia.run();
    CHECK(fake::count(fake::call::ibv_get_async_event) >= flood);
    std::size_t n = 0;
    while (evd.drain([&](const auto&) { ++n; }) != 0) {
    }
    CHECK(n == flood);
  }
  SECTION("requests") {
    end a("fk1"), b("fk2");
    constexpr std::size_t flood = 150;
    auto evd = must(b.ia.create_evd<dat::stream::connection_requests>(flood));
    const auto psp = must(b.ia.create_psp(service, evd));
    std::vector<dat::ep<dat::rc>> asking;
    for (std::size_t i = 0; i < flood; ++i) {
      asking.push_back(must(a.pz.create_ep<dat::rc>(a.evd, {.max_request_dtos = 1, .max_recv_dtos = 1})));
      must(asking.back().connect(b.ia.address(), service, plenty));
    }
    for (int i = 0; i < 40; ++i) a.ia.run();
    const auto before = fake::count(fake::call::rdma_get_cm_event);
    b.ia.run();
    CHECK(fake::count(fake::call::rdma_get_cm_event) < before + flood / 2);
    for (int i = 0; i < 20; ++i) b.ia.run();
    std::size_t n = 0;
    while (evd.drain([&](const auto&) { ++n; }) != 0) {
    }
    CHECK(n == flood);
    settle(a, b);
  }
}
