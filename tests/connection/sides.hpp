// Two sides that connect to each other, on a device or on the fake.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <rig.hpp>

#include <dat/ep_params.hpp>

#include <support/catch.hpp>
#include <support/words.hpp>

#include <netinet/in.h>
#include <string_view>
#include <utility>

namespace connections {

using dat::ep_state;
using dat::return_subtype;
using dat::return_type;
using rig::must;
using rig::patience;
using rig::request_on;
using support::bytes_of;
using support::events;
using support::text_of;
using endpoint = dat::ep<dat::rc>;

inline constexpr dat::communicator tcp{AF_INET, SOCK_STREAM, 0};
inline constexpr dat::communicator tcp6{AF_INET6, SOCK_STREAM, IPPROTO_TCP};

/// The side that connects (a) and the side that listens (b).
struct sides {
  rig::world world;
  rig::end a;
  rig::end b;
  dat::conn_qual service = rig::port();
  dat::conn_qual other = rig::port();
  dat::conn_qual third = rig::port();
  dat::conn_qual fourth = rig::port();

  explicit sides(const dat::ia_options& options = rig::usual) : a(0, options), b(1, options) {}

  /// Runs the pending work of both sides, where progress is manual.
  void settle() { rig::settle(a, b); }
  /// Connects a new endpoint of `a`.
  endpoint ask(dat::conn_qual port, std::string_view data = {}) {
    auto ep = must(a.pz.create_ep<dat::rc>(a.evd));
    must(ep.connect(b.ia.address(), port, patience, bytes_of(data)));
    settle();
    return ep;
  }
  endpoint ask(std::uint16_t port, std::string_view data = {}) { return ask(must(dat::conn_qual::make(port)), data); }
  endpoint make() { return must(b.pz.create_ep<dat::rc>(b.evd)); }
  void needs_two_adapters_with_ipv6() {
    for (auto* e : {&a, &b})
      if (!e->ia.address(dat::address_family::ipv6)) SKIP("the adapters have no IPv6 address");
    if (a.ia.address() == b.ia.address()) SKIP("there is one adapter only");
  }
  /// The request that has arrived at `b`.
  dat::cr request() { return request_on(b.evd); }
};

/// Checks that the call failed with this error and that the error names a call.
template <class T>
void refuses(const dat::expected<T>& r, return_type type, return_subtype subtype = return_subtype::none) {
  REQUIRE(!r);
  INFO(r.error().message());
  CHECK(r.error().type() == type);
  if (subtype != return_subtype::none) CHECK(r.error().subtype() == subtype);
  CHECK(!r.error().call().empty());
}

inline bool gone(const endpoint& ep) {
  const auto r = ep.query();
  return !r && r.error().type() == return_type::invalid_handle;
}

} // namespace connections
