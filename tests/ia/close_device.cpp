// Both ways to close an adapter on a device, and handles that outlive it.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "open_adapters.hpp"
#include "support.hpp"

#include <dat/csp.hpp>
#include <dat/rmr.hpp>
#include <dat/rsp.hpp>
#include <dat/srq.hpp>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sys/socket.h>
#include <unistd.h>

namespace device {

TEST_CASE("a graceful close is refused while objects exist", "[ia][EVD-015][IA-034][IA-037][REQ-005]") {
  NEEDS_FEATURE(windows);
  auto ia = open_first();
  const auto refused = [&] {
    const auto e = error_of(ia.close(dat::close_mode::graceful));
    CHECK(e == dat::error(type::invalid_state, subtype::ia_in_use));
    CHECK_THAT(e.message(), support::starts_with_text("ia.close"));
    CHECK(ia);
  };
  auto cno = must(ia.create_cno());
  refused();
  must(cno.close());
  auto unconfigured = must(ia.create_ep<dat::rc>());
  refused();
  must(unconfigured.close());
  auto pz = must(ia.create_pz());
  refused();
  auto evd = must(ia.create_evd<all_streams>(16));
  must(pz.close());
  refused();
  pz = must(ia.create_pz()); // the adapter works after a refusal
  auto psp = must(ia.create_psp(next_port(), evd));
  auto ep = must(pz.create_ep<dat::rc>(evd));
  std::array<std::byte, 64> bytes{};
  auto lmr = must(pz.register_memory(bytes, all_rights));

  // Users are closed before the objects that they use.
  CHECK(error_of(evd.close()) == dat::error(type::invalid_state, subtype::evd_in_use));
  CHECK(error_of(pz.close()) == dat::error(type::invalid_state, subtype::pz_in_use));
  SHOWS("ERR-034");
  must(psp.close());
  refused();
  const auto keeps_its_evd = [&](auto service_point, auto& requests) {
    CHECK(error_of(requests.close()) == dat::error(type::invalid_state, subtype::evd_in_use));
    must(service_point.close());
    CHECK(requests.close().has_value());
  };
  auto of_rsp = must(ia.create_evd<dat::stream::connection_requests>(4));
  keeps_its_evd(must(ia.create_rsp(next_port(), ep, of_rsp)), of_rsp);
  auto of_csp = must(ia.create_evd<dat::stream::connection_requests>(4));
  keeps_its_evd(must(ia.create_csp({.domain = AF_INET, .type = SOCK_STREAM}, of_csp)), of_csp);
  must(ep.close());
  must(evd.close());
  CHECK(error_of(pz.close()) == dat::error(type::invalid_state, subtype::pz_in_use));
  must(lmr.close());
  const auto keeps_the_zone = [&](auto object) {
    CHECK(error_of(pz.close()) == dat::error(type::invalid_state, subtype::pz_in_use));
    must(object.close());
  };
  keeps_the_zone(must(pz.create_rmr()));
  keeps_the_zone(must(pz.create_srq()));
  must(pz.close());
  CHECK(error_of(ia.close(static_cast<dat::close_mode>(2))) == dat::error(type::invalid_parameter, subtype::arg2));
  CHECK(ia);
  must(ia.close(dat::close_mode::graceful));
  CHECK_FALSE(ia);
  CHECK(error_of(ia.close()) == dat::error(type::invalid_handle, subtype::handle_ia));
  SHOWS("IA-042");
  const auto next_one = open_first(); // the new ia does not make the closed handle valid again
  CHECK(error_of(ia.create_pz()) == dat::error(type::invalid_handle, subtype::handle_ia));
  CHECK(ia != next_one);
}

TEST_CASE("every handle returns invalid_handle after an abrupt close", "[ia]") {
  (void)open_first();
  const auto before = resources::now();
  auto first = before.count;
  {
    connected_pair link;
    buffer memory(link.a.pz, 4096);
    auto& [ia, pz, evd] = link.a;
    auto psp = must(ia.create_psp(next_port(), evd));
    must(link.active.post(dat::recv{memory.slice(0, 1024)}));
    const auto whole = memory.slice(0, 1024);

    auto opened = resources::now().count;
    must(ia.close());
    // When close returns, the objects of this side have ended: at least half of those of the two sides.
    auto left = resources::now().count;
    for (const char* kind : {"lqpn", "cqn", "mrn", "pdn"}) CHECK(2 * left[kind] <= opened[kind] + first[kind]);
    SHOWS("IA-038");
    CHECK_FALSE(ia);
    SHOWS("IA-030");

    const auto is_gone = [](const dat::error& e) { return e.type() == type::invalid_handle; };
    CHECK(is_gone(error_of(link.active.post(dat::send{whole}))));
    CHECK(is_gone(error_of(link.active.post(dat::recv{whole}))));
    SHOWS("DTO-071", "DTO-124");
    CHECK(is_gone(error_of(link.active.connect(link.target(), link.port(), 1s))));
    CHECK(is_gone(error_of(link.active.disconnect())));
    CHECK(is_gone(error_of(link.active.reset())));
    CHECK(link.active.native_handle() == nullptr);
    CHECK(is_gone(error_of(memory.lmr.slice(0, 1))));
    CHECK(memory.lmr.size_bytes() == 0);
    CHECK(is_gone(error_of(evd.dequeue())));
    CHECK(is_gone(error_of(evd.wait(0s))));
    SHOWS("REQ-159");
    CHECK(evd.drain([](const auto&) {}) == 0);
    CHECK(is_gone(error_of(ia.async_evd().dequeue())));
    SHOWS("IA-035");
    CHECK(is_gone(error_of(pz.create_ep<dat::rc>(evd))));
    CHECK(is_gone(error_of(pz.register_memory(memory.bytes, dat::local_read))));
    SHOWS("LMR-028");
    { // The old handles do not name objects that are created later.
      side again(0);
      buffer fresh(again.pz, 64);
      CHECK(is_gone(error_of(pz.register_memory(fresh.bytes, dat::local_read))));
      CHECK(is_gone(error_of(memory.lmr.slice(1, 1))));
      SHOWS("PZ-008", "LMR-040");
    }

    // Closing a handle of an ended object returns an error once; the handle is empty afterwards.
    CHECK(error_of(link.active.close()) == dat::error(type::invalid_handle, subtype::handle_ep));
    SHOWS("EP-041");
    CHECK(error_of(memory.lmr.close()) == dat::error(type::invalid_handle, subtype::handle_lmr));
    SHOWS("LMR-040");
    CHECK(error_of(psp.close()) == dat::error(type::invalid_handle, subtype::handle_psp));
    SHOWS("PSP-040");
    CHECK(error_of(pz.close()) == dat::error(type::invalid_handle, subtype::handle_pz));
    CHECK(error_of(evd.close()).type() == type::invalid_handle);
    SHOWS("EVD-017");
    CHECK_FALSE(link.active);

    // The peer is notified.
    (void)next<dat::disconnected>(link.b.evd);
  }
  CHECK(resources::no_more_than(before));
  SHOWS("IA-031", "IA-043", "REQ-004");
}

TEST_CASE("an abrupt close of the adapter refuses the requests that wait",
          "[ia][PSP-012][CR-017][EVENT-105][EVD-012]") {
  two_sides link;
  auto first = link.a.make_ep();
  auto second = link.a.make_ep();
  must(first.connect(link.target(), link.port(), patience));
  must(second.connect(link.target(), link.port(), patience));
  // One request is held by the consumer, the other is in the evd.
  const auto held = must(link.b.evd.wait(patience, 2));
  REQUIRE(std::holds_alternative<dat::connection_request>(held.first));
  CHECK(held.more == 1);
  SHOWS("EVD-054");
  must(link.b.ia.close());
  (void)next<dat::non_peer_rejected>(link.a.evd);
  (void)next<dat::non_peer_rejected>(link.a.evd);
}

TEST_CASE("handles can be dropped in every order", "[ia][REQ-006][PZ-007][IA-049][EVD-013]"
                                                   "[REG-017]") {
  (void)open_first();
  const auto before = resources::now();
  const auto port = next_port();
  std::array<std::byte, 64> bytes{};
  // The adapter's handle is destroyed before all others, or after them, in turn.
  bool adapter_first = false;
  std::array<int, 5> order{0, 1, 2, 3, 4};
  do {
    adapter_first = !adapter_first;
    dat::ia ia = open_first();
    dat::pz pz = must(ia.create_pz());
    queue evd = must(ia.create_evd<all_streams>(8));
    region lmr = must(pz.register_memory(bytes, all_rights));
    endpoint ep = must(pz.create_ep<dat::rc>(evd, {.max_request_dtos = 1, .max_recv_dtos = 1}));
    dat::psp psp = must(ia.create_psp(port, evd));
    must(ep.post(dat::recv{lmr}));
    if (adapter_first) ia = {};
    for (const int which : order) {
      if (which == 0) pz = {};
      if (which == 1) evd = {};
      if (which == 2) lmr = {};
      if (which == 3) ep = {};
      if (which == 4) psp = {};
    }
    // The dropped handles leave no object for which a graceful close would be refused.
    if (ia) CHECK(ia.close(dat::close_mode::graceful));
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(resources::no_more_than(before));
}

TEST_CASE("repeated opening, connecting and closing leaves no resource behind",
          "[ia][IA-043][REQ-002][REQ-020][EVD-001]"
          "[REG-021][IA-045]") {
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  const auto flags = GENERATE(dat::close_mode::abrupt, dat::close_mode::graceful);
  const auto threads = [] {
    namespace fs = std::filesystem;
    return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
  };
  (void)open_first();
  const auto before = resources::now();
  const auto threads_before = threads();
  for (int i = 0; i < 5; ++i) {
    connected_pair link({.progress = how, .qlen = 16});
    endpoint third;
    if (flags == dat::close_mode::abrupt) { // with messages under way, queued events and a connect without answer
      for (int n = 0; n < 8; ++n) must(link.passive.post(dat::recv{}));
      for (int n = 0; n < 8; ++n) must(link.active.post(dat::send{}));
      third = link.a.make_ep();
      must(third.connect(link.target(), link.port(), patience));
    } else {
      must(link.active.close());
      must(link.passive.close());
      must(link.psp.close());
      for (side* s : {&link.a, &link.b}) {
        must(s->evd.close());
        must(s->pz.close());
      }
    }
    must(link.a.ia.close(flags));
    must(link.b.ia.close(flags));
  }
  CHECK(resources::no_more_than(before));
  CHECK(comes_true([&] { return threads() <= threads_before; }));
}

} // namespace device
