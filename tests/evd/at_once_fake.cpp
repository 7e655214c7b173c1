// Events that bypass the ring of a merged evd: completions that a wait finds on the device, and several that one drain
// takes.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <support/worker.hpp>

#include <cstdint>
#include <vector>

using namespace unit;

namespace {

/// Endpoints of one evd, each connected to a peer.
struct several_ends {
  explicit several_ends(std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      near.push_back(must(a.pz.create_ep<dat::rc>(a.evd, {.max_request_dtos = 32})));
      far.push_back(must(b.pz.create_ep<dat::rc>(b.evd)));
      must(near.back().connect(b.ia.address(), service, plenty));
      settle(a, b);
      must(request_on(b.evd).accept(far.back()));
      settle(a, b);
      b.take();
    }
    a.take();
  }
  end a{"fk1"};
  end b{"fk2"};
  dat::psp psp = must(b.ia.create_psp(service, b.evd));
  std::vector<dat::ep<dat::rc>> near;
  std::vector<dat::ep<dat::rc>> far;

  void write(std::size_t which, std::uint64_t n) {
    must(near[which].post(dat::rdma_write{a.at(0, 1), b.mem.remote()}.cookie(n)));
  }
};

} // namespace

TEST_CASE("a wait takes an event that is there, and leaves those of other kinds and endpoints in their order",
          "[EVENT-040][EVENT-058]") {
  clean_world world;
  several_ends m(2);
  for (std::uint64_t i = 0; i < 3; ++i) m.write(0, i);
  m.write(1, 10);
  must(m.near[0].post(dat::rdma_read{m.a.at(64, 8), m.b.mem.remote()}.cookie(3)));
  m.write(0, 4);
  fake::finish();
  const auto written = [&](std::size_t which) {
    return must(m.a.evd.wait_for<dat::rdma_write_done>(m.near[which], plenty));
  };
  CHECK(written(0).cookie().value() == 0);
  const auto other = written(1);
  CHECK(other.cookie().value() == 10);
  CHECK(other.ep() == m.near[1]);
  CHECK(other.bytes() == 1);
  CHECK(written(0).cookie().value() == 1);
  CHECK(must(m.a.evd.wait_for<dat::rdma_read_done>(plenty)).bytes() == 8);
  CHECK(take(m.a.evd) == events{"written 2", "written 4"});
}

TEST_CASE("manual progress advances connections beside a wait that always finds its event at once", "[progress]") {
  clean_world world;
  several_ends m(1);
  auto evd = must(m.a.ia.create_evd<dat::stream::dto | dat::stream::connection>(8));
  auto ep = must(m.a.pz.create_ep<dat::rc>(evd));
  auto peer = must(m.b.pz.create_ep<dat::rc>(m.b.evd));
  must(ep.connect(m.b.ia.address(), service, plenty));
  for (int i = 0; i < 100'000 && ep.state() != dat::ep_state::connected; ++i) {
    m.write(0, 1);
    (void)must(m.a.evd.wait_for<dat::rdma_write_done>(plenty));
    m.b.ia.run();
    if (auto e = m.b.evd.dequeue())
      if (auto* request = std::get_if<dat::cr>(&e.value())) must(request->accept(peer));
  }
  CHECK(ep.state() == dat::ep_state::connected);
}

TEST_CASE("a wait takes the first event at once, unless it is of another endpoint", "[EVENT-040][EVENT-058]") {
  clean_world world;
  several_ends m(2);
  m.write(1, 10);
  fake::finish();
  const auto first = must(m.a.evd.wait_for<dat::rdma_write_done>(plenty));
  CHECK(first.cookie().value() == 10);
  CHECK(first.ep() == m.near[1]);
  m.write(1, 11);
  m.write(0, 12);
  fake::finish();
  CHECK(must(m.a.evd.wait_for<dat::rdma_write_done>(m.near[0], plenty)).cookie().value() == 12);
  CHECK(take(m.a.evd) == events{"written 11"});
  // The wait that finds an event of another endpoint triggers the cno for it.
  auto cno = must(m.a.ia.create_cno());
  must(m.a.evd.modify_cno(cno));
  (void)cno.wait(0s); // takes the trigger that modify_cno may have caused
  m.write(1, 13);
  fake::finish();
  CHECK_FALSE(m.a.evd.wait_for<dat::rdma_write_done>(m.near[0], 0s));
  CHECK(cno.wait(0s).has_value());
  CHECK(take(m.a.evd) == events{"written 13"});
}

TEST_CASE("a wait for a message takes it at once with its length, and leaves one with immediate data",
          "[EVENT-040][EVENT-058]") {
  clean_world world;
  pair p;
  for (std::uint64_t i = 0; i < 3; ++i) must(p.b.ep.post(dat::recv{p.b.at(0, 64)}.cookie(i)));
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}.immediate(7)));
  must(p.a.ep.post(dat::send{p.a.at(0, 5)}));
  must(p.a.ep.post(dat::send{p.a.at(0, 6)}));
  p.settle();
  const auto plain = must(p.b.evd.wait_for<dat::recv_done>(plenty));
  CHECK(plain.bytes() == 5);
  CHECK(plain.cookie().value() == 1);
  CHECK(must(p.b.evd.wait_for<dat::ib::recv_immediate_done>(plenty)).immediate() == 7);
  CHECK(must(p.b.evd.wait_for<dat::recv_done>(p.b.ep, plenty)).bytes() == 6);
}

