// Service points, requests and what they do with endpoints, in the fake world: what the state tables say, step by step.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>

#include <cerrno>
#include <netinet/in.h>

using namespace unit;
using dat::ep_state;
using dat::return_subtype;
using dat::return_type;

namespace {

/// Somebody who asks (a) and somebody who is asked (b).
struct sides {
  clean_world world;
  end a{"fk1"};
  end b{"fk2"};

  void settle() { unit::settle(a, b); }
  /// A fresh endpoint of `a` asks for a connection.
  dat::ep<dat::rc> ask(std::uint16_t port, std::string_view data = {}) {
    auto ep = must(a.pz.create_ep<dat::rc>(a.evd));
    must(ep.connect(b.ia.address(), must(dat::conn_qual::make(port)), plenty, bytes_of(data)));
    settle();
    return ep;
  }
  dat::ep<dat::rc> make() { return must(b.pz.create_ep<dat::rc>(b.evd)); }
};

template <class T>
void refuses(const dat::expected<T>& r, return_type type, return_subtype subtype = return_subtype::none) {
  REQUIRE(!r);
  INFO(r.error().message());
  CHECK(r.error().type() == type);
  if (subtype != return_subtype::none) CHECK(r.error().subtype() == subtype);
  CHECK(!r.error().call().empty());
}

bool gone(const dat::ep<dat::rc>& ep) {
  const auto r = ep.query();
  return !r && r.error().type() == return_type::invalid_handle;
}

constexpr dat::communicator tcp{AF_INET, SOCK_STREAM, 0};

} // namespace

TEST_CASE("a service point on any qualifier says which, and takes requests there",
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
  auto request = request_on(s.b.evd);
  CHECK(request.service() == psp.id());
  CHECK(request.service().kind() == dat::service_kind::psp);
  CHECK_FALSE(request.local_ep());
  CHECK_FALSE(request.ep());
  CHECK_FALSE(request.truncated());
}

TEST_CASE("when no qualifier is free, none is made up", "[PSP-031][PSP-032]") {
  sides s;
  for (const int err : {EADDRINUSE, EADDRNOTAVAIL}) {
    fake::fail(fake::call::rdma_bind_addr, 1, err);
    refuses(s.b.ia.create_psp_any(s.b.evd), return_type::conn_qual_unavailable);
  }
  must(s.b.ia.create_psp_any(s.b.evd)); // nothing is left in the way
}

TEST_CASE("flags of a service point are checked", "[PSP-017]") {
  sides s;
  for (const int odd : {2, 255})
    refuses(s.b.ia.create_psp(service, s.b.evd, static_cast<dat::psp_flags>(odd)), return_type::invalid_parameter,
            return_subtype::arg4);
  must(s.b.ia.create_psp(service, s.b.evd));
}

// --- endpoints that dat makes ----------------------------------------------------------------------------------------

