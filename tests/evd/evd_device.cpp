// Event dispatchers on a device: the order of events, their endpoints, lengths, and dropped events.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"

#include <dat/ep_params.hpp>

#include <algorithm>
#include <set>
#include <thread>

namespace device {

TEST_CASE("established comes before the first completion, however fast the peer sends",
          "[evd][CONN-020][CR-036][EPS-024][EVENT-035][REQ-150][EVENT-004]") {
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  two_sides link({.progress = how});
  auto active = link.a.make_ep();
  auto passive = link.b.make_ep();
  for (int round = 0; round < 30; ++round) {
    must(passive.post(dat::recv{}.cookie(round)));
    must(active.connect(link.target(), link.port(), patience));
    auto request = link.at_b<dat::connection_request>();
    must(request.accept(passive));
    (void)link.at_a<dat::established>(); // the send follows at once
    must(active.post(dat::send{}));
    const auto events = link.take_b(2);
    INFO(sequence(events));
    REQUIRE(std::holds_alternative<dat::established>(events[0]));
    REQUIRE(std::holds_alternative<dat::recv_done>(events[1]));
    CHECK(std::get<dat::recv_done>(events[1]).cookie() == dat::cookie(round));
    (void)link.at_a<dat::send_done>();
    must(active.disconnect());
    (void)link.at_a<dat::disconnected>();
    (void)link.at_b<dat::disconnected>();
    must(active.reset());
    must(passive.reset());
  }
}

TEST_CASE("no successful completion comes after disconnected", "[evd][EVENT-037]") {
  connected_pair link;
  const int rounds = dat::detail::thread_sanitizer ? 18 : 90; // 18 have each number of sends with each close_mode
  for (int round = 0; round < rounds; ++round) {
    const int receives = 8;
    const int sends = round % (receives + 1);
    for (int i = 0; i < receives; ++i) must(link.passive.post(dat::recv{}.cookie(i)));
    for (int i = 0; i < sends; ++i) must(link.active.post(dat::send{}.suppress_completion()));
    must(link.active.disconnect(round % 2 == 0 ? dat::close_mode::graceful : dat::close_mode::abrupt));
    const auto events = take(link.b.evd, receives + 1);
    INFO("round " << round << ": " << sequence(events));
    bool over = false;
    bool failed = false;
    int next_cookie = 0;
    for (const auto& e : events) {
      if (std::holds_alternative<dat::disconnected>(e)) {
        CHECK_FALSE(over);
        over = true;
      } else if (const auto* r = std::get_if<dat::recv_done>(&e)) {
        CHECK_FALSE(over);
        CHECK_FALSE(failed);
        CHECK(r->cookie() == dat::cookie(next_cookie++));
      } else {
        const auto* f = std::get_if<dat::dto_failure>(&e);
        REQUIRE(f);
        CHECK(f->cookie() == dat::cookie(next_cookie++));
        failed = true;
      }
    }
    CHECK(over);
    SHOWS("DISC-006", "DISC-019", "EPS-058", "EPS-064", "EVENT-036", "REQ-150");
    // After a graceful disconnect all messages have arrived.
    if (round % 2 == 0) CHECK(count_of<dat::recv_done>(events) == static_cast<std::size_t>(sends));
    CHECK(is_empty(link.b.evd));
    SHOWS("EPS-069");
    for (;;) { // flushed suppressed sends may come before or after that event
      const auto e = take(link.a.evd, 1);
      if (std::holds_alternative<dat::disconnected>(e.front())) break;
      REQUIRE(std::holds_alternative<dat::dto_failure>(e.front()));
    }
    must(link.active.reset());
    must(link.passive.reset());
    link.a.evd.drain([](const auto&) {}, 64);
    link.connect(link.active, link.passive);
  }
}

TEST_CASE("an event is queued after everything that it reports has happened", "[evd][CONN-017][EPS-004][EVENT-093]"
                                                                              "[MODEL-009][REQ-158]") {
  two_sides link;
  auto active = link.a.make_ep();
  auto passive = link.b.make_ep();
  auto cno = must(link.a.ia.create_cno());
  must(link.a.evd.modify_cno(cno));
  for (int round = 0; round < 30; ++round) {
    must(active.connect(link.target(), link.port(), patience));
    while (cno.wait(0s)) { // takes the triggers of earlier events
    }
    must(link.at_b<dat::connection_request>().accept(passive));
    CHECK(must(cno.wait(patience)) == link.a.evd.id());
    CHECK(active.state() == state::connected); // when the cno is triggered
    SHOWS("EVENT-004");
    (void)link.at_a<dat::established>();
    CHECK(active.state() == state::connected);
    (void)link.at_b<dat::established>();
    CHECK(passive.state() == state::connected);
    must(passive.disconnect());
    (void)link.at_a<dat::disconnected>();
    CHECK(active.state() == state::disconnected);
    (void)link.at_b<dat::disconnected>();
    must(active.reset());
    must(passive.reset());
    CHECK(is_empty(link.a.evd));
    CHECK(is_empty(link.b.evd));
  }
}

TEST_CASE("the adapter advances a connection when no thread takes its events", "[evd][EVENT-005][EPS-015]") {
  two_sides link;
  auto active = link.a.make_ep();
  auto passive = link.b.make_ep();
  must(active.connect(link.target(), link.port(), patience));
  must(link.at_b<dat::connection_request>().accept(passive));
  (void)link.at_b<dat::established>(); // the other side has sent the last handshake message
  while (active.state() == state::active_connection_pending) std::this_thread::yield();
  CHECK(active.state() == state::connected);
  CHECK(must(active.query()).state == state::connected);
  const auto queued = link.a.evd.wait_for<dat::established>(0s); // the event was queued with the change of the state
  CHECK(queued);
  SHOWS("EPS-004");
  CHECK(must(queued).ep() == active);
}

TEST_CASE("wait, dequeue and drain take the same events in the same order",
          "[evd][EVD-045][EVD-052][EVD-064][EVENT-040][EVENT-060][EVENT-062][EVENT-033]") {
  connected_pair link;
  for (int i = 0; i < 30; ++i) must(link.passive.post(dat::recv{}.cookie(i)));
  for (int i = 0; i < 30; ++i) must(link.active.post(dat::send{}.suppress_completion().cookie(i)));
  must(link.active.post(dat::rdma_write{dat::local_segment<std::byte, dat::mem_priv::local_read>(),
                                        dat::remote_segment<std::byte, dat::mem_priv::remote_write>()}));
  (void)next<dat::rdma_write_done>(link.a.evd);
  int expected = 0;
  const auto is_next = [&](const dat::recv_done& r) { CHECK(r.cookie() == dat::cookie(expected++)); };
  // All messages have arrived, except on devices where the write completes before it has reached the peer.
  const auto first = must(link.b.evd.wait(this_device().completes_at_peer ? 0s : patience, 30));
  CHECK(first.more == 29);
  is_next(std::get<dat::recv_done>(first.first));
  while (expected < 30) {
    if (expected != 1) is_next(std::get<dat::recv_done>(must(link.b.evd.wait(0s))));
    is_next(std::get<dat::recv_done>(must(link.b.evd.dequeue())));
    is_next(must(link.b.evd.wait_for<dat::recv_done>(0s)));
    const auto taken =
        link.b.evd.drain(dat::overloaded{is_next, [](const auto& e) { fail(describe(e), place::here()); }}, 3);
    CHECK(taken == 3);
  }
  CHECK(expected == 30);
  SHOWS("COMP-001");
  // A dequeue takes a completion also from an evd that is disabled and cannot be waited on.
  must(link.b.evd.disable());
  must(link.b.evd.set_unwaitable());
  must(link.passive.post(dat::recv{}.cookie(30)));
  must(link.active.post(dat::send{}));
  auto late = link.b.evd.dequeue();
  for (; !late; late = link.b.evd.dequeue()) std::this_thread::yield();
  is_next(std::get<dat::recv_done>(late.assume_value()));
  SHOWS("EVD-065");
  must(link.b.evd.enable());
  must(link.b.evd.clear_unwaitable());
  CHECK(error_of(link.b.evd.dequeue()) == dat::error(type::queue_empty));
  SHOWS("ERR-024");
  CHECK(error_of(link.b.evd.wait(0s)) == dat::error(type::timeout_expired));
  SHOWS("ERR-026");
  CHECK(link.b.evd.drain([](const auto&) {}) == 0);
}

TEST_CASE("wait_for leaves other events in their order", "[evd][EVENT-040]") {
  if (!this_device().immediate_data) SKIP("iWARP has no immediate data");
  connected_pair link;
  for (int i = 0; i < 4; ++i) must(link.passive.post(dat::recv{}.cookie(i)));
  for (int i = 0; i < 3; ++i) must(link.active.post(dat::send{}.suppress_completion()));
  auto other = link.a.make_ep();
  must(other.connect(link.target(), link.port(), patience));
  auto request = must(link.b.evd.wait_for<dat::connection_request>(patience));
  must(link.active.post(dat::send{}.immediate(5)));
  CHECK(must(link.b.evd.wait_for<dat::ib::recv_immediate_done>(patience)).cookie() == dat::cookie(3));
  auto passive = link.b.make_ep();
  must(request.accept(passive));
  must(link.b.evd.wait_for<dat::established>(passive, patience));
  for (int i = 0; i < 3; ++i) CHECK(next<dat::recv_done>(link.b.evd).cookie() == dat::cookie(i));
  CHECK(is_empty(link.b.evd));

  // The awaited event can no longer come, and the error names the reason.
  must(link.active.disconnect());
  CHECK(error_of(link.b.evd.wait_for<dat::recv_done>(link.passive, patience)) ==
        dat::error(type::invalid_state, subtype::ep_disconnected));
  CHECK(error_of(link.b.evd.wait_for<dat::recv_done>(passive, 0s)) == dat::error(type::timeout_expired));
  auto refused = link.a.make_ep();
  must(refused.connect(link.target(), next_port(), patience));
  CHECK_THAT(error_of(link.a.evd.wait_for<dat::established>(refused, patience)).message(),
             support::contains_text("refused"));
}

TEST_CASE("an evd has at least the requested length, within the device's limits", "[evd][EVD-002][EVD-003]"
                                                                                  "[REQ-152]") {
  side a(0);
  ibv_device_attr device{};
  REQUIRE(ibv_query_device(a.ia.native_handle(), &device) == 0);
  const auto most = static_cast<std::uint32_t>(device.max_cqe);
  for (const std::uint32_t bad : {0u, most + 1, 0xffffffffu}) {
    CHECK(error_of(a.ia.create_evd<dat::stream::dto>(bad)) == dat::error(type::invalid_parameter, subtype::arg2));
    CHECK(error_of(a.ia.create_evd<all_streams>(bad)) == dat::error(type::invalid_parameter, subtype::arg2));
  }
  for (const std::uint32_t good : {1u, 7u, 100u, most}) {
    CHECK(must(a.ia.create_evd<dat::stream::dto>(good)).capacity() >= good);
    CHECK(must(a.ia.create_evd<dat::stream::connection>(good)).capacity() >= good);
  }
  auto fresh = must(a.ia.create_evd<all_streams>(4));
  CHECK(is_empty(fresh));
  CHECK(fresh.close().has_value()); // no endpoint feeds the evd
  SHOWS("EVD-001");
}

TEST_CASE("an evd cannot be closed while something feeds it", "[evd][EVD-013][EVD-015][EVD-017][EVENT-106][REQ-005]") {
  side a(0);
  auto receives = must(a.ia.create_evd<dat::stream::dto>(4));
  auto requests = must(a.ia.create_evd<dat::stream::dto | dat::stream::software>(4));
  auto events = must(a.ia.create_evd<dat::stream::connection>(4));
  auto service = must(a.ia.create_evd<dat::stream::connection_requests>(4));
  auto ep = must(a.pz.create_ep<dat::rc>({.recv = receives, .request = requests, .connect = events}));
  auto psp = must(a.ia.create_psp(next_port(), service));
  const auto in_use = dat::error(type::invalid_state, subtype::evd_in_use);
  CHECK(error_of(receives.close()) == in_use);
  CHECK(error_of(requests.close()) == in_use);
  CHECK(error_of(events.close()) == in_use);
  CHECK(error_of(service.close()) == in_use);
  SHOWS("REQ-159");
  must(psp.close());
  must(service.close());
  CHECK(error_of(events.close()) == in_use);
  must(ep.close());
  // An endpoint that now feeds another evd is not affected when the evd that it fed before is closed.
  auto moved = must(a.pz.create_ep<dat::rc>({.recv = receives, .request = requests, .connect = events}));
  auto before = must(a.ia.create_evd<dat::stream::dto>(4));
  must(moved.modify({.request = before}));
  must(moved.modify({.request = requests}));
  const auto ended = before.id();
  must(before.close());
  must(moved.post(dat::recv{}));
  CHECK(moved.state() == state::unconnected);
  must(moved.close());
  must(receives.close());
  must(requests.post(1)); // nobody takes it
  must(requests.close());
  CHECK(error_of(requests.dequeue()).type() == type::invalid_handle);
  SHOWS("EVD-012", "EVD-014", "EVD-018");
  must(events.close());
  CHECK(error_of(events.close()).type() == type::invalid_handle);
  CHECK(error_of(service.dequeue()).type() == type::invalid_handle);
  // The close of the ia ends an evd even if events are queued in it.
  auto last = must(a.ia.create_evd<dat::stream::software>(4));
  CHECK(last.id() != ended); // numbers are not reused
  must(last.post(2));
  must(a.ia.close(dat::close_mode::abrupt));
  CHECK(error_of(last.post(3)).type() == type::invalid_handle);
  SHOWS("EVENT-105");
}

TEST_CASE("many endpoints share one evd, and each event names its own",
          "[evd][DTO-045][EVENT-007][REQ-130][COMP-068]") {
  two_sides link;
  std::vector<endpoint> actives;
  std::vector<endpoint> passives;
  for (int i = 0; i < 8; ++i) {
    actives.push_back(link.a.make_ep());
    passives.push_back(link.b.make_ep());
    link.connect(actives.back(), passives.back());
  }
  // All these endpoints were reached by one qualifier, and each has a port of its own.
  std::set<std::uint16_t> ports;
  for (auto& ep : actives) {
    CHECK(must(ep.remote_address()).port() == link.psp.port());
    ports.insert(must(ep.local_address()).port());
  }
  CHECK((ports.size() == 8 && !ports.contains(link.psp.port())));
  SHOWS("MODEL-016");
  for (auto& ep : passives)
    for (int i = 0; i < 4; ++i) must(ep.post(dat::recv{}.cookie(i)));
  // Two threads post at once, each to its own endpoints: calls on different objects may overlap even if the objects
  // share others.
  const auto send_from = [&](std::size_t first) {
    for (int i = 0; i < 4; ++i)
      for (std::size_t k = first; k < first + 4; ++k) must(actives[k].post(dat::send{}.cookie(i)));
  };
  background half([&] { send_from(0); });
  send_from(4);
  half.get();
  std::vector<int> sent(8);
  std::vector<int> got(8);
  const auto index = [](const std::vector<endpoint>& all, dat::ep_ref one) {
    return static_cast<std::size_t>(std::find(all.begin(), all.end(), one) - all.begin());
  };
  for (const auto& e : take(link.a.evd, 32)) {
    const auto& s = std::get<dat::send_done>(e);
    const auto i = index(actives, s.ep());
    REQUIRE(i < 8);
    CHECK(s.cookie() == dat::cookie(sent[i]++));
    SHOWS("SAFE-011");
  }
  for (const auto& e : take(link.b.evd, 32)) {
    const auto& r = std::get<dat::recv_done>(e);
    const auto i = index(passives, r.ep());
    REQUIRE(i < 8);
    CHECK(r.cookie() == dat::cookie(got[i]++));
  }
  // The other queue of the endpoints completes there as well.
  must(actives[3].post(dat::recv{}.cookie(50)));
  must(passives[3].post(dat::send{}.cookie(51)));
  const auto received = next<dat::recv_done>(link.a.evd);
  CHECK((received.ep() == actives[3] && received.cookie() == dat::cookie(50)));
  const auto done = next<dat::send_done>(link.b.evd);
  CHECK((done.ep() == passives[3] && done.cookie() == dat::cookie(51)));
  CHECK((is_empty(link.a.evd) && is_empty(link.b.evd)));
  SHOWS("MODEL-004"); // the message has arrived at the connected endpoint, and at no other
}

TEST_CASE("events for drop_events are dropped and free their entries", "[evd][EVENT-101][EP-006]") {
  two_sides link;
  auto mute = must(link.a.pz.create_ep<dat::rc>(dat::ep_evds{dat::drop_events, dat::drop_events, dat::drop_events},
                                                {.max_request_dtos = 8, .max_recv_dtos = 8, .rnr_retry_count = 1}));
  auto passive = link.b.make_ep();
  must(mute.connect(link.target(), link.port(), patience));
  must(link.at_b<dat::connection_request>().accept(passive));
  (void)link.at_b<dat::established>(passive);
  while (mute.state() != state::connected) std::this_thread::yield();
  constexpr int messages = 80;              // ten times the capacity of the queue
  const auto until_posted = [](auto post) { // an entry is free when the dropped completion of an earlier one was taken
    for (;;) {
      auto posted = post();
      if (posted) return;
      REQUIRE(error_of(posted).type() == type::insufficient_resources);
      std::this_thread::yield();
    }
  };
  for (int i = 0; i < messages; ++i) {
    until_posted([&] { return mute.post(dat::recv{}); });
    must(passive.post(dat::send{}.cookie(i)));
    CHECK(link.at_b<dat::send_done>(passive).cookie() == dat::cookie(i));
  }
  for (int i = 0; i < messages; ++i) {
    must(passive.post(dat::recv{}.cookie(i)));
    until_posted([&] { return mute.post(dat::send{}); });
    CHECK(link.at_b<dat::recv_done>(passive).cookie() == dat::cookie(i));
  }
  while (true) { // the peer has no receive: the send fails and the connection ends, though its events are dropped
    auto posted = mute.post(dat::send{}.suppress_completion());
    if (posted) break;
    std::this_thread::yield();
  }
  (void)link.at_b<dat::disconnected>(passive);
  CHECK(mute.state() == state::disconnected);
  CHECK(is_empty(link.a.ia.async_evd())); // nothing has overflowed
}

TEST_CASE("on an evd of their own, completions do not wait until established is taken", "[evd][EVENT-038]") {
  two_sides link;
  auto own = must(link.b.ia.create_evd<dat::stream::dto>(8));
  auto active = link.a.make_ep();
  auto passive = must(link.b.pz.create_ep<dat::rc>({.recv = own, .request = own, .connect = link.b.evd}));
  must(passive.post(dat::recv{}.cookie(1)));
  must(active.connect(link.target(), link.port(), patience));
  must(link.at_b<dat::connection_request>().accept(passive));
  (void)link.at_a<dat::established>();
  must(active.post(dat::send{}));
  CHECK(next<dat::recv_done>(own).cookie() == dat::cookie(1));
  CHECK(link.at_b<dat::established>(passive).ep() == passive);
  // Nor does disconnected wait until the completions are taken.
  must(passive.post(dat::recv{}.cookie(2)));
  must(active.post(dat::send{}));
  for (int i = 0; i < 2; ++i) (void)link.at_a<dat::send_done>();
  must(active.disconnect(dat::close_mode::graceful));
  CHECK(link.at_b<dat::disconnected>(passive).ep() == passive);
  CHECK(next<dat::recv_done>(own).cookie() == dat::cookie(2));
}

} // namespace device
