// What calls take from an evd: batches, completions that are no events, messages with odd flags, and the room for all.
// SPDX-License-Identifier: BSL-1.0
#include "allocations.hpp"
#include "async_events.hpp"
#include "world.hpp"

#include <support/asleep.hpp>
#include <support/streams.hpp>

#include <dat/dynamic.hpp>
#include <dat/ep_params.hpp>
#include <dat/srq.hpp>
#include <dat/ud.hpp>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

using namespace unit;
using dat::return_type;

namespace {

constexpr unsigned kernels_invalidation = IBV_WC_IP_CSUM_OK; ///< the bit by which rxe reports an invalidation

/// A connection with an evd of its own for the completions of one side.
template <dat::streams S>
struct side_evd : pair {
  dat::evd<S> evd = must(a.ia.create_evd<S>(64));
  dat::ep<dat::rc> ep;
  dat::ep<dat::rc> peer = must(b.pz.create_ep<dat::rc>(b.evd));
  explicit side_evd(const dat::ep_attributes& how = {.max_request_dtos = 64, .max_recv_dtos = 64})
      : ep(must(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd}, how))) {
    connect(ep, peer);
  }

  void write(std::uint64_t n) { must(ep.post(dat::rdma_write{a.at(0, 1), b.mem.remote()}.cookie(n))); }
  /// The completion of a message of one byte that arrives now.
  ibv_wc received() {
    must(ep.post(dat::recv{a.at(0, 8)}));
    must(peer.post(dat::send{b.at(0, 1)}));
    fake::finish();
    ibv_wc wc{};
    REQUIRE(ibv_poll_cq(evd.native_handle(), 1, &wc) == 1);
    return wc;
  }
  void give(const ibv_wc& wc) { fake::forge(evd.native_handle(), wc); }
};

using dto_side = side_evd<dat::stream::dto>;
using merged_side = side_evd<support::mixed>;

/// Completions wake a waiter only where their request asks for it.
const dat::ep_attributes selective_completions{.recv_completion = dat::completion_notification::selective,
                                               .request_completion = dat::completion_notification::selective};

} // namespace

TEST_CASE("a drain that has taken its maximum of whole batches triggers the cno for the rest", "[evd][cno]") {
  const clean_world world;
  dto_side s;
  auto cno = must(s.a.ia.create_cno());
  for (std::uint64_t n = 0; n < 40; ++n) s.write(n);
  fake::finish();
  must(s.evd.modify_cno(cno));
  while (cno.wait(0us)) { // takes the trigger for the completions that are there
  }
  CHECK(s.evd.drain(support::ignore, 32) == 32);
  CHECK(must(cno.wait(0us)) == s.evd.id());
  CHECK(s.evd.drain(support::ignore, 32) == 8);
  is_error(cno.wait(0us), return_type::queue_empty);
}

TEST_CASE("a drain of a completions-only evd takes no more than its maximum, below, at and above a batch", "[evd]") {
  const clean_world world;
  dto_side s;
  const std::size_t most = GENERATE(2u, 3u, 31u, 32u, 33u);
  CAPTURE(most);
  for (std::uint64_t n = 0; n < 40; ++n) s.write(n);
  fake::finish();
  CHECK(s.evd.drain(support::ignore, most) == most);
  CHECK(s.evd.drain(support::ignore, 64) == 40 - most);
}

TEST_CASE("a drain of one event skips a completion that is no event, and takes one event", "[evd]") {
  const clean_world world;
  dto_side s;
  s.give(ibv_wc{});
  for (std::uint64_t n = 0; n < 3; ++n) s.write(n);
  fake::finish();
  events taken;
  const auto note = [&](const auto& e) { taken.push_back(describe{}(e)); };
  CHECK(s.evd.drain(note, 1) == 1);
  CHECK(taken == events{"written 0"});
  CHECK(s.evd.drain(note, 1) == 1);
  CHECK(s.evd.drain(note) == 1);
  CHECK(taken == events{"written 0", "written 1", "written 2"});
}

TEST_CASE("a batch without an event is no failure of the device", "[evd]") {
  const clean_world world;
  merged_side s;
  s.give(ibv_wc{});
  s.give(ibv_wc{});
  CHECK(s.evd.drain(support::ignore, 16) == 0);
  s.a.ia.run();
  CHECK(take_async<dat::provider_internal_error>(s.a.ia) == 0);
  s.give(ibv_wc{});
  fake::fail(fake::call::ibv_poll_cq, 2, EIO); // the batch, then the failure
  CHECK(s.evd.drain(support::ignore, 16) == 0);
  s.a.ia.run();
  CHECK(take_async<dat::provider_internal_error>(s.a.ia) == 1);
}

