// Endpoints: the effect of each call in each state, parameters, and the ways to connect endpoints.
// SPDX-License-Identifier: BSL-1.0
#include "sides.hpp"

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>
#include <dat/rmr.hpp>
#include <dat/rsp.hpp>
#include <dat/srq.hpp>

#include <support/ep_states.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <vector>

namespace connections {
namespace {

/// The subtype of `invalid_state` that names a state of an endpoint, by the tables of uDAPL.
return_subtype subtype_naming(ep_state s) {
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

bool one_of(ep_state s, std::initializer_list<ep_state> set) {
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

} // namespace

TEST_CASE("every call on an endpoint follows the state table", "") {
  using enum ep_state;
  sides both;
  const in_state original(both, connected);
  for (const ep_state s : support::all_ep_states) {
    INFO(to_string(s));
    if (s == completion_pending && !rig::lost_handshake::possible) continue;
    const auto subtype = subtype_naming(s);
    const bool unconfigured = dat::detail::is_unconfigured(s);
    const bool pending = one_of(s, {reserved, passive_connection_pending, tentative_connection_pending});
    std::optional<in_state> there;
    const auto allowed = [&](const char* what, bool yes, const std::function<dat::expected<void>(in_state&)>& call) {
      INFO(what);
      if (!there) there.emplace(both, s);
      const auto r = call(*there);
      CAPTURE(r ? "success" : r.error().message());
      CHECK(static_cast<bool>(r) == yes);
      if (r) {
        if (!there->ep || there->ep.state() != s) there.reset();
      } else {
        CHECK(r.error().type() == return_type::invalid_state);
        CHECK(r.error().subtype() == subtype);
        CHECK(there->ep.state() == s);
      }
    };
    allowed("query and status", true, [&](in_state& t) {
      CHECK(must(t.ep.query()).state == s);
      CHECK(must(t.ep.status()).state == s);
      if (!one_of(s, {disconnect_pending, disconnected})) {
        CHECK(must(t.ep.status()).recv_idle);
        CHECK(must(t.ep.status()).request_idle);
      }
      CHECK(must(t.ep.recv_query()).allocated == 0);
      return t.ep.set_watermark(dat::no_watermark, dat::no_watermark);
    });
    SHOWS("EP-044", "EP-065", "EP-085");
    SHOWS("EP-048"); // no state is an error of status
    // Both addresses are known from the request or the connect until the end of the connection.
    const bool has_peer =
        !one_of(s, {unconnected, unconfigured_unconnected, reserved, unconfigured_reserved, disconnected});
    CHECK(must(there->ep.query()).remote_address.has_value() == has_peer);
    CHECK(there->ep.remote_address().has_value() == has_peer);
    SHOWS("ADDR-018", "EP-051");
    if (has_peer) {
      CHECK(must(there->ep.local_address()).port() != 0);
      SHOWS("EP-052", "ADDR-018");
    }
    allowed("modify the communicator", s == unconnected || s == unconfigured_unconnected,
            [](in_state& t) { return t.ep.modify({.comm = tcp}); });
    SHOWS("EP-068", "ADDR-015", "EP-078");
    allowed("modify the local address", s == unconnected || s == unconfigured_unconnected,
            [](in_state& t) { return t.ep.modify({.local_address = t.s.a.ia.address()}); });
    SHOWS("EP-079");
    allowed("common_connect", s == unconnected, [](in_state& t) {
      return t.ep.common_connect(t.s.b.ia.address().with_port(rig::port().port()), patience);
    });
    SHOWS("CONN-074", "CONN-079");
    allowed("connect", s == unconnected,
            [](in_state& t) { return t.ep.connect(t.s.b.ia.address(), rig::port(), patience); });
    SHOWS("CONN-038", "CONN-039", "EPS-001", "EPS-077", "ERR-019", "ERR-034", "ERR-035");
    allowed("dup_connect", s == unconnected, [&](in_state& t) { return t.ep.dup_connect(original.ep, patience); });
    allowed("dup_connect to it", s == connected, [](in_state& t) {
      auto another = must(t.s.a.pz.create_ep<dat::rc>(t.at_a));
      return another.dup_connect(t.ep, patience);
    });
    SHOWS("CONN-085");
    allowed("create_rsp", s == unconnected || s == unconfigured_unconnected, [](in_state& t) -> dat::expected<void> {
      auto r = t.s.a.ia.create_rsp(rig::port(), t.ep, t.at_a);
      if (!r) return r.error();
      t.rsp = std::move(r).value();
      return dat::success();
    });
    SHOWS("RSP-006");
    allowed("accept", s == unconnected, [](in_state& t) { return t.spare.accept(t.ep); });
    SHOWS("CR-022", "CR-023", "EPS-077");
    allowed("modify the zone",
            !pending || s == tentative_connection_pending
                ? one_of(s, {unconnected, tentative_connection_pending}) || unconfigured
                : false,
            [](in_state& t) { return t.ep.modify({.pz = &t.s.a.pz}); });
    const bool before_setup = s == unconnected || pending || unconfigured;
    const dat::ep_changes sizes[] = {{.max_request_dtos = 9},
                                     {.max_recv_dtos = 70},
                                     {.max_request_iov = 2},
                                     {.max_recv_iov = 2},
                                     {.max_message_size = 4096},
                                     {.max_rdma_read_out = std::uint8_t{1}},
                                     {.max_rdma_read_in = std::uint8_t{1}},
                                     {.qos = dat::qos::economy()}};
    for (const auto& size : sizes)
      allowed("modify a size", before_setup, [&](in_state& t) { return t.ep.modify(size); });
    SHOWS("EP-070", "EP-080");
    allowed("modify the recv flags", before_setup,
            [](in_state& t) { return t.ep.modify({.recv_completion = dat::completion_notification::evd_threshold}); });
    SHOWS("EP-076");
    allowed("modify the request flags", before_setup, [](in_state& t) {
      return t.ep.modify({.request_completion = dat::completion_notification::evd_threshold});
    });
    SHOWS("EP-077");
    allowed("modify the recv evd", before_setup, [](in_state& t) { return t.ep.modify({.recv = t.requests}); });
    allowed("modify the request evd", before_setup, [](in_state& t) { return t.ep.modify({.request = t.receives}); });
    allowed("modify the connect evd", before_setup, [](in_state& t) { return t.ep.modify({.connect = t.at_a}); });
    SHOWS("EP-075");
    allowed("modify a provider's attribute", s == unconnected || pending || unconfigured,
            [](in_state& t) { return t.ep.modify({.rnr_retry_count = std::uint8_t{3}}); });
    SHOWS("EP-068", "EP-082");
    for (const auto how : {dat::close_mode::abrupt, dat::close_mode::graceful})
      allowed("disconnect",
              one_of(s, {active_connection_pending, completion_pending, connected, disconnect_pending, disconnected}),
              [&](in_state& t) { return t.ep.disconnect(how); });
    SHOWS("EPS-045", "DISC-003", "DISC-025", "DISC-004");
    allowed("reset", one_of(s, {unconnected, disconnected}), [](in_state& t) { return t.ep.reset(); });
    SHOWS("DISC-046");
    allowed("close", !pending && (!unconfigured || s == unconfigured_unconnected),
            [](in_state& t) { return t.ep.close(); });
    SHOWS("EP-034", "EPS-047", "EPS-078", "RSP-010", "EPS-068");
    allowed("post(recv)", !unconfigured, [](in_state& t) { return t.ep.post(dat::recv{t.s.a.at(0, 8)}); });
    allowed("post(send)", s == connected || s == disconnected,
            [](in_state& t) { return t.ep.post(dat::send{t.s.a.at(0, 8)}); });
    SHOWS("DTO-069", "RSP-011");
    SHOWS("DTO-067");
    // The write has no bytes, so that the peer's rights do not matter.
    const dat::remote_segment<char, dat::mem_priv::remote_write> sink;
    allowed("post(rdma_write)", s == connected || s == disconnected, [&](in_state& t) {
      return t.ep.post(dat::rdma_write{t.s.a.at(0, 0), sink});
    });
    const dat::remote_segment<char, dat::mem_priv::remote_read> source;
    allowed("post(rdma_read)", s == connected || s == disconnected, [&](in_state& t) {
      return t.ep.post(dat::rdma_read{t.s.a.at(0, 0), source});
    });
    SHOWS("DTO-069", "EPS-001", "EP-068");
    if (s == connected || s == disconnected) continue; // the next calls need a receive or a window of the peer
    allowed("post(send_with_invalidate)", false,
            [&](in_state& t) { return t.ep.post(dat::send_with_invalidate{sink}); });
    SHOWS("DTO-069", "DTO-102");
    allowed("post(rdma_write with immediate data)", false, [&](in_state& t) {
      return t.ep.post(dat::rdma_write{t.s.a.at(0, 0), sink}.immediate(1));
    });
    SHOWS("IBX-027");
    if (auto rmr = both.a.pz.create_rmr()) { // some adapters have no windows
      allowed("bind", false, [&](in_state& t) -> dat::expected<void> {
        const auto bound = rmr.value().bind(t.ep, dat::bind{t.s.a.mem, dat::remote_read});
        if (!bound) return bound.error();
        return dat::success();
      });
      SHOWS("RMR-025");
    }
  }
}

namespace {

/// A row of the state table: a call on an endpoint with two posted receives and, where it is connected, a send for
/// which its peer has no receive; the next state; and the events on each evd. `gone` means that the endpoint has ended.
struct transition {
  const char* what;
  ep_state from;
  std::function<void(in_state&)> happens;
  std::optional<ep_state> to;
  events told = {};     ///< on the connect evd of the endpoint
  events requests = {}; ///< on the request evd of the endpoint
  events there = {};    ///< on the evd of the peer
};
constexpr std::nullopt_t gone_for_good = std::nullopt;

/// Compares events with expected ones: "" matches any event. Reasons are those of the connection manager.
bool alike(const events& seen, const events& expected) {
  return std::equal(seen.begin(), seen.end(), expected.begin(), expected.end(),
                    [](const std::string& s, const std::string& e) { return s.starts_with(e); });
}

std::vector<transition> transitions() {
  using enum ep_state;
  using t_ = in_state&;
  constexpr auto abrupt = dat::close_mode::abrupt;
  constexpr auto graceful = dat::close_mode::graceful;
  const auto disconnect = [](dat::close_mode how) { return [how](t_ t) { must(t.ep.disconnect(how)); }; };
  const auto connect = [](t_ t) { must(t.ep.connect(t.s.b.ia.address(), rig::port(), patience)); };
  const auto reserve = [](t_ t) { t.rsp = must(t.s.a.ia.create_rsp(rig::port(), t.ep, t.at_a)); };
  const auto unreserve = [](t_ t) { must(t.rsp.close()); };
  const auto configure = [](t_ t) { t.configure(); };
  const auto ask = [](t_ t) {
    t.request = t.asked(t.peer, t.port);
    CHECK(t.request.service() == t.rsp.id());
    CHECK(t.request.local_ep() == t.ep);
  };
  const auto accept = [](t_ t) { must(t.request.accept()); };
  const auto accept_unanswered = [](t_ t) {
    t.lost.emplace();
    must(t.request.accept());
  };
  const auto reject = [](t_ t) { must(t.request.reject()); };
  const auto drop = [](t_ t) { t.request = {}; };
  const auto hand_off = [](t_ t) {
    must(t.request.handoff(t.spare_port));
    t.request = request_on(t.at_a);
    CHECK_FALSE(t.request.local_ep());
  };
  const auto close = [](t_ t) { must(t.ep.close()); };
  const auto reset = [](t_ t) { must(t.ep.reset()); };
  // The events of the peer.
  const auto answer = [](void (*how)(t_ t, dat::cr & r)) {
    return [how](t_ t) {
      t.s.settle();
      auto r = request_on(t.at_b);
      how(t, r);
    };
  };
  const auto yes = answer([](t_ t, dat::cr& r) {
    t.peer = must(t.s.b.pz.create_ep<dat::rc>(t.at_b));
    must(r.accept(t.peer));
  });
  const auto no = answer([](t_, dat::cr& r) { must(r.reject()); });
  const auto nothing = answer([](t_, dat::cr&) {});
  const auto peer_ends = [](t_ t) { must(t.peer.disconnect()); };
  const auto peer_receives = [](t_ t) { must(t.peer.post(dat::recv{t.s.b.at(0, 8)}.cookie(4))); };
  const auto peer_has_no_room = [](t_ t) { must(t.peer.post(dat::recv{t.s.b.at(0, 2)}.cookie(4))); };
  const events failed{""};  // the operation was flushed, or its retries ended without an answer
  const events one_end{""}; // the connection is broken, or the peer has disconnected because it is broken for the peer
  const events broken_there{"local length error 4", ""};
  const events whatever{"?"}; // the peer's events depend on which message is faster
  const events up{"established"};
  const events over{"disconnected"};
  const events rejected{"peer_rejected"};
  const events dropped{"non_peer_rejected"};
  return {
      {"create_rsp", unconnected, reserve, reserved},
      {"connect, where nobody listens", unconnected, connect, disconnected, {"non_peer_rejected 8"}},
      {"connect, unanswered",
       unconnected,
       [](t_ t) { must(t.ep.connect(t.s.b.ia.address(), t.port, std::chrono::milliseconds(200))); },
       disconnected,
       {"timed_out"},
       {},
       {"request"}},
      {"accept", unconnected, [](t_ t) { must(t.spare.accept(t.ep)); }, connected, up, {}, up},
      {"accept, too late",
       unconnected,
       [](t_ t) {
         must(t.spare_peer.close());
         t.s.settle();
         must(t.spare.accept(t.ep));
       },
       disconnected,
       {"accept_completion_error"}},
      {"reset", unconnected, reset, unconnected},
      {"close", unconnected, close, gone_for_good},
      {"create_rsp", unconfigured_unconnected, reserve, unconfigured_reserved},
      {"modify", unconfigured_unconnected, configure, unconnected},
      {"close", unconfigured_unconnected, close, gone_for_good},
      {"a request", reserved, ask, passive_connection_pending},
      {"rsp.close", reserved, unreserve, unconnected},
      {"a request", unconfigured_reserved, ask, unconfigured_passive},
      {"rsp.close", unconfigured_reserved, unreserve, unconfigured_unconnected},
      {"modify", unconfigured_reserved, configure, reserved},
      {"accept", passive_connection_pending, accept, connected, up, {}, up},
      {"accept, the answer lost", passive_connection_pending, accept_unanswered, completion_pending, {}, {}, whatever},
      {"reject", passive_connection_pending, reject, unconnected, {}, {}, rejected},
      {"drop", passive_connection_pending, drop, unconnected, {}, {}, dropped},
      {"handoff", passive_connection_pending, hand_off, unconnected},
      {"rsp.close", passive_connection_pending, unreserve, passive_connection_pending},
      {"modify", unconfigured_passive, configure, passive_connection_pending},
      {"reject", unconfigured_passive, reject, unconfigured_unconnected, {}, {}, rejected},
      {"drop", unconfigured_passive, drop, unconfigured_unconnected, {}, {}, dropped},
      {"handoff", unconfigured_passive, hand_off, unconfigured_unconnected},
      {"rsp.close", unconfigured_passive, unreserve, unconfigured_passive},
      {"modify", unconfigured_tentative, configure, tentative_connection_pending},
      {"reject", unconfigured_tentative, reject, gone_for_good, {}, {}, rejected},
      {"drop", unconfigured_tentative, drop, gone_for_good, {}, {}, dropped},
      {"handoff", unconfigured_tentative, hand_off, gone_for_good},
      {"accept", tentative_connection_pending, accept, connected, up, {}, up},
      {"accept, the answer lost",
       tentative_connection_pending,
       accept_unanswered,
       completion_pending,
       {},
       {},
       whatever},
      {"reject", tentative_connection_pending, reject, gone_for_good, {}, {}, rejected},
      {"drop", tentative_connection_pending, drop, gone_for_good, {}, {}, dropped},
      {"handoff", tentative_connection_pending, hand_off, gone_for_good},
      {"the peer accepts", active_connection_pending, yes, connected, up, {}, up},
      {"the peer rejects", active_connection_pending, no, disconnected, rejected},
      {"the peer drops", active_connection_pending, nothing, disconnected, dropped},
      {"disconnect", active_connection_pending, disconnect(abrupt), disconnected, over, {}, whatever},
      {"graceful", active_connection_pending, disconnect(graceful), disconnected, over, {}, whatever},
      {"close", active_connection_pending, close, gone_for_good, {}, {}, whatever},
      {"disconnect", completion_pending, disconnect(abrupt), disconnected, over, {}, whatever},
      {"graceful", completion_pending, disconnect(graceful), disconnected, over, {}, whatever},
      {"close", completion_pending, close, gone_for_good, {}, {}, whatever},
      {"the peer ends it", connected, peer_ends, disconnected, one_end, failed, over},
      {"disconnect", connected, disconnect(abrupt), disconnected, over, {"flushed 7"}, over},
      {"graceful", connected, disconnect(graceful), disconnect_pending},
      {"a send fails", connected, peer_has_no_room, disconnected, one_end, {"remote"}, broken_there},
      {"close", connected, close, gone_for_good, {}, {}, over},
      {"disconnect", disconnect_pending, disconnect(abrupt), disconnected, over, {"flushed 0"}, over},
      {"graceful", disconnect_pending, disconnect(graceful), disconnect_pending},
      {"the peer ends it", disconnect_pending, peer_ends, disconnected, one_end, failed, over},
      {"all is done",
       disconnect_pending,
       peer_receives,
       disconnected,
       over,
       {"sent 0"},
       {"received 4", "disconnected"}},
      {"a send fails", disconnect_pending, peer_has_no_room, disconnected, one_end, {"remote"}, broken_there},
      {"close", disconnect_pending, close, gone_for_good, {}, {}, over},
      {"disconnect", disconnected, disconnect(abrupt), disconnected, {}, {}, over},
      {"graceful", disconnected, disconnect(graceful), disconnected, {}, {}, over},
      {"the peer ends it, too", disconnected, peer_ends, disconnected, {}, {}, over},
      {"reset", disconnected, reset, unconnected, {}, {}, over},
      {"close", disconnected, close, gone_for_good, {}, {}, over},
  };
}

/// The rules that a row shows. The test case names the rules that all rows show.
std::vector<const char*> rules_of(const transition& row) {
  using enum ep_state;
  const std::string_view what = row.what;
  const auto is = [&](std::string_view w, std::initializer_list<ep_state> from) {
    return what == w && std::find(from.begin(), from.end(), row.from) != from.end();
  };
  if (is("accept", {passive_connection_pending})) return {"CR-034", "CR-022", "RSP-017", "REQ-043"};
  if (is("accept, the answer lost", {passive_connection_pending})) return {"EPS-036", "RSP-017"};
  if (is("accept, the answer lost", {tentative_connection_pending})) return {"EPS-042"};
  if (is("accept", {unconnected, tentative_connection_pending})) return {"CR-034", "CR-022", "EPS-023"};
  if (is("accept, too late", {unconnected})) return {"EPS-025", "CR-037", "EPS-044"};
  if (is("connect, where nobody listens", {unconnected})) return {"EPS-006", "EPS-044", "EPS-007"};
  if (is("connect, unanswered", {unconnected})) return {"EPS-006", "EPS-010", "EPS-007", "EPS-044", "REQ-049"};
  if (is("the peer accepts", {active_connection_pending})) return {"EPS-006", "EPS-007", "REQ-043"};
  if (is("the peer rejects", {active_connection_pending})) return {"EPS-006", "EPS-007", "EPS-008", "EPS-044"};
  if (is("the peer drops", {active_connection_pending})) return {"EPS-006", "EPS-007", "EPS-009", "EPS-044"};
  if (is("create_rsp", {unconnected, unconfigured_unconnected})) return {"EPS-033"};
  if (is("modify", {unconfigured_unconnected, unconfigured_reserved, unconfigured_passive, unconfigured_tentative}))
    return {"EPS-080"};
  if (is("a request", {reserved, unconfigured_reserved})) return {"EPS-035", "EPS-004", "RSP-014"};
  if (is("rsp.close", {reserved, unconfigured_reserved})) return {"RSP-023", "EPS-034", "DISC-025", "EPS-045"};
  if (is("rsp.close", {passive_connection_pending, unconfigured_passive})) return {"RSP-024"};
  if (is("reject", {passive_connection_pending}))
    return {"EPS-037", "EPS-044", "CR-054", "RSP-018", "DISC-025", "EPS-045"};
  if (is("reject", {unconfigured_passive, unconfigured_tentative})) return {"CR-055", "EPS-045"};
  if (is("reject", {tentative_connection_pending})) return {"DISC-025", "EPS-045"};
  if (is("handoff",
         {passive_connection_pending, unconfigured_passive, unconfigured_tentative, tentative_connection_pending}))
    return {"EPS-048", "CR-073"};
  if (is("disconnect", {active_connection_pending}))
    return {"EPS-016", "DISC-004", "DISC-001", "DISC-003", "EPS-044", "EPS-007", "DISC-021"};
  if (is("disconnect", {completion_pending}))
    return {"EPS-016", "DISC-004", "DISC-001", "DISC-003", "EPS-044", "DISC-023"};
  if (is("graceful", {active_connection_pending, completion_pending}))
    return {"DISC-004", "EPS-016", "DISC-003", "EPS-044"};
  if (is("graceful", {connected})) return {"EPS-049", "DISC-003"};
  if (is("disconnect", {connected, disconnect_pending})) return {"EPS-055", "DISC-003", "DISC-018"};
  if (is("disconnect", {disconnected}) || is("graceful", {disconnected})) return {"DISC-003", "DISC-004"};
  if (is("graceful", {disconnect_pending})) return {"DISC-003"};
  if (is("close", {active_connection_pending, completion_pending})) return {"EPS-046", "DISC-037", "EP-035", "EP-036"};
  if (is("close", {connected})) return {"DISC-037", "EP-035", "EP-036"};
  if (is("close", {disconnect_pending})) return {"DISC-037", "EPS-053", "EP-035", "EP-036"};
  if (is("the peer ends it", {connected}) || is("the peer ends it, too", {disconnected}))
    return {"EPS-057", "DISC-026", "EPS-069"};
  if (row.from == disconnected) return {"EPS-068"};
  if (is("the peer ends it", {disconnect_pending})) return {"EPS-053", "DISC-016"};
  if (is("a send fails", {connected})) return {"EPS-062"};
  if (is("a send fails", {disconnect_pending})) return {"EPS-053"};
  return {};
}

} // namespace

TEST_CASE("every row of the state table gives the next state and its events", "") {
  sides both;
  for (const auto& row : transitions())
    for (const bool shares : {false, true}) {
      const bool made_elsewhere = dat::detail::is_unconfigured(row.from) ||
                                  // These states have no shared queue.
                                  row.from == ep_state::tentative_connection_pending;
      // If the call does not end the endpoint, a shared queue makes no difference. A reserved endpoint uses a shared
      // queue, too.
      const bool releases = row.what == std::string_view("rsp.close");
      if (shares && (made_elsewhere || (row.to != ep_state::disconnected && !releases))) continue;
      const bool waits = row.from == ep_state::completion_pending || row.to == ep_state::completion_pending;
      if (waits && !rig::lost_handshake::possible) continue;
      INFO(row.what << ", " << to_string(row.from) << (shares ? ", shared queue" : ""));
      in_state t(both, row.from, shares);
      if (shares) {
        refuses(t.pool.close(), return_type::invalid_state, return_subtype::srq_in_use);
        SHOWS("SRQ-046");
      }
      const bool was_over = row.from == ep_state::disconnected;
      const bool has_receives = !was_over && !dat::detail::is_unconfigured(row.from);
      if (was_over) { // takes the events of the end that preceded the call
        CHECK(rig::take(t.told, 1) == events{"disconnected"});
        CHECK(rig::take(t.requests, 1) == events{"flushed 0"});
      }
      for (unsigned i = 1; has_receives && i <= 2; ++i) {
        const auto receive = dat::recv{both.a.at(8 * i, 8)}.cookie(i);
        if (shares) refuses(t.ep.post(receive), return_type::invalid_state, subtype_naming(row.from));
        must(shares ? t.pool.post(receive) : t.ep.post(receive));
      }
      if (row.from == ep_state::connected) must(t.ep.post(dat::send{both.a.at(0, 4)}.cookie(7)));
      row.happens(t);
      both.settle();
      const auto told = rig::take(t.told, row.told.size());
      CAPTURE(told);
      CHECK(alike(told, row.told));
      if (row.to)
        CHECK(t.ep.state() == *row.to);
      else
        CHECK((!t.ep || gone(t.ep)));
      const bool flushes = has_receives && !shares && row.to == ep_state::disconnected;
      CHECK(rig::take(t.receives, flushes ? 2 : 0) == (flushes ? events{"flushed 1", "flushed 2"} : events{}));
      if (shares && has_receives) CHECK(must(t.pool.query()).available == 2);
      if (row.to && has_receives && !flushes && !shares) CHECK(must(t.ep.recv_query()).allocated == 2);
      const auto requests = rig::take(t.requests, row.requests.size());
      CAPTURE(requests);
      CHECK(alike(requests, row.requests));
      if (row.there != events{"?"}) {
        const auto there = rig::take(t.at_b, row.there.size());
        CAPTURE(there);
        // A failed completion and the end of the connection may come in either order.
        CHECK((alike(there, row.there) || alike({there.rbegin(), there.rend()}, row.there)));
      }
      both.settle();
      CHECK(rig::take(t.told, 0).empty()); // no second end event
      CHECK(rig::take(t.receives, 0).empty());
      CHECK(rig::take(t.requests, 0).empty());
      CHECK(rig::take(t.at_a, 0).empty());
      SHOWS("CONN-016", "EP-004", "EP-005", "EP-006", "EP-007", "EVENT-001");
      for (const char* rule : rules_of(row)) SHOWS(rule);
      if (shares && row.from == ep_state::unconnected && row.what == std::string_view("accept, too late"))
        SHOWS("CR-040");
      if (row.from == ep_state::unconnected && row.to == ep_state::disconnected) SHOWS("CONN-059");
    }
}

TEST_CASE("an abrupt close of the ia ends an endpoint in every state, and the peer is notified",
          "[IA-047][IA-033][DISC-037][DISC-038][EPS-047][RSP-010][CR-033]") {
  for (const ep_state state : support::all_ep_states) {
    INFO(to_string(state));
    if (state == ep_state::completion_pending && !rig::lost_handshake::possible) continue;
    sides both;
    in_state t(both, state);
    if (state == ep_state::active_connection_pending) { // the shared queue has its entries again
      both.settle();
      t.request = request_on(t.at_b);
    }
    must(both.a.ia.close());
    both.settle();
    CHECK(gone(t.ep));
    refuses(t.spare.reject(), return_type::invalid_handle);
    SHOWS("CR-017", "CR-013");
    refuses(t.spare_psp.query(), return_type::invalid_handle, return_subtype::handle_psp);
    SHOWS("PSP-012");
    if (one_of(state, {ep_state::reserved, ep_state::unconfigured_reserved, ep_state::passive_connection_pending,
                       ep_state::unconfigured_passive})) {
      refuses(t.rsp.query(), return_type::invalid_handle, return_subtype::handle_rsp);
      SHOWS("PSP-012");
      if (t.request) refuses(t.request.reject(), return_type::invalid_handle);
      SHOWS("RSP-028");
    }
    for (auto* evd : {&t.at_a, &t.told}) refuses(evd->dequeue(), return_type::invalid_handle);
    // The unanswered request is refused, and the peer gets the end that the state implies.
    events expected{"non_peer_rejected"};
    if (t.peer && state != ep_state::completion_pending)
      expected.emplace_back(one_of(state, {ep_state::connected, ep_state::disconnect_pending, ep_state::disconnected})
                                ? "disconnected"
                                : "non_peer_rejected");
    if (state == ep_state::active_connection_pending) {
      auto late = both.make();
      must(t.request.accept(late));
      both.settle();
      CHECK(alike(both.b.take(1), {"accept_completion_error"}));
    }
    auto seen = rig::take(t.at_b, expected.size());
    if (state == ep_state::completion_pending) continue; // the events depend on the progress of the handshake
    std::sort(seen.rbegin(), seen.rend());
    CAPTURE(seen);
    CHECK((alike(seen, expected) || alike({seen.rbegin(), seen.rend()}, expected)));
  }
}

TEST_CASE("a reset right after a disconnect queues one disconnect event before the events of the next life",
          "[DISC-055][CONN-016][EPS-070]") {
  sides s;
  auto psp = must(s.b.ia.create_psp(s.service, s.b.evd));
  s.a.make_ep();
  s.b.make_ep();
  events expected;
  for (int round = 0; round < 4; ++round) {
    // One endpoint connects successfully, and another one is refused. No thread takes an event of `a` before both
    // attempts are over.
    must(s.a.ep.connect(s.b.ia.address(), s.service, patience));
    s.settle();
    must(s.request().accept(s.b.ep));
    s.settle();
    CHECK(s.b.take(1) == events{"established"});
    while (s.a.ep.state() != ep_state::connected) s.settle();
    must(s.a.ep.disconnect());
    must(s.a.ep.reset());
    s.settle();
    CHECK(s.b.take(1) == events{"disconnected"});
    must(s.b.ep.reset());
    must(s.a.ep.connect(s.b.ia.address(), s.other, patience));
    while (s.a.ep.state() != ep_state::disconnected) s.settle();
    must(s.a.ep.reset());
    for (const char* e : {"established", "disconnected", "non_peer_rejected 8"}) expected.emplace_back(e);
  }
  CHECK(s.a.take(0) == expected); // the event is queued when reset returns
  SHOWS("EPS-004");
  must(s.a.ep.connect(s.b.ia.address(), s.service, patience));
  s.settle();
  must(s.request().accept(s.b.ep));
  s.settle();
  CHECK(s.a.take(1) == events{"established"});
  must(s.a.ep.disconnect());
  must(s.a.ep.reset());
  const auto queued = s.a.evd.wait_for<dat::disconnected>(dat::timeout::zero()); // as is that of a disconnect
  CHECK(queued);
  SHOWS("DISC-055");
}

TEST_CASE("an endpoint can be configured at once, in steps, or not at all",
          "[EPS-076][EPS-080][EPS-083][EP-002][EP-009][EP-083][CONN-039]") {
  rig::world world;
  rig::end e(0);
  for (unsigned given = 0; given < 16; ++given) {
    dat::ep_evds evds;
    if (given & 1) evds.recv = e.evd;
    if (given & 2) evds.request = e.evd;
    if (given & 4) evds.connect = e.evd;
    auto ep = (given & 8) != 0 ? must(e.pz.create_ep<dat::rc>(evds)) : must(e.ia.create_ep<dat::rc>(evds));
    CHECK(ep.state() == (given == 15 ? ep_state::unconnected : ep_state::unconfigured_unconnected));
    CHECK((ep.native_handle() != nullptr) == (given == 15));
    if (given == 15) continue;
    refuses(ep.connect(e.ia.address(), rig::port(), patience), return_type::invalid_state,
            return_subtype::ep_unconfigured);
    // Supplies the missing parameters one by one: the endpoint can connect when the last one is set.
    for (unsigned bit = 1; bit < 16; bit *= 2) {
      if (given & bit) continue;
      CHECK(ep.state() == ep_state::unconfigured_unconnected);
      dat::ep_changes c;
      if (bit == 1) c.recv = e.evd;
      if (bit == 2) c.request = e.evd;
      if (bit == 4) c.connect = e.evd;
      if (bit == 8) c.pz = &e.pz;
      must(ep.modify(c));
    }
    CHECK(ep.state() == ep_state::unconnected);
    must(ep.post(dat::recv{e.at(0, 4)}));
  }
}

TEST_CASE("modify changes all named parameters or none", "") {
  sides s;
  s.needs_two_adapters_with_ipv6();
  auto& e = s.a;
  auto& other = s.b;
  auto ep = must(e.pz.create_ep<dat::rc>(e.evd, {.max_recv_dtos = 8}));
  const auto before = must(ep.query());
  CHECK(before.local_address == e.ia.address());
  SHOWS("EP-053");
  CHECK(before.comm == dat::communicator{});
  const auto unchanged = [&] {
    const auto now = must(ep.query());
    CHECK(now.number == before.number);
    CHECK(now.attributes.max_recv_dtos == before.attributes.max_recv_dtos);
    CHECK(now.attributes.max_request_iov == before.attributes.max_request_iov);
    CHECK(now.attributes.rnr_retry_count == before.attributes.rnr_retry_count);
    CHECK(now.recv == before.recv);
    CHECK(now.comm == before.comm);
    CHECK(now.local_address == before.local_address);
  };
  must(ep.modify({}));
  unchanged();
  SHOWS("EP-071", "EP-049");
  // One valid and one invalid value of each parameter.
  refuses(ep.modify({.max_recv_dtos = 16, .max_request_iov = 100'000}), return_type::invalid_parameter);
  unchanged();
  SHOWS("EP-067", "EP-072");
  refuses(ep.modify({.max_recv_dtos = 16, .rnr_retry_count = std::uint8_t{8}}), return_type::invalid_parameter);
  unchanged();
  refuses(ep.modify({.comm = dat::communicator{AF_UNIX, 1, 0}, .max_recv_dtos = 16}), return_type::invalid_parameter);
  unchanged();
  SHOWS("CONN-082");
  refuses(ep.modify({.recv = other.evd, .max_recv_dtos = 16}), return_type::invalid_handle,
          return_subtype::handle_evd_recv);
  refuses(ep.modify({.recv = decltype(e.evd)(), .max_recv_dtos = 16}), return_type::invalid_handle,
          return_subtype::handle_evd_recv);
  refuses(ep.modify({.pz = &other.pz, .max_recv_dtos = 16}), return_type::invalid_handle, return_subtype::handle_pz);
  const dat::pz no_zone;
  refuses(ep.modify({.pz = &no_zone}), return_type::invalid_handle, return_subtype::handle_pz);
  refuses(ep.modify({.request = decltype(e.evd)()}), return_type::invalid_handle, return_subtype::handle_evd_request);
  refuses(ep.modify({.connect = decltype(e.evd)()}), return_type::invalid_handle, return_subtype::handle_evd_conn);
  CHECK(ep.state() == ep_state::unconnected);
  SHOWS("EPS-081");
  for (const char* odd : {"192.0.2.1", "127.0.0.1", "224.0.0.1"})
    refuses(ep.modify({.local_address = must(dat::ia_address::parse(odd)), .max_recv_dtos = 16}),
            return_type::invalid_parameter);
  refuses(ep.modify({.local_address = other.ia.address()}), return_type::invalid_parameter);
  SHOWS("EP-079", "CONN-082", "ADDR-005");
  unchanged();

  // Changes that need a new queue pair.
  auto completions = must(e.ia.create_evd<dat::stream::dto>(16));
  auto zone = must(e.ia.create_pz());
  must(ep.modify({.pz = &zone, .recv = completions, .request = completions, .max_recv_dtos = 16}));
  const auto now = must(ep.query());
  CHECK(now.number != before.number);
  CHECK(now.attributes.max_recv_dtos == 16);
  CHECK(now.recv == completions.id());
  SHOWS("EP-075");
  CHECK(now.request == completions.id());
  CHECK(now.connect == e.evd.id());
  CHECK((now.state == ep_state::unconnected && now.has_pz && !now.remote_address && !now.srq));
  CHECK(ep.owner() == e.ia.identity());
  SHOWS("EP-049");
  refuses(completions.close(), return_type::invalid_state, return_subtype::evd_in_use);
  refuses(zone.close(), return_type::invalid_state, return_subtype::pz_in_use);
  // Changes that need no new queue pair.
  must(ep.modify({.max_message_size = 100,
                  .max_rdma_read_out = std::uint8_t{2},
                  .max_rdma_read_in = std::uint8_t{3},
                  .rnr_retry_count = std::uint8_t{2},
                  .qos = dat::qos::economy()}));
  CHECK(must(ep.query()).number == now.number);
  CHECK(must(ep.query()).attributes.max_message_size == 100);
  SHOWS("EP-072", "EP-080");
  CHECK(must(ep.query()).attributes.max_rdma_read_out == 2);
  CHECK(must(ep.query()).attributes.rnr_retry_count == 2);
  const auto changed = must(ep.query());
  CHECK((changed.attributes.max_rdma_read_in == 3 && changed.attributes.qos == dat::qos::economy()));
  // Parameters that the call did not name are unchanged.
  CHECK((changed.recv == now.recv && changed.request == now.request && changed.connect == now.connect));
  CHECK((changed.attributes.max_recv_dtos == 16 && changed.local_address == now.local_address));
  CHECK(changed.attributes.max_request_dtos == now.attributes.max_request_dtos);
  SHOWS("EP-067");
  must(ep.modify({.max_request_dtos = 9, .max_request_iov = 2, .max_recv_iov = 3}));
  const auto lists = must(ep.query()).attributes;
  CHECK(lists.max_request_dtos == 9);
  SHOWS("EP-072");
  CHECK((lists.max_request_iov == 2 && lists.max_recv_iov == 3));
  SHOWS("EP-080");
  // Sets the parameters that can be set only once.
  must(ep.modify({.comm = tcp}));
  CHECK(must(ep.query()).comm.domain == AF_INET);
  auto with = must(e.pz.create_ep<dat::rc>(e.evd, {.comm = tcp}));
  CHECK(must(with.query()).comm == must(ep.query()).comm);
  refuses(ep.modify({.comm = tcp}), return_type::invalid_parameter);
  refuses(with.modify({.comm = tcp}), return_type::invalid_parameter); // set by the creation of the endpoint
  SHOWS("EP-078", "ADDR-015");
  SHOWS("EP-068");
  // Restores the first zone and evds, so that the second zone and evds can be closed.
  must(ep.modify({.pz = &e.pz, .recv = e.evd, .request = e.evd}));
  must(completions.close());
  must(zone.close());
}

TEST_CASE("an endpoint may be modified while its request arrives", "[EP-084]") {
  sides s(rig::automatic);
  auto& a = s.a;
  auto& b = s.b;
  auto one = must(a.ia.create_evd<dat::stream::dto>(16));
  auto other = must(a.ia.create_evd<dat::stream::dto>(16));
  for (int i = 0; i < 20; ++i) {
    auto ep = must(a.pz.create_ep<dat::rc>(a.evd));
    auto rsp = must(a.ia.create_rsp(s.service, ep, a.evd));
    b.make_ep();
    must(b.ep.connect(a.ia.address(), s.service, patience));
    bool last = false;
    for (bool there = false; !there; last = !last) {
      there = ep.state() == ep_state::passive_connection_pending;
      must(ep.modify({.recv = last ? one : other}));
    }
    CHECK(ep.state() == ep_state::passive_connection_pending);
    must(ep.post(dat::recv{a.at(0, 8)}.cookie(5)));
    must(must(a.evd.wait_for<dat::connection_request>(patience)).accept());
    (void)must(b.evd.wait_for<dat::established>(patience));
    (void)must(a.evd.wait_for<dat::established>(patience));
    must(b.ep.post(dat::send{b.at(0, 8)}));
    const auto got = must((last ? other : one).wait(patience)); // the evd that the last modify has set
    CHECK(std::visit(support::describe{}, got) == "received 5");
    (void)must(b.evd.wait_for<dat::send_done>(patience));
    must(ep.close());
    (void)must(b.evd.wait_for<dat::disconnected>(patience));
  }
}

TEST_CASE("modify refuses to move an endpoint with posted receives", "[EP-081]") {
  sides s;
  auto& e = s.b;
  e.make_ep();
  must(e.ep.post(dat::recv{e.at(0, 4)}.cookie(1), dat::recv{e.at(4, 4)}.cookie(2)));
  CHECK(must(e.ep.recv_query()).allocated == 2);
  CHECK(must(e.ep.recv_query()).span == 2);
  CHECK_FALSE(must(e.ep.status()).recv_idle);
  CHECK(must(e.ep.status()).request_idle);
  refuses(e.ep.modify({.max_recv_dtos = 1}), return_type::invalid_state, return_subtype::ep_notready);
  refuses(e.ep.modify({.max_recv_dtos = 100}), return_type::invalid_state, return_subtype::ep_notready);
  DEVIATES("EP-073");
  auto zone = must(e.ia.create_pz());
  refuses(e.ep.modify({.pz = &zone}), return_type::invalid_state, return_subtype::ep_notready);
  DEVIATES("EP-074", "DTO-126");
  // The same size, so no receive has to move.
  must(e.ep.modify({.max_recv_dtos = 64, .max_rdma_read_in = std::uint8_t{3}}));
  auto connections = must(e.ia.create_evd<dat::stream::connection>(4));
  must(e.ep.modify({.connect = connections}));
  CHECK(must(e.ep.recv_query()).allocated == 2);
  auto psp = must(e.ia.create_psp(s.service, e.evd));
  auto active = s.ask(s.service);
  must(s.request().accept(e.ep));
  s.settle();
  CHECK(rig::take(connections, 1) == events{"established"});
  CHECK(s.a.take(1) == events{"established"});
  must(active.post(dat::send{}, dat::send{}));
  s.settle();
  CHECK(e.take(2) == events{"received 1", "received 2"});
}

TEST_CASE("status counts an operation as outstanding until its completion is taken",
          "[EP-045][EP-046][EP-062][EP-086]") {
  sides p;
  auto psp = must(p.b.ia.create_psp(p.service, p.b.evd));
  p.a.ep = p.ask(p.service);
  p.b.make_ep();
  must(p.request().accept(p.b.ep));
  p.settle();
  CHECK(p.a.take(1) == events{"established"});
  CHECK(p.b.take(1) == events{"established"});
  const auto idle = [&] {
    const auto s = must(p.a.ep.status());
    return std::pair(s.recv_idle, s.request_idle);
  };
  CHECK(idle() == std::pair(true, true));
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}, dat::recv{p.b.at(8, 8)}));
  CHECK(must(p.b.ep.recv_query()).allocated == 2);
  CHECK(must(p.b.ep.recv_query()).span == 2);
  CHECK_FALSE(must(p.b.ep.status()).recv_idle);
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}.suppress_completion()));
  p.settle();
  CHECK(idle() == std::pair(true, false)); // no completion has retired the suppressed request yet
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}));
  p.settle();
  CHECK(idle() == std::pair(true, false));
  CHECK(p.a.take(1).size() == 1);
  CHECK(idle() == std::pair(true, true));
  (void)must(p.b.evd.wait(patience));
  // The other message has arrived, too: its receive counts until its completion is taken.
  CHECK((must(p.b.ep.recv_query()).allocated == 1 && must(p.b.ep.recv_query()).span == 1));
  DEVIATES("EP-058", "EP-059");
  CHECK_FALSE(must(p.b.ep.status()).recv_idle);
  CHECK(p.b.take(1).size() == 1);
  CHECK(must(p.b.ep.recv_query()).allocated == 0);
  CHECK(must(p.b.ep.recv_query()).span == 0);
  SHOWS("EP-060");
  CHECK(must(p.b.ep.status()).recv_idle);
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}));
  for (const bool reads : {false, true}) {
    const auto there = must(p.b.mem.remote(0, 8));
    must(reads ? p.a.ep.post(dat::rdma_read{p.a.at(0, 8), there}) : p.a.ep.post(dat::rdma_write{p.a.at(0, 8), there}));
    CHECK(idle() == std::pair(true, false));
    p.settle();
    CHECK(p.a.take(1).size() == 1);
    CHECK(idle() == std::pair(true, true));
    CHECK((must(p.b.ep.recv_query()).allocated == 1 && must(p.b.ep.recv_query()).span == 1)); // they need no receive
  }
  for (const auto soft : {0u, 5u, dat::no_watermark})
    for (const auto hard : {0u, 5u, dat::no_watermark}) {
      must(p.a.ep.set_watermark(soft, hard));
      const auto now = must(p.a.ep.query()).attributes;
      CHECK((now.soft_high_watermark == soft && now.hard_high_watermark == hard));
    }
  CHECK(p.a.ep.state() == dat::ep_state::connected);
}

