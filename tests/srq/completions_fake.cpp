// Completions of shared receive queues in the fake world: their endpoints, order and waiters, and threads that post.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include "pool_fake.hpp"

#include <dat/ep_params.hpp>
#include <dat/srq.hpp>

#include <algorithm>
#include <deque>

using namespace shared_queues;
using namespace unit;
using dat::ep_state;
using dat::return_type;
using support::worker;

TEST_CASE("a completion names the endpoint that took the buffer, and the buffer's cookie, in any order", "[srq]") {
  const fake::with resizable{fake::current(), [](fake::manners& m) { m.srq_resize = true; }};
  const clean_world clean;
  pool p(3);
  p.post(1, 6);
  for (const std::size_t i : {2u, 0u, 1u, 0u}) p.send(i);
  CHECK(p.received() == events{"2:received 1", "0:received 2", "1:received 3", "0:received 4"});
  SHOWS("SRQ-078", "COMP-068", "DTO-023", "EP-022", "REQ-114", "MODEL-025");
  // Growing keeps the posted buffers; cookies need not be unique.
  must(p.srq.resize(100));
  p.post(5, 5);
  for (const std::size_t i : {1u, 2u, 0u}) p.send(i);
  CHECK(p.received() == events{"1:received 5", "2:received 6", "0:received 5"});
  SHOWS("SRQ-068");
  CHECK(p.outstanding() == 0);
  // Buffers that complete on different evds have no common order.
  auto other = must(p.b.ia.create_evd<dat::stream::dto | dat::stream::software>(16));
  auto apart = must(p.b.pz.create_ep<dat::rc>({.recv = other, .request = p.b.evd, .connect = p.b.evd}, p.srq));
  auto peer = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  p.connect(peer, apart);
  p.post(1, 4);
  must(peer.post(dat::send{p.a.at(0, 8)}.suppress_completion()));
  p.send(0);
  must(peer.post(dat::send{p.a.at(0, 8)}.suppress_completion()));
  p.send(1);
  CHECK(p.outstanding() == 4);
  CHECK(p.received() == events{"0:received 2", "1:received 4"});
  CHECK(p.outstanding() == 2);
  p.post(5, 6);
  CHECK(take(other) == events{"received 1", "received 3"});
  CHECK(p.outstanding() == 2);
  SHOWS("SRQ-017", "SRQ-021");
  p.send(2);
  CHECK(p.received() == events{"2:received 5"});
  // A buffer without a cookie.
  p.send(0);
  CHECK(p.received() == events{"0:received 6"});
  must(p.srq.post(dat::recv{p.b.at(0, 8)}));
  p.send(1);
  CHECK(p.received() == events{"1:received 0"});
  SHOWS("SRQ-077");
}

TEST_CASE("a message finds its endpoint also where another endpoint has its place in the table", "[srq]") {
  const clean_world clean;
  pool p(2);
  auto& table = dat::detail::core_access::of(p.srq)->endpoints;
  const std::uint32_t number = p.to[0].number();
  const std::uint32_t another = number + 1024; // with the same place
  const std::uint32_t marker = table.find(number);
  table.erase(number);
  REQUIRE(table.insert(another, marker));
  REQUIRE(table.insert(number, marker));
  REQUIRE(table.find_fast(number) == 0);
  REQUIRE(table.find_fast(p.to[1].number()) != 0);
  const auto one = [&] {
    events got;
    const std::size_t n =
        p.evd.drain(dat::overloaded{[&](const dat::recv_done& e) {
                                      got.push_back(std::to_string(e.ep() == p.to[0] ? 0 : 1) + describe{}(e));
                                    },
                                    [&](const auto& e) { got.push_back(describe{}(e)); }},
                    1);
    CHECK(n == got.size());
    return got;
  };
  p.post(1, 6);
  for (const std::size_t i : {0u, 1u, 0u}) p.send(i);
  CHECK(one() == events{"0received 1"});
  CHECK(one() == events{"1received 2"});
  CHECK(one() == events{"0received 3"});
  CHECK(one().empty());
  for (const std::size_t i : {1u, 0u, 0u}) p.send(i);
  CHECK(p.received() == events{"1:received 4", "0:received 5", "0:received 6"});
  CHECK(p.outstanding() == 0);
  table.erase(another);
}