TEST_CASE("a request can bring an endpoint, which the consumer configures and accepts on",
          "[PSP-021][PSP-022][PSP-024][CR-005][CR-021][EPS-040][EPS-041][EPS-042][EPS-077][EPS-080][EPS-083]") {
  sides s;
  auto psp = must(s.b.ia.create_psp(service, s.b.evd, dat::psp_flags::provider));
  CHECK(must(psp.query()).flags == dat::psp_flags::provider);
  auto active = must(
      s.a.pz.create_ep<dat::rc>(s.a.evd, {.max_rdma_read_out = std::uint8_t{5}, .max_rdma_read_in = std::uint8_t{3}}));
  must(active.connect(s.b.ia.address(), service, plenty));
  s.settle();
  auto request = request_on(s.b.evd);
  auto& made = request.ep();
  REQUIRE(made);
  CHECK(request.local_ep() == made);
  CHECK(made.state() == ep_state::unconfigured_tentative);
  auto params = must(made.query());
  CHECK_FALSE(params.has_pz);
  CHECK_FALSE(params.recv);
  CHECK_FALSE(params.request);
  CHECK_FALSE(params.connect);
  CHECK(params.attributes.max_rdma_read_in == 4);  // 5 offered, rounded down by the side that runs them
  CHECK(params.attributes.max_rdma_read_out == 2); // 3
  CHECK(params.remote_address == request.remote_address());
  CHECK(made.native_handle() == nullptr);

  refuses(request.accept(), return_type::invalid_state, return_subtype::ep_unconftentative);
  refuses(made.post(dat::recv{s.b.at(0, 8)}), return_type::invalid_state, return_subtype::ep_unconftentative);
  refuses(made.close(), return_type::invalid_state, return_subtype::ep_unconftentative);
  auto mine = s.make();
  refuses(request.accept(mine), return_type::invalid_parameter, return_subtype::arg2);
  CHECK(mine.state() == ep_state::unconnected);

  must(made.modify({.pz = &s.b.pz}));
  CHECK(made.state() == ep_state::unconfigured_tentative);
  must(made.modify({.recv = s.b.evd, .request = s.b.evd, .connect = s.b.evd}));
  CHECK(made.state() == ep_state::tentative_connection_pending);
  must(made.post(dat::recv{s.b.at(0, 8)}.cookie(7)));
  refuses(made.close(), return_type::invalid_state, return_subtype::ep_tentconnpending);
  must(request.accept(bytes_of("hello")));
  CHECK_FALSE(request);
  const dat::ep<dat::rc> ours = std::move(request.ep());
  CHECK(ours.state() == ep_state::completion_pending);
  s.settle();
  CHECK(s.a.take() == events{"established"});
  CHECK(s.b.take() == events{"established"});
  must(active.post(dat::send{s.a.at(0, 4)}));
  s.settle();
  CHECK(s.b.take() == events{"received 7"});
}

TEST_CASE("an endpoint that dat made goes with its request", "[CR-053][CR-055][EPS-043][PSP-024][PSP-026][EP-043]") {
  sides s;
  auto psp = must(s.b.ia.create_psp(service, s.b.evd, dat::psp_flags::provider));
  const auto configure = GENERATE(false, true);
  const auto arrive = [&] {
    auto active = s.ask(service);
    auto request = request_on(s.b.evd);
    if (configure) must(request.ep().modify({.pz = &s.b.pz, .recv = s.b.evd, .request = s.b.evd, .connect = s.b.evd}));
    return std::pair(std::move(active), std::move(request));
  };
  SECTION("rejected") {
    auto [active, request] = arrive();
    must(request.reject(bytes_of("no")));
    CHECK_FALSE(request.ep());
    s.settle();
    CHECK(s.a.take() == events{"peer_rejected"});
  }
  SECTION("rejected, and the endpoint was moved out before") {
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
      CHECK(s.a.take() == events{"non_peer_rejected 35"});
    }
  }
  SECTION("never looked at") {
    auto active = s.ask(service);
    must(psp.close());
  }
  SECTION("the endpoint is dropped, and the request can only be rejected") {
    auto [active, request] = arrive();
    request.ep() = {};
    refuses(request.accept(), return_type::invalid_handle, return_subtype::handle_ep);
    must(request.reject());
    s.settle();
    CHECK(s.a.take() == events{"peer_rejected"});
  }
  SECTION("failing to connect leaves it to the consumer") {
    auto [active, request] = arrive();
    if (!configure) return;
    must(active.close()); // nobody is there any more when the accept comes
    s.settle();
    must(request.accept());
    s.settle();
    CHECK(request.ep().state() == ep_state::disconnected);
    CHECK(s.b.take().size() == 1);
    must(request.ep().reset());
    must(request.ep().close());
  }
}

// --- reserved service points -----------------------------------------------------------------------------------------

