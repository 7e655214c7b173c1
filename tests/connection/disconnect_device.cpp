// The end of connections on a device: abrupt, graceful, by a close, by the death of the peer; and the next connection.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include "device_checks.hpp"
#include "device_table.hpp"

#include <dat/ep_params.hpp>
#include <dat/rmr.hpp>

namespace device {

TEST_CASE("either side ends a connection abruptly, and each side gets one event", "[connection]") {
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  const bool by_active = GENERATE(true, false);
  connected_pair link({.progress = how});
  post_receives(link.active, 16);
  post_receives(link.passive, 16);
  must((by_active ? link.active : link.passive).disconnect());
  CHECK((by_active ? link.active : link.passive).state() == state::disconnected);
  SHOWS("DISC-005");
  // The queue pair has ended the outstanding operations before either side is notified. (siw does not report its
  // state.)
  if (this_device().name == "rxe") {
    ibv_qp_attr now{};
    ibv_qp_init_attr init{};
    REQUIRE(ibv_query_qp((by_active ? link.active : link.passive).native_handle(), &now, IBV_QP_STATE, &init) == 0);
    CHECK(now.qp_state == IBV_QPS_ERR);
    SHOWS("DISC-007", "DISC-043");
  }
  for (const auto& events : {link.take_a(17), link.take_b(17)}) {
    INFO(sequence(events));
    CHECK(count_of<dat::dto_failure>(events) == 16);
    SHOWS("DISC-010", "EPS-064");
    CHECK(count_of<dat::disconnected>(events) == 1);
    SHOWS("CONN-028", "DISC-001", "DISC-018", "DISC-026", "EPS-055", "EPS-057", "EVENT-098", "REQ-070", "REQ-078",
          "MODEL-054", "DISC-007");
  }
  CHECK(link.active.state() == state::disconnected);
  CHECK(link.passive.state() == state::disconnected);
  CHECK(is_empty(link.a.evd));
  CHECK(is_empty(link.b.evd));
}

TEST_CASE("both sides may end a connection at the same time", "[connection][DISC-027][EVENT-098][DISC-007]") {
  connected_pair link;
  for (int round = 0; round < 30; ++round) {
    support::worker other([&](support::worker& w) { w.check(link.passive.disconnect().has_value()); });
    must(link.active.disconnect());
    other.join();
    (void)next<dat::disconnected>(link.a.evd);
    (void)next<dat::disconnected>(link.b.evd);
    must(link.active.reset());
    must(link.passive.reset());
    link.connect(link.active, link.passive);
    CHECK(is_empty(link.a.evd));
    CHECK(is_empty(link.b.evd));
  }
}

TEST_CASE("a graceful disconnect completes all requests first",
          "[connection][DISC-008][DISC-009][EPS-049][EPS-051][EPS-052][REQ-072][DISC-019]") {
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  const bool suppressed = GENERATE(false, true);
  const bool by_active = GENERATE(true, false);
  connected_pair link({.progress = how});
  side& from = by_active ? link.a : link.b;
  side& to = by_active ? link.b : link.a;
  endpoint& ep = by_active ? link.active : link.passive;
  constexpr std::size_t count = 64;
  constexpr std::size_t size = 16 * 1024;
  buffer out(from.pz, count * size);
  buffer in(to.pz, count * size);
  fill(out.bytes, 11);
  for (std::size_t i = 0; i < count; ++i) {
    dat::rdma_write write(out.slice(i * size, size), in.remote(i * size, size));
    if (suppressed) write.suppress_completion();
    must(ep.post(write.cookie(i)));
  }
  must(ep.disconnect(dat::close_mode::graceful));
  if (by_active)
    (void)link.at_b<dat::disconnected>();
  else
    (void)link.at_a<dat::disconnected>();
  CHECK(has_pattern(in.bytes, 11));
  const auto events = take(from.evd, (suppressed ? 0 : count) + 1);
  INFO(sequence(events));
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    const auto* done = std::get_if<dat::rdma_write_done>(&events[i]);
    REQUIRE(done);
    CHECK(done->cookie() == dat::cookie(i));
  }
  CHECK(std::holds_alternative<dat::disconnected>(events.back()));
  SHOWS("EPS-058");
  CHECK(ep.state() == state::disconnected);
}

