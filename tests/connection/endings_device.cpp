// How connections end on a device: which side ends them, how, with which operations in flight; many at once; killed
// peers. SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "loads.hpp"
#include "support.hpp"

#include <dat/srq.hpp>

#include <algorithm>
#include <malloc.h>

namespace device {

TEST_CASE("a connection ends correctly for every way to end it, from either side, with any operation in flight",
          "[lives]") {
  two_sides t;
  buffer here(t.a.pz, 256);
  buffer there(t.b.pz, 256);
  for (const bool passive_ends : {false, true})
    for (const how h : {how::abrupt, how::graceful, how::closed})
      for (const load l : {load::nothing, load::receives, load::sends, load::shared}) {
        INFO((passive_ends ? "passive" : "active")
             << " ends, how " << static_cast<int>(h) << ", load " << static_cast<int>(l));
        const bool shared = l == load::shared; // like sends, but the receives are in shared queues
        // Without a receive at the peer, the message ends the connection before the test does.
        if (!this_device().waits_for_receives && h != how::graceful && (shared || l == load::sends)) continue;
        auto queue_a = must(t.a.pz.create_srq());
        auto queue_b = must(t.b.pz.create_srq());
        const auto make = [&](side& s, const dat::srq& pool) {
          return shared ? endpoint(must(s.pz.create_ep<dat::rc>(s.evd, pool))) : s.make_ep();
        };
        auto active = make(t.a, queue_a);
        auto passive = make(t.b, queue_b);
        t.connect(active, passive);
        side& ender = passive_ends ? t.b : t.a;
        side& other = passive_ends ? t.a : t.b;
        const dat::srq& my_queue = passive_ends ? queue_b : queue_a;
        const dat::srq& their_queue = passive_ends ? queue_a : queue_b;
        endpoint& mine = passive_ends ? passive : active;
        endpoint& theirs = passive_ends ? active : passive;
        buffer& my_memory = passive_ends ? there : here;
        buffer& their_memory = passive_ends ? here : there;
        const auto receives = [&](endpoint& ep, const dat::srq& pool, buffer& m, unsigned n) {
          for (unsigned i = 1; i <= n; ++i) {
            const auto r = dat::recv{m.slice(0, 8)}.cookie(i);
            must(shared ? pool.post(r) : ep.post(r));
          }
        };
        // Sends complete only in a graceful disconnect; otherwise the peer has no receive for them.
        const bool graceful = h == how::graceful;
        unsigned mine_posted = 0;
        unsigned theirs_posted = 0;
        unsigned sends = 0;
        if (l == load::receives) mine_posted = theirs_posted = 4;
        if (l == load::sends || shared) {
          sends = 3;
          mine_posted = 2;
          theirs_posted = graceful ? 5 : 0;
        }
        receives(mine, my_queue, my_memory, mine_posted);
        receives(theirs, their_queue, their_memory, theirs_posted);
        for (unsigned i = 1; i <= sends; ++i) must(mine.post(dat::send{my_memory.slice(64, 8)}.cookie(i)));
        if (h == how::closed)
          must(mine.close());
        else
          must(mine.disconnect(graceful ? dat::close_mode::graceful : dat::close_mode::abrupt));
        if (h == how::abrupt) {
          CHECK(mine.state() == state::disconnected);
          SHOWS("DISC-030");
        }

        const unsigned delivered = graceful ? sends : 0;
        // Buffers of a shared queue stay in the queue.
        const unsigned flushed_there = shared ? 0 : theirs_posted - delivered;
        const unsigned flushed_here = shared ? 0 : mine_posted;
        const story seen(take(other.evd, 1 + delivered + flushed_there));
        CHECK(seen.connection == texts{"disconnected"});
        SHOWS("DISC-018", "DISC-026", "CONN-028", "EPS-057");
        CHECK(seen.receives ==
              each("received", 1, delivered) + each("flushed", delivered + 1, delivered + flushed_there));
        CHECK(seen.requests.empty());
        CHECK_FALSE(seen.late);
        SHOWS("DISC-019", "EPS-058");
        CHECK(theirs.state() == state::disconnected);
        SHOWS("DISC-018", "DISC-026");
        if (h != how::closed) {
          const story own(take(ender.evd, 1 + flushed_here + sends));
          CHECK(own.connection == texts{"disconnected"});
          CHECK(own.receives == each("flushed", 1, flushed_here));
          SHOWS("DISC-010");
          CHECK(own.requests == each(graceful ? "sent" : "flushed", 1, sends));
          SHOWS("EPS-064");
          CHECK_FALSE(own.late);
          SHOWS("EVENT-036");
          CHECK(mine.state() == state::disconnected);
          if (graceful && sends != 0) SHOWS("DISC-008", "EPS-049", "EPS-052", "REQ-072");
          if (h == how::abrupt && sends != 0) SHOWS("DISC-005", "DISC-006", "EPS-055");
        } else {
          CHECK(is_empty(ender.evd));
          SHOWS("DISC-037", "EP-035", "EP-036", "EP-037");
        }
        CHECK(is_empty(ender.evd));
        CHECK(is_empty(other.evd));
        SHOWS("DISC-001");
        if (shared) CHECK(must(my_queue.query()).available == mine_posted);
        if (shared) {
          CHECK(must(their_queue.query()).available == theirs_posted - delivered);
          SHOWS("DISC-032");
        }
      }
}

namespace {

/// A process with connections in both directions; its arguments are its peer's address and port.
int many_ends_role(channel& to, const std::vector<std::string>& args) {
  side b(1);
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  to.say(std::to_string(port.port()));
  const auto there = must(dat::ia_address::parse(args.at(0)));
  const auto there_port = must(dat::conn_qual::make(std::stoul(args.at(1))));
  std::vector<endpoint> all;
  for (std::size_t i = 0; i < all_loads.size(); ++i) {
    all.push_back(b.make_ep());
    must(next<dat::connection_request>(b.evd).accept(all.back()));
    (void)next<dat::established>(b.evd);
  }
  for (std::size_t i = 0; i < all_loads.size(); ++i) {
    all.push_back(b.make_ep());
    must(all.back().connect(there, there_port, patience));
    (void)next<dat::established>(b.evd);
  }
  to.say("up");
  (void)to.closed();
  return 0;
}
const role many_ends_registered("many ends", &many_ends_role);

} // namespace

TEST_CASE("killing a peer ends all its connections, active and passive, with any operation in flight",
          "[lives][CONN-030][DISC-039][EPS-058][EPS-064][SRQ-083]") {
  if (!this_device().flushes_late) SKIP(no_late_flush);
  side a(0);
  buffer memory(a.pz, 256);
  const auto port = next_port();
  const auto psp = must(a.ia.create_psp(port, a.evd));
  peer_process peer("many ends", {addresses()[0].host_string(), std::to_string(port.port())});
  const auto there = must(dat::conn_qual::make(std::stoul(peer.hear())));
  std::vector<loaded> ends;
  for (const bool passive : {false, true})
    for (const load l : all_loads) {
      ends.emplace_back(a, l);
      if (passive)
        must(next<dat::connection_request>(a.evd).accept(ends.back().ep));
      else
        must(ends.back().ep.connect(addresses()[1], there, patience));
      (void)next<dat::established>(a.evd);
    }
  CHECK(peer.hear() == "up");
  std::size_t expected = 0;
  for (auto& e : ends) {
    e.post(memory);
    expected += 1 + e.flushed() + e.sends;
  }
  peer.kill();
  auto all = take(a.evd, expected);
  for (auto& e : ends) {
    INFO("load " << static_cast<int>(e.l));
    const story seen(of(e.ep, all));
    CHECK(seen.connection == texts{"disconnected"});
    CHECK(seen.receives == each("flushed", 1, e.flushed()));
    CHECK(seen.requests == each("flushed", 1, e.sends));
    CHECK_FALSE(seen.late);
    CHECK(e.ep.state() == state::disconnected);
    if (e.l == load::shared) CHECK(must(e.pool.query()).available == e.receives);
  }
  CHECK(is_empty(a.evd));
}

TEST_CASE("a thousand connections on twenty pairs of endpoints leave no resource behind",
          "[lives][DISC-044][EPS-002][EPS-070][CONN-069][DISC-050]") {
  two_sides t;
  constexpr std::size_t pairs = 20;
  std::vector<endpoint> active;
  std::vector<endpoint> passive;
  for (std::size_t i = 0; i < pairs; ++i) {
    active.push_back(t.a.make_ep());
    passive.push_back(t.b.make_ep());
  }
  const auto all_are = [&]<class E>(const E*) {
    CHECK(count_of<E>(take(t.a.evd, pairs)) == pairs);
    CHECK(count_of<E>(take(t.b.evd, pairs)) == pairs);
  };
  const auto round = [&](int n) {
    for (auto& ep : active) must(ep.connect(t.target(), t.port(), patience));
    for (auto& ep : passive) must(t.at_b<dat::connection_request>().accept(ep));
    all_are(static_cast<const dat::established*>(nullptr));
    for (auto& ep : n % 2 == 0 ? active : passive)
      must(ep.disconnect(n % 4 < 2 ? dat::close_mode::graceful : dat::close_mode::abrupt));
    all_are(static_cast<const dat::disconnected*>(nullptr));
    for (auto* side : {&active, &passive})
      for (auto& ep : *side) must(ep.reset());
  };
  for (int i = 0; i < (instrumented ? 1 : 4); ++i) round(i);
  const auto before = resources::now();
  const auto heap = ::mallinfo2().uordblks;
  for (int i = 0; i < (instrumented ? 1 : 50); ++i) round(i);
  CHECK(resources::no_more_than(before));
  if (!instrumented) CHECK(::mallinfo2().uordblks <= heap + 16 * 1024);
  CHECK(is_empty(t.a.evd));
  CHECK(is_empty(t.b.evd));
}

TEST_CASE("hundreds of endpoints connect at once, with one evd on each side",
          "[lives][EP-007][EPS-028][PSP-005][REQ-020]") {
  two_sides t({.qlen = 4096});
  const std::size_t many = instrumented ? 32 : 256;
  std::vector<endpoint> active;
  std::vector<endpoint> passive;
  buffer here(t.a.pz, 64);
  buffer there(t.b.pz, 64);
  const dat::ep_attributes small{.max_request_dtos = 2, .max_recv_dtos = 2, .max_request_iov = 1, .max_recv_iov = 1};
  for (std::size_t i = 0; i < many; ++i) {
    active.push_back(t.a.make_ep(small));
    passive.push_back(t.b.make_ep(small));
    must(passive.back().post(dat::recv{there.slice(0, 8)}.cookie(i)));
    must(active.back().connect(t.target(), t.port(), patience));
  }
  for (std::size_t i = 0; i < many; ++i) must(t.at_b<dat::connection_request>().accept(passive[i]));
  // Each endpoint gets exactly one event, which names it.
  const auto up = [&](side& s, const std::vector<endpoint>& all) {
    const auto events = take(s.evd, many);
    CHECK(count_of<dat::established>(events) == many);
    for (const auto& ep : all)
      CHECK(std::count_if(events.begin(), events.end(), [&](const event& e) {
              const auto* one = std::get_if<dat::established>(&e);
              return one && one->ep() == ep;
            }) == 1);
  };
  up(t.a, active);
  up(t.b, passive);
  for (auto& ep : active) must(ep.post(dat::send{here.slice(0, 8)}));
  CHECK(count_of<dat::send_done>(take(t.a.evd, many)) == many);
  CHECK(count_of<dat::recv_done>(take(t.b.evd, many)) == many);
  // One side ends half of the connections, and the other side ends the rest.
  const auto end = [&](std::vector<endpoint>& some, std::size_t n) {
    for (auto& ep : some)
      if (ep.state() == state::connected && n != 0) must(ep.disconnect()), --n;
    CHECK(count_of<dat::disconnected>(take(t.a.evd, many / 2)) == many / 2);
    CHECK(count_of<dat::disconnected>(take(t.b.evd, many / 2)) == many / 2);
  };
  end(active, many / 2);
  end(passive, many / 2);
}

namespace {

/// Keeps a hundred endpoints, and memory that its parent may write to, until it is killed.
int hoard_role(channel& to, const std::vector<std::string>&) {
  side b(1);
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  std::vector<endpoint> many;
  for (int i = 0; i < 100; ++i)
    many.push_back(must(b.pz.create_ep<dat::rc>(b.evd, {.max_request_dtos = 1, .max_recv_dtos = 1})));
  buffer memory(b.pz, 4096);
  to.say(std::to_string(port.port()));
  must(must(b.evd.wait_for<dat::connection_request>(patience)).accept(many[0], memory.lmr.remote().to_wire()));
  (void)to.closed();
  return 0;
}
const role hoard_registered("hoard", &hoard_role);

} // namespace

TEST_CASE("the resources of a killed process are free again, and its memory cannot be accessed",
          "[lives][REQ-029][REQ-031]") {
  two_sides link;
  peer_process peer("hoard");
  const auto port = must(dat::conn_qual::make(std::stoul(peer.hear())));
  auto ep = link.a.make_ep();
  must(ep.connect(addresses()[1], port, patience));
  const auto up = must(link.a.evd.wait_for<dat::established>(patience));
  const auto there = must(window::from_wire(up.private_data()));
  buffer out(link.a.pz, 4096);
  must(ep.post(dat::rdma_write{out.lmr, must(there.slice(0, 4096))}));
  (void)next<dat::rdma_write_done>(link.a.evd);
  if (in_lab()) CHECK(resources::of(peer.id()).count["lqpn"] >= 100);
  CHECK(error_of(link.b.ia.create_psp(port, link.b.evd)).type() == type::conn_qual_in_use);
  peer.kill();
  // The process that continues to write gets an event. It changes no memory that now belongs to another process.
  for (;;) {
    if (!ep.post(dat::rdma_write{out.lmr, must(there.slice(0, 4096))}.cookie(7))) break; // the connection ended first
    const auto e = must(link.a.evd.wait(patience));
    if (!std::holds_alternative<dat::rdma_write_done>(e)) break;
  }
  while (ep.state() != state::disconnected) (void)must(link.a.evd.wait(patience));
  (void)peer.wait();
  CHECK(comes_true([&] { return resources::of(peer.id()).count.empty(); }));
  const auto again = must(link.b.ia.create_psp(port, link.b.evd));
  link.a.evd.drain([](const auto&) {}, 100);
  auto second = link.a.make_ep({.ack_timeout = 20s}); // a refused write is not repeated
  auto passive = link.b.make_ep({.ack_timeout = 20s});
  link.connect(second, passive);
  if (!this_device().completes_at_peer) SKIP(completes_early);
  // The key of the ended process gives no access over another connection either.
  must(second.post(dat::rdma_write{out.slice(0, 8), must(there.slice(0, 8))}));
  CHECK(must(link.a.evd.wait_for<dat::dto_failure>(second, patience)).status() == dat::dto_status::remote_access);
}

} // namespace device