TEST_CASE("a reserved service point takes one request, for its endpoint",
          "[RSP-001][RSP-002][RSP-003][RSP-004][RSP-011][RSP-014][RSP-017][RSP-024][RSP-027][EPS-033][EPS-035][EPS-036]"
          "[EPS-039][CR-005][CR-012][RSP-005]") {
  sides s;
  auto ep = s.make();
  must(ep.post(dat::recv{s.b.at(0, 8)}.cookie(1)));
  auto rsp = must(s.b.ia.create_rsp(service, ep, s.b.evd));
  CHECK(ep.state() == ep_state::reserved);
  CHECK(rsp.port() == service);
  CHECK(must(rsp.query()).ep == ep);
  CHECK(must(rsp.query()).requests == s.b.evd.id());
  // What a reserved endpoint refuses, and what not.
  constexpr auto reserved = return_subtype::ep_reserved;
  refuses(ep.connect(s.a.ia.address(), service, plenty), return_type::invalid_state, reserved);
  refuses(ep.common_connect(s.a.ia.address().with_port(5), plenty), return_type::invalid_state, reserved);
  refuses(ep.disconnect(), return_type::invalid_state, reserved);
  refuses(ep.reset(), return_type::invalid_state, reserved);
  refuses(ep.close(), return_type::invalid_state, reserved);
  refuses(ep.modify({.pz = &s.b.pz}), return_type::invalid_state, reserved);
  refuses(ep.post(dat::send{s.b.at(0, 8)}), return_type::invalid_state, reserved);
  refuses(s.b.ia.create_rsp(7001, ep, s.b.evd), return_type::invalid_state, reserved);
  must(ep.post(dat::recv{s.b.at(8, 8)}.cookie(2)));
  must(ep.modify({.rnr_retry_count = std::uint8_t{3}}));
  CHECK_FALSE(must(ep.status()).recv_idle);

  auto first = s.ask(service, "first");
  CHECK(ep.state() == ep_state::passive_connection_pending);
  auto second = s.ask(service, "second");
  CHECK(s.a.take() == events{"non_peer_rejected 35"});
  CHECK(second.state() == ep_state::disconnected);
  CHECK(must(rsp.query()).ep == ep);
  CHECK(must(ep.query()).remote_address);
  refuses(s.b.ia.create_psp(service, s.b.evd), return_type::conn_qual_in_use);
  refuses(ep.close(), return_type::invalid_state, return_subtype::ep_passconnpending);
  refuses(ep.disconnect(), return_type::invalid_state, return_subtype::ep_passconnpending);

  auto request = request_on(s.b.evd);
  CHECK(request.service() == rsp.id());
  CHECK(request.service().kind() == dat::service_kind::rsp);
  CHECK(request.local_ep() == ep);
  CHECK(unpadded(request.private_data()) == "first");
  auto other = s.make();
  refuses(request.accept(other), return_type::invalid_parameter);
  refuses(request.accept(ep), return_type::invalid_parameter);
  must(rsp.close()); // the request does not care
  must(request.accept());
  s.settle();
  CHECK(ep.state() == ep_state::connected);
  CHECK(s.a.take() == events{"established"});
  CHECK(s.b.take() == events{"established"});
  must(s.b.ia.create_psp(service, s.b.evd));
}

TEST_CASE("a reserved service point gives its endpoint back",
          "[RSP-004][RSP-018][RSP-019][RSP-021][RSP-023][CR-054][EPS-034][EPS-037]") {
  sides s;
  auto ep = s.make();
  must(ep.post(dat::recv{s.b.at(0, 8)}.cookie(1)));
  auto rsp = must(s.b.ia.create_rsp(service, ep, s.b.evd));
  SECTION("when it is closed before the request") {
    must(rsp.close());
    CHECK(ep.state() == ep_state::unconnected);
    auto refused = s.ask(service);
    CHECK(s.a.take() == events{"non_peer_rejected 8"});
  }
  SECTION("when the request is rejected") {
    auto active = s.ask(service);
    must(request_on(s.b.evd).reject());
    CHECK(ep.state() == ep_state::unconnected);
    CHECK_FALSE(must(rsp.query()).ep);
    CHECK_FALSE(must(ep.query()).remote_address);
    s.settle();
    CHECK(s.a.take() == events{"peer_rejected"});
    auto later = s.ask(service); // it stays used up
    CHECK(s.a.take() == events{"non_peer_rejected 35"});
    auto again = must(s.b.ia.create_rsp(7001, ep, s.b.evd)); // and the endpoint may serve another
    CHECK_FALSE(must(rsp.query()).ep);
    must(rsp.close());
    CHECK(ep.state() == ep_state::reserved);
  }
  SECTION("when the request is dropped") {
    auto active = s.ask(service);
    request_on(s.b.evd);
    CHECK(ep.state() == ep_state::unconnected);
  }
  // Its receive is as it was.
  if (ep.state() == ep_state::reserved) return;
  auto listener = must(s.a.ia.create_psp(7002, s.a.evd));
  must(ep.connect(s.a.ia.address(), 7002, plenty));
  s.settle();
  s.a.make_ep();
  for (bool found = false; !found;) {
    auto e = must(s.a.evd.dequeue());
    if (auto* r = std::get_if<dat::cr>(&e)) {
      found = true;
      must(r->accept(s.a.ep));
    }
  }
  s.settle();
  (void)s.b.take();
  must(s.a.ep.post(dat::send{s.a.at(0, 4)}));
  s.settle();
  CHECK(s.b.take() == events{"received 1"});
}

