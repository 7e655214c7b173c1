// Reserved service points and their endpoints, as the state tables define them.
// SPDX-License-Identifier: BSL-1.0
#include "sides.hpp"

#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>

namespace connections {

TEST_CASE("a reserved service point takes one request, for its endpoint", "") {
  sides s;
  auto ep = s.make();
  must(ep.post(dat::recv{s.b.at(0, 8)}.cookie(1)));
  auto rsp = must(s.b.ia.create_rsp(s.service, ep, s.b.evd));
  CHECK(ep.state() == ep_state::reserved);
  SHOWS("EPS-033");
  CHECK(rsp.port() == s.service.port());
  CHECK(must(rsp.query()).ep == ep);
  CHECK(must(rsp.query()).requests == s.b.evd.id());
  CHECK((must(rsp.query()).id == rsp.id() && rsp.id().port() == s.service.port()));
  SHOWS("RSP-027");
  // Calls that a reserved endpoint refuses, and calls that it allows.
  constexpr auto reserved = return_subtype::ep_reserved;
  refuses(ep.connect(s.a.ia.address(), s.service, patience), return_type::invalid_state, reserved);
  refuses(ep.common_connect(s.a.ia.address().with_port(5), patience), return_type::invalid_state, reserved);
  refuses(ep.disconnect(), return_type::invalid_state, reserved);
  refuses(ep.reset(), return_type::invalid_state, reserved);
  refuses(ep.close(), return_type::invalid_state, reserved);
  refuses(ep.modify({.pz = &s.b.pz}), return_type::invalid_state, reserved);
  refuses(ep.post(dat::send{s.b.at(0, 8)}), return_type::invalid_state, reserved);
  refuses(s.b.ia.create_rsp(s.other, ep, s.b.evd), return_type::invalid_state, reserved);
  must(ep.post(dat::recv{s.b.at(8, 8)}.cookie(2)));
  must(ep.modify({.rnr_retry_count = std::uint8_t{3}}));
  CHECK_FALSE(must(ep.status()).recv_idle);
  SHOWS("RSP-010", "RSP-011");

  auto first = s.ask(s.service, "first");
  auto request = s.request();
  CHECK(ep.state() == ep_state::passive_connection_pending);
  SHOWS("EPS-035", "RSP-014");
  auto second = s.ask(s.service, "second");
  CHECK(s.a.take(1) == events{"non_peer_rejected 35"});
  CHECK(second.state() == ep_state::disconnected);
  SHOWS("RSP-001", "RSP-002");
  CHECK(must(rsp.query()).ep == ep);
  CHECK(must(ep.query()).remote_address);
  SHOWS("RSP-003", "EPS-039");
  refuses(s.b.ia.create_psp(s.service, s.b.evd), return_type::conn_qual_in_use);
  SHOWS("RSP-004");
  refuses(ep.close(), return_type::invalid_state, return_subtype::ep_passconnpending);
  SHOWS("RSP-010", "REQ-005");
  refuses(ep.disconnect(), return_type::invalid_state, return_subtype::ep_passconnpending);

  CHECK(request.service() == rsp.id());
  CHECK(request.service().kind() == dat::service_kind::rsp);
  SHOWS("CR-012");
  CHECK(request.local_ep() == ep);
  CHECK(must(request.query()).local_ep == ep);
  SHOWS("CR-005", "CR-006");
  CHECK(text_of(request.private_data()) == "first");
  auto other = s.make();
  refuses(request.accept(other), return_type::invalid_parameter);
  SHOWS("RSP-005");
  refuses(request.accept(ep), return_type::invalid_parameter);
  SHOWS("CR-021");
  must(rsp.close()); // the request stays valid
  must(request.accept());
  const auto begun = ep.state();
  CHECK((begun == ep_state::completion_pending ||
         begun == ep_state::connected)); // a fast device may already be connected
  s.settle();
  CHECK(s.a.take(1) == events{"established"});
  CHECK(s.b.take(1) == events{"established"});
  CHECK(ep.state() == ep_state::connected);
  SHOWS("EPS-036", "RSP-024", "CR-020");
  const auto params = must(ep.query());
  CHECK(params.local_address == s.b.ia.address().with_port(s.service.port()));
  SHOWS("RSP-017");
  CHECK(params.comm == dat::communicator{AF_INET, SOCK_STREAM, IPPROTO_TCP});
  SHOWS("ADDR-016", "CR-030"); // the rsp has no communicator, so its ia decides
  must(s.b.ia.create_psp(s.service, s.b.evd));
  SHOWS("RSP-004");
}

TEST_CASE("a queued request of a reserved service point is refused when its evd closes", "[PSP-009]") {
  sides s;
  auto evd = must(s.b.ia.create_evd<dat::stream::connection_requests>(3));
  auto ep = s.make();
  auto rsp = must(s.b.ia.create_rsp(s.service, ep, evd));
  const auto asking = s.ask(s.service);
  while (evd.wait(std::chrono::milliseconds(1), 2).error().index() < 1) s.settle();
  refuses(evd.close(), return_type::invalid_state, return_subtype::evd_in_use);
  must(rsp.close());
  must(evd.close());
  s.settle();
  CHECK(s.a.take(1) == events{"non_peer_rejected 35"});
  CHECK(asking.state() == ep_state::disconnected);
  CHECK(ep.state() == ep_state::unconnected);
}

TEST_CASE("closing a reserved service point releases its endpoint", "[connection]") {
  sides s;
  auto ep = s.make();
  must(ep.post(dat::recv{s.b.at(0, 8)}.cookie(1)));
  auto rsp = must(s.b.ia.create_rsp(s.service, ep, s.b.evd));
  SECTION("closed before the request arrives") {
    must(rsp.close());
    CHECK(ep.state() == ep_state::unconnected);
    CHECK(must(ep.recv_query()).allocated == 1);
    SHOWS("RSP-023", "EPS-034");
    auto refused = s.ask(s.service);
    CHECK(s.a.take(1) == events{"non_peer_rejected 8"});
    SHOWS("RSP-021");
  }
  SECTION("closed after the request, which is rejected") {
    auto active = s.ask(s.service);
    must(s.request().reject());
    CHECK(ep.state() == ep_state::unconnected);
    CHECK(must(ep.recv_query()).allocated == 1);
    SHOWS("CR-054", "EPS-037", "RSP-018");
    CHECK_FALSE(must(rsp.query()).ep);
    CHECK_FALSE(must(ep.query()).remote_address);
    s.settle();
    CHECK(s.a.take(1) == events{"peer_rejected"});
    auto later = s.ask(s.service); // the service point takes no second request
    CHECK(s.a.take(1) == events{"non_peer_rejected 35"});
    CHECK(s.b.take(0).empty());
    SHOWS("RSP-001", "RSP-019");
    auto again = must(s.b.ia.create_rsp(s.other, ep, s.b.evd)); // the endpoint can be reserved again
    CHECK_FALSE(must(rsp.query()).ep);
    must(rsp.close());
    CHECK(ep.state() == ep_state::reserved);
  }
  SECTION("closed after the request, which is dropped") {
    auto active = s.ask(s.service);
    { const auto dropped = s.request(); }
    CHECK(ep.state() == ep_state::unconnected);
    s.settle();
    CHECK(s.a.take(1) == events{"non_peer_rejected 35"});
  }
  // The receive of the endpoint is still posted.
  if (ep.state() == ep_state::reserved) return;
  auto listener = must(s.a.ia.create_psp(s.third, s.a.evd));
  must(ep.connect(s.a.ia.address(), s.third, patience));
  s.settle();
  s.a.make_ep();
  must(request_on(s.a.evd).accept(s.a.ep));
  s.settle();
  CHECK(s.a.take(1) == events{"established"});
  CHECK(s.b.take(1) == events{"established"});
  must(s.a.ep.post(dat::send{s.a.at(0, 4)}));
  s.settle();
  CHECK(s.b.take(1) == events{"received 1"});
}

TEST_CASE("a request rejected for lack of room leaves the reserved service point usable",
          "[RSP-015][PSP-007][PSP-008]") {
  sides s;
  auto small = must(s.b.ia.create_evd<dat::stream::connection_requests | dat::stream::software>(1));
  must(small.post(1));
  auto ep = s.make();
  auto rsp = must(s.b.ia.create_rsp(s.service, ep, small));
  auto first = s.ask(s.service);
  CHECK(s.a.take(1) == events{"non_peer_rejected 35"});
  CHECK(ep.state() == ep_state::reserved);
  CHECK(rig::take(small, 1) == events{"software 1"});
  auto second = s.ask(s.service);
  auto request = request_on(small);
  CHECK(ep.state() == ep_state::passive_connection_pending);
  must(request.accept());
}

TEST_CASE("create_rsp checks its arguments before it changes anything", "[RSP-006][RSP-007][RSP-009][RSP-012]") {
  sides s;
  auto ep = s.make();
  auto foreign = must(s.a.pz.create_ep<dat::rc>(s.a.evd));
  refuses(s.b.ia.create_rsp(s.service, foreign, s.b.evd), return_type::invalid_handle, return_subtype::handle_ep);
  refuses(s.b.ia.create_rsp(s.service, ep, s.a.evd), return_type::invalid_handle, return_subtype::handle_evd_cr);
  refuses(s.b.ia.create_rsp(s.service, dat::ep<dat::rc>(), s.b.evd), return_type::invalid_handle,
          return_subtype::handle_ep);
  // Another ia of the same adapter is another ia.
  rig::end again(1);
  const auto neighbour = must(again.pz.create_ep<dat::rc>(again.evd));
  refuses(s.b.ia.create_rsp(s.service, neighbour, s.b.evd), return_type::invalid_handle, return_subtype::handle_ep);
  refuses(s.b.ia.create_rsp(s.service, ep, again.evd), return_type::invalid_handle, return_subtype::handle_evd_cr);
  SHOWS("PSP-010");
  CHECK((neighbour.state() == ep_state::unconnected && ep.state() == ep_state::unconnected));
  const std::uint16_t none = 0;
  refuses(s.b.ia.create_rsp(none, ep, s.b.evd), return_type::invalid_parameter);
  auto psp = must(s.b.ia.create_psp(s.service, s.b.evd));
  refuses(s.b.ia.create_rsp(s.service, ep, s.b.evd), return_type::conn_qual_in_use);
  CHECK(ep.state() == ep_state::unconnected);
  SHOWS("PSP-001", "REQ-052");
  auto rsp = must(s.b.ia.create_rsp(s.other, ep, s.b.evd));
  refuses(s.b.ia.create_rsp(s.third, ep, s.b.evd), return_type::invalid_state, return_subtype::ep_reserved);
  auto active = s.ask(s.other); // the first reservation still works
  auto request = s.request();
  CHECK(ep.state() == ep_state::passive_connection_pending);
  refuses(s.b.ia.create_rsp(s.third, ep, s.b.evd), return_type::invalid_state, return_subtype::ep_passconnpending);
}

TEST_CASE("an endpoint that lacks its zone or one of its evds cannot accept", "[CR-023]") {
  sides s;
  auto psp = must(s.b.ia.create_psp(s.service, s.b.evd));
  auto active = s.ask(s.service);
  auto request = s.request();
  const auto& evd = s.b.evd;
  const struct {
    const char* what;
    dat::ep_evds evds;
    bool with_zone;
  } incomplete[] = {{"the zone", {.recv = evd, .request = evd, .connect = evd}, false},
                    {"the evd of receives", {.request = evd, .connect = evd}, true},
                    {"the evd of requests", {.recv = evd, .connect = evd}, true},
                    {"the evd of the connection", {.recv = evd, .request = evd}, true}};
  for (const auto& [what, evds, with_zone] : incomplete) {
    INFO(what);
    auto ep = must(s.b.ia.create_ep<dat::rc>(evds));
    if (with_zone) must(ep.modify({.pz = &s.b.pz}));
    refuses(request.accept(ep), return_type::invalid_state, return_subtype::ep_unconfigured);
    CHECK(ep.state() == ep_state::unconfigured_unconnected);
    CHECK(request);
  }
  s.b.make_ep();
  must(request.accept(s.b.ep));
  s.settle();
  CHECK(s.a.take(1) == events{"established"});
}

TEST_CASE("an endpoint can be reserved before it is configured", "[RSP-016][EPS-077][EPS-078][EPS-079][EPS-080][CR-023]"
                                                                 "[CR-055]") {
  sides s;
  auto ep = must(s.b.ia.create_ep<dat::rc>({.recv = s.b.evd, .request = s.b.evd}));
  CHECK(ep.state() == ep_state::unconfigured_unconnected);
  auto rsp = must(s.b.ia.create_rsp(s.service, ep, s.b.evd));
  CHECK(ep.state() == ep_state::unconfigured_reserved);
  refuses(ep.close(), return_type::invalid_state, return_subtype::ep_unconfreserved);
  refuses(ep.reset(), return_type::invalid_state, return_subtype::ep_unconfreserved);
  SECTION("configured before the request arrives") {
    must(ep.modify({.pz = &s.b.pz}));
    CHECK(ep.state() == ep_state::unconfigured_reserved);
    must(ep.modify({.connect = s.b.evd}));
    CHECK(ep.state() == ep_state::reserved);
    auto active = s.ask(s.service);
    must(s.request().accept());
    s.settle();
    CHECK(s.b.take(1) == events{"established"});
    CHECK(ep.state() == ep_state::connected);
  }
  SECTION("configured after the request arrives") {
    auto active = s.ask(s.service);
    auto request = s.request();
    CHECK(ep.state() == ep_state::unconfigured_passive);
    refuses(ep.close(), return_type::invalid_state, return_subtype::ep_unconfpassive);
    refuses(request.accept(), return_type::invalid_state, return_subtype::ep_unconfpassive);
    SHOWS("CR-022");
    must(ep.modify({.connect = s.b.evd}));
    CHECK(ep.state() == ep_state::unconfigured_passive);
    SHOWS("EPS-083");
    must(ep.modify({.pz = &s.b.pz}));
    CHECK(ep.state() == ep_state::passive_connection_pending);
    must(request.accept());
    s.settle();
    CHECK(s.b.take(1) == events{"established"});
    CHECK(ep.state() == ep_state::connected);
  }
  SECTION("never configured") {
    auto active = s.ask(s.service);
    must(s.request().reject());
    CHECK(ep.state() == ep_state::unconfigured_unconnected);
    auto again = must(s.b.ia.create_rsp(s.other, ep, s.b.evd));
    must(again.close());
    CHECK(ep.state() == ep_state::unconfigured_unconnected);
    must(ep.close());
    SHOWS("RSP-018", "EPS-037");
  }
}

TEST_CASE("reserved endpoints and requests end in any order", "[RSP-010][RSP-028][EP-043]") {
  sides s;
  auto ep = s.make();
  auto rsp = must(s.b.ia.create_rsp(s.service, ep, s.b.evd));
  SECTION("the endpoint ends first") {
    ep = {};
    CHECK_FALSE(must(rsp.query()).ep);
    auto active = s.ask(s.service);
    CHECK(s.a.take(1) == events{"non_peer_rejected 35"});
  }
  SECTION("the endpoint ends after the request") {
    auto active = s.ask(s.service);
    auto request = s.request();
    ep = {};
    refuses(request.accept(), return_type::invalid_handle, return_subtype::handle_ep);
    must(request.reject());
    s.settle();
    CHECK(s.a.take(1) == events{"peer_rejected"});
  }
  SECTION("the ia closes while the request is on its way to the consumer") {
    auto active = s.ask(s.service);
    while (ep.state() == ep_state::reserved) s.settle();
    must(s.b.ia.close());
    (void)s.a.ia.run();
    (void)s.a.ia.run();
    CHECK(s.a.take(1) == events{"non_peer_rejected 28"});
    CHECK(gone(ep));
    refuses(rsp.query(), return_type::invalid_handle, return_subtype::handle_rsp);
  }
}

} // namespace connections
