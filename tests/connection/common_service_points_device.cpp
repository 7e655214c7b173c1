// Common service points, common_connect and dup_connect on a device.
// SPDX-License-Identifier: BSL-1.0
#include "device_ends.hpp"
#include "device_table.hpp"
#include "link_local.hpp"

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace device {

TEST_CASE("a common service point listens on the port of a socket address", "[service_point]") {
  ends e;
  const bool six = GENERATE(false, true);
  const auto comm = six ? tcp6 : tcp;
  const bool wild = GENERATE(false, true);
  const auto own = e.b.ia.address(six ? dat::address_family::ipv6 : dat::address_family::ipv4);
  if (!own) SKIP("the adapter has no IPv6 address");
  auto any = must(dat::ia_address::parse(six ? "::" : "0.0.0.0"));
  auto csp = wild ? must(e.b.ia.create_csp(comm, any, e.b.evd)) : must(e.b.ia.create_csp(comm, e.b.evd));
  const auto where = own.value().with_port(csp.port());
  CHECK(must(csp.query()).address == (wild ? any.with_port(csp.port()) : where));
  SHOWS("CSP-005", "CSP-006", "CSP-007", "CSP-008", "CSP-021");
  CHECK(must(csp.query()).comm == dat::communicator{comm.domain, SOCK_STREAM, IPPROTO_TCP});
  SHOWS("CSP-022", "ADDR-015");
  CHECK(error_of(e.b.ia.create_csp(comm, where, e.b.evd)) == dat::error(type::port_in_use));
  CHECK(error_of(e.b.ia.create_csp({.domain = AF_UNIX, .type = SOCK_STREAM}, where, e.b.evd)) ==
        dat::error(type::comm_not_supported));
  STATIC_REQUIRE(static_cast<std::uint32_t>(type::port_in_use) == 0x00160000);
  STATIC_REQUIRE(static_cast<std::uint32_t>(type::comm_not_supported) == 0x00170000);
  SHOWS("CSP-010", "ERR-029", "REQ-052");

  auto active = e.a.make_ep({.comm = {comm.domain, SOCK_STREAM, IPPROTO_TCP}});
  must(active.common_connect(where, patience, bytes_of("a socket?")));
  const auto asked_with = active.attributes();
  const auto from = must(active.local_address()); // the port is known when connect returns
  CHECK(from.port() != 0);
  SHOWS("CONN-049", "EP-052");
  CHECK(from.with_port(0) == must(e.a.ia.address(six ? dat::address_family::ipv6 : dat::address_family::ipv4)));
  SHOWS("CONN-076");
  CHECK(must(active.remote_address()) == where);
  SHOWS("CONN-004", "CONN-073", "REQ-048");
  auto request = e.request();
  CHECK(request.service() == csp.id());
  CHECK(request.service().port() == csp.port());
  SHOWS("CSP-001", "CSP-017");
  CHECK(request.remote_address() == from);
  SHOWS("CR-004", "CSP-014", "CONN-077");
  CHECK(request.local_address() == where);
  SHOWS("CSP-017");
  CHECK(text_of(request.private_data()) == "a socket?");
  auto passive = e.b.make_ep();
  must(request.accept(passive, bytes_of("a socket")));
  CHECK(text_of(next<dat::established>(e.a.evd).private_data()) == "a socket");
  (void)next<dat::established>(e.b.evd);
  const auto there = must(passive.query());
  CHECK(there.comm.domain == comm.domain);
  CHECK(there.comm.protocol == IPPROTO_TCP);
  CHECK(there.comm.type == SOCK_STREAM);
  SHOWS("CR-030", "ADDR-016", "CR-020", "CSP-014", "CONN-077");
  CHECK(there.remote_address == from);
  SHOWS("CR-032");
  CHECK(there.local_address == where);
  SHOWS("CR-046", "ADDR-003", "CR-030");
  const auto here = must(active.query());
  CHECK(here.comm == dat::communicator{comm.domain, SOCK_STREAM, IPPROTO_TCP});
  CHECK((here.local_address == from && here.remote_address == where));
  SHOWS("CONN-004");
  exchange(e.a, active, e.b, passive);
  SHOWS("EPS-030", "REQ-044", "REQ-055");
  buffer near(e.a.pz, 64);
  buffer far(e.b.pz, 64);
  fill(far.bytes, 9);
  must(active.post(dat::rdma_read{near.lmr, far.remote()}));
  (void)next<dat::rdma_read_done>(e.a.evd);
  CHECK(has_pattern(near.bytes, 9));
  CHECK(active.attributes().max_rdma_read_out == asked_with.max_rdma_read_out);
  CHECK(active.attributes().max_request_dtos == asked_with.max_request_dtos);
  SHOWS("CONN-083");

  auto plain = e.a.make_ep();
  must(plain.connect(where.with_port(9), must(dat::conn_qual::make(csp.port())), patience));
  must(e.request().reject());
  CHECK(next<dat::peer_rejected>(e.a.evd).ep() == plain);
  SHOWS("ADDR-001", "ADDR-011", "CSP-016");
  must(csp.close());
  must(plain.reset());
  must(plain.connect(where, must(dat::conn_qual::make(where.port())), patience));
  CHECK(next<dat::non_peer_rejected>(e.a.evd).reason() == this_device().no_listener);
  SHOWS("CSP-018");
}

TEST_CASE("a link-local address leads to its interface, also from an adapter that was opened by such an address",
          "[service_point][ADDR-002][ADDR-003][ADDR-005][ADDR-017][CONN-049]") {
  const auto at = link_local_interfaces();
  if (at[0].host.empty()) SKIP("no link-local addresses");
  side a(must(dat::ia::open(at[0].seen_from(at[0]))), 16);
  side b(must(dat::ia::open(at[1].seen_from(at[1]))), 16);
  CHECK(must(a.ia.address(dat::address_family::ipv6)) == at[0].seen_from(at[0]));
  CHECK(a.ia.name() != b.ia.name());
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  const auto csp = must(b.ia.create_csp(tcp6, b.evd));
  for (const bool common : {false, true}) {
    const auto to = at[1].seen_from(at[0]); // with the interface in its scope
    auto active = a.make_ep({.comm = tcp6});
    auto passive = b.make_ep();
    CHECK(must(active.query()).local_address.port() == 0);
    must(passive.modify({.local_address = at[1].seen_from(at[1])})); // the endpoint accepts at this address only
    if (common)
      must(active.common_connect(to.with_port(csp.port()), patience));
    else
      must(active.connect(to, port, patience));
    auto request = next<dat::connection_request>(b.evd);
    CHECK(request.service() == (common ? csp.id() : psp.id()));
    // The addresses of the request have their scope, so a program can connect to them.
    CHECK(request.remote_address().with_port(0) == at[0].seen_from(at[1]));
    CHECK(request.local_address().with_port(0) == at[1].seen_from(at[1]));
    must(request.accept(passive));
    (void)next<dat::established>(a.evd);
    (void)next<dat::established>(b.evd);
    CHECK(must(active.local_address()).with_port(0) == at[0].seen_from(at[0]));
    CHECK(must(active.remote_address()).with_port(0) == to);
    exchange(a, active, b, passive);
    must(active.disconnect());
    (void)next<dat::disconnected>(a.evd);
    (void)next<dat::disconnected>(b.evd);
  }
  // At the wildcard address a common service point is reached at each address of its adapter.
  ends global;
  const auto far = global.b.ia.address(dat::address_family::ipv6);
  if (!far || far.value().is_link_local()) SKIP("the adapter has one IPv6 address");
  const auto everywhere = must(b.ia.create_csp(tcp6, must(dat::ia_address::parse("::")), b.evd));
  const auto reached = [&](side& from, const dat::ia_address& to) {
    auto active = from.make_ep({.comm = tcp6});
    must(active.common_connect(to.with_port(everywhere.port()), patience));
    auto request = next<dat::connection_request>(b.evd);
    CHECK(request.service() == everywhere.id());
    const auto at_address = request.local_address().host_string();
    must(request.reject());
    (void)next<dat::peer_rejected>(from.evd);
    return at_address;
  };
  CHECK(reached(a, at[1].seen_from(at[0])) == at[1].seen_from(at[1]).host_string());
  CHECK(reached(global.a, far.value()) == far.value().host_string());
  SHOWS("CSP-008");
  // At one of several addresses of its adapter it is reached there, and at no other.
  const auto at_one = must(global.b.ia.create_csp(tcp6, at[1].seen_from(at[1]), global.b.evd));
  CHECK(must(at_one.query()).address == at[1].seen_from(at[1]).with_port(at_one.port()));
  auto finds = a.make_ep({.comm = tcp6});
  must(finds.common_connect(at[1].seen_from(at[0]).with_port(at_one.port()), patience));
  auto found = next<dat::connection_request>(global.b.evd);
  CHECK(found.service() == at_one.id());
  CHECK(found.local_address() == at[1].seen_from(at[1]).with_port(at_one.port()));
  must(found.reject());
  (void)next<dat::peer_rejected>(a.evd);
  auto misses = global.a.make_ep({.comm = tcp6});
  must(misses.common_connect(far.value().with_port(at_one.port()), patience));
  CHECK(next<dat::non_peer_rejected>(global.a.evd).ep() == misses);
  CHECK(is_empty(global.b.evd));
  SHOWS("CSP-005");
  // An endpoint with a local address uses that address, and not the address by which its adapter was opened.
  const auto own = at[0].seen_from(at[0]);
  CHECK(must(global.a.ia.address(dat::address_family::ipv6)) != own);
  auto active = global.a.make_ep();
  must(active.modify({.local_address = own}));
  must(active.connect(at[1].seen_from(at[0]), must(dat::conn_qual::make(everywhere.port())), patience));
  auto request = next<dat::connection_request>(b.evd);
  CHECK(request.remote_address().with_port(0) == at[0].seen_from(at[1]));
  SHOWS("CONN-050");
  auto passive = b.make_ep();
  must(request.accept(passive));
  (void)next<dat::established>(global.a.evd);
  (void)next<dat::established>(b.evd);
  // A duplicate leaves by the address of its original, and not by that of its ia.
  auto second = global.a.make_ep();
  must(second.dup_connect(active, patience));
  auto of_second = next<dat::connection_request>(b.evd);
  CHECK(of_second.remote_address().with_port(0) == at[0].seen_from(at[1]));
  CHECK(must(second.local_address()).with_port(0) == own);
  CHECK(must(second.local_address()).port() != must(active.local_address()).port());
  SHOWS("CONN-089");
  must(of_second.reject());
  (void)next<dat::peer_rejected>(global.a.evd);
}

TEST_CASE("a common connect ends with the events of a connect", "[service_point]") {
  if (!in_lab()) SKIP("only the lab's network is known to have no such host");
  ends e;
  auto csp = must(e.b.ia.create_csp(tcp, e.b.evd));
  const auto where = must(csp.query()).address;
  auto ep = e.a.make_ep({.comm = tcp});
  const auto again = [&](const dat::ia_address& to, dat::timeout limit) {
    must(ep.reset());
    must(ep.common_connect(to, limit));
  };
  again(where, patience);
  auto refused = e.request();
  // Only an attempt that waits for this program's answer is certainly still under way.
  CHECK(ep.state() == state::active_connection_pending);
  must(refused.reject());
  CHECK(next<dat::peer_rejected>(e.a.evd).ep() == ep);
  CHECK(ep.state() == state::disconnected);
  again(where.with_port(next_port().port()), patience);
  CHECK(next<dat::non_peer_rejected>(e.a.evd).ep() == ep);
  again(where, unanswered_limit);
  const auto unanswered = e.request();
  CHECK(next<dat::connection_timed_out>(e.a.evd).ep() == ep);
  again(must(dat::ia_address::parse("10.78.1.99")).with_port(where.port()), 300ms);
  CHECK(next<dat::connection_unreachable>(e.a.evd).ep() == ep);
  CHECK(ep.state() == state::disconnected);
  again(where, patience);
  auto passive = e.b.make_ep();
  must(e.request().accept(passive));
  CHECK(next<dat::established>(e.a.evd).ep() == ep);
  CHECK(ep.state() == state::connected);
  CHECK(next<dat::established>(e.b.evd).ep() == passive);
  SHOWS("CONN-078", "CONN-080", "MODEL-010", "REQ-044", "CONN-073");
  // A request whose sender has stopped waiting stays queued until its ia ends. The sender gets no event about the
  // request.
  CHECK(must(unanswered.query()).service == csp.id());
  must(e.b.ia.close());
  CHECK(error_of(unanswered.query()) == dat::error(type::invalid_handle, subtype::handle_cr));
  CHECK(next<dat::disconnected>(e.a.evd).ep() == ep);
  CHECK(is_empty(e.a.evd));
  SHOWS("REQ-050");
}

TEST_CASE("dup_connect reaches the peer of the first connection",
          "[service_point][CONN-013][CONN-084][CONN-086][CONN-088]"
          "[CONN-092][REQ-063][HA-008]") {
  ends e;
  auto csp = must(e.b.ia.create_csp(tcp, e.b.evd));
  auto first = e.a.make_ep({.comm = tcp});
  must(first.common_connect(e.b.ia.address().with_port(csp.port()), patience));
  auto passive = e.b.make_ep();
  must(e.request().accept(passive));
  (void)next<dat::established>(e.a.evd);
  (void)next<dat::established>(e.b.evd);
  auto stranger = e.b.make_ep();
  CHECK(error_of(stranger.dup_connect(passive, patience)).type() == type::invalid_state);
  auto second = e.a.make_ep();
  must(second.dup_connect(first, patience, bytes_of("the second")));
  CHECK(must(second.local_address()).with_port(0) == must(first.local_address()).with_port(0));
  CHECK(must(second.remote_address()) == must(first.remote_address()));
  SHOWS("CONN-089");
  CHECK(must(second.local_address()).port() != 0);
  must(first.close());
  (void)must(e.b.evd.wait_for<dat::disconnected>(patience)); // in either order with the request
  auto request = e.request();
  CHECK(request.service() == csp.id());
  CHECK(text_of(request.private_data()) == "the second");
  SHOWS("EVENT-018");
  must(request.accept(stranger));
  (void)next<dat::established>(e.a.evd);
  (void)next<dat::established>(e.b.evd);
  exchange(e.a, second, e.b, stranger);
  // Its failures are the same as those of a connect.
  auto third = e.a.make_ep();
  must(third.dup_connect(second, patience));
  must(e.request().reject());
  CHECK(next<dat::peer_rejected>(e.a.evd).ep() == third);
  must(third.reset());
  if (this_device().attempts_end_at_once) {
    must(third.dup_connect(second, unanswered_limit));
    const auto unanswered = e.request();
    CHECK(next<dat::connection_timed_out>(e.a.evd).ep() == third);
    must(third.reset());
  }
  must(csp.close());
  must(third.dup_connect(second, patience));
  CHECK(next<dat::non_peer_rejected>(e.a.evd).ep() == third);
  SHOWS("CONN-091");
}

} // namespace device
