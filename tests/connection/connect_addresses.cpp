// Endpoints that connect by socket address, from an address of their own, or like another endpoint.
// SPDX-License-Identifier: BSL-1.0
#include "sides.hpp"

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>

#include <array>

namespace connections {

TEST_CASE("common_connect refuses wrong arguments and leaves the endpoint unchanged",
          "[CONN-057][CONN-074][CONN-075][CONN-079][CONN-083][ADDR-006][ADDR-011]") {
  sides s;
  s.needs_two_adapters_with_ipv6();
  auto& a = s.a;
  auto& b = s.b;
  auto ep = must(a.pz.create_ep<dat::rc>(a.evd));
  const auto there = b.ia.address().with_port(s.service.port());
  refuses(ep.common_connect(there, patience), return_type::invalid_state, return_subtype::ep_notready);
  refuses(ep.modify({.comm = dat::communicator{AF_INET, SOCK_DGRAM, 0}}), return_type::invalid_parameter);
  must(ep.modify({.comm = tcp}));
  refuses(ep.common_connect(there, dat::timeout::zero()), return_type::invalid_parameter, return_subtype::arg3);
  const std::array<std::byte, 57> much{};
  refuses(ep.common_connect(there, patience, much), return_type::invalid_parameter, return_subtype::arg4);
  refuses(ep.common_connect(there.with_port(0), patience), return_type::invalid_parameter, return_subtype::arg2);
  for (const char* odd :
       {"0.0.0.0:5", "224.0.0.1:5", "255.255.255.255:5", "127.0.0.1:5", "[::]:5", "[fe80::1]:5", "[::1]:5"}) {
    INFO(odd);
    refuses(ep.common_connect(must(dat::ia_address::parse(odd)), patience), return_type::invalid_parameter,
            return_subtype::arg2);
  }
  const auto six = must(b.ia.address(dat::address_family::ipv6)).with_port(s.service.port());
  refuses(ep.common_connect(six, patience), return_type::invalid_parameter, return_subtype::arg2);
  CHECK(ep.state() == ep_state::unconnected);
  // Where connect returns invalid_address, this call does not: no path leads from the endpoint's own address.
  auto apart = must(a.pz.create_ep<dat::rc>(a.evd, {.comm = tcp}));
  must(apart.modify({.local_address = must(a.ia.address(dat::address_family::ipv6))}));
  refuses(apart.common_connect(there, patience), return_type::invalid_parameter, return_subtype::arg2);
  CHECK(apart.state() == ep_state::unconnected);

  auto ep6 = must(a.pz.create_ep<dat::rc>(a.evd, {.comm = tcp6}));
  refuses(ep6.common_connect(there, patience), return_type::invalid_parameter, return_subtype::arg2);
  must(ep6.common_connect(six, patience));
  must(ep.common_connect(there, patience));
  s.settle();
  CHECK(a.take(2) == events{"non_peer_rejected 8", "non_peer_rejected 8"});
  refuses(a.pz.create_ep<dat::rc>(a.evd, {.comm = {AF_INET, SOCK_DGRAM, 0}}), return_type::invalid_parameter);
  SHOWS("ADDR-005", "ADDR-014");
}

TEST_CASE("an endpoint connects from the address and port that modify has set", "[connection]") {
  sides s;
  s.needs_two_adapters_with_ipv6();
  auto& a = s.a;
  auto& b = s.b;
  auto psp = must(b.ia.create_psp(s.service, b.evd));
  auto ep = must(a.pz.create_ep<dat::rc>(a.evd));
  CHECK_FALSE(must(ep.query()).remote_address);
  refuses(ep.local_address(), return_type::invalid_state, return_subtype::ep_unconnected);
  SHOWS("ADDR-017");
  must(ep.modify({.local_address = a.ia.address().with_port(s.other.port())}));
  CHECK(must(ep.query()).local_address == a.ia.address().with_port(s.other.port()));
  SHOWS("EP-053", "EPS-001");
  refuses(ep.connect(must(b.ia.address(dat::address_family::ipv6)), s.service, patience), return_type::invalid_address);
  // Connect ignores the port of the address and uses the qualifier.
  must(ep.connect(b.ia.address().with_port(9), s.service, patience));
  CHECK(must(ep.local_address()) == a.ia.address().with_port(s.other.port()));
  CHECK(must(ep.query()).remote_address == b.ia.address().with_port(s.service.port()));
  s.settle();
  auto request = s.request();
  CHECK(request.remote_address() == a.ia.address().with_port(s.other.port()));
  SHOWS("CONN-049", "CONN-076", "EP-052");
  // The port is taken.
  auto second = must(a.pz.create_ep<dat::rc>(a.evd));
  must(second.modify({.local_address = a.ia.address().with_port(s.other.port())}));
  refuses(second.connect(b.ia.address(), s.service, patience), return_type::invalid_parameter);
  CHECK(second.state() == ep_state::unconnected);
  SHOWS("CONN-050");

  // An endpoint that accepts must have the local address at which the request arrived.
  const auto accepting = [&](const dat::ep_changes& c) {
    auto with = must(b.pz.create_ep<dat::rc>(b.evd));
    must(with.modify(c));
    refuses(request.accept(with), return_type::invalid_parameter, return_subtype::arg2);
    CHECK(with.state() == ep_state::unconnected);
  };
  accepting({.local_address = b.ia.address().with_port(5)});
  accepting({.local_address = must(b.ia.address(dat::address_family::ipv6))});
  accepting({.comm = tcp6});
  // So must that of a reserved endpoint.
  auto reserved = must(b.pz.create_ep<dat::rc>(b.evd));
  must(reserved.modify({.local_address = b.ia.address().with_port(5)}));
  auto rsp = must(b.ia.create_rsp(s.third, reserved, b.evd));
  const auto asking = s.ask(s.third);
  auto to_reserved = s.request();
  refuses(to_reserved.accept(), return_type::invalid_parameter, return_subtype::arg2);
  CHECK(reserved.state() == ep_state::passive_connection_pending);
  must(to_reserved.reject());
  s.settle();
  CHECK(a.take(1) == events{"peer_rejected"});
  b.make_ep();
  must(b.ep.modify({.local_address = b.ia.address().with_port(s.service.port()), .comm = tcp}));
  must(request.accept(b.ep));
  s.settle();
  CHECK(a.take(1) == events{"established"});
  CHECK(b.take(1) == events{"established"});
  CHECK(must(b.ep.query()).local_address == b.ia.address().with_port(s.service.port()));
  SHOWS("CR-031");
  CHECK(must(b.ep.query()).remote_address == a.ia.address().with_port(s.other.port()));

  must(ep.disconnect());
  s.settle();
  CHECK(b.take(1) == events{"disconnected"});
  for (auto* e : {&ep, &b.ep}) {
    CHECK_FALSE(must(e->query()).remote_address);
    refuses(e->remote_address(), return_type::invalid_state, return_subtype::ep_disconnected);
    must(e->reset());
    CHECK_FALSE(must(e->query()).remote_address);
    SHOWS("ADDR-018", "EP-051");
  }
  // The value that the consumer set stays.
  CHECK(must(ep.query()).local_address == a.ia.address().with_port(s.other.port()));
  SHOWS("DISC-051");
}

TEST_CASE("dup_connect copies the remote address of another connection and does not need that connection afterwards",
          "[connection]") {
  sides s;
  s.needs_two_adapters_with_ipv6();
  auto& a = s.a;
  auto& b = s.b;
  rig::end again(0);
  auto csp = must(b.ia.create_csp(tcp, b.evd));
  auto original = must(a.pz.create_ep<dat::rc>(a.evd, {.comm = tcp}));
  auto ep = must(a.pz.create_ep<dat::rc>(a.evd));
  refuses(ep.dup_connect(original, patience), return_type::invalid_state, return_subtype::ep_unconnected);
  refuses(ep.dup_connect(ep, patience), return_type::invalid_state, return_subtype::ep_unconnected);
  must(original.common_connect(b.ia.address().with_port(csp.port()), patience));
  refuses(ep.dup_connect(original, patience), return_type::invalid_state, return_subtype::ep_actconnpending);
  s.settle();
  b.make_ep();
  must(s.request().accept(b.ep));
  s.settle();
  CHECK(a.take(1) == events{"established"});
  CHECK(b.take(1) == events{"established"});

  auto foreign = must(again.pz.create_ep<dat::rc>(again.evd));
  refuses(foreign.dup_connect(original, patience), return_type::invalid_parameter, return_subtype::arg2);
  SHOWS("CONN-087");
  auto theirs = must(b.pz.create_ep<dat::rc>(b.evd));
  refuses(theirs.dup_connect(b.ep, patience), return_type::invalid_state, return_subtype::ep_connected);
  SHOWS("CONN-086");
  endpoint none;
  refuses(ep.dup_connect(none, patience), return_type::invalid_handle, return_subtype::handle_ep);
  refuses(none.dup_connect(original, patience), return_type::invalid_handle, return_subtype::handle_ep);
  refuses(ep.dup_connect(original, dat::timeout::zero()), return_type::invalid_parameter, return_subtype::arg3);
  const std::array<std::byte, 57> much{};
  refuses(ep.dup_connect(original, patience, much), return_type::invalid_parameter, return_subtype::arg4);
  refuses(original.dup_connect(original, patience), return_type::invalid_state, return_subtype::ep_connected);
  SHOWS("CONN-085");
  // Where connect returns invalid_address, this call does not: no path leads from the endpoint's own address.
  auto apart = must(a.pz.create_ep<dat::rc>(a.evd));
  must(apart.modify({.local_address = must(a.ia.address(dat::address_family::ipv6))}));
  refuses(apart.dup_connect(original, patience), return_type::invalid_parameter, return_subtype::arg2);
  CHECK(apart.state() == ep_state::unconnected);

  must(ep.modify({.local_address = a.ia.address().with_port(s.other.port())}));
  must(ep.dup_connect(original, patience, bytes_of("second")));
  CHECK(ep.state() == ep_state::active_connection_pending);
  SHOWS("EPS-005");
  CHECK(must(ep.local_address()) == a.ia.address().with_port(s.other.port())); // as connect, from the address set
  SHOWS("CONN-091");
  must(original.close());
  s.settle();
  auto request = must(b.evd.wait_for<dat::connection_request>(patience));
  CHECK(request.service() == csp.id());
  SHOWS("CONN-013", "CONN-084", "CONN-088");
  CHECK(text_of(request.private_data()) == "second");
  must(request.accept(theirs));
  s.settle();
  CHECK(a.take(1) == events{"established"});
  SHOWS("CONN-092");
  refuses(ep.dup_connect(ep, patience), return_type::invalid_state, return_subtype::ep_connected);
}

} // namespace connections
