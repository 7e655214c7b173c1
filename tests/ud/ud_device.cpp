// Datagram endpoints on a device: addresses, requests and their answers, refused calls, disconnect and reset.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "link_local.hpp"
#include "support.hpp"
#include "ud_pair.hpp"

#include <dat/dat_code.hpp>
#include <dat/ud.hpp>

#include <algorithm>
#include <array>

namespace device {
namespace {

/// Sends one message to an address and checks that it arrives at `there`.
void reach(ud_side& from, datagrams& ep, const address& to, ud_side& at, datagrams& there) {
  buffer out(from.pz, 64);
  buffer in(at.pz, 256);
  must(there.post(dat::recv{in.slice(0, 256)}));
  must(ep.post(dat::ib::send_to{out.slice(0, 64), to}));
  CHECK(expect<dat::ib::datagram_recv_done>(at.evd).payload_bytes() == 64);
  (void)expect<dat::ib::datagram_send_done>(from.evd);
}

template <class Request, class Endpoint>
concept accepts = requires(Request& r, Endpoint& ep) {
  r.accept(ep);
};

/// Whether an event has this number of DAT and this kind of the extensions.
template <class Event>
bool is_numbered(const Event& e, unsigned number, unsigned kind) {
  return dat::event_number_of(e) == dat::event_number(number) && dat::ib_ext_type_of(e) == dat::ib_ext_type(kind);
}

} // namespace

TEST_CASE(
    "datagram endpoints reach each other at either address of an adapter, and a link-local one leads to its interface",
    "[ud][IBX-050][ADDR-002][ADDR-005]") {
  NEEDS_FEATURE(datagrams);
  const auto at = link_local_interfaces();
  if (at[0].host.empty()) SKIP("no link-local addresses");
  ud_side a(at[0].seen_from(at[0]));
  ud_side b(at[1].seen_from(at[1]));
  const auto service = must(dat::ib::datagram_service::listen(b.ia, next_port(), b.evd));
  CHECK(error_of(dat::ib::datagram_service::listen(b.ia, must(dat::conn_qual::make(service.port())), b.evd)).type() ==
        type::conn_qual_in_use);
  for (const bool link_local : {false, true}) {
    INFO((link_local ? "link-local" : "IPv4"));
    auto active = a.make_ep();
    auto passive = b.make_ep();
    const auto to = link_local ? at[1].seen_from(at[0]) : addresses()[1];
    must(active.connect(to, must(dat::conn_qual::make(service.port())), patience));
    auto request = expect<dat::ib::datagram_request>(b.evd);
    // The address of the sender with its scope, so that a program could connect to it.
    CHECK(request.remote_address().with_port(0) == (link_local ? at[0].seen_from(at[1]) : addresses()[0]));
    CHECK(request.local_address().with_port(0) == (link_local ? at[1].seen_from(at[1]) : addresses()[1]));
    must(request.accept(passive));
    const auto to_a = must(expect<dat::ib::datagram_established>(b.evd).peer());
    const auto to_b = must(expect<dat::ib::datagram_established>(a.evd).peer());
    reach(a, active, to_b, b, passive);
    reach(b, passive, to_a, a, active);
  }
}

TEST_CASE("a datagram request gives each side the other's address, and either may send first",
          "[ud][IBX-050][IBX-056][IBX-057][IBX-059]") {
  NEEDS_FEATURE(datagrams);
  // Connection requests and datagram requests are accepted on their own kinds of endpoints.
  STATIC_REQUIRE_FALSE(accepts<dat::ib::datagram_request, endpoint>);
  SHOWS("CR-027");
  ud_side a(0);
  ud_side b(1);
  auto active = a.make_ep();
  auto passive = b.make_ep();
  CHECK(active.state() == state::connected);
  CHECK(active.native_handle()->qp_type == IBV_QPT_UD);
  auto service = must(dat::ib::datagram_service::listen(b.ia, next_port(), b.evd));
  const auto port = must(dat::conn_qual::make(service.port()));
  const auto data = pattern(128, 5);
  must(active.connect(b.ia.address(), port, patience, data));
  auto request = expect<dat::ib::datagram_request>(b.evd);
  CHECK(request.remote_number() == active.number());
  CHECK(request.remote_address().with_port(0) == a.ia.address().with_port(0));
  CHECK(request.local_address().port() == service.port());
  CHECK(std::ranges::equal(request.private_data(), data)); // the data has its exact length
  CHECK(is_numbered(request, 0x40001, 5));
  SHOWS("CR-018");
  must(request.accept(passive, bytes_of("welcome")));
  CHECK_FALSE(request);
  const auto at_b = expect<dat::ib::datagram_established>(b.evd);
  CHECK(at_b.is_passive());
  CHECK(at_b.ep() == passive);
  CHECK(at_b.remote_address().with_port(0) == a.ia.address().with_port(0));
  CHECK(std::ranges::equal(at_b.private_data(), data)); // the data of the request
  const auto at_a = expect<dat::ib::datagram_established>(a.evd);
  CHECK_FALSE(at_a.is_passive());
  CHECK(at_a.ep() == active);
  CHECK(at_a.remote_address() == b.ia.address().with_port(service.port()));
  CHECK(std::ranges::equal(at_a.private_data(), bytes_of("welcome")));
  SHOWS("IBX-058", "CONN-036");
  CHECK((is_numbered(at_a, 0x40002, 6) && is_numbered(at_b, 0x40002, 7)));
  SHOWS("IBX-004", "IBX-007");
  const auto to_a = must(at_b.peer());
  const auto to_b = must(at_a.peer());
  CHECK(to_a.qp_number() == active.number());
  CHECK(to_b.qp_number() == passive.number());
  CHECK(to_b.qkey() == dat::ib::default_qkey);
  CHECK(to_a.native_handle() != nullptr);
  SHOWS("IBX-013", "CR-050", "CONN-036", "CONN-072", "IBX-057", "IBX-058", "IBX-060");

  // The side that accepted sends first.
  buffer from_b(b.pz, 100);
  buffer into_a(a.pz, 140);
  fill(from_b.bytes, 7);
  must(active.post(dat::recv{into_a.lmr}.cookie(3)));
  must(passive.post(dat::ib::send_to{from_b.lmr, to_a}.cookie(4)));
  const auto sent = expect<dat::ib::datagram_send_done>(b.evd);
  CHECK(sent.cookie() == dat::cookie(4));
  CHECK(sent.bytes() == 100);
  CHECK(sent.ep() == passive);
  const auto got = expect<dat::ib::datagram_recv_done>(a.evd);
  CHECK(got.cookie() == dat::cookie(3));
  CHECK(got.ep() == active);
  CHECK((got.bytes() == 140 && got.payload_bytes() == 100));
  CHECK(has_pattern(dat::ib::datagram_view(got, into_a.lmr).payload(), 7));
  CHECK(got.source_qp_number() == passive.number());
  CHECK((is_numbered(sent, 0x40000, 8) && is_numbered(got, 0x40000, 9)));
  SHOWS("IBX-005", "IBX-007", "IBX-065");
}

TEST_CASE("an address from another channel works, and a wrong key or a missing peer gives no event",
          "[ud][IBX-013][IBX-053][IBX-060][DOCA-007]") {
  NEEDS_FEATURE(datagrams);
  ud_pair link;
  const auto where = must(link.passive.address());
  CHECK(where.qp_number == link.passive.number());
  CHECK(where == dat::ib::datagram_address::at(link.b.ia.address(), link.passive.number()));
  auto other = link.a.make_ep();
  const auto peer = must(other.address_of(where));
  auto wrong = where;
  wrong.qkey ^= 1;
  const auto stranger = must(other.address_of(wrong));
  // No receive is posted, so the first is lost; the second has the wrong key; the third arrives.
  must(other.post(dat::ib::send_to{link.out.slice(0, 1), peer}));
  (void)expect<dat::ib::datagram_send_done>(link.a.evd);
  must(link.passive.post(dat::recv{link.in.lmr}));
  must(other.post(dat::ib::send_to{link.out.slice(0, 2), stranger}, dat::ib::send_to{link.out.slice(0, 3), peer}));
  (void)expect<dat::ib::datagram_send_done>(link.a.evd);
  (void)expect<dat::ib::datagram_send_done>(link.a.evd);
  std::size_t arrived = expect<dat::ib::datagram_recv_done>(link.b.evd).payload_bytes();
  if (arrived == 1) { // On a busy machine, the first datagram can be so late that it finds the receive.
    must(link.passive.post(dat::recv{link.in.lmr}));
    must(other.post(dat::ib::send_to{link.out.slice(0, 3), peer}));
    (void)expect<dat::ib::datagram_send_done>(link.a.evd);
    arrived = expect<dat::ib::datagram_recv_done>(link.b.evd).payload_bytes();
  }
  CHECK(arrived == 3);
}

TEST_CASE("unsupported calls on a datagram endpoint are refused without loss",
          "[ud][IBX-066][IBX-067][IBX-040][IBX-064]") {
  NEEDS_FEATURE(datagrams);
  ud_pair link;
  buffer foreign(link.b.pz, 10);
  CHECK(error_of(link.active.post(dat::ib::send_to{foreign.slice(0, 1), link.to_b})).type() ==
        type::protection_violation);
  CHECK(error_of(link.active.post(dat::ib::send_to{link.out.slice(0, 1), link.to_a})).type() ==
        type::protection_violation);
  CHECK(error_of(link.active.post(dat::ib::send_to{link.out.slice(0, 1), address{}})).type() ==
        type::protection_violation);
  CHECK(error_of(link.active.post(dat::ib::send_to{link.out.slice(0, 1), link.to_b}.suppress_notification())).type() ==
        type::invalid_parameter);
  // Requests for connections are posted through an ep_ref, whose type does not forbid them.
  const dat::ep_ref name = link.active;
  CHECK(name.state() == state::connected); // the state of each endpoint until a disconnect: there is no other
  CHECK(error_of(name.post(dat::send{link.out.slice(0, 1)})).type() == type::invalid_handle);
  CHECK(error_of(name.post(dat::rdma_write{link.out.slice(0, 1), link.in.remote(0, 1)})).type() ==
        type::invalid_handle);
  CHECK(error_of(name.post(dat::rdma_read{link.out.slice(0, 1), link.in.remote(0, 1)})).type() == type::invalid_handle);
  std::array<std::uint64_t, 2> values{};
  const auto words =
      must(link.a.pz.register_memory(values, all_rights | dat::remote_atomic)); // the peer's rights do not matter
  const auto word = must(words.slice(0, 1));
  CHECK(error_of(name.post(dat::ib::fetch_and_add{word, words.remote(), 1})).type() == type::invalid_handle);
  CHECK(error_of(name.post(dat::ib::compare_and_swap{word, words.remote(), 0, 1})).type() == type::invalid_handle);
  CHECK(is_empty(link.a.evd));
  dat::batch<2> batch;
  REQUIRE(batch.push_back(dat::send{link.out.slice(0, 1)}));
  CHECK(error_of(name.post(batch)).type() == type::invalid_handle);
  must(link.passive.post(dat::recv{link.in.lmr}));
  must(link.active.post(dat::ib::send_to{link.out.slice(0, 1), link.to_b}));
  (void)expect<dat::ib::datagram_recv_done>(link.b.evd);
  CHECK(error_of(link.active.connect(link.b.ia.address(), link.port(), 0s)).type() == type::invalid_parameter);
  CHECK(error_of(link.active.connect(link.b.ia.address(), link.port(), 1s, pattern(129, 1))).type() ==
        type::invalid_parameter);
  // Two refusals are those of a send: memory that is no longer registered, and a full queue.
  std::array<std::byte, 8> bytes{};
  auto closed = must(link.a.pz.register_memory(bytes, all_rights));
  must(closed.close());
  CHECK(error_of(link.active.post(dat::ib::send_to{closed, link.to_b})) ==
        dat::error(type::privileges_violation, subtype::privileges_read));
  auto one = link.a.make_ep({.max_request_dtos = 1});
  const auto there = must(one.address_of(must(link.passive.address())));
  must(one.post(dat::ib::send_to{there}));
  CHECK(error_of(one.post(dat::ib::send_to{there})) == dat::error(type::insufficient_resources, subtype::resource_tep));
}

TEST_CASE("a datagram request that is rejected, dropped or unanswered gives an event, and another may follow",
          "[ud][IBX-056][CONN-036][CONN-072][CR-051][CR-065]") {
  NEEDS_FEATURE(datagrams);
  ud_pair link;
  must(link.active.connect(link.b.ia.address(), link.port(), patience));
  {
    auto request = expect<dat::ib::datagram_request>(link.b.evd);
    CHECK(error_of(request.reject(pattern(129, 1))).type() == type::invalid_parameter);
    const auto why = pattern(20, 3);
    must(request.reject(why));
    CHECK(std::ranges::equal(expect<dat::peer_rejected>(link.a.evd).private_data(), why)); // exactly
  }
  must(link.active.connect(link.b.ia.address(), link.port(), patience));
  (void)expect<dat::ib::datagram_request>(link.b.evd); // dropped
  CHECK(expect<dat::peer_rejected>(link.a.evd).private_data().empty());
  must(link.active.connect(link.b.ia.address(), next_port(), patience));
  (void)expect<dat::non_peer_rejected>(link.a.evd);
  must(link.active.connect(link.b.ia.address(), link.port(), unanswered_limit)); // no program answers
  (void)expect<dat::connection_timed_out>(link.a.evd);
  (void)expect<dat::ib::datagram_request>(link.b.evd);
  if (in_lab()) { // whose network is known to have no such host
    must(link.active.connect(must(dat::ia_address::parse("10.78.1.99")), link.port(), std::chrono::milliseconds(300)));
    CHECK(expect<dat::connection_unreachable>(link.a.evd).ep() == link.active);
  }
  CHECK(link.active.state() == state::connected);
  // Both endpoints can connect again after a request and its answer.
  for (int i = 0; i < 2; ++i) {
    must(link.active.connect(link.b.ia.address(), link.port(), patience));
    must(expect<dat::ib::datagram_request>(link.b.evd).accept(link.passive));
    CHECK(expect<dat::ib::datagram_established>(link.b.evd).ep() == link.passive);
    CHECK(expect<dat::ib::datagram_established>(link.a.evd).ep() == link.active);
    CHECK((link.active.state() == state::connected && link.passive.state() == state::connected));
  }
  must(link.active.connect(link.b.ia.address(), link.port(), patience));
  must(expect<dat::ib::datagram_request>(link.b.evd).accept(link.passive));
  (void)expect<dat::ib::datagram_established>(link.b.evd);
  const auto peer = must(expect<dat::ib::datagram_established>(link.a.evd).peer());
  reach(link.a, link.active, peer, link.b, link.passive);
  SHOWS("CONN-072");
  // The endpoint that has accepted can ask for others as well.
  must(link.passive.connect(link.a.ia.address(), next_port(), patience));
  CHECK(expect<dat::non_peer_rejected>(link.b.evd).ep() == link.passive);
  CHECK(link.passive.state() == state::connected);
}

TEST_CASE("connection and datagram requests at one qualifier arrive with their own types",
          "[ud][PSP-028][IBX-055][CR-018]") {
  NEEDS_FEATURE(datagrams);
  ud_pair link;
  const auto at = next_port();
  auto psp = must(dat::ib::service_point::listen(link.b.ia, at, link.b.evd));
  CHECK(psp.port() == at.port());
  auto connecting = must(link.a.pz.create_ep<dat::rc>(link.a.evd));
  must(connecting.connect(link.b.ia.address(), at, patience));
  auto request = expect<dat::connection_request>(link.b.evd);
  CHECK(request.service() == psp.id());
  CHECK(error_of(request.handoff(link.port())).type() == type::invalid_parameter);
  SHOWS("CR-067"); // no service point for connections has that qualifier
  // A request for a connection is not accepted on an endpoint for datagrams, and both stay as they were.
  CHECK(error_of(request.accept(link.passive)) == dat::error(type::invalid_handle, subtype::handle_ep));
  CHECK(link.passive.state() == state::connected);
  SHOWS("CR-027");
  must(request.reject());
  (void)expect<dat::peer_rejected>(link.a.evd);
  must(link.active.connect(link.b.ia.address(), at, patience));
  must(expect<dat::ib::datagram_request>(link.b.evd).accept(link.passive));
  CHECK(expect<dat::ib::datagram_established>(link.b.evd).ep() == link.passive);
  CHECK(expect<dat::ib::datagram_established>(link.a.evd).ep() == link.active);
  CHECK(error_of(link.b.ia.create_psp(at, link.b.evd)).type() == type::conn_qual_in_use);
  CHECK(error_of(dat::ib::datagram_service::listen(link.b.ia, at, link.b.evd)).type() == type::conn_qual_in_use);
  // Where one kind is taken, the service point does not take the other kind either.
  CHECK(error_of(dat::ib::service_point::listen(link.b.ia, link.port(), link.b.evd)).type() == type::conn_qual_in_use);
  must(must(link.b.ia.create_psp(link.port(), link.b.evd)).close());
  must(psp.close());
  CHECK_FALSE(psp);
  CHECK(error_of(psp.close()).type() == type::invalid_handle);
  psp = must(dat::ib::service_point::listen(link.b.ia, at, link.b.evd)); // both are free again
}

TEST_CASE("a datagram request can be handed to another datagram service of the ia", "[ud][CR-018]") {
  NEEDS_FEATURE(datagrams);
  ud_pair link;
  auto other = must(link.b.ia.create_evd<known_datagrams::streams>(4));
  const auto at = next_port();
  const auto second = must(dat::ib::datagram_service::listen(link.b.ia, at, other));
  const auto psp_alone = next_port();
  const auto psp = must(link.b.ia.create_psp(psp_alone, link.b.evd));
  const auto data = pattern(20, 3);
  must(link.active.connect(link.b.ia.address(), link.port(), patience, data));
  auto request = expect<dat::ib::datagram_request>(link.b.evd);
  const auto bad = dat::error(type::invalid_parameter, subtype::arg2);
  CHECK(error_of(request.handoff(link.port())) == bad); // it is there
  CHECK(error_of(request.handoff(psp_alone)) == bad);   // a service point for connections alone
  CHECK(error_of(request.handoff(next_port())) == bad);
  must(request.handoff(at));
  CHECK_FALSE(request);
  CHECK(error_of(request.handoff(at)).type() == type::invalid_handle);
  auto there = expect<dat::ib::datagram_request>(other);
  CHECK(std::ranges::equal(there.private_data(), data));
  CHECK(error_of(there.handoff(at)) == bad);
  must(there.handoff(link.port())); // and back
  must(expect<dat::ib::datagram_request>(link.b.evd).accept(link.passive));
  CHECK(expect<dat::ib::datagram_established>(link.b.evd).ep() == link.passive);
  CHECK(expect<dat::ib::datagram_established>(link.a.evd).ep() == link.active);
}

TEST_CASE("disconnect flushes posted operations, and reset makes the endpoint ready again",
          "[ud][IBX-068][IBX-069][DISC-040]") {
  NEEDS_FEATURE(datagrams);
  ud_pair link;
  must(link.passive.post(dat::recv{link.in.lmr}.cookie(8)));
  must(link.passive.disconnect());
  must(link.passive.disconnect());
  CHECK(link.passive.state() == state::disconnected);
  CHECK(error_of(link.passive.connect(link.a.ia.address(), link.port(), patience)) ==
        dat::error(type::invalid_state, subtype::ep_disconnected));
  SHOWS("EPS-001");
  std::size_t flushed = 0;
  for (int i = 0; i < 2; ++i) {
    auto e = must(link.b.evd.wait(patience));
    if (const auto* f = std::get_if<dat::dto_failure>(&e)) {
      CHECK(f->status() == dat::dto_status::flushed);
      CHECK(f->cookie() == dat::cookie(8));
      CHECK(f->operation() == dat::dto_operation::recv_ud);
      CHECK(f->ep() == link.passive);
      ++flushed;
    } else {
      CHECK(std::holds_alternative<dat::disconnected>(e));
    }
  }
  CHECK(flushed == 1);
  CHECK(is_empty(link.a.evd)); // a datagram endpoint has no connection that a peer could lose
  // A post is flushed at once.
  must(link.passive.post(dat::recv{link.in.lmr}.cookie(9)));
  CHECK(expect<dat::dto_failure>(link.b.evd).cookie() == dat::cookie(9));
  must(link.passive.post(dat::ib::send_to{link.in.slice(0, 1), link.to_a}.cookie(10)));
  const auto unsent = expect<dat::dto_failure>(link.b.evd);
  CHECK(unsent.status() == dat::dto_status::flushed);
  CHECK(unsent.operation() == dat::dto_operation::send_ud);
  SHOWS("IBX-066"); // like a send in this state
  const auto old = link.passive.number();
  must(link.passive.reset());
  CHECK(link.passive.state() == state::connected);
  CHECK(link.passive.number() != old);
  must(link.active.post(dat::recv{link.back.lmr}));
  must(link.passive.post(dat::ib::send_to{link.in.slice(0, 1), link.to_a})); // the address handle is the old one
  (void)expect<dat::ib::datagram_recv_done>(link.a.evd);
  // A close ends posted operations without a reset: the posted receive gives no event, and its memory may be reused.
  (void)expect<dat::ib::datagram_send_done>(link.b.evd);
  must(link.passive.post(dat::recv{link.in.lmr}.cookie(11)));
  must(link.passive.close());
  must(link.in.lmr.close());
  CHECK(is_empty(link.b.evd));
  CHECK(error_of(link.passive.post(dat::recv{})).type() == type::invalid_handle);
  CHECK(error_of(link.passive.address_of({})).type() == type::invalid_handle);
}

} // namespace device