TEST_CASE("a graceful disconnect delayed by the peer refuses requests and can be made abrupt", "[connection]") {
  if (!this_device().waits_for_receives) SKIP("this device ends a connection whose message finds no receive");
  connected_pair link({.active = {.max_request_dtos = 1}});
  buffer memory(link.a.pz, 64);
  must(link.active.post(dat::send{memory.slice(0, 64)}.cookie(1))); // the peer has posted no receive
  CHECK(error_of(link.active.post(dat::send{})).type() == type::insufficient_resources); // and the queue is full
  must(link.active.disconnect(dat::close_mode::graceful));
  CHECK(link.active.state() == state::disconnect_pending);
  SHOWS("DISC-001", "DISC-030", "DISC-033");
  const auto pending = dat::error(type::invalid_state, subtype::ep_discpending);
  SHOWS("DISC-033", "EPS-049");
  CHECK(error_of(link.active.post(dat::send{})) == pending);
  CHECK(error_of(link.active.post(dat::rdma_write{memory.slice(0, 1), memory.remote()})) == pending);
  CHECK(error_of(link.active.post(dat::rdma_read{memory.slice(0, 1), memory.remote()})) == pending);
  CHECK(error_of(link.active.post(dat::send_with_invalidate{memory.remote()})) == pending);
  CHECK(error_of(link.active.post(dat::rdma_write{memory.slice(0, 1), memory.remote()}.immediate(1))) == pending);
  CHECK(error_of(link.active.post(dat::send{}.immediate(1))) == pending);
  SHOWS("DISC-011", "EPS-001", "REQ-072");
  const dat::local_segment<std::uint64_t, dat::mem_priv::local_write> old_value;
  const dat::remote_segment<std::uint64_t, dat::mem_priv::remote_atomic> word;
  CHECK(error_of(link.active.post(dat::ib::fetch_and_add{old_value, word, 1})) == pending);
  CHECK(error_of(link.active.post(dat::ib::compare_and_swap{old_value, word, 1, 2})) == pending);
  CHECK(error_of(link.active.connect(link.target(), link.port(), patience)) == pending);
  CHECK(error_of(link.active.reset()) == pending);
  must(link.active.post(dat::recv{}.cookie(2)));
  CHECK(must(link.active.recv_query()).allocated == 1);
  SHOWS("EPS-050");
  must(link.active.disconnect(dat::close_mode::graceful)); // no effect
  CHECK(link.active.state() == state::disconnect_pending);
  SHOWS("DISC-012");
  CHECK(is_empty(link.a.evd));
  SHOWS("DISC-014");

  SECTION("an abrupt disconnect ends the graceful disconnect") {
    STATIC_REQUIRE((dat::close_mode{0} == dat::close_mode::abrupt && dat::close_mode{1} == dat::close_mode::graceful));
    must(link.active.disconnect()); // abrupt is the default
    CHECK(link.active.state() == state::disconnected);
    SHOWS("DISC-002", "DISC-013", "EPS-053", "EPS-054");
    const auto events = take(link.a.evd, 3);
    INFO(sequence(events));
    CHECK(count_of<dat::dto_failure>(events) == 2);
    CHECK(count_of<dat::disconnected>(events) == 1);
    CHECK(next<dat::disconnected>(link.b.evd).ep() == link.passive);
    SHOWS("EPS-055");
  }
  SECTION("a disconnect of the peer, of either kind, ends the graceful disconnect") {
    must(link.passive.disconnect(GENERATE(dat::close_mode::abrupt, dat::close_mode::graceful)));
    const auto events = take(link.a.evd, 3);
    INFO(sequence(events));
    CHECK(count_of<dat::dto_failure>(events) == 2);
    CHECK(count_of<dat::disconnected>(events) == 1);
    SHOWS("DISC-016");
    (void)next<dat::disconnected>(link.b.evd);
  }
  SECTION("a failed request breaks the connection and ends the graceful disconnect") {
    buffer room(link.b.pz, 8);
    must(link.passive.post(dat::recv{room.lmr})); // shorter than the message
    const auto events = take(link.a.evd, 3);
    INFO(sequence(events));
    CHECK(count_of<dat::dto_failure>(events) == 2);
    // The peer detects the failure, too. On a busy machine the peer may be the first to end the connection.
    CHECK(count_of<dat::connection_broken>(events) + count_of<dat::disconnected>(events) == 1);
    CHECK(link.active.state() == state::disconnected);
    CHECK(count_of<dat::dto_failure>(take(link.b.evd, 2)) == 1);
    SHOWS("DISC-015");
  }
  SECTION("a receive at the peer completes the graceful disconnect") {
    buffer room(link.b.pz, 64);
    must(link.passive.post(dat::recv{room.slice(0, 64)}));
    CHECK(next<dat::recv_done>(link.b.evd).bytes() == 64);
    (void)next<dat::disconnected>(link.b.evd);
    (void)next<dat::send_done>(link.a.evd);
    const auto events = take(link.a.evd, 2);
    INFO(sequence(events));
    CHECK(count_of<dat::disconnected>(events) == 1);
    CHECK(count_of<dat::dto_failure>(events) == 1); // the receive
  }
  CHECK(is_empty(link.a.evd));
}