TEST_CASE("parameter calls on a closed endpoint return invalid_handle", "[EP-041][EP-057]") {
  rig::world world;
  rig::end e(0);
  endpoint none;
  e.make_ep();
  auto first = must(e.pz.create_ep<dat::rc>(e.evd));
  must(first.close());
  const auto second = must(e.pz.create_ep<dat::rc>(e.evd)); // the closed handle does not name the new endpoint
  refuses(first.query(), return_type::invalid_handle, return_subtype::handle_ep);
  CHECK(second.state() == ep_state::unconnected);
  must(e.ia.close());
  for (auto* ep : {&none, &first, &e.ep}) {
    refuses(ep->query(), return_type::invalid_handle, return_subtype::handle_ep);
    refuses(ep->status(), return_type::invalid_handle, return_subtype::handle_ep);
    SHOWS("EP-048");
    refuses(ep->recv_query(), return_type::invalid_handle, return_subtype::handle_ep);
    refuses(ep->set_watermark(1, 2), return_type::invalid_handle, return_subtype::handle_ep);
    SHOWS("EP-096");
    refuses(ep->modify({.max_recv_dtos = 5}), return_type::invalid_handle);
    refuses(ep->dup_connect(none, patience), return_type::invalid_handle, return_subtype::handle_ep);
  }
}

