// Endpoints: the next state and the events of each row of the state table; abrupt closes; resets.
// SPDX-License-Identifier: BSL-1.0
#include "endpoint_in_state.hpp"
#include "sides.hpp"

#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>

#include <support/ep_states.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <vector>

namespace connections {
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
      const bool has_receives = !was_over;
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
          "[IA-047][IA-033][DISC-037][DISC-038][RSP-010][CR-033]") {
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

} // namespace connections