TEST_CASE("a drain of a merged evd returns the number of its events, one or several", "[evd]") {
  const clean_world world;
  merged_side s;
  for (const std::uint64_t n : {1u, 2u, 5u, 20u}) {
    for (std::uint64_t i = 0; i < n; ++i) s.write(i);
    fake::finish();
    CHECK(s.evd.drain(support::ignore, 32) == n);
    CHECK(s.evd.drain(support::ignore, 32) == 0);
  }
}

TEST_CASE("a merged evd counts all completions of the device before it shrinks", "[evd]") {
  const clean_world world;
  merged_side s;
  for (std::uint64_t n = 0; n < 20; ++n) s.write(n);
  fake::finish();
  is_error(s.evd.resize(19), return_type::invalid_state, dat::return_subtype::evd_in_use);
  must(s.evd.resize(20));
  CHECK(s.evd.drain(support::ignore, 32) == 20);
}

TEST_CASE("every completion that is taken from a queue frees its entry, also a rare one", "[evd]") {
  const clean_world world;
  end a("fk1"), b("fk2");
  const auto psp = must(b.ia.create_psp(service, b.evd));
  auto evd = must(a.ia.create_evd<dat::stream::dto>(16));
  auto ep = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd},
                                         {.max_request_dtos = 1, .max_recv_dtos = 1}));
  b.make_ep();
  must(ep.post(dat::recv{a.at(0, 8)}.cookie(1))); // before the connection
  CHECK_FALSE(ep.post(dat::recv{a.at(0, 8)}));
  must(ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(b.ep));
  settle(a, b);
  must(b.ep.post(dat::send{b.at(0, 1)}));
  CHECK(take(evd) == events{"received 1"});
  must(ep.post(dat::recv{a.at(0, 8)}.cookie(2)));
  CHECK_FALSE(ep.post(dat::recv{a.at(0, 8)}));
  must(ep.disconnect());
  settle(a, b);
  CHECK(take(evd) == events{std::string(to_string(dat::dto_status::flushed)) + " 2"});
  must(ep.post(dat::recv{a.at(0, 8)}.cookie(3)));
  CHECK(take(evd) == events{std::string(to_string(dat::dto_status::flushed)) + " 3"});
  must(ep.post(dat::recv{a.at(0, 8)}.cookie(4)));
}

TEST_CASE("an evd for completions and datagrams gives both without a queue of its own", "[evd][ud]") {
  const clean_world world;
  constexpr auto kinds = dat::stream::dto | dat::stream::datagrams;
  end a;
  auto evd = must(a.ia.create_evd<kinds>(16));
  auto connections = must(a.ia.create_evd<ud_streams>(16));
  STATIC_REQUIRE(dat::evd<kinds>::completions_only);
  auto near = must(a.pz.create_ep<dat::ud>(dat::ib::datagram_evds{evd, evd, connections}));
  auto far = must(a.pz.create_ep<dat::ud>(connections));
  const auto to_far = must(near.address_of(must(far.address())));
  const auto to_near = must(far.address_of(must(near.address())));
  std::size_t sent = 0;
  std::size_t received = 0;
  std::size_t marked = 0;
  const auto visit = dat::overloaded{[&](const dat::ib::datagram_send_done& e) { sent += e.cookie().value(); },
                                     [&](const dat::ib::datagram_recv_done& e) { received += e.cookie().value(); },
                                     [&](const dat::ib::datagram_recv_immediate_done& e) { marked += e.immediate(); },
                                     [](const auto&) { FAIL("another event"); }};
  must(near.post(dat::recv{a.at(0, 64)}.cookie(20)));
  must(near.post(dat::recv{a.at(64, 64)}.cookie(30)));
  must(far.post(dat::recv{a.at(128, 64)}));
  must(near.post(dat::ib::send_to{a.at(256, 5), to_far}.cookie(1)));
  must(far.post(dat::ib::send_to{a.at(256, 5), to_near}));
  must(far.post(dat::ib::send_to{a.at(256, 5), to_near}.immediate(7)));
  fake::finish();
  const std::size_t at_a_time = GENERATE(std::size_t{1}, std::size_t{2}, std::size_t{64});
  std::size_t n = 0;
  while (const std::size_t k = evd.drain(visit, at_a_time)) n += k;
  CHECK(n == 3);
  CHECK(sent == 1);
  CHECK(received == 20);
  CHECK(marked == 7);
}