TEST_CASE("an evd without connection events delivers the completions of a shared queue as well",
          "[srq][SRQ-078][SRQ-059]") {
  const clean_world clean;
  pool<data_streams> p(2);
  p.post(1, 9);
  CHECK(p.now().available == 9u);
  for (const std::size_t i : {1u, 0u, 1u}) p.send(i);
  CHECK(p.outstanding() == 9);
  CHECK(p.now().available == 6u); // the device has taken three
  CHECK(p.received() == events{"1:received 1", "0:received 2", "1:received 3"});
  CHECK(p.outstanding() == 6);
  must(p.from[0].post(dat::send{p.a.at(0, 8)}.immediate(5).suppress_completion()));
  must(p.from[0].post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.immediate(6).suppress_completion()));
  CHECK(p.received() == events{"0:received immediate 4", "0:write arrived 5"});
  // Completions of a closed or reset endpoint are no events; their entries are free again.
  p.send(0);
  p.send(1);
  must(p.to[0].close());
  must(p.to[1].disconnect());
  must(p.to[1].reset());
  CHECK(p.outstanding() == 2);
  CHECK(p.received().empty());
  p.settle();
  CHECK(p.b.take() == events{"disconnected"});
  CHECK(p.a.take().size() == 2);
  must(p.from[1].reset());
  p.connect(p.from[1], p.to[1]);
  p.send(1);
  CHECK(p.received() == events{"1:received 8"});
}

TEST_CASE("data that arrives before the last handshake message waits for ESTABLISHED, also with a shared queue",
          "[SRQ-084][EVENT-036]") {
  const clean_world clean;
  const bool is_apart = GENERATE(false, true);
  CAPTURE(is_apart);
  end a{"fk1"};
  end b{"fk2"};
  auto psp = must(b.ia.create_psp(service, b.evd));
  auto srq = must(b.pz.create_srq());
  auto completions = must(b.ia.create_evd<data_streams>(16));
  a.make_ep();
  auto ep = is_apart ? must(b.pz.create_ep<dat::rc>({.recv = completions, .request = b.evd, .connect = b.evd}, srq))
                     : must(b.pz.create_ep<dat::rc>(b.evd, srq));
  for (int i = 1; i <= 2; ++i) must(srq.post(dat::recv{b.at(0, 16)}.cookie(i)));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  must(request_on(b.evd).accept(ep));
  settle(a, b);
  CHECK(a.take() == events{"established"});
  CHECK(ep.state() == ep_state::completion_pending);
  must(a.ep.post(dat::send{a.at(0, 8)}.suppress_completion()));
  if (is_apart) {
    CHECK(take(completions) == events{"received 1"});
    settle(a, b);
    CHECK(b.take() == events{"established"});
  } else {
    events all = b.take();
    settle(a, b);
    for (const auto& e : b.take()) all.push_back(e);
    CHECK(all == events{"established", "received 1"});
  }
  CHECK(ep.state() == ep_state::connected);
  fake::release_events();
  settle(a, b);
  CHECK(b.take().empty());
  // An endpoint that ends while its completions wait returns their entries.
  if (is_apart) return;
  auto peer = must(a.pz.create_ep<dat::rc>(a.evd));
  auto second = must(b.pz.create_ep<dat::rc>(b.evd, srq));
  must(peer.connect(b.ia.address(), service, plenty));
  settle(a, b);
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  must(request_on(b.evd).accept(second));
  settle(a, b);
  must(peer.post(dat::send{a.at(0, 8)}.suppress_completion()));
  CHECK(must(srq.query()).available == 0u);
  CHECK(must(srq.query()).outstanding == 1);
  must(second.close());
  CHECK(must(srq.query()).outstanding == 0);
  fake::release_events();
  settle(a, b);
}