TEST_CASE("a request that found no room leaves the reserved service point its chance", "[RSP-015][PSP-007][PSP-008]") {
  sides s;
  auto small = must(s.b.ia.create_evd<dat::connection_requests | dat::software>(1));
  must(small.post(1));
  auto ep = s.make();
  auto rsp = must(s.b.ia.create_rsp(service, ep, small));
  auto first = s.ask(service);
  CHECK(s.a.take() == events{"non_peer_rejected 35"});
  CHECK(ep.state() == ep_state::reserved);
  CHECK(unit::take(small) == events{"software 1"});
  auto second = s.ask(service);
  CHECK(ep.state() == ep_state::passive_connection_pending);
  must(request_on(small).accept());
}

TEST_CASE("what is wrong with a reserved service point is said before anything is done",
          "[RSP-006][RSP-007][RSP-009][RSP-012]") {
  sides s;
  auto ep = s.make();
  auto foreign = must(s.a.pz.create_ep<dat::rc>(s.a.evd));
  refuses(s.b.ia.create_rsp(service, foreign, s.b.evd), return_type::invalid_handle, return_subtype::handle_ep);
  refuses(s.b.ia.create_rsp(service, ep, s.a.evd), return_type::invalid_handle, return_subtype::handle_evd_cr);
  refuses(s.b.ia.create_rsp(service, dat::ep<dat::rc>(), s.b.evd), return_type::invalid_handle,
          return_subtype::handle_ep);
  auto psp = must(s.b.ia.create_psp(service, s.b.evd));
  refuses(s.b.ia.create_rsp(service, ep, s.b.evd), return_type::conn_qual_in_use);
  CHECK(ep.state() == ep_state::unconnected);
  auto rsp = must(s.b.ia.create_rsp(7001, ep, s.b.evd));
  refuses(s.b.ia.create_rsp(7002, ep, s.b.evd), return_type::invalid_state, return_subtype::ep_reserved);
  auto active = s.ask(7001); // the first goes on
  CHECK(ep.state() == ep_state::passive_connection_pending);
  refuses(s.b.ia.create_rsp(7002, ep, s.b.evd), return_type::invalid_state, return_subtype::ep_passconnpending);
}

TEST_CASE("an endpoint can be reserved before it is configured", "[RSP-016][EPS-077][EPS-078][EPS-079][EPS-080][CR-023]"
                                                                 "[CR-055]") {
  sides s;
  auto ep = must(s.b.ia.create_ep<dat::rc>({.recv = s.b.evd, .request = s.b.evd}));
  CHECK(ep.state() == ep_state::unconfigured_unconnected);
  auto rsp = must(s.b.ia.create_rsp(service, ep, s.b.evd));
  CHECK(ep.state() == ep_state::unconfigured_reserved);
  refuses(ep.close(), return_type::invalid_state, return_subtype::ep_unconfreserved);
  refuses(ep.reset(), return_type::invalid_state, return_subtype::ep_unconfreserved);
  SECTION("and configured then") {
    must(ep.modify({.pz = &s.b.pz, .connect = s.b.evd}));
    CHECK(ep.state() == ep_state::reserved);
    auto active = s.ask(service);
    must(request_on(s.b.evd).accept());
    s.settle();
    CHECK(ep.state() == ep_state::connected);
  }
  SECTION("and configured when the request is there") {
    auto active = s.ask(service);
    CHECK(ep.state() == ep_state::unconfigured_passive);
    refuses(ep.close(), return_type::invalid_state, return_subtype::ep_unconfpassive);
    auto request = request_on(s.b.evd);
    refuses(request.accept(), return_type::invalid_state, return_subtype::ep_unconfpassive);
    must(ep.modify({.pz = &s.b.pz, .connect = s.b.evd}));
    CHECK(ep.state() == ep_state::passive_connection_pending);
    must(request.accept());
    s.settle();
    CHECK(ep.state() == ep_state::connected);
  }
  SECTION("or not at all") {
    auto active = s.ask(service);
    must(request_on(s.b.evd).reject());
    CHECK(ep.state() == ep_state::unconfigured_unconnected);
    auto again = must(s.b.ia.create_rsp(7001, ep, s.b.evd));
    must(again.close());
    CHECK(ep.state() == ep_state::unconfigured_unconnected);
    must(ep.close());
  }
}

