// Calls that establish connections: arguments, private data, wrong states, service points with and without room.
// SPDX-License-Identifier: BSL-1.0
#include "attempt.hpp"
#include "world.hpp"

#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>

#include <chrono>

using namespace unit;
using dat::ep_state;

TEST_CASE("the rights of the peer follow the latest attributes, also after a failed accept", "[EPATTR-013]") {
  clean_world world;
  end a{"fk1"};
  end b{"fk2"};
  const auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  b.make_ep({.max_rdma_read_in = std::uint8_t{0}});
  must(b.ep.modify({.max_rdma_read_in = std::uint8_t{4}}));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  auto request = request_on(b.evd);
  fake::fail(fake::call::ibv_modify_qp, 1, EIO); // the transition that grants the read access fails
  CHECK_FALSE(request.accept(b.ep));
  CHECK(fake::forget_faults() == 0);
  must(request.accept(b.ep));
  settle(a, b);
  CHECK(a.take() == events{"established"});
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(b.ep.native_handle(), &attr, IBV_QP_ACCESS_FLAGS, &init) == 0);
  CHECK((attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) != 0);
}

TEST_CASE("the peer's private data arrives as given", "[CONN-018][EVENT-016][CR-035]") {
  attempt t;
  SECTION("a dat peer") {
    t.connect();
    auto request = request_on(t.b.evd);
    CHECK(text_of(request.private_data()) == "hi");
    CHECK(request.remote_address().to_string().starts_with("10.99.1.1:"));
    CHECK(request.local_address().port() == service);
    must(request.accept(t.b.ep, bytes_of(std::string(56, 'y'))));
    t.settle();
    auto up = must(t.a.evd.wait_for<dat::established>());
    CHECK(text_of(up.private_data()) == std::string(56, 'y'));
    auto there = must(t.b.evd.wait_for<dat::established>());
    CHECK(there.private_data().empty());
  }
  SECTION("a peer that sends more data than dat can send") {
    fake::hold_events(RDMA_CM_EVENT_CONNECT_REQUEST);
    t.connect();
    const std::string data = std::string(100, '\0') + "far behind";
    t.deliver(RDMA_CM_EVENT_CONNECT_RESPONSE, 0, data);
    auto up = must(t.a.evd.wait_for<dat::established>());
    CHECK(up.private_data().size() == 196);
    CHECK(unpadded(up.private_data()) == data);
    fake::release_events();
  }
}

TEST_CASE("a loopback address is refused at once, with the address to use", "[connection][address]") {
  const clean_world world;
  end a("fk1");
  a.make_ep();
  for (const char* text : {"127.0.0.1", "::1"}) {
    const auto r = a.ep.connect(must(dat::ia_address::parse(text)), service, plenty);
    is_error(r, dat::return_type::invalid_address, dat::return_subtype::address_unsupported);
    CHECK_THAT(r.error().message(), support::contains_text("such as ia.address()"));
    CHECK(a.ep.state() == ep_state::unconnected);
  }
}

TEST_CASE("port 0 is refused by every call that takes a port, without effect", "[connection][psp][rsp]") {
  const clean_world world;
  end a("fk1");
  a.make_ep();
  const std::uint16_t none = 0;
  const auto refused = [](const auto& r, std::string_view call) {
    is_error(r, dat::return_type::invalid_parameter);
    CHECK(r.error().call() == call);
    CHECK_THAT(r.error().message(), support::contains_text("is a port, 1 to 65535"));
  };
  refused(a.ep.connect(a.ia.address(), none, plenty), "ep.connect");
  CHECK(a.ep.state() == ep_state::unconnected);
  refused(a.ia.create_psp(none, a.evd), "ia.create_psp");
  refused(a.ia.create_rsp(none, a.ep, a.evd), "ia.create_rsp");
  refused(a.ia.create_rsp(none, a.evd), "ia.create_rsp");
  CHECK(a.ep.state() == ep_state::unconnected);
}

TEST_CASE("data of more than 56 bytes is refused in every message, without effect",
          "[CONN-044][CR-025][CR-057][CR-028]") {
  // The connection manager keeps lengths in a byte: a length that fits after truncation must be refused as well.
  const auto length = GENERATE(57u, 255u, 256u, 312u);
  attempt t;
  const std::string big(length, 'z');
  const auto e = t.a.ep.connect(t.b.ia.address(), service, plenty, bytes_of(big));
  REQUIRE_FALSE(e);
  CHECK(e.error().type() == dat::return_type::invalid_parameter);
  CHECK(t.a.ep.state() == ep_state::unconnected);
  t.connect();
  auto request = request_on(t.b.evd);
  CHECK(request.accept(t.b.ep, bytes_of(big)).error().type() == dat::return_type::invalid_parameter);
  CHECK(t.b.ep.state() == ep_state::unconnected);
  CHECK(request.reject(bytes_of(big)).error().type() == dat::return_type::invalid_parameter);
  REQUIRE(request);
  must(request.accept(t.b.ep, bytes_of(std::string(56, 'z'))));
  t.settle();
  CHECK(t.a.take() == events{"established"});
}

