// Requests: wrong objects, addresses, room in evds, service points that close before their requests are answered.
// SPDX-License-Identifier: BSL-1.0
#include "listening_sides.hpp"
#include "sides.hpp"

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>

#include <array>
#include <chrono>
#include <cstring>

namespace connections {

TEST_CASE("closed objects and objects of another ia are refused with an error that names them",
          "[PSP-010][PSP-018][CONN-062][DISC-034]") {
  sides s;
  constexpr auto handle = return_type::invalid_handle;
  using enum return_subtype;
  const auto make = [&](const dat::ep_evds& evds) { return s.b.pz.create_ep<dat::rc>(evds); };
  refuses(s.b.ia.create_psp(s.service, s.a.evd), handle, handle_evd_cr);
  refuses(s.b.ia.create_psp(s.service, decltype(s.b.evd)()), handle, handle_evd_cr);
  refuses(dat::ia().create_psp(s.service, s.b.evd), handle, handle_ia);
  refuses(make({.recv = s.a.evd, .request = s.b.evd, .connect = s.b.evd}), handle, handle_evd_recv);
  refuses(make({.recv = s.b.evd, .request = s.a.evd, .connect = s.b.evd}), handle, handle_evd_request);
  refuses(make({.recv = s.b.evd, .request = s.b.evd, .connect = s.a.evd}), handle, handle_evd_conn);
  SHOWS("EP-008", "EVENT-006", "REQ-159");
  const decltype(s.b.evd) nothing;
  refuses(make({.recv = s.b.evd, .request = nothing, .connect = s.b.evd}), handle, handle_evd_request);
  refuses(dat::pz().create_ep<dat::rc>(s.b.evd), handle, handle_pz);
  refuses(dat::ia().create_ep<dat::rc>({.recv = s.b.evd, .request = s.b.evd, .connect = s.b.evd}), handle, handle_ia);
  SHOWS("EP-014");
  auto ended = must(s.b.ia.create_evd<rig::end::streams>(4));
  must(ended.close());
  refuses(s.b.ia.create_psp(s.service, ended), handle, handle_evd_cr);
  rig::end over(1);
  must(over.ia.close());
  refuses(over.ia.create_psp(s.service, s.b.evd), handle, handle_ia);
  const auto psp = must(s.b.ia.create_psp(s.service, s.b.evd)); // no refused call has taken the port
  const auto active = s.ask(s.service);
  auto request = s.request();
  auto foreign = must(s.a.pz.create_ep<dat::rc>(s.a.evd));
  refuses(request.accept(foreign), handle);
  endpoint empty;
  refuses(request.accept(empty), handle, handle_ep);
  s.b.make_ep();
  must(request.accept(s.b.ep));
  refuses(request.accept(s.b.ep), handle, handle_cr);
  refuses(request.reject(), handle, handle_cr);
  refuses(empty.connect(s.b.ia.address(), s.service, patience), handle, handle_ep);
  refuses(empty.disconnect(), handle, handle_ep);
  refuses(empty.reset(), handle, handle_ep);
  refuses(empty.close(), handle, handle_ep);
  auto closed = s.make();
  must(closed.close());
  refuses(closed.connect(s.a.ia.address(), s.service, patience), handle, handle_ep);
  refuses(closed.disconnect(), handle, handle_ep);
  refuses(closed.reset(), handle, handle_ep);
  SHOWS("ERR-017", "ERR-032", "REG-016", "DISC-054");
  refuses(s.b.ia.create_psp_any(s.a.evd), handle, handle_evd_cr);
  refuses(dat::ia().create_psp_any(s.b.evd), handle, handle_ia);
  refuses(s.b.ia.create_psp_any(ended), handle, handle_evd_cr);
  refuses(over.ia.create_psp_any(s.b.evd), handle, handle_ia);
  SHOWS("PSP-033");
  refuses(s.b.ia.create_csp(tcp, ended), handle, handle_evd_cr);
  refuses(s.b.ia.create_csp(tcp, decltype(s.b.evd)()), handle, handle_evd_cr);
  refuses(dat::ia().create_csp(tcp, s.b.evd), handle, handle_ia);
  SHOWS("CSP-011");
  refuses(dat::ia().create_rsp(s.other, s.b.evd), handle, handle_ia);
  refuses(s.b.ia.create_rsp(s.other, ended), handle, handle_evd_cr);
  SHOWS("RSP-012");
}

TEST_CASE("native addresses, IPv4-mapped addresses and service ids reach their service points",
          "[ADDR-001][ADDR-002][ADDR-008][ADDR-010][ADDR-012][ADDR-013]") {
  sides s;
  if (s.b.ia.address().family() != dat::address_family::ipv4) SKIP("the adapters have no IPv4 address");
  const auto psp = must(s.b.ia.create_psp(s.service, s.b.evd));
  // Created by its service id, it has its port as qualifier.
  const auto neighbour = must(s.b.ia.create_psp(must(dat::conn_qual::make(0x01060000U + s.other.port())), s.b.evd));
  CHECK(must(neighbour.query()).id.port() == s.other.port());
  SHOWS("PSP-042");
  ::sockaddr_in v4{};
  std::memcpy(&v4, s.b.ia.address().native_handle(), sizeof v4);
  v4.sin_port = htons(s.service.port());
  ::sockaddr_in6 mapped{};
  mapped.sin6_family = AF_INET6;
  mapped.sin6_port = v4.sin_port;
  mapped.sin6_addr.s6_addr[10] = mapped.sin6_addr.s6_addr[11] = 0xff;
  std::memcpy(&mapped.sin6_addr.s6_addr[12], &v4.sin_addr, 4);
  const auto arrives = [&](const dat::psp& at) {
    s.settle();
    auto request = s.request();
    CHECK(request.service() == at.id());
    const auto local = request.local_address();
    must(request.reject());
    s.settle();
    CHECK(s.a.take(1) == events{"peer_rejected"});
    return local;
  };
  for (const auto& to : {dat::ia_address(v4), dat::ia_address(mapped)}) {
    auto ep = must(s.a.pz.create_ep<dat::rc>(s.a.evd, {.comm = tcp}));
    must(ep.common_connect(to, patience));
    const auto local = arrives(psp);
    REQUIRE(local.native_size() == sizeof v4);
    CHECK(std::memcmp(local.native_handle(), &v4, sizeof v4) == 0);
  }
  for (const auto* at : {&psp, &neighbour}) {
    const auto port = std::uint64_t{at->port()};
    const auto by_port = s.ask(must(dat::conn_qual::make(port)));
    (void)arrives(*at);
    const auto by_service_id = s.ask(must(dat::conn_qual::make(0x01060000 + port)));
    (void)arrives(*at);
    for (const std::uint64_t other : {0x10000 + port, 0x01110000 + port, 0x1'0106'0000 + port})
      CHECK(dat::conn_qual::make(other).error().type() == return_type::invalid_parameter);
  }
  SHOWS("CONN-056", "PSP-019", "MODEL-005", "RSP-012", "CR-069");
}

TEST_CASE("two sides that connect to each other at the same time get two connections", "[CONN-071]") {
  two t;
  auto at_a = must(t.a.pz.create_ep<dat::rc>(t.a.evd));
  auto at_b = must(t.b.pz.create_ep<dat::rc>(t.b.evd));
  auto rsp_a = must(t.a.ia.create_rsp(t.other, at_a, t.a.evd));
  auto rsp_b = must(t.b.ia.create_rsp(t.other, at_b, t.b.evd));
  t.a.make_ep();
  t.b.make_ep();
  must(t.a.ep.connect(t.b.ia.address(), t.other, patience));
  must(t.b.ep.connect(t.a.ia.address(), t.other, patience));
  t.settle();
  auto to_a = request_on(t.a.evd);
  auto to_b = t.request();
  must(to_a.accept());
  must(to_b.accept());
  t.settle();
  CHECK(t.a.take(2) == events{"established", "established"});
  CHECK(t.b.take(2) == events{"established", "established"});
  for (const auto* ep : {&at_a, &at_b, &t.a.ep, &t.b.ep}) CHECK(ep->state() == ep_state::connected);
  SHOWS("EPS-033");
}

TEST_CASE("a reserved service point without an endpoint creates one for its only request",
          "[RSP-008][RSP-001][CR-053]") {
  sides s;
  auto rsp = must(s.b.ia.create_rsp(s.service, s.b.evd));
  CHECK_FALSE(must(rsp.query()).ep);
  auto first = s.ask(s.service);
  auto request = s.request();
  auto second = s.ask(s.service);
  CHECK(s.a.take(1) == events{"non_peer_rejected 35"});
  CHECK(request.service() == rsp.id());
  REQUIRE(request.ep());
  CHECK(request.ep().state() == ep_state::unconfigured_tentative);
  const bool accepts = GENERATE(true, false);
  if (accepts) {
    must(request.ep().modify({.pz = &s.b.pz, .recv = s.b.evd, .request = s.b.evd, .connect = s.b.evd}));
    must(request.accept());
    s.settle();
    CHECK(s.b.take(1) == events{"established"});
    CHECK(request.ep().state() == ep_state::connected);
  } else {
    const auto kept = std::move(request.ep());
    must(request.reject());
    CHECK(gone(kept));
  }
}

TEST_CASE("requests have room of their own in an evd that also takes connection events",
          "[evd][PSP-011][CSP-002][PSP-006]") {
  sides s;
  auto small =
      must(s.b.ia.create_evd<dat::stream::connection | dat::stream::connection_requests | dat::stream::dto>(2));
  auto csp = must(s.b.ia.create_csp(tcp, s.b.ia.address().with_port(s.service.port()), small));
  auto psp = must(s.b.ia.create_psp(s.other, small));
  // A connection event takes no place of a request.
  auto ep = must(s.b.pz.create_ep<dat::rc>({.recv = small, .request = small, .connect = small}));
  must(ep.connect(s.a.ia.address(), s.third, patience));
  while (ep.state() != ep_state::disconnected) s.settle();
  // The first two of three requests take both places, in whichever order they arrive.
  const std::array first{s.ask(s.service), s.ask(s.other), s.ask(s.other)};
  CHECK(s.a.take(1) == events{"non_peer_rejected 35"});
  const auto beyond = s.ask(s.service);
  CHECK((s.a.take(1) == events{"non_peer_rejected 35"} && beyond.state() == ep_state::disconnected));
  CHECK(s.b.ia.async_evd().dequeue().error().type() == return_type::queue_empty); // no overflow
  CHECK(rig::take(small, 3) == events{"non_peer_rejected 8", "request", "request"});
  s.settle();
  CHECK(s.a.take(2) == events{"non_peer_rejected 35", "non_peer_rejected 35"}); // dropped without an answer
  const std::array then{s.ask(s.service), s.ask(s.other)};
  CHECK(rig::take(small, 2) == events{"request", "request"});
  SHOWS("CSP-001"); // by the evd that it was created with, and no other
}

TEST_CASE("a queued request survives a resize of its evd and is rejected when the evd closes",
          "[EVENT-015][EVD-036][PSP-035][PSP-009]") {
  sides s;
  auto evd = must(s.b.ia.create_evd<dat::stream::connection_requests>(3));
  const bool common = GENERATE(false, true);
  dat::psp psp;
  dat::csp csp;
  if (common)
    csp = must(s.b.ia.create_csp(tcp, s.b.ia.address().with_port(s.service.port()), evd));
  else
    psp = must(s.b.ia.create_psp(s.service, evd));
  const std::array asking{s.ask(s.service, "first"), s.ask(s.service, "second")};
  while (evd.wait(std::chrono::milliseconds(1), 3).error().index() < 2) s.settle();
  must(evd.resize(16));
  // The evd cannot be closed while a service point feeds it.
  refuses(evd.close(), return_type::invalid_state, return_subtype::evd_in_use);
  must(common ? csp.close() : psp.close()); // with both events in the evd
  s.settle();
  CHECK(s.a.take(0).empty());
  auto request = request_on(evd);
  const bool first = text_of(request.private_data()) == "first"; // either of the two may be faster
  s.b.make_ep();
  must(request.accept(s.b.ep));
  s.settle();
  CHECK(s.a.take(1) == events{"established"});
  CHECK(asking[first ? 0 : 1].state() == ep_state::connected);
  if (common) SHOWS("CSP-019");
  must(evd.close()); // the accepted request is that of the other endpoint
  s.settle();
  CHECK(s.a.take(1) == events{"non_peer_rejected 35"});
  CHECK(asking[first ? 1 : 0].state() == ep_state::disconnected);
  if (common) SHOWS("CSP-002");
}

TEST_CASE("closing a common service point keeps its delivered requests", "[CSP-018][CSP-019][CSP-020][CSP-021]") {
  sides s;
  const auto at = s.b.ia.address().with_port(s.service.port());
  auto csp = must(s.b.ia.create_csp(tcp, at, s.b.evd));
  CHECK(must(csp.query()).address == at);
  SHOWS("CSP-005", "CSP-012");
  s.a.make_ep({.comm = tcp});
  must(s.a.ep.common_connect(at, patience));
  s.settle();
  auto request = s.request();
  must(csp.close());
  refuses(csp.query(), return_type::invalid_handle, return_subtype::handle_csp);
  refuses(csp.close(), return_type::invalid_handle, return_subtype::handle_csp);
  CHECK(csp.port() == 0);
  auto again = must(s.b.ia.create_csp(tcp, at, s.b.evd)); // the port is free at once
  CHECK(request.service().port() == at.port());
  CHECK(request.service() != again.id());
  s.b.make_ep();
  must(request.accept(s.b.ep));
  s.settle();
  CHECK(s.a.take(1) == events{"established"});
  must(s.b.ia.close());
  CHECK(again.query().error().subtype() == return_subtype::handle_csp);
  SHOWS("PSP-012");
}

} // namespace connections