TEST_CASE("the endpoint that takes a shared buffer decides which waiter its completion wakes",
          "[SRQ-079][COMP-028][EPATTR-005]") {
  const clean_world clean;
  end a{"fk1"};
  end b{"fk2"};
  auto psp = must(b.ia.create_psp(service, b.evd));
  auto srq = must(b.pz.create_srq());
  for (int i = 0; i < 8; ++i) must(srq.post(dat::recv{b.at(0, 8)}.cookie(i)));
  struct listener {
    dat::evd<dat::stream::dto | dat::stream::software> evd;
    dat::cno cno;
    dat::ep<dat::rc> from;
    shared_ep to;
    bool woken() { return cno.wait(0s).has_value(); }
  };
  std::deque<listener> all;
  for (const auto how : {dat::completion_notification::evd_threshold, dat::completion_notification::selective,
                         dat::completion_notification::solicited_wait}) {
    all.push_back({must(b.ia.create_evd<dat::stream::dto | dat::stream::software>(16)), must(b.ia.create_cno()),
                   must(a.pz.create_ep<dat::rc>(a.evd)), shared_ep()});
    auto& l = all.back();
    l.to = must(
        b.pz.create_ep<dat::rc>({.recv = l.evd, .request = b.evd, .connect = b.evd}, srq, {.recv_completion = how}));
    must(l.evd.modify_cno(l.cno));
    must(l.from.connect(b.ia.address(), service, plenty));
    settle(a, b);
    must(request_on(b.evd).accept(l.to));
    settle(a, b);
    (void)b.take();
    (void)l.woken();
  }
  const auto send = [&](listener& l, bool solicited) {
    auto message = dat::send{}.suppress_completion();
    must(l.from.post(solicited ? message.solicited() : message));
    settle(a, b);
  };
  for (auto& l : all) send(l, false);
  CHECK(all[0].woken());
  CHECK(all[1].woken()); // a buffer has no flag against notification
  CHECK_FALSE(all[2].woken());
  for (auto& l : all) send(l, true);
  for (auto& l : all) CHECK(l.woken());
  for (auto& l : all) CHECK(take(l.evd).size() == 2);
  // By default the endpoint is as the second one, where its evd may be.
  using dat::completion_notification;
  struct modes {
    completion_notification recv, request;
    bool operator==(const modes&) const = default;
  };
  constexpr modes selective{completion_notification::selective, completion_notification::selective};
  constexpr modes threshold{completion_notification::evd_threshold, completion_notification::evd_threshold};
  constexpr modes mixed{completion_notification::selective, completion_notification::evd_threshold};
  const auto chosen = [&](const dat::ep_evds& evds) {
    auto ep = must(b.pz.create_ep<dat::rc>(evds, srq));
    const auto now = must(ep.query()).attributes;
    CHECK(ep.attributes().recv_completion == now.recv_completion);
    return modes{now.recv_completion, now.request_completion};
  };
  auto own = must(b.ia.create_evd<dat::stream::dto | dat::stream::software>(16));
  CHECK(chosen({.recv = own, .request = b.evd, .connect = b.evd}) == mixed);
  CHECK(chosen({.recv = own, .request = own, .connect = b.evd}) == selective);
  CHECK(chosen({.recv = all[1].evd, .request = b.evd, .connect = b.evd}) == mixed);
  CHECK(chosen({.recv = b.evd, .request = b.evd, .connect = b.evd}) == threshold); // with events of connections
  DEVIATES("EP-031", "EPATTR-006");
  CHECK(chosen({.recv = all[0].evd, .request = b.evd, .connect = b.evd}) == threshold); // with queues of that value
  {
    // The choice waits for the evd, and a value that was given stays.
    auto late = must(b.ia.create_ep<dat::rc>({}, srq));
    CHECK(late.attributes().recv_completion == completion_notification::by_default);
    must(late.modify({.recv = own}));
    CHECK(late.attributes().recv_completion == completion_notification::selective);
    const auto given = must(b.pz.create_ep<dat::rc>({.recv = all[0].evd, .request = b.evd, .connect = b.evd}, srq,
                                                    {.recv_completion = completion_notification::evd_threshold}));
    CHECK(given.attributes().recv_completion == completion_notification::evd_threshold);
  }
  {
    // Other endpoints of the evd are as those that feed it now.
    const auto first = must(b.pz.create_ep<dat::rc>({.recv = own, .request = b.evd, .connect = b.evd}, srq));
    const auto next = must(b.pz.create_ep<dat::rc>({.recv = own, .request = own, .connect = b.evd}));
    CHECK(next.attributes().recv_completion == completion_notification::selective);
    CHECK(next.attributes().request_completion == completion_notification::selective);
  }
  {
    const auto alone = must(b.pz.create_ep<dat::rc>({.recv = own, .request = own, .connect = b.evd}));
    CHECK(alone.attributes().recv_completion == completion_notification::evd_threshold);
    CHECK(alone.attributes().request_completion == completion_notification::evd_threshold);
    CHECK(chosen({.recv = own, .request = b.evd, .connect = b.evd}) == threshold);
    const auto asked = must(b.pz.create_ep<dat::rc>({.recv = all[1].evd, .request = all[1].evd, .connect = b.evd},
                                                    {.request_completion = completion_notification::selective}));
    CHECK(asked.attributes().recv_completion == completion_notification::selective);
  }
  // All queues that feed one evd need the same mode.
  CHECK_FALSE(b.pz.create_ep<dat::rc>({.recv = all[1].evd, .request = b.evd, .connect = b.evd}, srq,
                                      {.recv_completion = completion_notification::evd_threshold}));
  CHECK_FALSE(b.pz.create_ep<dat::rc>({.recv = all[0].evd, .request = b.evd, .connect = b.evd}, srq,
                                      {.recv_completion = dat::completion_notification::selective}));
}