TEST_CASE("a graceful disconnect does not wait for the requests of the peer", "[connection][DISC-017]") {
  if (!this_device().waits_for_receives) SKIP("this device ends a connection whose message finds no receive");
  connected_pair link;
  must(link.passive.post(dat::send{}.cookie(1000))); // the peer never posts a receive for it
  must(link.active.disconnect(dat::close_mode::graceful));
  (void)next<dat::disconnected>(link.a.evd);
  (void)ends_with<dat::disconnected>(link.b.evd, 1);
  CHECK(link.passive.state() == state::disconnected);
}

TEST_CASE("one endpoint connects a hundred times", "[connection]") {
  connected_pair link;
  exchange(link);
  const int rounds = dat::detail::thread_sanitizer ? 20 : 100; // with it, the threads of twenty show what there is
  for (int round = 0; round < rounds; ++round) {
    const auto old_number = link.active.number();
    const bool by_active = round % 2 == 0;
    must((by_active ? link.active : link.passive).disconnect());
    (void)next<dat::disconnected>(link.a.evd);
    (void)next<dat::disconnected>(link.b.evd);
    must(link.active.reset());
    must(link.passive.reset());
    CHECK((link.active.state() == state::unconnected && link.passive.state() == state::unconnected));
    CHECK((is_empty(link.a.evd) && is_empty(link.b.evd))); // a reset gives no event
    SHOWS("DISC-044", "EPS-070");
    CHECK(link.active.number() != old_number);
    SHOWS("EPS-003");
    link.connect(link.active, link.passive);
    CHECK((link.active.state() == state::connected && link.passive.state() == state::connected));
    CHECK((is_empty(link.a.evd) && is_empty(link.b.evd)));
    SHOWS("DISC-049", "EPS-069");
    if (round % 10 == 0) exchange(link);
  }
  exchange(link);
  SHOWS("EPS-002", "REQ-182");
}

TEST_CASE("completions that were not taken before a reset do not appear in the next connection",
          "[connection][DISC-047]") {
  two_sides link;
  auto completions_only = must(link.a.ia.create_evd<dat::stream::dto>(16));
  auto ep = must(
      link.a.pz.create_ep<dat::rc>({.recv = completions_only, .request = completions_only, .connect = link.a.evd}));
  auto other = link.b.make_ep();
  for (int round = 0; round < 10; ++round) {
    link.connect(ep, other);
    CHECK(is_empty(completions_only));
    must(ep.post(dat::recv{}.cookie(1)));
    if (round % 2 != 0) {
      must(other.post(dat::send{}));
      CHECK(next<dat::recv_done>(completions_only).cookie() == dat::cookie(1));
      (void)next<dat::send_done>(link.b.evd);
    }
    link.disconnect(ep, other);
    must(ep.reset());
    must(other.reset());
  }
}

TEST_CASE("closing a connected endpoint gives an event at the peer only", "[connection]") {
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  connected_pair link({.progress = how});
  auto memory = std::make_unique<buffer>(link.a.pz, 4096);
  const auto closing = GENERATE(true, false);
  for (int i = 0; i < 8; ++i) must(link.active.post(dat::recv{memory->slice(0, 4096)}.cookie(i)));
  must(link.active.post(dat::send{memory->slice(0, 64)})); // the peer has no receive, so the send stays outstanding
  if (closing)
    must(link.active.close());
  else
    link.active = {};
  CHECK_FALSE(link.active);
  memory.reset();           // the adapter has stopped using the memory
  CHECK(link.a.pz.close()); // nor does the endpoint use its zone
  SHOWS("EP-037");
  link.a.pz = must(link.a.ia.create_pz());
  (void)next<dat::disconnected>(link.b.evd);

  // The endpoint has neither events nor completions, and the evd serves another endpoint.
  CHECK(is_empty(link.a.evd));
  SHOWS("DISC-037", "EP-035", "EP-036", "EP-039", "EPS-085", "REQ-045"); // this thread takes the events of both sides
  auto another = link.a.make_ep();
  auto passive = link.b.make_ep();
  link.connect(another, passive);
  exchange(link.a.evd, another, link.b.evd, passive);
  SHOWS("COMP-074", "EPS-075");
  must(another.close());
  must(passive.close());
  must(link.passive.close());
  must(link.psp.close());
  for (side* s : {&link.a, &link.b}) {
    must(s->evd.close());
    must(s->pz.close());
    must(s->ia.close(dat::close_mode::graceful));
    CHECK_FALSE(s->ia);
    SHOWS("EP-038");
  }
}