TEST_CASE("an evd for completions and datagrams reports failed receives as failures", "[evd][ud]") {
  const clean_world world;
  constexpr auto kinds = dat::stream::dto | dat::stream::datagrams;
  end a;
  auto evd = must(a.ia.create_evd<kinds>(16));
  auto connections = must(a.ia.create_evd<ud_streams>(16));
  auto ep = must(a.pz.create_ep<dat::ud>(dat::ib::datagram_evds{evd, evd, connections}));
  must(ep.post(dat::recv{a.at(0, 64)}.cookie(20)));
  must(ep.disconnect());
  fake::finish();
  std::vector<std::uint64_t> flushed;
  CHECK(evd.drain(dat::overloaded{[&](const dat::dto_failure& e) { flushed.push_back(e.cookie().value()); },
                                  [](const auto&) { FAIL("another event"); }}) == 1);
  CHECK(flushed == std::vector<std::uint64_t>{20});
}

TEST_CASE("a message names the key that it has invalidated only if the device reports an invalidation", "[evd][rmr]") {
  const clean_world world;
  merged_side s;
  auto wc = s.received();
  const bool kernel = GENERATE(true, false);
  const bool first = GENERATE(true, false); // whether the ring is empty
  wc.wc_flags = kernel ? kernels_invalidation : unsigned{IBV_WC_WITH_INV};
  wc.invalidated_rkey = 0x12345; // of no window of dat
  if (!first) must(s.evd.post(1));
  s.give(wc);
  const auto check = [&](const dat::recv_done& e) {
    CHECK(e.invalidated().has_value() == !kernel);
    if (!kernel) CHECK(*e.invalidated() == 0x12345);
    CHECK(e.bytes() == 1);
  };
  SECTION("a wait for the message") { check(must(s.evd.wait_for<dat::recv_done>(plenty))); }
  SECTION("a drain") {
    std::size_t messages = 0;
    s.evd.drain(dat::overloaded{[&](const dat::recv_done& e) {
                                  ++messages;
                                  check(e);
                                },
                                [](const auto&) {}});
    CHECK(messages == 1);
  }
  (void)take(s.evd);
}

TEST_CASE("a wait for an overflow takes it also when an endpoint is named", "[evd]") {
  const clean_world world;
  end a;
  auto other = must(a.ia.create_evd<dat::stream::dto>(8));
  a.make_ep();
  fake::async(IBV_EVENT_CQ_ERR, other.native_handle());
  a.ia.run();
  CHECK(a.ia.async_evd().wait_for<dat::evd_overflow>(a.ep, 0us));
}

TEST_CASE("the room for a shared queue that has grown stays until its last endpoint ends", "[evd][srq]") {
  const fake::with resizable{fake::current(), [](fake::manners& m) { m.srq_resize = m.cq_resize = true; }};
  const clean_world world;
  end a;
  auto evd = must(a.ia.create_evd<support::mixed>(8));
  auto srq = must(a.pz.create_srq({.max_recv_dtos = 60}));
  const auto create = [&] {
    return must(a.pz.create_ep<dat::rc>({.recv = evd, .request = a.evd, .connect = a.evd}, srq));
  };
  auto first = create();
  auto second = create();
  must(srq.resize(500));
  must(evd.resize(4)); // the length is that of other events: the endpoints keep their room
  CHECK(evd.native_handle()->cqe >= 500);
  first = {};
  must(evd.resize(4));
  CHECK(evd.native_handle()->cqe >= 500);
  second = {};
  must(evd.resize(4));
  CHECK(evd.native_handle()->cqe < 60);
  must(srq.resize(700)); // feeds no evd any more
  CHECK(evd.native_handle()->cqe < 60);
}

