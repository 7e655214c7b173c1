// Completions that a merged evd has set aside or drops, waits that look for them, and room for them.
// SPDX-License-Identifier: BSL-1.0
#include "../srq/pool_fake.hpp"
#include "allocations.hpp"
#include "async_events.hpp"
#include "lock_waits.hpp"

#include <dat/rmr.hpp>

#include <dat/detail/events/merged_evd.hpp>
#include <dat/detail/handle/core_access.hpp>

#include <support/asleep.hpp>

#include <cerrno>

using namespace unit;
using dat::ep_state;
using dat::return_subtype;
using dat::return_type;
using dat::detail::core_access;

namespace {

/// Names what evd_core has for its derived classes alone.
struct failed_polls : dat::detail::evd_core {
  static constexpr auto answer = &failed_polls::answer_poll_failure;
};

} // namespace

TEST_CASE("a message with flags that belong to no window has invalidated nothing", "[evd]") {
  const clean_world world;
  pair p;
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}.cookie(3)));
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}.suppress_completion()));
  fake::finish();
  ibv_wc wc{};
  REQUIRE(ibv_poll_cq(p.b.evd.native_handle(), 1, &wc) == 1);
  wc.wc_flags |= IBV_WC_IP_CSUM_OK; // the kernel's bit for an invalidation, with which libibverbs names a checksum
  wc.invalidated_rkey = 4711;
  fake::forge(p.b.evd.native_handle(), wc);
  const auto got = must(p.b.evd.wait_for<dat::recv_done>(0s));
  CHECK(got.cookie().value() == 3);
  CHECK_FALSE(got.invalidated());
}

TEST_CASE("a message closes no window whose key its completion has in a member that does not count", "[evd][rmr]") {
  const clean_world world;
  end a{"fk1"};
  end b{"fk2"};
  auto evd = must(a.ia.create_evd<all_streams | dat::stream::rmr_bind>(64));
  auto ep = must(a.pz.create_ep<dat::rc>(evd));
  b.make_ep();
  const auto psp = must(b.ia.create_psp(service, b.evd));
  must(ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(b.ep));
  settle(a, b);
  auto window = must(a.pz.create_rmr_for_ep());
  const auto open = must(window.bind(ep, dat::bind{a.mem, 0, 8, dat::remote_write}));
  must(ep.post(dat::recv{a.at(0, 8)}));
  (void)take(evd);
  must(b.ep.post(dat::send{b.at(0, 8)}.suppress_completion()));
  fake::finish();
  ibv_wc wc{};
  REQUIRE(ibv_poll_cq(evd.native_handle(), 1, &wc) == 1);
  REQUIRE((wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV)) == 0);
  wc.invalidated_rkey = open.rkey();
  fake::forge(evd.native_handle(), wc);
  static_cast<dat::detail::merged_evd&>(*core_access::of(evd)).drain(); // another call has taken it from the device
  CHECK_FALSE(must(evd.wait_for<dat::recv_done>(0s)).invalidated());
  CHECK(must(window.query()).binding);
}

TEST_CASE("completions whose events are dropped are kept by no call that takes them from the device", "[evd][ep]") {
  const clean_world world;
  pair p;
  auto ep =
      must(p.a.pz.create_ep<dat::rc>({.recv = dat::drop_events, .request = dat::drop_events, .connect = p.a.evd}));
  auto peer = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  p.connect(ep, peer);
  must(ep.post(dat::rdma_write{p.a.at(0, 1), p.b.mem.remote()}));
  fake::finish();
  auto found = dat::detail::merged_evd::sink_of(core_access::of(p.a.ia));
  REQUIRE(found);
  auto& sink = static_cast<dat::detail::merged_evd&>(*found.assume_value());
  sink.drain(); // as the reactor does during a graceful disconnect
  dat::detail::record r;
  std::uint32_t left = 0;
  CHECK_FALSE(sink.take(r, left));
}

