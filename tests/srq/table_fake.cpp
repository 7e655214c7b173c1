// Where a shared queue keeps its endpoints, and what becomes of buffers that the device takes in part.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/srq.hpp>

#include <dat/detail/posting/endpoint_table.hpp>

#include <support/worker.hpp>

#include <atomic>
#include <deque>

using namespace unit;

namespace {

using table_ep = dat::ep<dat::with_srq<dat::rc>>;

/// The table, freed at its end.
struct freed_table : dat::detail::endpoint_table {
  ~freed_table() { free(); }
};

} // namespace

TEST_CASE("an endpoint table finds each number that it has, and no other, in any order of insertions and removals",
          "[srq]") {
  freed_table t;
  CHECK(t.find(1) == 0);
  t.erase(1); // of an empty table
  // Numbers that share a slot of 16, then of 32, and neighbours of these slots.
  const std::uint32_t numbers[] = {1, 17, 33, 2, 49, 3, 15, 31, 16, 65, 4, 18, 47};
  for (const std::uint32_t& n : numbers) {
    REQUIRE(t.insert(n, n + 1000));
    for (const std::uint32_t& one : numbers) CHECK(t.find(one) == (&one <= &n ? one + 1000 : 0));
  }
  for (const std::uint32_t gone : numbers) {
    t.erase(gone);
    t.erase(gone); // a number that it no longer has
    CHECK(t.find(gone) == 0);
    bool behind = false;
    for (const std::uint32_t known : numbers) {
      if (behind) CHECK(t.find(known) == known + 1000);
      behind = behind || known == gone;
    }
  }
  for (std::uint32_t n = 1; n <= 100; ++n) REQUIRE(t.insert(n, n));
  for (std::uint32_t n = 1; n <= 100; ++n) CHECK(t.find(n) == n);
}

TEST_CASE("an endpoint is found in its table while a thread inserts others, and removes them", "[srq]") {
  freed_table t;
  REQUIRE(t.insert(5, 1005));
  REQUIRE(t.insert(21, 1021)); // not in its first slot
  std::atomic<bool> over{false};
  support::worker changes([&](support::worker& w) {
    for (std::uint32_t round = 0; round < 20; ++round) {
      for (std::uint32_t n = 100; n < 160; ++n) w.check(t.insert(n, n));
      for (std::uint32_t n = 100; n < 160; ++n) t.erase(n);
    }
    over = true;
  });
  bool found = true;
  while (!over) found = found && t.find(5) == 1005 && t.find(21) == 1021 && t.find(7) == 0;
  changes.join();
  CHECK(found);
}

TEST_CASE("a reset endpoint leaves its shared queue, also where numbers of queue pairs are used again", "[srq]") {
  const fake::with manner{fake::current(), [](fake::manners& m) { m.reuse_qp_numbers = true; }};
  const clean_world clean;
  end a("fk1"), b("fk2");
  auto srq = must(b.pz.create_srq());
  const auto psp = must(b.ia.create_psp(service, b.evd));
  const auto connected = [&](table_ep& ep) {
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
    must(request_on(b.evd).accept(ep));
    settle(a, b);
    CHECK(a.take() == events{"established"});
    CHECK(b.take() == events{"established"});
  };
  a.make_ep();
  auto first = must(b.pz.create_ep<dat::rc>(b.evd, srq));
  connected(first);
  const auto number = first.number();
  must(first.disconnect());
  settle(a, b);
  (void)a.take(), (void)b.take();
  must(a.ep.reset());
  must(first.reset());
  std::deque<table_ep> others; // one of them has the number that is free
  while (others.size() < 8 && (others.empty() || others.back().number() != number))
    others.push_back(must(b.pz.create_ep<dat::rc>(b.evd, srq)));
  REQUIRE(others.back().number() == number);
  connected(others.back());
  must(srq.post(dat::recv{b.at(0, 8)}.cookie(3)));
  must(a.ep.post(dat::send{a.at(0, 8)}));
  const auto got = must(b.evd.wait_for<dat::recv_done>(0s));
  CHECK(got.cookie() == dat::cookie(3));
  CHECK(got.ep() == others.back());
}

TEST_CASE("buffers of which the device takes some stay outstanding, and the error names the first of the others",
          "[srq]") {
  const clean_world clean;
  end b;
  auto srq = must(b.pz.create_srq({.max_recv_dtos = 7}));
  // A request of the program's own takes a place of the device's queue.
  ibv_sge none{};
  ibv_recv_wr own{};
  own.sg_list = &none;
  own.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  for (int i = 0; i < 5; ++i) REQUIRE(ibv_post_srq_recv(srq.native_handle(), &own, &bad) == 0);
  const auto refused = srq.post(dat::recv{b.at(0, 8)}.cookie(1), dat::recv{b.at(8, 8)}.cookie(2),
                                dat::recv{b.at(16, 8)}.cookie(3), dat::recv{b.at(24, 8)}.cookie(4));
  is_error(refused, dat::return_type::insufficient_resources, dat::return_subtype::resource_srq);
  CHECK(refused.error().index() == 2);
  CHECK(must(srq.query()).outstanding == 2);
}
