// Public service points, the endpoints that they make for requests, and handoff, as the state tables define them.
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
  CHECK(psp.owner() == s.b.ia.owner()); // its ia
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
    // Rejects each delivered request: refusals without a request lead to another event.
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

TEST_CASE("a request can have an endpoint of its own, which the consumer configures and accepts on", "[connection]") {
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
  SHOWS("CR-005");
  CHECK(made.state() == ep_state::unconfigured_tentative);
  auto params = must(made.query());
  CHECK_FALSE(params.has_pz);
  CHECK_FALSE(params.recv);
  CHECK_FALSE(params.request);
  CHECK_FALSE(params.connect);
  SHOWS("PSP-021");
  CHECK(params.attributes.max_rdma_read_in == 4); // the peer offers 5; the side that runs the reads rounds down
  CHECK(params.attributes.max_rdma_read_out == 3);
  SHOWS("PSP-022", "EPS-040");
  CHECK(params.remote_address == request.remote_address());
  CHECK(made.native_handle() == nullptr);

  refuses(request.accept(), return_type::invalid_state, return_subtype::ep_unconftentative);
  must(made.post(dat::recv{s.b.at(8, 8)}.cookie(6)));
  refuses(made.close(), return_type::invalid_state, return_subtype::ep_unconftentative);
  auto mine = s.make();
  refuses(request.accept(mine), return_type::invalid_parameter, return_subtype::arg2);
  CHECK(mine.state() == ep_state::unconnected);
  SHOWS("CR-021");

  must(made.modify({.pz = &s.b.pz}));
  CHECK(made.state() == ep_state::unconfigured_tentative);
  SHOWS("EPS-083");
  refuses(request.accept(), return_type::invalid_state, return_subtype::ep_unconftentative); // the endpoint has no evds
  SHOWS("CR-023", "EPS-077");
  must(made.modify({.recv = s.b.evd, .request = s.b.evd, .connect = s.b.evd, .max_recv_dtos = 5}));
  CHECK(made.state() == ep_state::tentative_connection_pending);
  SHOWS("EPS-080");
  CHECK(must(made.query()).attributes.max_recv_dtos == 5);
  SHOWS("EPS-041");
  must(made.post(dat::recv{s.b.at(0, 8)}.cookie(7)));
  refuses(made.close(), return_type::invalid_state, return_subtype::ep_tentconnpending);
  must(request.accept(bytes_of("hello")));
  CHECK_FALSE(request);
  const dat::ep<dat::rc> ours = std::move(request.ep());
  const auto now = ours.state();
  CHECK((now == ep_state::completion_pending || now == ep_state::connected)); // a fast device may already be connected
  SHOWS("EPS-042");
  s.settle();
  CHECK(s.a.take(1) == events{"established"});
  CHECK(s.b.take(1) == events{"established"});
  SHOWS("PSP-017", "PSP-024", "CR-020");
  must(active.post(dat::send{s.a.at(0, 4)}, dat::send{s.a.at(0, 4)}));
  s.settle();
  CHECK(s.b.take(2) == events{"received 6", "received 7"});
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
    CHECK(text_of(request.private_data()) == data); // in the order of their arrival
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

TEST_CASE("a request can be handed to other service points", "[connection]") {
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
  SHOWS("CR-013", "CR-015", "CR-074", "EVENT-015");
  CHECK(request.private_data().empty());
  SHOWS("CR-010");
  auto second = s.request();
  CHECK(second.service() == made.id());
  SHOWS("CR-011", "MODEL-003");
  REQUIRE(second.ep());
  CHECK(second.ep().state() == ep_state::unconfigured_tentative);
  auto kept = std::move(second.ep());
  must(second.handoff(s.third));
  CHECK(gone(kept)); // the endpoint was created for this request
  CHECK(reserved.state() == ep_state::passive_connection_pending);
  auto third = s.request();
  CHECK(third.local_ep() == reserved);
  SHOWS("CR-067");
  must(third.handoff(s.fourth));
  CHECK(reserved.state() == ep_state::unconnected);
  SHOWS("CR-073", "EPS-048");
  auto fourth = request_on(events_of_csp);
  CHECK(fourth.service() == csp.id());
  SHOWS("CR-075");
  CHECK_FALSE(fourth.local_ep());
  must(fourth.handoff(s.service));
  auto fifth = s.request();
  CHECK(text_of(fifth.private_data()) == "from far");
  CHECK(fifth.remote_address() == must(active.local_address()));
  CHECK(s.a.take(0).empty()); // the peer has received no event
  SHOWS("CR-066");
  s.b.make_ep();
  must(fifth.accept(s.b.ep));
  s.settle();
  CHECK(s.a.take(1) == events{"established"});
  SHOWS("CR-076");
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
  CHECK(text_of(request.private_data()) == "stay");
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