TEST_CASE("a wait for selected completions finds one that came just before the device was armed", "[evd]") {
  const clean_world world;
  end a{"fk1"};
  end b{"fk2"};
  a.make_ep();
  auto evd = must(b.ia.create_evd<dat::stream::dto | dat::stream::software>(16));
  b.ep = must(b.pz.create_ep<dat::rc>({.recv = evd, .request = b.evd, .connect = b.evd},
                                      {.recv_completion = dat::completion_notification::selective}));
  const auto psp = must(b.ia.create_psp(service, b.evd));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(b.ep));
  settle(a, b);
  must(b.ep.post(dat::recv{b.at(0, 8)}.cookie(6)));
  bool sent = false;
  fake::intercept(fake::call::ibv_req_notify_cq, [&] {
    if (std::exchange(sent, true)) return;
    must(a.ep.post(dat::send{a.at(0, 8)}.suppress_completion()));
    fake::finish();
  });
  const auto got = must(evd.wait(plenty));
  fake::intercept(fake::call::ibv_req_notify_cq, {});
  CHECK(sent);
  CHECK(std::visit(describe{}, got) == "received 6");
}

TEST_CASE("messages of an endpoint that the visitor has ended are no events, with a shared queue too", "[evd][srq]") {
  const clean_world world;
  shared_queues::pool p(2);
  p.post(1, 4);
  p.send(0);
  p.send(0);
  p.send(1);
  fake::finish();
  events seen;
  while (p.evd.drain([&](const auto& e) {
    seen.push_back(describe{}(e));
    p.to[0] = {};
  }) != 0) {
  }
  CHECK(seen == events{"received 1", "received 3"});
  p.settle();
}

TEST_CASE("the lock of an evd has a mark for each thing that a call which takes events checks first", "[evd]") {
  const clean_world world;
  end e{"fk1", automatic};
  const auto marked = [](auto& evd) {
    dat::detail::ready_completion out;
    auto& core = static_cast<dat::detail::merged_evd&>(*core_access::of(evd));
    return core.take_ready(out, dat::detail::merged_evd::copies_none{}) == dat::detail::merged_evd::found::marked;
  };
  auto evd = must(e.ia.create_evd<dat::stream::dto | dat::stream::software>(8));
  CHECK_FALSE(marked(evd));
  must(evd.post(dat::cookie(1)));
  CHECK(marked(evd)); // an event is queued
  CHECK(evd.drain([](const auto&) {}) == 1);
  CHECK(evd.drain([](const auto&) {}) == 0);
  CHECK_FALSE(marked(evd));

  other_call waiter([&] { (void)evd.wait(plenty); });
  support::until_asleep(waiter.id(), plenty);
  CHECK(marked(evd)); // a thread waits
  is_error(evd.dequeue(), return_type::invalid_state, return_subtype::evd_waiter);
  must(evd.wake());
  waiter.join();
  is_error(evd.dequeue(), return_type::queue_empty);
  CHECK_FALSE(marked(evd));

  auto ep = must(e.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = e.evd},
                                         {.recv_completion = dat::completion_notification::selective,
                                          .request_completion = dat::completion_notification::selective}));
  CHECK_FALSE(marked(evd)); // without a waiter, selective completions need no check
  must(ep.close());

  end calls{"fk2", manual};
  auto served = must(calls.ia.create_evd<dat::stream::dto | dat::stream::software>(8));
  CHECK(marked(served)); // each call runs the reactor
  CHECK(served.drain([](const auto&) {}) == 0);
  CHECK(marked(served));
}