TEST_CASE("reserved endpoints and requests end in any order", "[RSP-010][RSP-028][EP-043][EPS-047]") {
  sides s;
  auto ep = s.make();
  auto rsp = must(s.b.ia.create_rsp(service, ep, s.b.evd));
  SECTION("the endpoint first") {
    ep = {};
    CHECK_FALSE(must(rsp.query()).ep);
    auto active = s.ask(service);
    CHECK(s.a.take() == events{"non_peer_rejected 35"});
  }
  SECTION("the endpoint after the request") {
    auto active = s.ask(service);
    auto request = request_on(s.b.evd);
    ep = {};
    refuses(request.accept(), return_type::invalid_handle, return_subtype::handle_ep);
    must(request.reject());
    s.settle();
    CHECK(s.a.take() == events{"peer_rejected"});
  }
  SECTION("the ia, with the request on its way to the consumer") {
    auto active = s.ask(service);
    must(s.b.ia.close());
    s.a.ia.run();
    s.a.ia.run();
    CHECK(s.a.take() == events{"non_peer_rejected 28"});
    CHECK(gone(ep));
  }
}

// --- common service points -------------------------------------------------------------------------------------------

TEST_CASE(
    "a common service point listens at an address, for common_connect and for connect",
    "[CSP-001][CSP-005][CSP-006][CSP-007][CSP-014][CSP-016][CSP-017][CSP-018][CSP-021][CSP-022][CONN-073][CONN-076]"
    "[CONN-077][CONN-078][CR-004]") {
  sides s;
  auto csp = must(s.b.ia.create_csp(tcp, s.b.evd));
  const auto params = must(csp.query());
  CHECK(params.address.with_port(0) == s.b.ia.address());
  CHECK(params.address.port() == csp.port());
  CHECK(params.address.port() >= 1024);
  CHECK(params.comm == dat::communicator{AF_INET, SOCK_STREAM, IPPROTO_TCP});
  CHECK(params.requests == s.b.evd.id());

  auto active = must(s.a.pz.create_ep<dat::rc>(s.a.evd, {.comm = tcp}));
  must(active.common_connect(params.address, plenty, bytes_of("hello")));
  CHECK(active.state() == ep_state::active_connection_pending);
  const auto from = must(active.local_address());
  CHECK(from.port() != 0);
  CHECK(must(active.remote_address()) == params.address);
  s.settle();
  auto request = request_on(s.b.evd);
  CHECK(request.service() == csp.id());
  CHECK(request.service().kind() == dat::service_kind::csp);
  CHECK(request.remote_address() == from);
  CHECK(request.local_address() == params.address);
  CHECK(unpadded(request.private_data()) == "hello");
  s.b.make_ep();
  must(request.accept(s.b.ep));
  s.settle();
  CHECK(s.a.take() == events{"established"});
  CHECK(s.b.take() == events{"established"});
  CHECK(must(s.b.ep.query()).comm == dat::communicator{AF_INET, SOCK_STREAM, IPPROTO_TCP});

  auto plain = s.ask(csp.port());
  must(request_on(s.b.evd).reject());
  s.settle();
  CHECK(s.a.take() == events{"peer_rejected"});
  must(csp.close());
  auto late = s.ask(params.address.port());
  CHECK(s.a.take() == events{"non_peer_rejected 8"});
  // And a public service point answers common_connect.
  auto psp = must(s.b.ia.create_psp(service, s.b.evd));
  auto common = must(s.a.pz.create_ep<dat::rc>(s.a.evd, {.comm = tcp}));
  must(common.common_connect(s.b.ia.address().with_port(service), plenty));
  s.settle();
  CHECK(request_on(s.b.evd).service() == psp.id());
}

