// Receives that are posted before there is a queue pair, or before modify makes another one.
// SPDX-License-Identifier: BSL-1.0
#include "endpoint_in_state.hpp"
#include "sides.hpp"

#include <dat/ep_params.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <variant>

namespace connections {
namespace {

/// Posts three receives of different lists to an endpoint of `e`: of 8 bytes at 64, of 4 at 80 and 96, and of none.
void post_three(endpoint& ep, rig::end& e) {
  must(ep.post(dat::recv{e.at(64, 8)}.cookie(1)));
  must(ep.post(dat::recv{dat::iov{e.at(80, 4), e.at(96, 4)}}.cookie(2), dat::recv{}.cookie(3)));
}
std::uint32_t allocated(endpoint& ep) { return must(ep.recv_query()).allocated.value(); }
std::string_view text_at(rig::end& e, std::size_t first, std::size_t n) { return {e.memory.data() + first, n}; }

/// Sends three messages that fit the receives of post_three.
void send_three(endpoint& from, rig::end& e) {
  std::copy_n("firstmsgsecond22", 16, e.memory.data());
  must(from.post(dat::send{e.at(0, 8)}));
  must(from.post(dat::send{e.at(8, 8)}));
  must(from.post(dat::send{}));
}
bool three_arrived(rig::end& e) {
  return text_at(e, 64, 8) == "firstmsg" && text_at(e, 80, 4) == "seco" && text_at(e, 96, 4) == "nd22";
}

/// `b` accepts a connection on `ep`. Returns its peer.
endpoint connect_to(endpoint& ep, sides& s) {
  auto psp = must(s.b.ia.create_psp(s.service, s.b.evd));
  auto active = s.ask(s.service);
  must(s.request().accept(ep));
  s.settle();
  CHECK(s.a.take(1) == events{"established"});
  return active;
}
/// The same, and the peer sends three messages.
endpoint send_to(endpoint& ep, sides& s) {
  auto active = connect_to(ep, s);
  send_three(active, s.a);
  s.settle();
  return active;
}

} // namespace

TEST_CASE("receives of an unconfigured endpoint are used by the connection that it gets", "") {
  sides both;
  const ep_state from = GENERATE(ep_state::unconfigured_unconnected, ep_state::unconfigured_reserved,
                                 ep_state::unconfigured_passive, ep_state::unconfigured_tentative);
  INFO(to_string(from));
  in_state t(both, from);
  post_three(t.ep, both.a);
  CHECK(t.ep.state() == from);
  CHECK(t.ep.native_handle() == nullptr);
  CHECK(allocated(t.ep) == 3);
  CHECK_FALSE(must(t.ep.status()).recv_idle);
  CHECK(must(t.ep.status()).request_idle);
  must(t.ep.modify({.pz = &both.a.pz, .max_recv_dtos = 4}));
  CHECK(t.ep.state() == from);
  must(t.ep.post(dat::recv{both.a.at(112, 8)}.cookie(4)));
  refuses(t.ep.post(dat::recv{}), return_type::insufficient_resources, return_subtype::resource_tep);
  must(t.ep.modify({.recv = t.receives, .request = t.requests, .connect = t.told}));
  CHECK(t.ep.native_handle() != nullptr);
  CHECK(allocated(t.ep) == 4);
  switch (from) {
  case ep_state::unconfigured_unconnected:
    must(t.ep.connect(both.b.ia.address(), t.port, patience));
    both.settle();
    t.peer = must(both.b.pz.create_ep<dat::rc>(t.at_b));
    must(request_on(t.at_b).accept(t.peer));
    break;
  case ep_state::unconfigured_reserved:
    t.request = t.asked(t.peer, t.port);
    must(t.request.accept());
    break;
  case ep_state::unconfigured_tentative:
    t.request.ep() = std::move(t.ep);
    must(t.request.accept());
    t.ep = std::move(t.request.ep());
    break;
  default:
    must(t.request.accept());
  }
  both.settle();
  CHECK(rig::take(t.told, 1) == events{"established"});
  CHECK(rig::take(t.at_b, 1) == events{"established"});
  send_three(t.peer, both.b);
  must(t.peer.post(dat::send{both.b.at(0, 8)}));
  both.settle();
  CHECK(rig::take(t.receives, 4) == events{"received 1", "received 2", "received 3", "received 4"});
  CHECK(three_arrived(both.a));
  SHOWS("EPS-082", "DTO-120");
  CHECK(text_at(both.a, 112, 8) == "firstmsg");
  CHECK(rig::take(t.at_b, 4).size() == 4);
}

TEST_CASE("receives of an endpoint that is never configured end with it, without completions", "") {
  sides s;
  auto ep = must(s.b.ia.create_ep<dat::rc>({.recv = s.b.evd}));
  post_three(ep, s.b);
  SECTION("closed") {
    must(ep.close());
    CHECK(s.b.take(0).empty());
  }
  SECTION("by the end of its ia") {
    must(s.b.ia.close());
    CHECK(gone(ep));
  }
}

TEST_CASE("an unconfigured endpoint checks its receives when they are posted", "") {
  sides s;
  auto& e = s.b;
  auto ep = must(e.ia.create_ep<dat::rc>({}, {.max_recv_dtos = 2, .max_recv_iov = 2}));
  refuses(ep.post(dat::recv{dat::iov{e.at(0, 4), e.at(4, 4), e.at(8, 4)}}), return_type::invalid_parameter,
          return_subtype::arg2);
  refuses(ep.post(dat::recv{e.at(0, 4)}.suppress_notification()), return_type::invalid_parameter, return_subtype::arg5);
  std::array<char, 8> memory{};
  auto brief = must(e.pz.register_memory(memory, dat::local_write));
  const auto own = must(brief.slice(0, 8));
  CHECK(allocated(ep) == 0);
  must(ep.modify({.pz = &e.pz}));
  auto zone = must(e.ia.create_pz());
  auto other = must(zone.register_memory(memory, dat::local_write));
  refuses(ep.post(dat::recv{other}), return_type::protection_violation, return_subtype::protection_write);
  SHOWS("EPS-082");
  must(ep.post(dat::recv{own}, dat::recv{}));
  refuses(ep.post(dat::send{e.at(0, 4)}), return_type::invalid_state, return_subtype::ep_unconfigured);
  CHECK(allocated(ep) == 2);
}

TEST_CASE("modify moves posted receives to the new queue pair, in order", "") {
  sides s;
  auto& e = s.b;
  e.make_ep();
  auto recv = must(e.ia.create_evd<dat::stream::dto | dat::stream::software>(128));
  auto zone = must(e.ia.create_pz());
  bool other_recv = false;
  post_three(e.ep, e);
  auto number = must(e.ep.query()).number;
  const auto moves = [&](const dat::ep_changes& c) {
    must(e.ep.modify(c));
    const auto now = must(e.ep.query()).number;
    CHECK(now != number);
    number = now;
    CHECK(allocated(e.ep) == 3);
    CHECK(must(e.ep.recv_query()).span == 3);
    CHECK_FALSE(must(e.ep.status()).recv_idle);
  };
  SECTION("another recv evd") {
    moves({.recv = recv});
    other_recv = true;
  }
  SECTION("another request evd") { moves({.request = recv}); }
  SECTION("another zone and back") {
    moves({.pz = &zone});
    moves({.pz = &e.pz});
    must(zone.close());
  }
  SECTION("sizes of the receive queue, up and down") {
    moves({.max_recv_dtos = 100});
    moves({.max_recv_dtos = 3});
    refuses(e.ep.post(dat::recv{}), return_type::insufficient_resources, return_subtype::resource_tep);
  }
  SECTION("sizes of the request queue") { moves({.max_request_dtos = 9, .max_request_iov = 2}); }
  SECTION("segments of a receive, down and up") {
    moves({.max_recv_iov = 2});
    moves({.max_recv_iov = 3});
  }
  SECTION("tests of the connection") { moves({.keep_alive = std::chrono::hours(1)}); }
  SECTION("everything, several times") {
    for (std::uint32_t i = 0; i < 4; ++i) {
      if (other_recv)
        moves({.recv = e.evd, .max_recv_dtos = 64 + i});
      else
        moves({.pz = &e.pz, .recv = recv, .max_request_dtos = 8 + i, .max_recv_dtos = 5});
      other_recv = !other_recv;
    }
  }
  auto active = send_to(e.ep, s);
  const events three{"received 1", "received 2", "received 3"};
  if (other_recv) {
    CHECK(e.take(1) == events{"established"});
    CHECK(rig::take(recv, 3) == three);
  } else {
    CHECK(e.take(4) == events{"established", "received 1", "received 2", "received 3"});
    CHECK(rig::take(recv, 0).empty());
  }
  SHOWS("EP-073");
  CHECK(three_arrived(e));
  CHECK(must(e.ep.status()).recv_idle);
}

TEST_CASE("a reset endpoint keeps its receives for the next modify", "") {
  sides s;
  auto& e = s.b;
  e.make_ep();
  {
    auto active = connect_to(e.ep, s);
    must(active.disconnect());
    s.settle();
    CHECK(s.a.take(1) == events{"disconnected"});
  }
  CHECK(e.take(2) == events{"established", "disconnected"});
  must(e.ep.reset());
  post_three(e.ep, e);
  must(e.ep.modify({.max_recv_dtos = 7}));
  CHECK(allocated(e.ep) == 3);
  auto active = send_to(e.ep, s);
  CHECK(e.take(4) == events{"established", "received 1", "received 2", "received 3"});
  CHECK(three_arrived(e));
}

TEST_CASE("a receive of another zone fails when it is used, and the connection breaks", "") {
  sides s;
  auto& e = s.b;
  auto zone = must(e.ia.create_pz());
  std::array<char, 8> bytes{};
  auto there = must(zone.register_memory(bytes, dat::local_read | dat::local_write));
  const bool configured = GENERATE(true, false);
  const bool back = GENERATE(false, true);
  CAPTURE(configured, back);
  endpoint ep;
  if (configured) {
    e.make_ep();
    ep = std::move(e.ep);
  } else {
    ep = must(e.ia.create_ep<dat::rc>());
  }
  must(ep.post(dat::recv{e.at(64, 8)}.cookie(1)));
  must(ep.modify({.pz = &zone, .recv = e.evd, .request = e.evd, .connect = e.evd}));
  CHECK(allocated(ep) == 1);
  refuses(ep.post(dat::recv{e.at(72, 8)}), return_type::protection_violation, return_subtype::protection_write);
  if (back) {
    must(ep.modify({.pz = &e.pz}));
    must(ep.post(dat::recv{e.at(72, 8)}.cookie(2)));
  } else {
    must(ep.post(dat::recv{there}.cookie(2)));
  }
  auto active = connect_to(ep, s);
  must(active.post(dat::send{s.a.at(0, 8)}));
  s.settle();
  if (back) {
    CHECK(e.take(2) == events{"established", "received 1"});
    SHOWS("EP-074");
    CHECK(ep.state() == ep_state::connected);
    return;
  }
  const auto seen = e.take(4);
  CAPTURE(seen);
  REQUIRE(seen.size() == 4);
  CHECK(seen[0] == "established");
  CHECK(seen[1] == "local protection error 1");
  CHECK(std::count(seen.begin(), seen.end(), "flushed 2") == 1);
  CHECK(ep.state() == ep_state::disconnected);
  SHOWS("EP-074", "DTO-126");
}

TEST_CASE("modify refuses what the posted receives do not fit, and changes nothing", "[EP-081]") {
  sides s;
  auto& e = s.b;
  e.make_ep();
  post_three(e.ep, e);
  const auto before = must(e.ep.query());
  refuses(e.ep.modify({.max_recv_dtos = 2}), return_type::invalid_state, return_subtype::ep_notready);
  SHOWS("EP-081");
  refuses(e.ep.modify({.max_recv_iov = 1}), return_type::invalid_state, return_subtype::ep_notready);
  auto other = must(e.ia.create_evd<dat::stream::dto | dat::stream::software>(16));
  refuses(e.ep.modify({.recv = other, .recv_completion = dat::completion_notification::selective}),
          return_type::invalid_state, return_subtype::ep_notready);
  const auto now = must(e.ep.query());
  CHECK((now.number == before.number && now.recv == before.recv));
  CHECK(now.attributes.max_recv_dtos == before.attributes.max_recv_dtos);
  CHECK(now.attributes.max_recv_iov == before.attributes.max_recv_iov);
  // The same size, so no receive has to move.
  must(e.ep.modify({.max_recv_dtos = 64, .max_rdma_read_in = std::uint8_t{3}}));
  CHECK(must(e.ep.query()).number == before.number);
  auto connections = must(e.ia.create_evd<dat::stream::connection>(4));
  must(e.ep.modify({.connect = connections}));
  CHECK(must(e.ep.query()).number == before.number);
  CHECK(allocated(e.ep) == 3);
  auto active = send_to(e.ep, s);
  CHECK(rig::take(connections, 1) == events{"established"});
  CHECK(e.take(3) == events{"received 1", "received 2", "received 3"});
}

} // namespace connections