// --- the ways to connect ---------------------------------------------------------------------------------------------

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
  for (const char* odd : {"0.0.0.0:5", "224.0.0.1:5", "255.255.255.255:5", "[::]:5", "[fe80::1]:5"}) {
    INFO(odd);
    refuses(ep.common_connect(must(dat::ia_address::parse(odd)), patience), return_type::invalid_parameter,
            return_subtype::arg2);
  }
  const auto six = must(b.ia.address(dat::address_family::ipv6)).with_port(s.service.port());
  refuses(ep.common_connect(six, patience), return_type::invalid_parameter, return_subtype::arg2);
  CHECK(ep.state() == ep_state::unconnected);

  auto ep6 = must(a.pz.create_ep<dat::rc>(a.evd, {.comm = tcp6}));
  refuses(ep6.common_connect(there, patience), return_type::invalid_parameter, return_subtype::arg2);
  must(ep6.common_connect(six, patience));
  must(ep.common_connect(there, patience));
  s.settle();
  CHECK(a.take(2) == events{"non_peer_rejected 8", "non_peer_rejected 8"});
  refuses(a.pz.create_ep<dat::rc>(a.evd, {.comm = {AF_INET, SOCK_DGRAM, 0}}), return_type::invalid_parameter);
  SHOWS("ADDR-005", "ADDR-014");
}