TEST_CASE("a common service point checks what it is to listen at",
          "[CSP-003][CSP-004][CSP-005][CSP-010][CSP-011][CSP-013][ADDR-014]") {
  sides s;
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

  auto psp = must(s.b.ia.create_psp(service, s.b.evd));
  refuses(make(tcp, own.with_port(service)), return_type::port_in_use);
  auto csp = must(make({AF_INET, SOCK_STREAM, IPPROTO_TCP}, own.with_port(7001)));
  refuses(s.b.ia.create_psp(7001, s.b.evd), return_type::conn_qual_in_use);
  auto six = must(make({AF_INET6, SOCK_STREAM, 0}, v6.with_port(0)));
  CHECK(must(six.query()).address.with_port(0) == v6);
}

TEST_CASE("a common service point at every address answers for its own adapter only", "[CSP-008][CSP-009][PSP-014]") {
  sides s;
  auto csp = must(s.b.ia.create_csp(tcp, dat::ia_address(), s.b.evd));
  CHECK(must(csp.query()).address.is_any());
  auto active = s.ask(csp.port());
  auto request = request_on(s.b.evd);
  CHECK(request.local_address() == s.b.ia.address().with_port(csp.port()));
  // The same port at another adapter of the host.
  auto astray = must(s.a.pz.create_ep<dat::rc>(s.a.evd));
  must(astray.connect(s.a.ia.address(), must(dat::conn_qual::make(csp.port())), plenty));
  s.settle();
  CHECK(s.a.take() == events{"non_peer_rejected 35"});
  CHECK(s.b.take().empty());
  // And of the other family: nobody listens.
  auto six = must(s.a.pz.create_ep<dat::rc>(s.a.evd));
  must(six.connect(must(s.b.ia.address(dat::address_family::ipv6)), must(dat::conn_qual::make(csp.port())), plenty));
  s.settle();
  CHECK(s.a.take() == events{"non_peer_rejected 8"});
}

// --- handoff ---------------------------------------------------------------------------------------------------------

TEST_CASE("a request can be handed to other service points",
          "[CR-011][CR-066][CR-067][CR-073][CR-074][CR-075][CR-076][EPS-048]") {
  sides s;
  auto first = must(s.b.ia.create_psp(service, s.b.evd));
  auto made = must(s.b.ia.create_psp(7001, s.b.evd, dat::psp_flags::provider));
  auto reserved = s.make();
  auto rsp = must(s.b.ia.create_rsp(7002, reserved, s.b.evd));
  auto events_of_csp = must(s.b.ia.create_evd<dat::connection_requests>(4));
  auto csp = must(s.b.ia.create_csp(tcp, s.b.ia.address().with_port(7003), events_of_csp));

  auto active = s.ask(service, "from far");
  auto request = request_on(s.b.evd);
  must(request.handoff(7001));
  CHECK_FALSE(request);
  auto second = request_on(s.b.evd);
  CHECK(second.service() == made.id());
  REQUIRE(second.ep());
  auto kept = std::move(second.ep());
  must(second.handoff(7002));
  CHECK(gone(kept)); // it was made for this request
  CHECK(reserved.state() == ep_state::passive_connection_pending);
  auto third = request_on(s.b.evd);
  CHECK(third.local_ep() == reserved);
  must(third.handoff(7003));
  CHECK(reserved.state() == ep_state::unconnected);
  auto fourth = request_on(events_of_csp);
  CHECK(fourth.service() == csp.id());
  CHECK_FALSE(fourth.local_ep());
  must(fourth.handoff(service));
  auto fifth = request_on(s.b.evd);
  CHECK(unpadded(fifth.private_data()) == "from far");
  CHECK(fifth.remote_address() == must(active.local_address()));
  CHECK(s.a.take().empty()); // the peer has noticed nothing
  s.b.make_ep();
  must(fifth.accept(s.b.ep));
  s.settle();
  CHECK(s.a.take() == events{"established"});
  CHECK(must(active.remote_address()).port() == service);
}

