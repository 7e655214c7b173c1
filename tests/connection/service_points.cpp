// Service points, requests and their effect on endpoints, step by step as the state tables define it.
// SPDX-License-Identifier: BSL-1.0
#include "sides.hpp"

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>

#include <algorithm>
#include <vector>

namespace connections {

TEST_CASE("a service point on any qualifier reports its qualifier and accepts requests there",
          "[PSP-029][PSP-030][PSP-033][PSP-041][PSP-042]") {
  sides s;
  auto psp = must(s.b.ia.create_psp_any(s.b.evd));
  auto other = must(s.b.ia.create_psp_any(s.b.evd));
  CHECK(psp.port() >= 1024);
  CHECK(psp.port() != other.port());
  CHECK(psp.id() != other.id());
  const auto params = must(psp.query());
  CHECK(params.id.port() == psp.port());
  CHECK(params.id == psp.id());
  CHECK(params.requests == s.b.evd.id());
  CHECK(params.flags == dat::psp_flags::consumer);
  refuses(s.b.ia.create_psp(must(dat::conn_qual::make(psp.port())), s.b.evd), return_type::conn_qual_in_use);

  auto active = s.ask(psp.port());
  auto request = s.request();
  CHECK(request.service() == psp.id());
  CHECK(request.service().kind() == dat::service_kind::psp);
  CHECK_FALSE(request.local_ep());
  CHECK_FALSE(request.ep());
  CHECK_FALSE(request.truncated());
  SHOWS("PSP-015", "PSP-017", "CR-005", "CR-012");
  refuses(request.accept(), return_type::invalid_handle, return_subtype::handle_ep);
  CHECK(request);
  SHOWS("CR-021");
  must(psp.close());
  refuses(psp.query(), return_type::invalid_handle, return_subtype::handle_psp);
  SHOWS("PSP-012");
  // Like a service point on a given qualifier, it may create the endpoint, and it shares the room of its evd.
  auto provider = must(s.b.ia.create_psp_any(s.b.evd, dat::psp_flags::provider));
  CHECK(must(provider.query()).flags == dat::psp_flags::provider);
  auto third = s.ask(provider.port());
  CHECK(s.request().ep());
  auto small = must(s.b.ia.create_evd<dat::stream::connection_requests>(1));
  auto narrow = must(s.b.ia.create_psp_any(small));
  std::array asking{s.ask(narrow.port()), s.ask(narrow.port())};
  CHECK(s.a.take(2) == events{"non_peer_rejected 35", "non_peer_rejected 35"}); // `third` was dropped
  CHECK(request_on(small).service() == narrow.id());
  SHOWS("PSP-033");
}

TEST_CASE("invalid flags of a service point are refused", "[PSP-017]") {
  sides s;
  for (const int odd : {2, 255})
    refuses(s.b.ia.create_psp(s.service, s.b.evd, static_cast<dat::psp_flags>(odd)), return_type::invalid_parameter,
            return_subtype::arg4);
  for (const int odd : {2, 255})
    refuses(s.b.ia.create_psp_any(s.b.evd, static_cast<dat::psp_flags>(odd)), return_type::invalid_parameter);
  SHOWS("PSP-033");
  must(s.b.ia.create_psp(s.service, s.b.evd));
}

TEST_CASE("a service point that is closed while requests arrive has delivered or refused each of them",
          "[PSP-035][CSP-019]") {
  sides s;
  const bool common = GENERATE(false, true);
  for (std::size_t round = 0; round < 12; ++round) {
    dat::psp psp;
    dat::csp csp;
    if (common)
      csp = must(s.b.ia.create_csp(tcp, s.b.ia.address().with_port(s.service.port()), s.b.evd));
    else
      psp = must(s.b.ia.create_psp(s.service, s.b.evd));
    std::vector<endpoint> asking;
    for (int i = 0; i < 6; ++i) {
      asking.push_back(must(s.a.pz.create_ep<dat::rc>(s.a.evd)));
      must(asking.back().connect(s.b.ia.address(), s.service, patience));
    }
    for (std::size_t i = 0; i < round; ++i) rig::some_way(s.a, s.b);
    must(common ? csp.close() : psp.close());
    // Rejects each delivered request: refusals without a request give another event.
    std::size_t rejected = 0;
    events outcomes;
    while (outcomes.size() < asking.size()) {
      s.settle();
      if (auto e = s.b.evd.dequeue()) {
        must(std::get<dat::cr>(e.value()).reject());
        ++rejected;
      }
      if (auto e = s.a.evd.dequeue()) outcomes.push_back(std::visit(support::describe{}, e.value()));
    }
    CHECK(static_cast<std::size_t>(std::count(outcomes.begin(), outcomes.end(), "peer_rejected")) == rejected);
    CHECK(s.b.take(0).empty());
    CHECK(s.a.take(0).empty());
  }
}

// --- endpoints that dat creates --------------------------------------------------------------------------------------

TEST_CASE("a request can have an endpoint of its own, which the consumer configures and accepts on",
          "[PSP-021][PSP-022][PSP-024][CR-005][CR-021][EPS-040][EPS-041][EPS-042][EPS-077][EPS-080][EPS-083]") {
  sides s;
  auto psp = must(s.b.ia.create_psp(s.service, s.b.evd, dat::psp_flags::provider));
  CHECK(must(psp.query()).flags == dat::psp_flags::provider);
  auto active = must(
      s.a.pz.create_ep<dat::rc>(s.a.evd, {.max_rdma_read_out = std::uint8_t{5}, .max_rdma_read_in = std::uint8_t{3}}));
  must(active.connect(s.b.ia.address(), s.service, patience));
  s.settle();
  auto request = s.request();
  auto& made = request.ep();
  REQUIRE(made);
  CHECK(request.local_ep() == made);
  CHECK(made.state() == ep_state::unconfigured_tentative);
  auto params = must(made.query());
  CHECK_FALSE(params.has_pz);
  CHECK_FALSE(params.recv);
  CHECK_FALSE(params.request);
  CHECK_FALSE(params.connect);
  CHECK(params.attributes.max_rdma_read_in == 4); // the peer offers 5; the side that runs the reads rounds down
  CHECK(params.attributes.max_rdma_read_out == 3);
  CHECK(params.remote_address == request.remote_address());
  CHECK(made.native_handle() == nullptr);

  refuses(request.accept(), return_type::invalid_state, return_subtype::ep_unconftentative);
  refuses(made.post(dat::recv{s.b.at(0, 8)}), return_type::invalid_state, return_subtype::ep_unconftentative);
  DEVIATES("EPS-082", "DTO-120");
  refuses(made.close(), return_type::invalid_state, return_subtype::ep_unconftentative);
  auto mine = s.make();
  refuses(request.accept(mine), return_type::invalid_parameter, return_subtype::arg2);
  CHECK(mine.state() == ep_state::unconnected);

  must(made.modify({.pz = &s.b.pz}));
  CHECK(made.state() == ep_state::unconfigured_tentative);
  refuses(request.accept(), return_type::invalid_state, return_subtype::ep_unconftentative); // the endpoint has no evds
  SHOWS("CR-023");
  must(made.modify({.recv = s.b.evd, .request = s.b.evd, .connect = s.b.evd, .max_recv_dtos = 5}));
  CHECK(made.state() == ep_state::tentative_connection_pending);
  CHECK(must(made.query()).attributes.max_recv_dtos == 5);
  must(made.post(dat::recv{s.b.at(0, 8)}.cookie(7)));
  refuses(made.close(), return_type::invalid_state, return_subtype::ep_tentconnpending);
  must(request.accept(bytes_of("hello")));
  CHECK_FALSE(request);
  const dat::ep<dat::rc> ours = std::move(request.ep());
  const auto now = ours.state();
  CHECK((now == ep_state::completion_pending || now == ep_state::connected)); // a fast device may already be connected
  s.settle();
  CHECK(s.a.take(1) == events{"established"});
  CHECK(s.b.take(1) == events{"established"});
  SHOWS("PSP-017", "CR-020");
  must(active.post(dat::send{s.a.at(0, 4)}));
  s.settle();
  CHECK(s.b.take(1) == events{"received 7"});
}

TEST_CASE("an endpoint made for a request ends with that request",
          "[CR-053][CR-055][EPS-043][PSP-024][PSP-026][EP-043]") {
  sides s;
  auto psp = must(s.b.ia.create_psp(s.service, s.b.evd, dat::psp_flags::provider));
  const auto configure = GENERATE(false, true);
  const auto arrive = [&] {
    auto active = s.ask(s.service);
    auto request = s.request();
    if (configure) must(request.ep().modify({.pz = &s.b.pz, .recv = s.b.evd, .request = s.b.evd, .connect = s.b.evd}));
    return std::pair(std::move(active), std::move(request));
  };
  SECTION("rejected") {
    auto [active, request] = arrive();
    must(request.reject(bytes_of("no")));
    CHECK_FALSE(request.ep());
    s.settle();
    CHECK(s.a.take(1) == events{"peer_rejected"});
  }
  SECTION("the request is rejected after its endpoint was moved out") {
    auto [active, request] = arrive();
    const auto kept = std::move(request.ep());
    must(request.reject());
    CHECK(gone(kept));
    refuses(kept.post(dat::recv{s.b.at(0, 8)}), return_type::invalid_handle, return_subtype::handle_ep);
  }
  SECTION("dropped") {
    {
      auto [active, request] = arrive();
      request = {};
      s.settle();
      CHECK(s.a.take(1) == events{"non_peer_rejected 35"});
    }
  }
  SECTION("the request is dropped, and its endpoint is never used") {
    auto active = s.ask(s.service);
    must(psp.close());
    CHECK_FALSE(psp);
  }
  SECTION("the endpoint is dropped, and the request can only be rejected") {
    auto [active, request] = arrive();
    request.ep() = {};
    refuses(request.accept(), return_type::invalid_handle, return_subtype::handle_ep);
    must(request.reject());
    s.settle();
    CHECK(s.a.take(1) == events{"peer_rejected"});
  }
  SECTION("the connection fails, and the endpoint stays with the consumer") {
    auto [active, request] = arrive();
    CHECK((request.ep().state() == ep_state::tentative_connection_pending) == configure);
    if (!configure) return;
    must(active.close()); // the peer ends before the accept
    s.settle();
    must(request.accept());
    s.settle();
    CHECK(s.b.take(1).size() == 1);
    CHECK(request.ep().state() == ep_state::disconnected);
    must(request.ep().reset());
    CHECK(request.ep().state() == ep_state::unconnected);
    must(request.ep().close());
    CHECK(gone(request.ep()));
    SHOWS("EPS-029");
  }
}

TEST_CASE("requests that are queued when their service point closes keep their endpoints and can be answered",
          "[PSP-036]") {
  sides s;
  auto requests = must(s.b.ia.create_evd<dat::stream::connection_requests>(4));
  auto psp = must(s.b.ia.create_psp(s.service, requests, dat::psp_flags::provider));
  const auto id = psp.id();
  auto cno = must(s.b.ia.create_cno());
  must(requests.modify_cno(cno));
  const auto asked = s.ask(s.service, "first");
  CHECK(must(cno.wait(patience)) == requests.id()); // the request has arrived
  const auto asked_later = s.ask(s.service, "second");
  auto first = must(requests.wait(patience, 2)); // the second request stays in the evd
  CHECK(first.more == 1);
  must(psp.close());
  must(requests.modify_cno({}));
  auto accept = [&](dat::cr request, std::string_view data) {
    CHECK(unpadded(request.private_data()) == data); // in the order of their arrival
    SHOWS("EVENT-033");
    CHECK(request.service() == id);
    SHOWS("PSP-037");
    REQUIRE(request.ep());
    must(request.ep().modify({.pz = &s.b.pz, .recv = s.b.evd, .request = s.b.evd, .connect = s.b.evd}));
    must(request.accept());
    return endpoint(std::move(request.ep()));
  };
  const auto one = accept(std::get<dat::cr>(std::move(first.first)), "first");
  const auto two = accept(request_on(requests), "second");
  s.settle();
  CHECK(s.a.take(2) == events{"established", "established"});
  CHECK(s.b.take(2) == events{"established", "established"});
  CHECK(one.state() == ep_state::connected);
  CHECK(two.state() == ep_state::connected);
}

// --- reserved service points -----------------------------------------------------------------------------------------

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
  CHECK(unpadded(request.private_data()) == "first");
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

TEST_CASE("closing a reserved service point releases its endpoint",
          "[RSP-004][RSP-018][RSP-019][RSP-021][RSP-023][CR-054][EPS-034][EPS-037]") {
  sides s;
  auto ep = s.make();
  must(ep.post(dat::recv{s.b.at(0, 8)}.cookie(1)));
  auto rsp = must(s.b.ia.create_rsp(s.service, ep, s.b.evd));
  SECTION("closed before the request arrives") {
    must(rsp.close());
    CHECK(ep.state() == ep_state::unconnected);
    auto refused = s.ask(s.service);
    CHECK(s.a.take(1) == events{"non_peer_rejected 8"});
  }
  SECTION("closed after the request, which is rejected") {
    auto active = s.ask(s.service);
    must(s.request().reject());
    CHECK(ep.state() == ep_state::unconnected);
    CHECK_FALSE(must(rsp.query()).ep);
    CHECK_FALSE(must(ep.query()).remote_address);
    s.settle();
    CHECK(s.a.take(1) == events{"peer_rejected"});
    auto later = s.ask(s.service); // the service point takes no second request
    CHECK(s.a.take(1) == events{"non_peer_rejected 35"});
    CHECK(s.b.take(0).empty());
    SHOWS("RSP-001");
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

TEST_CASE("reserved endpoints and requests end in any order", "[RSP-010][RSP-028][EP-043][EPS-047]") {
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

// --- common service points -------------------------------------------------------------------------------------------

TEST_CASE("a common service point listens at an address, for common_connect and for connect", "") {
  sides s;
  auto csp = must(s.b.ia.create_csp(tcp, s.b.evd));
  const auto params = must(csp.query());
  CHECK(params.address.with_port(0) == s.b.ia.address());
  SHOWS("CSP-006");
  CHECK(params.address.port() == csp.port());
  CHECK(params.address.port() >= 1024);
  SHOWS("CSP-007");
  CHECK(params.comm == dat::communicator{AF_INET, SOCK_STREAM, IPPROTO_TCP});
  SHOWS("CSP-022", "ADDR-015");
  CHECK((params.requests == s.b.evd.id() && params.id == csp.id()));
  SHOWS("CSP-021");

  auto active = must(s.a.pz.create_ep<dat::rc>(s.a.evd, {.comm = tcp}));
  must(active.common_connect(params.address, patience, bytes_of("hello")));
  CHECK(active.state() == ep_state::active_connection_pending);
  SHOWS("EPS-005");
  const auto from = must(active.local_address());
  CHECK(from.port() != 0);
  SHOWS("CONN-076");
  CHECK(must(active.remote_address()) == params.address);
  SHOWS("CONN-073");
  s.settle();
  auto request = s.request();
  CHECK(request.service() == csp.id());
  CHECK(request.service().kind() == dat::service_kind::csp);
  CHECK_FALSE(request.local_ep());
  CHECK_FALSE(request.ep());
  SHOWS("CSP-001", "CR-005", "CR-012");
  CHECK(request.remote_address() == from);
  SHOWS("CR-004", "CSP-014", "CONN-077");
  CHECK(request.local_address() == params.address);
  SHOWS("CSP-005", "CSP-017");
  CHECK(unpadded(request.private_data()) == "hello");
  // An endpoint with another communicator or port than the service point's cannot accept.
  for (const auto& unlike :
       {dat::ep_changes{.comm = tcp6}, dat::ep_changes{.local_address = s.b.ia.address().with_port(s.other.port())}}) {
    auto ep = s.make();
    must(ep.modify(unlike));
    refuses(request.accept(ep), return_type::invalid_parameter, return_subtype::arg2);
    SHOWS("CR-031");
  }
  s.b.make_ep();
  must(request.accept(s.b.ep));
  s.settle();
  CHECK(s.a.take(1) == events{"established"});
  CHECK(s.b.take(1) == events{"established"});
  CHECK(s.b.ep.state() == ep_state::connected); // the endpoint that the answer gave
  SHOWS("CR-021");
  CHECK(must(s.b.ep.query()).comm == dat::communicator{AF_INET, SOCK_STREAM, IPPROTO_TCP});

  auto plain = s.ask(csp.port());
  auto by_qualifier = s.request();
  CHECK(by_qualifier.service() == csp.id());
  CHECK(by_qualifier.remote_address() == must(plain.local_address()));
  SHOWS("CSP-014", "CSP-001");
  must(by_qualifier.reject());
  SHOWS("CR-056");
  s.settle();
  CHECK(s.a.take(1) == events{"peer_rejected"});
  must(csp.close());
  auto late = s.ask(params.address.port());
  CHECK(s.a.take(1) == events{"non_peer_rejected 8"});
  SHOWS("CSP-018");
  CHECK((active.state() == ep_state::connected && s.b.ep.state() == ep_state::connected)); // requested before the close
  SHOWS("CSP-019");
  // A public service point also accepts common_connect.
  auto psp = must(s.b.ia.create_psp(s.service, s.b.evd));
  auto common = must(s.a.pz.create_ep<dat::rc>(s.a.evd, {.comm = tcp}));
  const auto own = s.a.ia.address().with_port(s.other.port());
  must(common.modify({.local_address = own}));
  must(common.common_connect(s.b.ia.address().with_port(s.service.port()), patience));
  s.settle();
  const auto of_psp = s.request();
  CHECK(of_psp.service() == psp.id());
  SHOWS("CSP-016");
  CHECK(of_psp.remote_address() == own);
  SHOWS("CONN-076");
}

TEST_CASE("create_csp checks its address", "[CSP-003][CSP-004][CSP-005][CSP-010][CSP-011][CSP-013][ADDR-014]") {
  sides s;
  s.needs_two_adapters_with_ipv6();
  const auto own = s.b.ia.address();
  const auto v6 = must(s.b.ia.address(dat::address_family::ipv6));
  const auto make = [&](dat::communicator c, const dat::ia_address& at) { return s.b.ia.create_csp(c, at, s.b.evd); };
  for (const dat::communicator c :
       {dat::communicator{}, dat::communicator{0, SOCK_STREAM, 0}, dat::communicator{AF_INET, 0, 0},
        dat::communicator{AF_INET, -1, 0}, dat::communicator{AF_INET, SOCK_STREAM, IPPROTO_UDP},
        dat::communicator{AF_INET, SOCK_DGRAM, IPPROTO_TCP}})
    refuses(make(c, own), return_type::invalid_parameter, return_subtype::arg2);
  for (const dat::communicator c :
       {dat::communicator{AF_UNIX, SOCK_STREAM, 0}, dat::communicator{AF_INET, SOCK_DGRAM, IPPROTO_UDP},
        dat::communicator{AF_INET, SOCK_SEQPACKET, 0}, dat::communicator{AF_INET, SOCK_STREAM, 132}})
    refuses(make(c, own), return_type::comm_not_supported);
  refuses(make(tcp, v6), return_type::invalid_parameter, return_subtype::arg3);
  refuses(make({AF_INET6, SOCK_STREAM, 0}, own), return_type::invalid_parameter, return_subtype::arg3);
  refuses(make(tcp, s.a.ia.address()), return_type::invalid_parameter, return_subtype::arg3);
  for (const char* odd : {"192.0.2.1", "127.0.0.1", "224.0.0.1"})
    refuses(make(tcp, must(dat::ia_address::parse(odd))), return_type::invalid_parameter, return_subtype::arg3);
  refuses(s.b.ia.create_csp(tcp, own, s.a.evd), return_type::invalid_handle, return_subtype::handle_evd_cr);
  SHOWS("ADDR-005", "PSP-010");

  auto psp = must(s.b.ia.create_psp(s.service, s.b.evd));
  refuses(make(tcp, own.with_port(s.service.port())), return_type::port_in_use);
  auto csp = must(make({AF_INET, SOCK_STREAM, IPPROTO_TCP}, own.with_port(s.other.port())));
  CHECK(must(csp.query()).comm == dat::communicator{AF_INET, SOCK_STREAM, IPPROTO_TCP});
  SHOWS("CSP-022");
  refuses(s.b.ia.create_psp(s.other, s.b.evd), return_type::conn_qual_in_use);
  SHOWS("PSP-001", "REQ-052");
  auto six = must(make({AF_INET6, SOCK_STREAM, 0}, v6.with_port(0)));
  CHECK(must(six.query()).address.with_port(0) == v6);
}

TEST_CASE("a common service point at the wildcard address takes requests of its own adapter only",
          "[CSP-008][CSP-009][PSP-014]") {
  sides s;
  s.needs_two_adapters_with_ipv6();
  auto csp = must(s.b.ia.create_csp(tcp, dat::ia_address(), s.b.evd));
  CHECK(must(csp.query()).address.is_any());
  auto active = s.ask(csp.port());
  auto request = s.request();
  CHECK(request.local_address() == s.b.ia.address().with_port(csp.port()));
  // The same port on another adapter of the host.
  auto astray = must(s.a.pz.create_ep<dat::rc>(s.a.evd));
  must(astray.connect(s.a.ia.address(), must(dat::conn_qual::make(csp.port())), patience));
  s.settle();
  CHECK(s.a.take(1) == events{"non_peer_rejected 35"});
  CHECK(s.b.take(0).empty());
  // The other address family has no listening service point. The kernel reports that in another way if the port is
  // taken.
  auto six = must(s.a.pz.create_ep<dat::rc>(s.a.evd));
  must(six.connect(must(s.b.ia.address(dat::address_family::ipv6)), must(dat::conn_qual::make(csp.port())), patience));
  s.settle();
  CHECK(s.a.take(1).at(0).starts_with("non_peer_rejected"));
  CHECK(s.b.take(0).empty());
  // A service point at one address takes no request that arrives at another adapter, or at another family.
  auto own = must(s.b.ia.create_csp(tcp, s.b.ia.address(), s.b.evd));
  for (const auto& to : {s.a.ia.address(), must(s.b.ia.address(dat::address_family::ipv6))}) {
    auto elsewhere = must(s.a.pz.create_ep<dat::rc>(s.a.evd));
    must(elsewhere.connect(to, must(dat::conn_qual::make(own.port())), patience));
    s.settle();
    CHECK(s.a.take(1).at(0).starts_with("non_peer_rejected"));
    CHECK(s.b.take(0).empty());
    SHOWS("CSP-005");
  }
  // One at the wildcard address of IPv6 takes requests of IPv6 only.
  auto all_six = must(s.b.ia.create_csp(tcp6, must(dat::ia_address::parse("::")), s.b.evd));
  const auto to_six = must(dat::conn_qual::make(all_six.port()));
  auto four = must(s.a.pz.create_ep<dat::rc>(s.a.evd));
  must(four.connect(s.b.ia.address(), to_six, patience));
  s.settle();
  CHECK(s.a.take(1).at(0).starts_with("non_peer_rejected"));
  CHECK(four.state() == ep_state::disconnected);
  auto taken = must(s.a.pz.create_ep<dat::rc>(s.a.evd));
  must(taken.connect(must(s.b.ia.address(dat::address_family::ipv6)), to_six, patience));
  s.settle();
  CHECK(s.request().service() == all_six.id());
}

// --- handoff ---------------------------------------------------------------------------------------------------------

TEST_CASE("a request can be handed to other service points",
          "[CR-011][CR-066][CR-067][CR-073][CR-074][CR-075][CR-076][EPS-048]") {
  sides s;
  auto first = must(s.b.ia.create_psp(s.service, s.b.evd));
  auto made = must(s.b.ia.create_psp(s.other, s.b.evd, dat::psp_flags::provider));
  auto reserved = s.make();
  auto rsp = must(s.b.ia.create_rsp(s.third, reserved, s.b.evd));
  auto events_of_csp = must(s.b.ia.create_evd<dat::stream::connection_requests>(4));
  auto csp = must(s.b.ia.create_csp(tcp, s.b.ia.address().with_port(s.fourth.port()), events_of_csp));

  auto active = s.ask(s.service, "from far");
  auto request = s.request();
  must(request.handoff(s.other));
  CHECK_FALSE(request);
  refuses(request.accept(), return_type::invalid_handle, return_subtype::handle_cr);
  SHOWS("CR-015", "CR-013", "EVENT-015");
  CHECK(request.private_data().empty());
  SHOWS("CR-010");
  auto second = s.request();
  CHECK(second.service() == made.id());
  SHOWS("MODEL-003");
  REQUIRE(second.ep());
  CHECK(second.ep().state() == ep_state::unconfigured_tentative);
  auto kept = std::move(second.ep());
  must(second.handoff(s.third));
  CHECK(gone(kept)); // the endpoint was created for this request
  CHECK(reserved.state() == ep_state::passive_connection_pending);
  auto third = s.request();
  CHECK(third.local_ep() == reserved);
  must(third.handoff(s.fourth));
  CHECK(reserved.state() == ep_state::unconnected);
  auto fourth = request_on(events_of_csp);
  CHECK(fourth.service() == csp.id());
  CHECK_FALSE(fourth.local_ep());
  must(fourth.handoff(s.service));
  auto fifth = s.request();
  CHECK(unpadded(fifth.private_data()) == "from far");
  CHECK(fifth.remote_address() == must(active.local_address()));
  CHECK(s.a.take(0).empty()); // the peer has got no event
  s.b.make_ep();
  must(fifth.accept(s.b.ep));
  s.settle();
  CHECK(s.a.take(1) == events{"established"});
  CHECK(must(active.remote_address()).port() == s.service.port());
}

TEST_CASE("a failed handoff leaves the request with its owner", "[CR-015][CR-069][CR-070][CR-071][CR-072]"
                                                                "[MODEL-003][SAFE-032]") {
  sides s;
  s.needs_two_adapters_with_ipv6();
  auto psp = must(s.b.ia.create_psp(s.service, s.b.evd));
  auto small = must(s.b.ia.create_evd<dat::stream::connection_requests | dat::stream::software>(1));
  must(small.post(1));
  auto full = must(s.b.ia.create_psp(s.other, small));
  auto full_made = must(s.b.ia.create_psp(s.third, small, dat::psp_flags::provider));
  auto reserved = s.make();
  auto rsp = must(s.b.ia.create_rsp(s.fourth, reserved, s.b.evd));
  auto used = s.ask(s.fourth);
  auto answered = s.request();
  auto six = must(s.b.ia.create_csp({AF_INET6, SOCK_STREAM, 0}, s.b.evd));

  auto active = s.ask(s.service, "stay");
  auto request = s.request();
  refuses(request.handoff(s.service), return_type::invalid_parameter, return_subtype::arg2);
  refuses(request.handoff(must(dat::conn_qual::make(0x01060000U | s.service.port()))), return_type::invalid_parameter);
  refuses(request.handoff(rig::port()), return_type::invalid_parameter, return_subtype::arg2);
  const std::uint16_t none = 0;
  refuses(request.handoff(none), return_type::invalid_parameter);
  refuses(request.handoff(must(dat::conn_qual::make(six.port()))), return_type::invalid_parameter);
  // A service point of another ia is refused, too, on the same adapter or another one.
  rig::end again(1);
  const auto elsewhere = must(again.ia.create_psp_any(again.evd));
  refuses(request.handoff(must(dat::conn_qual::make(elsewhere.port()))), return_type::invalid_parameter);
  for (const auto port : {s.other, s.third, s.fourth}) refuses(request.handoff(port), return_type::invalid_state);
  SHOWS("CR-067"); // two service points have no room, and the third has had its request
  CHECK(request.service() == psp.id());
  CHECK_FALSE(request.local_ep());
  CHECK(unpadded(request.private_data()) == "stay");
  CHECK(s.b.take(0).empty());
  s.b.make_ep();
  must(request.accept(s.b.ep));
  s.settle();
  CHECK(s.a.take(1) == events{"established"});
  refuses(request.handoff(s.other), return_type::invalid_handle, return_subtype::handle_cr);
  refuses(request.accept(), return_type::invalid_handle, return_subtype::handle_cr);
  refuses(request.reject(), return_type::invalid_handle, return_subtype::handle_cr);
}

} // namespace connections