TEST_CASE("an endpoint connects from the address and port that modify has set",
          "[CONN-049][CONN-050][CONN-076][ADDR-017][ADDR-018][EP-051][EP-052][CR-031][DISC-051]") {
  sides s;
  s.needs_two_adapters_with_ipv6();
  auto& a = s.a;
  auto& b = s.b;
  auto psp = must(b.ia.create_psp(s.service, b.evd));
  auto ep = must(a.pz.create_ep<dat::rc>(a.evd));
  CHECK_FALSE(must(ep.query()).remote_address);
  refuses(ep.local_address(), return_type::invalid_state, return_subtype::ep_unconnected);
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
  // The port is taken.
  auto second = must(a.pz.create_ep<dat::rc>(a.evd));
  must(second.modify({.local_address = a.ia.address().with_port(s.other.port())}));
  refuses(second.connect(b.ia.address(), s.service, patience), return_type::invalid_parameter);
  CHECK(second.state() == ep_state::unconnected);

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
  CHECK(must(b.ep.query()).remote_address == a.ia.address().with_port(s.other.port()));

  must(ep.disconnect());
  s.settle();
  CHECK(b.take(1) == events{"disconnected"});
  for (auto* e : {&ep, &b.ep}) {
    CHECK_FALSE(must(e->query()).remote_address);
    refuses(e->remote_address(), return_type::invalid_state, return_subtype::ep_disconnected);
    must(e->reset());
    CHECK_FALSE(must(e->query()).remote_address);
  }
  // The value that the consumer set stays.
  CHECK(must(ep.query()).local_address == a.ia.address().with_port(s.other.port()));
}