TEST_CASE("a request that cannot be handed off stays where it is", "[CR-015][CR-069][CR-070][CR-071][CR-072]"
                                                                   "[MODEL-003][SAFE-032]") {
  sides s;
  auto psp = must(s.b.ia.create_psp(service, s.b.evd));
  auto small = must(s.b.ia.create_evd<dat::connection_requests | dat::software>(1));
  must(small.post(1));
  auto full = must(s.b.ia.create_psp(7001, small));
  auto full_made = must(s.b.ia.create_psp(7002, small, dat::psp_flags::provider));
  auto reserved = s.make();
  auto rsp = must(s.b.ia.create_rsp(7003, reserved, s.b.evd));
  auto used = s.ask(7003);
  auto answered = request_on(s.b.evd);
  auto six = must(s.b.ia.create_csp({AF_INET6, SOCK_STREAM, 0}, s.b.evd));

  auto active = s.ask(service, "stay");
  auto request = request_on(s.b.evd);
  refuses(request.handoff(service), return_type::invalid_parameter, return_subtype::arg2);
  refuses(request.handoff(must(dat::conn_qual::make(0x01060000 | service))), return_type::invalid_parameter);
  refuses(request.handoff(7009), return_type::invalid_parameter, return_subtype::arg2);
  refuses(request.handoff(must(dat::conn_qual::make(six.port()))), return_type::invalid_parameter);
  for (const int port : {7001, 7002, 7003})
    refuses(request.handoff(must(dat::conn_qual::make(std::uint64_t(port)))), return_type::invalid_state);
  CHECK(request.service() == psp.id());
  CHECK_FALSE(request.local_ep());
  CHECK(unpadded(request.private_data()) == "stay");
  CHECK(s.b.take().empty());
  s.b.make_ep();
  must(request.accept(s.b.ep));
  s.settle();
  CHECK(s.a.take() == events{"established"});
  refuses(request.handoff(7001), return_type::invalid_handle, return_subtype::handle_cr);
  refuses(request.accept(), return_type::invalid_handle, return_subtype::handle_cr);
  refuses(request.reject(), return_type::invalid_handle, return_subtype::handle_cr);
}

TEST_CASE("every call fails once while service points and endpoints are made", "[PSP-020][PSP-031][CSP-011][RSP-012]"
                                                                               "[EP-001][EP-067]") {
  // What failed can be asked for again, and nothing is left behind by the failure.
  const auto result = fake::for_each_failure([&](const fake::injected& i) {
    INFO(i.text());
    const auto twice = [](auto make) {
      auto made = make();
      if (!made) made = make();
      if (!made) FAIL(made.error().message());
      return std::move(made).value();
    };
    auto ia = twice([] { return dat::ia::open("fk2", manual); });
    auto pz = twice([&] { return ia.create_pz(); });
    auto evd = twice([&] { return ia.create_evd<all_streams>(16); });
    auto ep = twice([&] { return ia.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = evd}); });
    if (!ep.modify({.pz = &pz, .max_recv_dtos = 5})) {
      CHECK(ep.state() == ep_state::unconfigured_unconnected);
      CHECK(ep.attributes().max_recv_dtos == 64);
      CHECK_FALSE(must(ep.query()).has_pz);
      must(ep.modify({.pz = &pz, .max_recv_dtos = 5}));
    }
    CHECK(ep.state() == ep_state::unconnected);
    const auto number = ep.number();
    if (!ep.modify({.max_recv_dtos = 6})) {
      CHECK(ep.attributes().max_recv_dtos == 5);
      CHECK(ep.number() == number);
      must(ep.modify({.max_recv_dtos = 6}));
    }
    auto psp = twice([&] { return ia.create_psp(7002, evd); });
    auto any = twice([&] { return ia.create_psp_any(evd); });
    auto rsp = ia.create_rsp(7001, ep, evd);
    if (!rsp) {
      CHECK(ep.state() == ep_state::unconnected);
      rsp = ia.create_rsp(7001, ep, evd);
    }
    REQUIRE(rsp);
    CHECK(ep.state() == ep_state::reserved);
    const int domain = ia.address().family() == dat::address_family::ipv4 ? AF_INET : AF_INET6;
    auto csp = twice([&] { return ia.create_csp({domain, SOCK_STREAM, 0}, ia.address().with_port(7003), evd); });
  });
  CHECK(result.runs > 20);
  for (const auto& d : result.dirty) FAIL_CHECK(d);
  fake::reset();
}
