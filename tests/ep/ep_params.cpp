// Waits for connection events, and removed addresses and ports, in the fake world.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/ep_params.hpp>

#include <cerrno>
#include <netinet/in.h>

using namespace unit;
using dat::return_subtype;
using dat::return_type;

TEST_CASE("connect fails when the endpoint's local address has been removed", "[CONN-049]") {
  clean_world world;
  end a("fk1");
  a.make_ep();
  must(a.ep.modify({.local_address = a.ia.address().with_port(4321)}));
  fake::fail(fake::call::rdma_bind_addr, 1, EADDRNOTAVAIL);
  CHECK(a.ep.connect(a.ia.address(), service, plenty).error().type() == return_type::invalid_address);
  CHECK(a.ep.state() == dat::ep_state::unconnected);
}

TEST_CASE("common_connect and dup_connect return invalid_parameter when no path leads from the endpoint",
          "[CONN-079][CONN-091]") {
  clean_world world;
  pair p;
  end& a = p.a;
  end& b = p.b;
  const bool four = b.ia.address().family() == dat::address_family::ipv4;
  auto ep = must(a.pz.create_ep<dat::rc>(a.evd, {.comm = {four ? AF_INET : AF_INET6, SOCK_STREAM, 0}}));
  must(ep.modify({.local_address = a.ia.address().with_port(4321)}));
  const struct {
    fake::call step;
    int err;
  } failures[] = {{fake::call::rdma_bind_addr, EADDRNOTAVAIL},
                  {fake::call::rdma_resolve_addr, ENODEV},
                  {fake::call::rdma_resolve_addr, ENETUNREACH}};
  for (const auto& f : failures) {
    const int err = f.err; // clang 14 captures no structured bindings
    INFO(err);
    const auto refused = [&](const dat::expected<void>& r) {
      is_error(r, return_type::invalid_parameter, return_subtype::arg2);
      CHECK(r.error().sys_errno() == err);
      CHECK_THAT(r.error().message(), support::contains_text("No path leads from the endpoint's local address"));
      CHECK(ep.state() == dat::ep_state::unconnected);
    };
    fake::fail(f.step, 1, err);
    refused(ep.common_connect(b.ia.address().with_port(service), plenty));
    fake::fail(f.step, 1, err);
    refused(ep.dup_connect(a.ep, plenty));
  }
  must(ep.dup_connect(a.ep, plenty)); // no refused call has taken the port
  settle(a, b);
  CHECK(request_on(b.evd).remote_address().port() == 4321);
}

// --- waiting ---------------------------------------------------------------------------------------------------------

TEST_CASE("connection events do not end a wait for requests or software events") {
  clean_world world;
  end a("fk1");
  end b("fk2");
  auto evd = must(a.ia.create_evd<all_streams | dat::stream::software>(16));
  auto ep = must(a.pz.create_ep<dat::rc>(evd));
  must(ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(evd.post(5));
  auto psp = must(a.ia.create_psp(7001, evd));
  b.make_ep();
  must(b.ep.connect(a.ia.address(), 7001, plenty));
  settle(a, b);
  auto request = must(evd.wait_for<dat::connection_request>(plenty));
  CHECK(must(evd.wait_for<dat::software_event>(plenty)).cookie().value() == 5);
  // The event is returned whole.
  CHECK(unit::take(evd) == events{"non_peer_rejected 8"});
}

TEST_CASE("a wait for one of several events returns the first of them") {
  clean_world world;
  end a("fk1");
  end b("fk2");
  auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).reject(bytes_of("full up")));
  settle(a, b);
  auto answer = must(a.evd.wait_for_any<dat::established, dat::peer_rejected>(a.ep, plenty));
  auto* no = std::get_if<dat::peer_rejected>(&answer);
  REQUIRE(no);
  CHECK(text_of(no->private_data()) == "full up");
  // A failure that is not among the awaited types ends the wait as well.
  auto late = must(a.pz.create_ep<dat::rc>(a.evd));
  must(psp.close());
  must(late.connect(b.ia.address(), service, plenty));
  settle(a, b);
  const auto r = a.evd.wait_for_any<dat::established, dat::peer_rejected>(plenty);
  REQUIRE(!r);
  CHECK(r.error().subtype() == return_subtype::ep_disconnected);
}