/// Two connections of `ep` of `a`, one after the other: `evd` has places for the events of the first one.
void check_places_of_one(end& a, end& b, dat::ep<dat::rc>& ep, dat::evd<dat::stream::connection>& evd) {
  const auto psp = must(b.ia.create_psp(service, b.evd));
  for (int life = 0; life < 2; ++life) {
    b.make_ep();
    must(ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
    must(request_on(b.evd).accept(b.ep));
    settle(a, b);
    must(b.ep.disconnect());
    settle(a, b);
    must(ep.reset());
    (void)b.take();
  }
  CHECK(take(evd) == events{"established", "disconnected"}); // the places of one endpoint
  CHECK(take_async<dat::evd_overflow>(a.ia) == 1);
}

TEST_CASE("endpoints that were refused for lack of memory leave no places for connection events", "[evd]") {
  if (!refuses_allocations) SKIP("the build cannot refuse memory");
  const clean_world world;
  end a("fk1"), b("fk2");
  auto evd = must(a.ia.create_evd<dat::stream::connection>(1));
  const auto create = [&] { return a.pz.create_ep<dat::rc>({.recv = a.evd, .request = a.evd, .connect = evd}); };
  dat::ep<dat::rc> ep;
  for (int n = 0; !ep; ++n) {
    REQUIRE(n < 100);
    const out_of_memory limit(n);
    if (auto made = create()) ep = std::move(made).value();
  }
  check_places_of_one(a, b, ep, evd);
}

TEST_CASE("an endpoint whose connection events go to another evd leaves its places in the evd before", "[evd]") {
  const clean_world world;
  end a("fk1"), b("fk2");
  auto evd = must(a.ia.create_evd<dat::stream::connection>(1));
  const auto create = [&] { return must(a.pz.create_ep<dat::rc>({.recv = a.evd, .request = a.evd, .connect = evd})); };
  auto ep = create();
  auto gone = create();
  must(gone.modify({.connect = a.evd}));
  check_places_of_one(a, b, ep, evd);
}

TEST_CASE("a wait with selective completions ends by the completion that notifies", "[evd]") {
  const clean_world world;
  merged_side p(selective_completions);
  std::atomic<pid_t> id{0};
  std::atomic<bool> done{false};
  bool took = false;
  std::jthread waiter([&] {
    id = static_cast<pid_t>(::syscall(SYS_gettid));
    took = p.evd.wait(dat::infinite).has_value();
    done = true;
  });
  support::until_asleep(id, plenty);
  must(p.ep.post(dat::rdma_write{p.a.at(0, 1), p.b.mem.remote()}));
  fake::finish();
  for (const auto until = std::chrono::steady_clock::now() + plenty; !done && std::chrono::steady_clock::now() < until;)
    std::this_thread::yield();
  must(p.evd.wake()); // ends a wait that has missed the completion
  waiter.join();
  CHECK(took);
}

TEST_CASE("a wait with selective completions finds one that comes just before it arms the device", "[evd]") {
  const clean_world world;
  merged_side p(selective_completions);
  bool posted = false;
  fake::intercept(fake::call::ibv_req_notify_cq, [&] {
    if (std::exchange(posted, true)) return;
    must(p.ep.post(dat::rdma_write{p.a.at(0, 1), p.b.mem.remote()}.cookie(3)));
    fake::finish();
  });
  CHECK(must(p.evd.wait_for<dat::rdma_write_done>(plenty)).cookie().value() == 3);
  fake::intercept(fake::call::ibv_req_notify_cq, {});
  CHECK(posted);
}

TEST_CASE("a receive notifies although the receive before it in the same queue entry did not", "[evd][cno]") {
  const clean_world world;
  pair p;
  auto evd = must(p.a.ia.create_evd<support::mixed>(16));
  auto cno = must(p.a.ia.create_cno());
  must(evd.modify_cno(cno));
  auto ep = must(p.a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = p.a.evd},
                                           {.max_recv_dtos = 1,
                                            .recv_completion = dat::completion_notification::selective,
                                            .request_completion = dat::completion_notification::selective}));
  auto peer = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  must(ep.post(dat::recv{}.suppress_notification()));
  p.connect(ep, peer);
  while (cno.wait(0us)) { // takes earlier triggers
  }
  for (int round = 0; round < 6; ++round) {
    must(peer.post(dat::send{}));
    p.settle();
    CHECK(cno.wait(0us).has_value() == (round != 0));
    CHECK(take(evd).size() == 1);
    must(ep.post(dat::recv{}));
  }
  must(evd.modify_cno({}));
}

TEST_CASE("handles that name nothing have no capacity, no length and no address", "[evd][lmr]") {
  CHECK(dat::evd<dat::stream::software>().capacity() == 0);
  CHECK(dat::evd<dat::stream::dto>().capacity() == 0);
  const dat::dynamic::lmr none;
  CHECK(none.address() == 0);
  CHECK(none.size_bytes() == 0);
}