TEST_CASE("closing an adapter abruptly ends all its connections",
          "[connection][DISC-038][IA-047][EVENT-007][MODEL-051][REQ-182]") {
  two_sides link;
  std::vector<endpoint> actives;
  std::vector<endpoint> passives;
  for (int i = 0; i < 10; ++i) {
    actives.push_back(link.a.make_ep());
    passives.push_back(link.b.make_ep());
    link.connect(actives.back(), passives.back());
  }
  // Another connection goes to another instance of the same adapter.
  side c(0);
  const auto port = next_port();
  const auto psp = must(c.ia.create_psp(port, c.evd));
  auto active = link.a.make_ep();
  auto passive = c.make_ep();
  must(active.connect(c.ia.address(), port, patience));
  must(next<dat::connection_request>(c.evd).accept(passive));
  (void)link.at_a<dat::established>(active);
  (void)next<dat::established>(c.evd);
  exchange(link.a.evd, actives.front(), link.b.evd, passives.front());
  exchange(link.a.evd, active, c.evd, passive);
  must(link.a.ia.close());
  CHECK(count_of<dat::disconnected>(take(link.b.evd, 10)) == 10);
  CHECK(next<dat::disconnected>(c.evd).ep() == passive);
}

namespace {

/// Accepts one connection, and runs until its parent closes the channel.
int serve_role(channel& to, const std::vector<std::string>&) {
  side b(1);
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  to.say(std::to_string(port.port()));
  auto request = must(b.evd.wait_for<dat::connection_request>(patience));
  buffer memory(b.pz, 4096);
  auto ep = b.make_ep();
  for (int i = 0; i < 4; ++i) must(ep.post(dat::recv{memory.slice(0, 4096)}));
  must(request.accept(ep, memory.lmr.remote().to_wire()));
  must(b.evd.wait_for<dat::established>(patience));
  to.say("connected");
  (void)to.closed();
  return 0;
}
const role serve_registered("serve", &serve_role);

} // namespace

TEST_CASE("a killed peer process is reported as disconnected", "[connection][CONN-030][DISC-039]") {
  const bool busy = GENERATE(false, true);
  side a(0);
  peer_process peer("serve");
  const auto port = must(dat::conn_qual::make(std::stoul(peer.hear())));
  auto ep = a.make_ep();
  must(ep.post(dat::recv{}));
  must(ep.connect(addresses()[1], port, patience));
  const auto up = must(a.evd.wait_for<dat::established>(patience));
  const auto there = must(window::from_wire(up.private_data()));
  CHECK(peer.hear() == "connected");
  buffer memory(a.pz, 4096);
  if (busy)
    for (int i = 0; i < 32; ++i) must(ep.post(dat::rdma_write{memory.slice(0, 4096), must(there.slice(0, 4096))}));
  peer.kill();
  // The state changes although no thread takes events.
  CHECK(comes_true([&] { return ep.state() == state::disconnected; }));
  // There is exactly one end event; the receive and the writes that did not arrive are flushed or fail.
  int ended = 0;
  int completed = 0;
  while (ended == 0 || completed < (busy ? 33 : 1)) {
    auto e = must(a.evd.wait(patience));
    if (std::holds_alternative<dat::disconnected>(e) || (busy && std::holds_alternative<dat::connection_broken>(e)))
      ++ended;
    else if (std::holds_alternative<dat::dto_failure>(e) || std::holds_alternative<dat::rdma_write_done>(e))
      ++completed;
    else
      FAIL(describe(e));
  }
  CHECK(ended == 1);
  if (!busy) DEVIATES("REQ-079", "CONN-029"); // in this round, connection_broken would fail the test
  CHECK(ep.state() == state::disconnected);
  CHECK(is_empty(a.evd));
  CHECK(is_empty(a.ia.async_evd())); // nor is there an event about paths
  SHOWS("HA-016");
}

} // namespace device