TEST_CASE("dup_connect copies the remote address of another connection and does not need that connection afterwards",
          "[CONN-013][CONN-084][CONN-085][CONN-086][CONN-087][CONN-088][CONN-089][CONN-091][CONN-092]") {
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
  auto theirs = must(b.pz.create_ep<dat::rc>(b.evd));
  refuses(theirs.dup_connect(b.ep, patience), return_type::invalid_state, return_subtype::ep_connected);
  endpoint none;
  refuses(ep.dup_connect(none, patience), return_type::invalid_handle, return_subtype::handle_ep);
  refuses(none.dup_connect(original, patience), return_type::invalid_handle, return_subtype::handle_ep);
  refuses(ep.dup_connect(original, dat::timeout::zero()), return_type::invalid_parameter, return_subtype::arg3);
  const std::array<std::byte, 57> much{};
  refuses(ep.dup_connect(original, patience, much), return_type::invalid_parameter, return_subtype::arg4);
  refuses(original.dup_connect(original, patience), return_type::invalid_state, return_subtype::ep_connected);

  must(ep.modify({.local_address = a.ia.address().with_port(s.other.port())}));
  must(ep.dup_connect(original, patience, bytes_of("second")));
  CHECK(ep.state() == ep_state::active_connection_pending);
  SHOWS("EPS-005");
  CHECK(must(ep.local_address()) == a.ia.address().with_port(s.other.port())); // as connect, from the address set
  must(original.close());
  s.settle();
  auto request = must(b.evd.wait_for<dat::connection_request>(patience));
  CHECK(request.service() == csp.id());
  CHECK(unpadded(request.private_data()) == "second");
  must(request.accept(theirs));
  s.settle();
  CHECK(a.take(1) == events{"established"});
  refuses(ep.dup_connect(ep, patience), return_type::invalid_state, return_subtype::ep_connected);
}

} // namespace connections
