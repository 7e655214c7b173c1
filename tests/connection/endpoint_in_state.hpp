// Brings an endpoint into each of its states.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "sides.hpp"

#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>
#include <dat/srq.hpp>

#include <algorithm>
#include <optional>

namespace connections {
namespace states {

/// The subtype of `invalid_state` that names a state of an endpoint, by the tables of uDAPL.
inline return_subtype subtype_naming(ep_state s) {
  switch (s) {
  case ep_state::unconnected:
    return return_subtype::ep_unconnected;
  case ep_state::unconfigured_unconnected:
    return return_subtype::ep_unconfigured;
  case ep_state::reserved:
    return return_subtype::ep_reserved;
  case ep_state::unconfigured_reserved:
    return return_subtype::ep_unconfreserved;
  case ep_state::passive_connection_pending:
    return return_subtype::ep_passconnpending;
  case ep_state::unconfigured_passive:
    return return_subtype::ep_unconfpassive;
  case ep_state::active_connection_pending:
    return return_subtype::ep_actconnpending;
  case ep_state::tentative_connection_pending:
    return return_subtype::ep_tentconnpending;
  case ep_state::unconfigured_tentative:
    return return_subtype::ep_unconftentative;
  case ep_state::connected:
    return return_subtype::ep_connected;
  case ep_state::disconnect_pending:
    return return_subtype::ep_discpending;
  case ep_state::disconnected:
    return return_subtype::ep_disconnected;
  case ep_state::completion_pending:
    return return_subtype::ep_complpending;
  }
  return return_subtype::none;
}

using all_events = decltype(rig::end::evd);
using completions = dat::evd<dat::stream::dto | dat::stream::software>;

inline bool one_of(ep_state s, std::initializer_list<ep_state> set) {
  return std::find(set.begin(), set.end(), s) != set.end();
}

/// An endpoint of `a` in a given state, with the objects that keep it there. Its connection events, receives and
/// requests have an evd each, and so have the connection requests that arrive at `a`.
struct in_state {
  sides& s;
  all_events at_a = must(s.a.ia.create_evd<rig::end::streams>(64));
  all_events told = must(s.a.ia.create_evd<rig::end::streams>(64));
  completions receives = must(s.a.ia.create_evd<dat::stream::dto | dat::stream::software>(64));
  completions requests = must(s.a.ia.create_evd<dat::stream::dto | dat::stream::software>(64));
  all_events at_b = must(s.b.ia.create_evd<rig::end::streams>(64));
  dat::conn_qual port = rig::port();
  dat::conn_qual spare_port = rig::port();
  dat::psp psp = must(s.b.ia.create_psp(port, at_b));
  dat::psp own_psp;
  dat::psp spare_psp = must(s.a.ia.create_psp(spare_port, at_a));
  dat::rsp rsp;
  dat::srq pool;
  endpoint peer;
  endpoint spare_peer;
  dat::cr request;
  dat::cr spare; ///< a request that does not belong to the endpoint
  endpoint ep;
  std::optional<rig::lost_handshake> lost;

  in_state(sides& both, ep_state state, bool shares = false) : s(both) {
    spare = asked(spare_peer, spare_port);
    if (shares) pool = must(s.a.pz.create_srq());
    switch (state) {
    case ep_state::unconfigured_unconnected:
    case ep_state::unconfigured_reserved:
    case ep_state::unconfigured_passive:
      ep = must(s.a.ia.create_ep<dat::rc>());
      break;
    default:
      if (shares)
        ep = must(s.a.pz.create_ep<dat::rc>(evds(), pool));
      else
        ep = must(s.a.pz.create_ep<dat::rc>(evds()));
    }
    switch (state) {
    case ep_state::reserved:
    case ep_state::unconfigured_reserved:
      rsp = must(s.a.ia.create_rsp(port, ep, at_a));
      break;
    case ep_state::passive_connection_pending:
    case ep_state::unconfigured_passive:
      rsp = must(s.a.ia.create_rsp(port, ep, at_a));
      request = asked(peer, port);
      break;
    case ep_state::tentative_connection_pending:
    case ep_state::unconfigured_tentative:
      own_psp = must(s.a.ia.create_psp(port, at_a, dat::psp_flags::provider));
      request = asked(peer, port);
      ep = std::move(request.ep());
      if (state == ep_state::tentative_connection_pending) configure();
      break;
    case ep_state::active_connection_pending:
      must(ep.connect(s.b.ia.address(), port, patience));
      break;
    case ep_state::completion_pending:
      own_psp = must(s.a.ia.create_psp(port, at_a));
      request = asked(peer, port);
      lost.emplace();
      must(request.accept(ep));
      break;
    case ep_state::connected:
    case ep_state::disconnect_pending:
    case ep_state::disconnected:
      peer = must(s.b.pz.create_ep<dat::rc>(at_b));
      must(ep.connect(s.b.ia.address(), port, patience));
      s.settle();
      must(request_on(at_b).accept(peer));
      s.settle();
      CHECK(rig::take(told, 1) == events{"established"});
      CHECK(rig::take(at_b, 1) == events{"established"});
      if (state == ep_state::connected) break;
      must(ep.post(dat::send{s.a.at(0, 4)})); // the peer has no receive, so a graceful disconnect waits for the send
      must(ep.disconnect(state == ep_state::disconnected ? dat::close_mode::abrupt : dat::close_mode::graceful));
      break;
    default:
      break;
    }
    REQUIRE(ep.state() == state);
  }

  [[nodiscard]] dat::ep_evds evds() const { return {.recv = receives, .request = requests, .connect = told}; }
  void configure() { must(ep.modify({.pz = &s.a.pz, .recv = receives, .request = requests, .connect = told})); }
  /// A request of `b` that has arrived.
  dat::cr asked(endpoint& by, dat::conn_qual at) {
    by = must(s.b.pz.create_ep<dat::rc>(at_b));
    must(by.connect(s.a.ia.address(), at, patience));
    s.settle();
    return request_on(at_a);
  }
};

} // namespace states

using namespace states;

} // namespace connections