TEST_CASE("dropped events do not exhaust a shared queue", "[SRQ-059]") {
  const clean_world clean;
  end a{"fk1"};
  end b{"fk2"};
  auto psp = must(b.ia.create_psp(service, b.evd));
  auto srq = must(b.pz.create_srq({.max_recv_dtos = 3}));
  a.make_ep();
  auto ep = must(b.pz.create_ep<dat::rc>({.recv = dat::drop_events, .request = b.evd, .connect = b.evd}, srq));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(ep));
  settle(a, b);
  for (int i = 0; i < 20; ++i) {
    must(srq.post(dat::recv{b.at(0, 8)}));
    must(a.ep.post(dat::send{a.at(0, 8)}.suppress_completion()));
    settle(a, b);
  }
  CHECK(must(srq.query()).outstanding == 0);
}

TEST_CASE("threads post to one shared queue while others take, resize and query",
          "[SRQ-016][SRQ-044][SRQ-060][SRQ-071][EP-099][EP-066]") {
  const fake::with resizable{fake::current(), [](fake::manners& m) { m.srq_resize = true; }};
  const clean_world clean;
  pool p(2, {.max_recv_dtos = 20});
  constexpr int each = 150;
  int left = 2 * each;
  std::atomic<std::size_t> armed{0};
  const auto poster = [&](worker& w) {
    for (int i = 0; i < each;) {
      const auto r = p.srq.post(dat::recv{p.b.at(0, 8)}.cookie(i));
      if (r)
        ++i;
      else
        w.check(r.error().type() == return_type::insufficient_resources);
      if (!r) std::this_thread::yield();
    }
  };
  {
    worker one(poster);
    worker two(poster);
    worker maker([&](worker& w) {
      for (int i = 0; i < 20; ++i) {
        auto q = p.b.pz.create_srq({.max_recv_dtos = 3});
        w.check(q.has_value());
      }
    });
    worker meddler([&](worker& w) {
      for (int i = 0; i < 60; ++i) {
        const auto n = p.srq.query();
        w.check(n && n.assume_value().available.value_or(0) <= n.assume_value().outstanding &&
                n.assume_value().outstanding <= n.assume_value().max_recv_dtos);
        const auto r = p.srq.resize(i % 2 == 0 ? 40 : 20);
        w.check(r || r.error().type() == return_type::invalid_state);
        const auto s = p.srq.set_low_watermark(static_cast<std::uint32_t>(i % 3));
        w.check(s.has_value());
        if (i % 3 != 0) ++armed;
        w.check(p.to[0].set_watermark(40, dat::no_watermark).has_value());
      }
    });
    // This thread sends, and waits for room each time.
    int sent = 0;
    while (left > 0) {
      if (sent < 2 * each && sent - (2 * each - left) < 20) {
        must(p.from[static_cast<std::size_t>(sent % 2)].post(dat::send{p.a.at(0, 8)}));
        ++sent;
      }
      left -= static_cast<int>(p.received().size());
      (void)p.a.take();
      p.settle();
    }
  }
  CHECK(p.outstanding() == 0);
  CHECK(p.now().available == 0u);
  const auto told = async_of(p.b.ia);
  CHECK(static_cast<std::size_t>(std::count(told.begin(), told.end(), "low")) <= armed);
}