TEST_CASE("a wait that is interrupted, forbidden or refused takes no event, even if the event is there",
          "[EVENT-054][EVD-064]") {
  clean_world world;
  pair p;
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.cookie(4)));
  fake::finish();
  const auto wait = [&] { return p.a.evd.wait_for<dat::rdma_write_done>(p.a.ep, plenty); };

  must(p.a.evd.wake());
  is_error(wait(), dat::return_type::interrupted_call);
  must(p.a.evd.set_unwaitable());
  is_error(wait(), dat::return_type::invalid_state, dat::return_subtype::evd_unwaitable);
  must(p.a.evd.clear_unwaitable());
  support::worker other([&](support::worker& w) {
    w.check(p.a.evd.wait_for<dat::disconnected>(plenty).error().type() == dat::return_type::interrupted_call);
  });
  while (!dat::detail::core_access::of(p.a.evd)->has_waiter()) std::this_thread::yield();
  is_error(wait(), dat::return_type::invalid_state, dat::return_subtype::evd_waiter);
  must(p.a.evd.wake());
  other.join();
  CHECK(must(wait()).cookie().value() == 4);
  is_error(p.a.evd.wait_for<dat::rdma_write_done>(0us), dat::return_type::timeout_expired);
}

TEST_CASE(
    "a drain gives the completions of many queues in their order, and none of an endpoint that its visitor closes",
    "[EVENT-033][EPS-058]") {
  clean_world world;
  constexpr std::size_t ends = 3;
  constexpr std::uint64_t each = 15;
  several_ends m(ends);
  for (std::uint64_t n = 0; n < each; ++n)
    for (std::size_t i = 0; i < ends; ++i) m.write(i, n);
  fake::finish();
  std::array<std::uint64_t, ends> next{};
  std::size_t drained = 0;
  const auto visit = dat::overloaded{[&](const dat::rdma_write_done& e) {
                                       std::size_t which = 0;
                                       while (which < ends && !(m.near[which] == e.ep())) ++which;
                                       REQUIRE(which < ends);
                                       CHECK(e.cookie().value() == next[which]++);
                                       if (which == 1 && next[1] == 4) must(m.near[1].close());
                                     },
                                     [](const auto&) { FAIL("another event"); }};
  while (const std::size_t n = m.a.evd.drain(visit)) drained += n;
  CHECK(next == std::array<std::uint64_t, ends>{each, 4, each});
  CHECK(drained == 2 * each + 4);
}

TEST_CASE("a drain takes what completes between suppressed requests, and nothing of a queue that its visitor closes",
          "[EVENT-033][EPS-058]") {
  clean_world world;
  several_ends m(2);
  const auto write_quietly = [&](std::size_t which) {
    must(m.near[which].post(dat::rdma_write{m.a.at(0, 1), m.b.mem.remote()}.suppress_completion()));
  };
  for (std::size_t which = 0; which < 2; ++which)
    for (std::uint64_t n = 0; n < 8; ++n) {
      m.write(which, 10 * which + n);
      if (n % 3 == 0) write_quietly(which);
    }
  fake::finish();
  std::vector<std::uint64_t> seen;
  const auto visit = dat::overloaded{[&](const dat::rdma_write_done& e) {
                                       seen.push_back(e.cookie().value());
                                       if (e.cookie().value() == 3) must(m.near[0].close());
                                     },
                                     [](const auto&) { FAIL("another event"); }};
  CHECK(m.a.evd.drain(visit) == 12);
  CHECK(seen == std::vector<std::uint64_t>{0, 1, 2, 3, 10, 11, 12, 13, 14, 15, 16, 17});
  CHECK(m.a.evd.drain(visit) == 0);
  for (std::uint64_t n = 0; n < 32; ++n) write_quietly(1); // every entry is free again
  CHECK_FALSE(m.near[1].post(dat::rdma_write{m.a.at(0, 1), m.b.mem.remote()}));
}

TEST_CASE("a drain takes no more than its maximum, whatever is queued", "[EVENT-033]") {
  clean_world world;
  several_ends m(2);
  for (std::uint64_t n = 0; n < 40; ++n) m.write(n / 3 % 2, n);
  fake::finish();
  std::size_t taken = 0;
  const auto count = [&](const auto&) { ++taken; };
  for (const std::size_t most : {0u, 1u, 2u, 16u, 17u, 4u}) {
    const std::size_t before = taken;
    CHECK(m.a.evd.drain(count, most) == (most < 40 - before ? most : 40 - before));
    CHECK(taken - before == (most < 40 - before ? most : 40 - before));
  }
  CHECK(taken == 40);
}

TEST_CASE("a call that takes a completion at once takes none where the device has none", "[evd]") {
  clean_world world;
  pair p;
  auto& evd = static_cast<dat::detail::merged_evd&>(*dat::detail::core_access::of(p.b.evd));
  const auto take_receive = [&](dat::detail::ready_completion& out) {
    return evd.take_at_once(dat::detail::work_of<dat::recv_done>, nullptr, out);
  };
  for (int i = 0; i < 2; ++i) must(p.b.ep.post(dat::recv{p.b.at(0, 8)}));
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}));
  p.settle();
  dat::detail::ready_completion done;
  REQUIRE(take_receive(done));
  CHECK_FALSE(take_receive(done)); // `done` still names an entry of the endpoint
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}));
  p.settle();
  CHECK(take_receive(done));
}