TEST_CASE("a full evd refuses requests at once, and takes requests again when it has room",
          "[PSP-005][PSP-007][EVENT-071]") {
  clean_world world;
  end a("fk1");
  end b("fk2");
  auto requests = must(b.ia.create_evd<dat::stream::connection_requests>(2));
  auto psp = must(b.ia.create_psp(service, requests));
  std::vector<dat::ep<dat::rc>> eps;
  for (int i = 0; i < 4; ++i) eps.push_back(must(a.pz.create_ep<dat::rc>(a.evd)));
  for (auto& e : eps) must(e.connect(b.ia.address(), service, plenty));
  settle(a, b);
  CHECK(a.take() == events{"non_peer_rejected 35", "non_peer_rejected 35"});
  { auto one = request_on(requests); }
  settle(a, b);
  CHECK(a.take() == events{"non_peer_rejected 35"}); // dropped without an answer
  must(eps[3].reset());
  must(eps[3].connect(b.ia.address(), service, plenty));
  settle(a, b);
  CHECK(unit::take(requests) == events{"request", "request"});
}

TEST_CASE("a closed service point refuses new requests, and delivered requests can still be answered",
          "[PSP-034][PSP-035][PSP-036][PSP-038]") {
  attempt t;
  t.connect();
  auto request = request_on(t.b.evd);
  must(t.psp.close());
  CHECK(t.psp.port() == 0);
  auto other = must(t.a.pz.create_ep<dat::rc>(t.a.evd));
  must(other.connect(t.b.ia.address(), service, plenty));
  t.settle();
  CHECK(t.a.take() == events{"non_peer_rejected 8"});
  must(request.accept(t.b.ep));
  t.settle();
  CHECK(t.a.take() == events{"established"});
  t.psp = must(t.b.ia.create_psp(service, t.b.evd)); // the port is free again
}

TEST_CASE("a qualifier has one service point at a time", "[PSP-001][PSP-019]") {
  attempt t;
  const auto r = t.b.ia.create_psp(service, t.b.evd);
  REQUIRE_FALSE(r);
  CHECK(r.error().type() == dat::return_type::conn_qual_in_use);
  CHECK(r.error().verb() == "rdma_bind_addr");
  CHECK(r.error().object_id() == service);
  must(t.psp.close());
  CHECK(t.b.ia.create_psp(service, t.b.evd));
}

TEST_CASE("calls in a wrong state return that state", "[connection]") {
  attempt t;
  using dat::return_subtype;
  const auto state = [](const dat::expected<void>& r) {
    CHECK(r.error().type() == dat::return_type::invalid_state);
    return r.error().subtype();
  };
  const auto connect = [&] { return t.a.ep.connect(t.b.ia.address(), service, plenty); };
  CHECK(state(t.a.ep.disconnect()) == return_subtype::ep_unconnected);
  SHOWS("EPS-045");
  must(t.a.ep.reset());
  CHECK(fake::posted_receives(t.a.ep.native_handle()) == 1); // untouched
  SHOWS("DISC-045");
  t.connect();
  CHECK(state(connect()) == return_subtype::ep_actconnpending);
  CHECK(state(t.a.ep.reset()) == return_subtype::ep_actconnpending);
  CHECK(state(t.a.ep.post(dat::send{})) == return_subtype::ep_actconnpending);
  CHECK(must(t.a.ep.remote_address()) == t.b.ia.address().with_port(service)); // set by connect
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  auto request = request_on(t.b.evd);
  must(request.accept(t.b.ep));
  CHECK(state(t.b.ep.reset()) == return_subtype::ep_complpending);
  CHECK(state(t.b.ep.post(dat::send{})) == return_subtype::ep_complpending);
  t.settle();
  fake::release_events();
  t.settle();
  CHECK(state(connect()) == return_subtype::ep_connected);
  CHECK(state(t.a.ep.reset()) == return_subtype::ep_connected);
  SHOWS("DISC-046");
  CHECK(must(t.a.ep.remote_address()).port() == service);
  CHECK(must(t.b.ep.local_address()).port() == service);
  must(t.a.ep.disconnect());
  CHECK(state(connect()) == return_subtype::ep_disconnected);
  SHOWS("CONN-038", "EPS-001");
}

TEST_CASE("connect checks its arguments before it changes anything", "[CONN-040][CONN-054][EPS-012][ADDR-006]") {
  attempt t;
  const auto ids = fake::live().ids;
  const auto to = t.b.ia.address();
  CHECK(t.a.ep.connect(to, service, 0us).error().type() == dat::return_type::invalid_parameter);
  CHECK(t.a.ep.connect(to, service, -1us).error().type() == dat::return_type::invalid_parameter);
  for (const char* bad : {"0.0.0.0", "224.0.0.1", "::", "ff02::1"}) {
    INFO(bad);
    const auto r = t.a.ep.connect(must(dat::ia_address::parse(bad)), service, plenty);
    REQUIRE_FALSE(r);
    CHECK(r.error().type() == dat::return_type::invalid_address);
  }
  CHECK(fake::live().ids == ids);
  CHECK(t.a.ep.state() == ep_state::unconnected);
  CHECK(fake::posted_receives(t.a.ep.native_handle()) == 1);
  must(t.a.ep.connect(must(t.b.ia.address(dat::address_family::ipv6)), service, dat::infinite));
  t.settle();
  CHECK(request_on(t.b.evd).remote_address().family() == dat::address_family::ipv6);
}