TEST_CASE("an evd with a service thread keeps the order of completions and other events, and skips no waiting event",
          "[evd]") {
  const clean_world world;
  end a{"fk1", automatic};
  end b{"fk2", automatic};
  auto evd = must(a.ia.create_evd<dat::stream::dto | dat::stream::software>(32));
  a.ep = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd}));
  b.make_ep();
  const auto psp = must(b.ia.create_psp(service, b.evd));
  must(a.ep.connect(b.ia.address(), service, plenty));
  must(must(b.evd.wait_for<dat::cr>(plenty)).accept(b.ep));
  (void)must(a.evd.wait_for<dat::established>(plenty));
  const auto write = [&](std::uint64_t n) {
    must(a.ep.post(dat::rdma_write{a.at(0, 1), b.mem.remote()}.cookie(n)));
    fake::finish();
  };
  std::vector<std::uint64_t> seen;
  const auto keep = [&](const auto& e) {
    if constexpr (requires { e.cookie(); }) seen.push_back(e.cookie().value());
  };
  for (std::uint64_t n = 0; n < 5; ++n) write(n);
  must(evd.post(dat::cookie(5)));
  write(6);
  CHECK(evd.drain(keep, 2) == 2);
  for (int i = 0; i < 4; ++i) std::visit(keep, must(evd.dequeue()));
  write(7);
  CHECK(evd.drain(keep, 1) == 1);
  CHECK(evd.drain(keep) == 1);
  write(8);
  std::visit(keep, must(evd.dequeue()));
  CHECK(seen == std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8});
  is_error(evd.dequeue(), return_type::queue_empty);
}

TEST_CASE("a failed poll wakes the thread that waits on the evd", "[evd]") {
  const clean_world world;
  end e{"fk1", automatic};
  e.make_ep();
  std::optional<dat::error> why;
  other_call waiter([&] {
    if (const auto r = e.evd.wait(plenty); !r) why = r.error();
  });
  support::until_asleep(waiter.id(), plenty);
  auto& evd = static_cast<dat::detail::merged_evd&>(*core_access::of(e.evd));
  fake::fail(fake::call::ibv_poll_cq, 1, EIO);
  evd.drain();
  (evd.*failed_polls::answer)();
  waiter.join();
  REQUIRE(why);
  CHECK(why->verb() == "ibv_poll_cq");
  CHECK(e.ia.async_evd().drain([](const auto&) {}) == 0); // the wait has returned the failure
}

TEST_CASE("a queue that cannot double its size grows as far as it must, whatever the error was", "[evd][ep]") {
  const clean_world world;
  end a;
  auto evd = must(a.ia.create_evd<dat::stream::dto>(8));
  for (const int err : {EPERM, ENOMEM}) {
    const int before = evd.native_handle()->cqe;
    fake::fail(fake::call::ibv_resize_cq, 1, err);
    const auto ep =
        must(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd},
                                     {.max_request_dtos = static_cast<std::uint32_t>(before), .max_recv_dtos = 1}));
    CHECK(evd.native_handle()->cqe > before);
  }
}

TEST_CASE("an endpoint that could not be made keeps no room in its evds", "[evd][ep]") {
  if (!refuses_allocations) SKIP("the build cannot refuse memory");
  fake::world small;
  small.devices[0].attr = fake::rxe_attr();
  small.devices[0].attr->max_cqe = 127;
  const clean_world world(small);
  end a;
  auto receives = must(a.ia.create_evd<dat::stream::dto>(8));
  auto requests = must(a.ia.create_evd<dat::stream::dto>(8));
  auto connections = must(a.ia.create_evd<dat::stream::connection>(1));
  dat::ep<dat::rc> ep;
  int failures = 0;
  for (; !ep; ++failures) {
    REQUIRE(failures < 50);
    const out_of_memory short_of_it(failures);
    auto made = a.pz.create_ep<dat::rc>({.recv = receives, .request = requests, .connect = connections},
                                        {.max_request_dtos = 70, .max_recv_dtos = 70});
    if (made)
      ep = std::move(made).value();
    else
      CHECK(made.error().type() == return_type::insufficient_resources);
  }
  CHECK(failures > 1);
  // The endpoint has two places for its connection events. A third event has none, and its loss is reported.
  for (int i = 0; i < 3; ++i) {
    must(ep.connect(a.ia.address(), 4711, plenty));
    for (int k = 0; k < 12; ++k) {
      fake::finish();
      a.ia.run();
    }
    REQUIRE(ep.state() == ep_state::disconnected);
    must(ep.reset());
  }
  CHECK(take(connections).size() == 2);
  CHECK(take_async<dat::evd_overflow>(a.ia) == 1);
}
