// Connections over a network that is cut, loses, damages or delays packets, or has a smaller MTU.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "loads.hpp"
#include "netem.hpp"
#include "support.hpp"

#include <dat/ud.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>

namespace device {

TEST_CASE("a cut wire is detected by the sender, and disconnecting does not wait for the peer", "[lives]") {
  if (!this_device().breaks_in_time) SKIP(tcp_repeats);
  if (!in_lab()) SKIP("cuts the wire of the lab");
  two_sides t;
  std::array<endpoint, 3> active{t.a.make_ep(), t.a.make_ep(), t.a.make_ep()};
  std::array<endpoint, 3> passive{t.b.make_ep(), t.b.make_ep(), t.b.make_ep()};
  for (std::size_t i = 0; i < 3; ++i) t.connect(active[i], passive[i]);
  // One more, with an evd of its own for its connection events.
  auto told = must(t.a.ia.create_evd<dat::stream::connection>(4));
  auto aware = must(t.a.pz.create_ep<dat::rc>({.recv = t.a.evd, .request = t.a.evd, .connect = told}));
  endpoint peer_of_aware = t.b.make_ep();
  must(aware.connect(t.target(), t.port(), patience));
  must(t.at_b<dat::connection_request>().accept(peer_of_aware));
  (void)must(told.wait_for<dat::established>(patience));
  (void)t.at_b<dat::established>(peer_of_aware);
  buffer memory(t.a.pz, 64);
  const cut_wire cut(cut_wire::of::first);
  REQUIRE(cut);
  must(active[0].disconnect());
  (void)next<dat::disconnected>(t.a.evd); // the peer's reply cannot have arrived
  CHECK(active[0].state() == state::disconnected);
  SHOWS("DISC-018", "DISC-036", "EPS-055");
  must(active[1].post(dat::send{memory.slice(0, 8)}.cookie(4)));
  const auto failure = must(t.a.evd.wait_for<dat::dto_failure>(active[1], patience));
  CHECK((failure.cookie() == dat::cookie(4) && failure.status() == dat::dto_status::transport));
  SHOWS("COMP-042", "MODEL-043");
  (void)must(t.a.evd.wait_for<dat::connection_broken>(active[1], patience));
  CHECK(active[1].state() == state::disconnected);
  SHOWS("EPS-059");
  // When the last path is lost, that event comes alone: there is no event about paths.
  CHECK(error_of(t.a.ia.async_evd().wait_for<dat::ha_down_to_1>(0s)) == dat::error(type::timeout_expired));
  SHOWS("REQ-187");
  must(aware.post(dat::send{memory.slice(8, 8)}));
  (void)must(t.a.evd.wait_for<dat::dto_failure>(aware, patience));
  (void)must(told.wait_for<dat::connection_broken>(patience));
  SHOWS("MODEL-010");
  // Connections without traffic detect nothing.
  CHECK(active[2].state() == state::connected);
  for (const auto& ep : passive) CHECK(ep.state() == state::connected);
  SHOWS("CONN-032", "HA-011");
  CHECK(is_empty(t.a.evd));
  CHECK(is_empty(t.b.evd));
  CHECK((is_empty(t.a.ia.async_evd()) && is_empty(t.b.ia.async_evd()))); // no event about paths
  SHOWS("HA-016");
}

TEST_CASE("of two connections over a cut wire, that with the shorter time for a dead peer breaks first", "[lives]") {
  if (!this_device().breaks_in_time) SKIP(tcp_repeats);
  if (!in_lab()) SKIP("cuts the wire of the lab");
  two_sides t;
  dat::ep_attributes soon;
  dat::ep_attributes late;
  soon.detect_dead_peer_within(100ms);
  CHECK(late.detect_dead_peer_within(60s).usual > 7s);
  endpoint impatient = t.a.make_ep(soon);
  endpoint patient = t.a.make_ep(late);
  endpoint first = t.b.make_ep();
  endpoint second = t.b.make_ep();
  t.connect(impatient, first);
  t.connect(patient, second);
  buffer memory(t.a.pz, 64);
  const cut_wire cut(cut_wire::of::both);
  REQUIRE(cut);
  must(patient.post(dat::send{memory.slice(0, 8)})); // posted before the send below
  must(impatient.post(dat::send{memory.slice(0, 8)}));
  (void)must(t.a.evd.wait_for<dat::connection_broken>(impatient, patience));
  CHECK(patient.state() == state::connected);
}

TEST_CASE("an idle connection over a cut wire breaks if it tests its peer, and lives on if it does not", "[lives]") {
  if (!this_device().breaks_in_time) SKIP(tcp_repeats);
  if (!in_lab()) SKIP("cuts the wire of the lab");
  two_sides t;
  dat::ep_attributes testing;
  testing.detect_dead_peer_within(200ms);
  endpoint watches = t.a.make_ep(testing);
  endpoint idle = t.a.make_ep();
  endpoint first = t.b.make_ep(); // this endpoint only receives
  endpoint second = t.b.make_ep();
  t.connect(watches, first);
  t.connect(idle, second);
  const cut_wire cut(cut_wire::of::both);
  REQUIRE(cut);
  (void)must(t.a.evd.wait_for<dat::connection_broken>(watches, patience)); // nothing was posted
  CHECK(idle.state() == state::connected);
}

TEST_CASE("tests of an idle connection are no event on either side", "[lives]") {
  two_sides t;
  dat::ep_attributes testing;
  testing.keep_alive = 1ms;
  endpoint active = t.a.make_ep(testing);
  endpoint passive = t.b.make_ep(testing);
  t.connect(active, passive);
  // Keep-alive tests run between the messages. The only events are those of the messages.
  for (unsigned i = 0; i < 200; ++i) {
    must(passive.post(dat::recv{}.cookie(i)));
    must(active.post(dat::send{}.cookie(i)));
    CHECK(must(t.a.evd.wait_for<dat::send_done>(active, patience)).cookie() == dat::cookie(i));
    CHECK(must(t.b.evd.wait_for<dat::recv_done>(passive, patience)).cookie() == dat::cookie(i));
  }
  CHECK(active.state() == state::connected);
  CHECK(passive.state() == state::connected);
  CHECK(is_empty(t.a.evd));
  CHECK(is_empty(t.b.evd));
}

TEST_CASE("every object can be closed in every state on a cut wire, without waiting for the peer",
          "[lives][DISC-018][DISC-036][EPS-046][EPS-055][EP-034][EP-040][IA-047]") {
  if (!this_device().breaks_in_time) SKIP(tcp_repeats);
  if (!in_lab()) SKIP("cuts the wire of the lab");
  two_sides t;
  std::array<endpoint, 5> active{t.a.make_ep(), t.a.make_ep(), t.a.make_ep(), t.a.make_ep(), t.a.make_ep()};
  std::array<endpoint, 3> passive{t.b.make_ep(), t.b.make_ep(), t.b.make_ep()};
  buffer memory(t.a.pz, 64);
  t.connect(active[0], passive[0]);
  t.connect(active[1], passive[1]);
  must(active[2].connect(t.target(), t.port(), patience));
  auto request = t.at_b<dat::connection_request>();
  must(active[3].connect(t.target(), t.port(), patience));
  auto unanswered = t.at_b<dat::connection_request>();
  const cut_wire cut(cut_wire::of::both);
  REQUIRE(cut);
  must(active[1].post(dat::send{memory.slice(0, 8)}));
  must(active[1].disconnect(dat::close_mode::graceful));
  must(active[4].connect(t.target(), t.port(), patience));
  must(request.accept(passive[2]));
  CHECK(active[1].state() == state::disconnect_pending);
  CHECK(active[2].state() == state::active_connection_pending);
  CHECK(passive[2].state() == state::completion_pending);
  const bool all_at_once = GENERATE(false, true);
  const background ending([&] {
    if (!all_at_once) {
      for (auto& ep : active) must(ep.close());
      for (auto& ep : passive) must(ep.close());
      must(unanswered.reject());
      must(t.psp.close());
    }
    must(t.a.ia.close());
    must(t.b.ia.close());
  });
  CHECK(comes_true([&] { return ending.done(); })); // the connection manager gives up after a minute
  SHOWS("DISC-038");
}

TEST_CASE("a lost accept ends in connection_timed_out here and accept_completion_error at the peer", "[lives]") {
  if (!this_device().breaks_in_time) SKIP(tcp_repeats);
  if (!in_lab()) SKIP("cuts the wire of the lab");
  two_sides t;
  auto first = t.a.make_ep();
  auto other = t.b.make_ep();
  t.connect(first, other); // fills the neighbour table
  auto active = t.a.make_ep();
  auto passive = t.b.make_ep();
  must(passive.post(dat::recv{}.cookie(2)));
  const cut_wire cut(cut_wire::of::second);
  REQUIRE(cut);
  must(active.connect(t.target(), t.port(), unanswered_limit));
  must(t.at_b<dat::connection_request>().accept(passive));
  CHECK(passive.state() == state::completion_pending);
  SHOWS("EPS-021", "EPS-022");
  (void)next<dat::connection_timed_out>(t.a.evd);
  CHECK(active.state() == state::disconnected);
  SHOWS("CONN-025", "CONN-041", "EPS-010");
  const story seen(take(t.b.evd, 2));
  CHECK(seen.connection == texts{"accept_completion_error, reason 4"});
  SHOWS("CONN-027", "DISC-041", "REQ-077");
  CHECK(seen.receives == texts{"flushed 2"});
  CHECK(passive.state() == state::disconnected);
  SHOWS("CR-037", "EPS-025");
  CHECK(is_empty(t.a.evd));
}

TEST_CASE("a lost reject succeeds here and ends in connection_timed_out at the peer", "[lives][CR-058]") {
  if (!in_lab()) SKIP("cuts the wire of the lab");
  two_sides t;
  auto active = t.a.make_ep();
  must(active.connect(t.target(), t.port(), unanswered_limit));
  auto request = t.at_b<dat::connection_request>();
  const cut_wire cut(cut_wire::of::second);
  REQUIRE(cut);
  must(request.reject(bytes_of("not delivered")));
  CHECK_FALSE(request);
  (void)next<dat::connection_timed_out>(t.a.evd);
  CHECK(active.state() == state::disconnected);
  CHECK(is_empty(t.a.evd));
}

TEST_CASE("data that overtakes a lost last handshake message establishes the connection", "[lives][CR-036][EPS-024]") {
  if (!this_device().breaks_in_time) SKIP(tcp_repeats);
  if (!in_lab()) SKIP("changes the wire of the lab");
  two_sides t;
  auto active = t.a.make_ep();
  auto passive = t.b.make_ep();
  buffer out(t.a.pz, 16);
  buffer in(t.b.pz, 16);
  must(active.connect(t.target(), t.port(), patience));
  auto request = t.at_b<dat::connection_request>();
  must(passive.post(dat::recv{in.lmr}.cookie(5)));
  {
    // Drops data packets that arrive at the far end. Messages of the connection manager, which go to queue pair 1,
    // pass.
    struct deaf {
      bool done = std::system("tc qdisc add dev v2 ingress && tc filter add dev v2 parent ffff: protocol ip u32 "
                              "match u32 0x00000001 0x00ffffff at 32 action drop") == 0;
      deaf() = default;
      deaf(const deaf&) = delete;
      deaf& operator=(const deaf&) = delete;
      ~deaf() { (void)!std::system("tc qdisc del dev v2 ingress"); }
    } const end;
    REQUIRE(end.done);
    must(request.accept(passive));
    (void)next<dat::established>(t.a.evd);
    CHECK(passive.state() == state::completion_pending);
    CHECK(is_empty(t.b.evd));
    must(active.post(dat::send{out.lmr}));
    (void)next<dat::established>(t.b.evd);
    CHECK(next<dat::recv_done>(t.b.evd).cookie() == dat::cookie(5));
    CHECK(passive.state() == state::connected);
    (void)next<dat::send_done>(t.a.evd);
  }
  t.disconnect(active, passive);
}

TEST_CASE("a lost reply to a datagram request is repeated, and the consumer gets one request",
          "[lives][ud][CR-050][CONN-016]") {
  NEEDS_FEATURE(datagrams);
  if (!in_lab()) SKIP("cuts the wire of the lab");
  constexpr auto streams = all_streams | dat::stream::datagrams;
  side a(0);
  side b(1);
  auto at_a = must(a.ia.create_evd<streams>(16));
  auto at_b = must(b.ia.create_evd<streams>(16));
  auto active = must(a.pz.create_ep<dat::ud>(at_a));
  auto passive = must(b.pz.create_ep<dat::ud>(at_b));
  const auto port = next_port();
  const auto service = must(dat::ib::datagram_service::listen(b.ia, port, at_b));
  must(active.connect(b.ia.address(), port, patience));
  {
    auto request = std::get<dat::ib::datagram_request>(must(at_b.wait(patience)));
    const cut_wire lost(cut_wire::of::second);
    REQUIRE(lost);
    must(request.accept(passive));
    CHECK(error_of(at_a.wait(300ms)).type() == type::timeout_expired);
  }
  CHECK(std::get<dat::ib::datagram_established>(must(at_b.wait(patience))).is_passive());
  const auto known = std::get<dat::ib::datagram_established>(must(at_a.wait(patience))); // after 4.1 s
  CHECK(known.peer().assume_value().qp_number() == passive.number());
  CHECK(is_empty(at_b));
}

TEST_CASE("a wire with a smaller MTU passes small messages, fails large ones, and the error names the MTU", "[lives]") {
  if (!this_device().breaks_in_time) SKIP(tcp_repeats);
  if (!in_lab()) SKIP("changes the wire of the lab");
  connected_pair link({.active = {.retry_count = 1}});
  buffer out(link.a.pz, 4096);
  buffer in(link.b.pz, 4096);
  // Drops at the far end, as a switch would: a packet that the sender's own queue refuses is not lost but sent again.
  struct min {
    bool done = std::system("tc qdisc add dev v2 ingress && tc filter add dev v2 parent ffff: protocol ip u32 "
                            "match u16 0x0400 0xfc00 at 2 action drop") == 0; // IP packets of 1024 bytes and more
    min() = default;
    min(const min&) = delete;
    min& operator=(const min&) = delete;
    ~min() { (void)!std::system("tc qdisc del dev v2 ingress"); }
  } const wire;
  REQUIRE(wire.done);
  must(link.active.post(dat::rdma_write{out.slice(0, 64), in.remote()}));
  (void)next<dat::rdma_write_done>(link.a.evd);
  must(link.active.post(dat::rdma_write{out.lmr, in.remote()}));
  const auto failure = must(link.a.evd.wait_for<dat::dto_failure>(patience));
  CHECK(failure.status() == dat::dto_status::transport);
  CHECK_THAT(failure.message(), support::contains_text("MTU"));
}

TEST_CASE("damaged packets are retransmitted or the operation fails; data never arrives wrong",
          "[lives][MODEL-042][CONN-015]") {
  if (!this_device().breaks_in_time) SKIP(tcp_repeats);
  if (!in_lab()) SKIP("damages packets of the lab");
  connected_pair link;
  auto hasty = link.a.make_ep({.retry_count = 1, .ack_timeout = 20'000us});
  auto far = link.b.make_ep();
  link.connect(hasty, far);
  constexpr std::size_t size = 200 * 1024;
  buffer out(link.a.pz, size);
  buffer in(link.b.pz, size);
  const netem wire("corrupt 2%");
  REQUIRE(wire);
  const auto repairs = [] { // counters of packets that arrived out of order or not at all
    std::uint64_t sum = 0;
    for (const char* name : {"rx1/ports/1/hw_counters/completer_retry_err", "rx1/ports/1/hw_counters/rcvd_seq_err",
                             "rx2/ports/1/hw_counters/out_of_seq_request"}) {
      std::uint64_t n = 0;
      std::ifstream(std::string("/sys/class/infiniband/") + name) >> n;
      sum += n;
    }
    return sum;
  };
  const auto before = repairs();
  bool up = true;
  for (std::uint32_t i = 0; i < 4 && up; ++i) {
    fill(out.bytes, i);
    must(link.active.post(dat::rdma_write{out.lmr, in.remote()}));
    const auto e = must(link.a.evd.wait(patience * 4));
    up = std::holds_alternative<dat::rdma_write_done>(e);
    if (up)
      CHECK(has_pattern(in.bytes, i));
    else
      CHECK(std::get<dat::dto_failure>(e).status() == dat::dto_status::transport);
  }
  // Shows that packets were damaged. The kernel may return values that it has read a moment ago.
  CHECK((!up || comes_true([&] { return repairs() > before; })));
  // If no packet arrives undamaged, the operation fails.
  REQUIRE(std::system("tc qdisc change dev v1 root netem corrupt 100%") == 0);
  must(hasty.post(dat::rdma_write{out.lmr, in.remote()}));
  const auto failure = must(link.a.evd.wait_for<dat::dto_failure>(hasty, patience));
  CHECK(failure.status() == dat::dto_status::transport);
}

TEST_CASE("a cut wire breaks the connections that send, and the others continue when it is restored",
          "[lives][CONN-015][CONN-032][EPS-059][EPS-062][SRQ-083]") {
  if (!this_device().breaks_in_time) SKIP(tcp_repeats);
  if (!in_lab()) SKIP("cuts the wire of the lab");
  if (instrumented) SKIP("nothing in it that the same endings, without a cut, would not show to a sanitizer");
  two_sides t;
  buffer here(t.a.pz, 256);
  buffer there(t.b.pz, 256);
  struct link {
    bool passive_has_it; ///< the passive side has the operation
    loaded mine;
    endpoint theirs;
  };
  std::vector<link> links;
  for (const bool passive : {false, true})
    for (const load l : all_loads) {
      links.push_back({passive, loaded(passive ? t.b : t.a, l), (passive ? t.a : t.b).make_ep()});
      auto& k = links.back();
      t.connect(passive ? k.theirs : k.mine.ep, passive ? k.mine.ep : k.theirs);
    }
  std::array<std::size_t, 2> expected{};
  {
    const cut_wire cut(cut_wire::of::both);
    REQUIRE(cut);
    for (auto& k : links) {
      must(k.theirs.post(dat::recv{(k.passive_has_it ? here : there).slice(128, 8)}.cookie(9)));
      k.mine.post(k.passive_has_it ? there : here);
      if (k.mine.sends != 0) expected[k.passive_has_it ? 1 : 0] += 1 + k.mine.flushed() + k.mine.sends;
    }
    std::array all{take(t.a.evd, expected[0]), take(t.b.evd, expected[1])};
    for (auto& k : links) {
      INFO((k.passive_has_it ? "passive" : "active") << ", load " << static_cast<int>(k.mine.l));
      const story seen(of(k.mine.ep, all[k.passive_has_it ? 1 : 0]));
      if (k.mine.sends == 0) { // no side can have detected the cut
        CHECK(seen.connection.empty());
        CHECK(k.mine.ep.state() == state::connected);
        continue;
      }
      CHECK(seen.connection == texts{"broken"});
      CHECK(seen.receives == each("flushed", 1, k.mine.flushed()));
      CHECK(seen.requests == texts{"transport error 1"} + each("flushed", 2, k.mine.sends));
      CHECK_FALSE(seen.late);
      CHECK(k.mine.ep.state() == state::disconnected);
    }
  }
  // After the repair the peer of each broken connection is notified, and the other connections work.
  const auto broken = static_cast<std::size_t>(
      std::count_if(links.begin(), links.end(), [](const link& k) { return k.mine.sends != 0; }));
  // Two events for each connection, half of them on either side.
  std::array all{take(t.a.evd, broken), take(t.b.evd, broken)};
  for (auto& k : links) {
    side& other = k.passive_has_it ? t.a : t.b;
    INFO((k.passive_has_it ? "passive" : "active") << ", load " << static_cast<int>(k.mine.l));
    const story seen(of(k.theirs, all[k.passive_has_it ? 0 : 1]));
    if (k.mine.sends != 0) {
      CHECK(seen.connection == texts{"disconnected"});
      SHOWS("EPS-063", "CONN-030");
      CHECK(seen.receives == texts{"flushed 9"});
      continue;
    }
    CHECK(seen.connection.empty());
    must(k.mine.ep.post(dat::send{(k.passive_has_it ? there : here).slice(64, 8)}));
    CHECK(must(other.evd.wait_for<dat::recv_done>(k.theirs, patience)).cookie() == dat::cookie(9));
    SHOWS("HA-011");
  }
}

} // namespace device
