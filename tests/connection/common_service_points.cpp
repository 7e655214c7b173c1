// Common service points, which listen at a socket address.
// SPDX-License-Identifier: BSL-1.0
#include "sides.hpp"

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>

namespace connections {

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
  CHECK(text_of(request.private_data()) == "hello");
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
  CHECK(s.b.ep.state() == ep_state::connected); // the endpoint that the answer named
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

} // namespace connections
