// Changes of a shared queue, of its table of endpoints and of its work entries: their locks, limits and events.
// SPDX-License-Identifier: BSL-1.0
#include "allocations.hpp"
#include "lock_waits.hpp"
#include "world.hpp"

#include <dat/srq.hpp>

#include <dat/detail/endpoint/core.hpp>
#include <dat/detail/posting/endpoint_table.hpp>

#include <array>
#include <atomic>
#include <deque>
#include <optional>
#include <thread>

namespace unit {
struct lock_of_table {
  friend dat::detail::control_mutex dat::detail::endpoint_table::*member(lock_of_table);
};
template struct opened_member<lock_of_table, &dat::detail::endpoint_table::mutex_>;
struct lock_of_srq {
  friend dat::detail::control_mutex dat::detail::srq_core::*member(lock_of_srq);
};
template struct opened_member<lock_of_srq, &dat::detail::srq_core::mutex_>;
struct lock_of_evd {
  friend dat::detail::quick_mutex dat::detail::merged_evd::*member(lock_of_evd);
};
template struct opened_member<lock_of_evd, &dat::detail::merged_evd::mutex_>;
struct lock_of_grown_feeds {
  friend dat::detail::control_mutex dat::detail::evd_core::*member(lock_of_grown_feeds);
};
template struct opened_member<lock_of_grown_feeds, &dat::detail::evd_core::feed_mutex_>;
} // namespace unit

namespace locked_changes {

using namespace unit;

namespace {

struct table : dat::detail::endpoint_table {
  ~table() { free(); }
};

/// Entries of a shared queue outside of a world.
struct entries : dat::detail::shared_queue {
  explicit entries(std::uint32_t n) {
    REQUIRE(arena.reserve() == 0);
    entries_ = arena.base();
    auto* const first = arena.allocate(n);
    REQUIRE(first);
    (void)arena.renew(first, n);
    for (std::uint32_t i = 0; i < n; ++i) give_back(first[i]);
  }
  dat::detail::work_arena arena;
};

events async_of(dat::ia& ia) {
  events all;
  ia.run();
  while (ia.async_evd().drain(dat::overloaded{[&](const dat::srq_low_watermark&) { all.emplace_back("low"); },
                                              [&](const dat::srq_error&) { all.emplace_back("error"); },
                                              [&](const auto&) { all.emplace_back("another"); }}) != 0) {
  }
  return all;
}

} // namespace

TEST_CASE("insertions, removals and searches of a table of endpoints wait for each other", "[srq][locks]") {
  table t;
  REQUIRE(t.insert(1, 11));
  auto& lock = t.*member(lock_of_table());
  CHECK(locked_out(lock, [&] { (void)t.insert(2, 12); }));
  CHECK(t.find(2) == 12);
  CHECK(locked_out(lock, [&] { t.erase(2); }));
  CHECK(locked_out(lock, [&] { (void)t.find(2); }));
  CHECK(t.find(2) == 0);
}

TEST_CASE("an evd reserves places for completions with its lock", "[evd][locks]") {
  const clean_world world;
  end a;
  const auto core = dat::detail::core_access::of(a.evd);
  auto& evd = static_cast<dat::detail::merged_evd&>(*core);
  bool reserved = false;
  CHECK(locked_out(evd.*member(lock_of_evd()), [&] { reserved = evd.reserve_completions(8); }));
  CHECK(reserved);
}

TEST_CASE("an evd that had no memory for more completions keeps to the places that it has", "[evd]") {
  if (!refuses_allocations) SKIP("the build cannot refuse memory");
  const clean_world world;
  end a;
  const auto core = dat::detail::core_access::of(a.evd);
  auto& evd = static_cast<dat::detail::merged_evd&>(*core);
  REQUIRE(evd.reserve_completions(8));
  {
    const out_of_memory none(0);
    CHECK_FALSE(evd.reserve_completions(100'000));
    CHECK(out_of_memory::failed());
  }
  const out_of_memory none(0);
  CHECK(evd.reserve_completions(1)); // there is room already
  CHECK_FALSE(out_of_memory::failed());
}

TEST_CASE("an evd that an endpoint attaches while its shared queue grows has room for every buffer", "[srq][locks]") {
  const fake::with resizable{fake::personality::kind, [](fake::manners& m) { m.srq_resize = m.srq_query = true; }};
  const clean_world world;
  end a;
  auto evd = must(a.ia.create_evd<all_streams>(1));
  auto srq = must(a.pz.create_srq({.max_recv_dtos = 31}));
  dat::ep<dat::rc> ep;
  {
    // The modes are given, so that the endpoint needs the lock to attach the evd, and not to choose them.
    const dat::ep_attributes attributes{.max_request_dtos = 1,
                                        .recv_completion = dat::completion_notification::evd_threshold,
                                        .request_completion = dat::completion_notification::evd_threshold};
    std::optional<other_call> create;
    const auto core = dat::detail::core_access::of(evd);
    auto& lock = (*core).*member(lock_of_grown_feeds());
    const auto grow = [&] { must(srq.resize(127)); };
    // The growth does not find the evd, whose lock it waits for first. The endpoint knows the old size only.
    CHECK(locked_out(lock, grow, [&] {
      create.emplace([&] { ep = must(a.pz.create_ep<dat::rc>(evd, srq, attributes)); });
      CHECK(create->waits());
    }));
  }
  CHECK(must(srq.query()).max_recv_dtos == 127);
  CHECK(evd.native_handle()->cqe > 127);
}

TEST_CASE("a table in which endpoints come and go does not grow", "[srq]") {
  table t;
  REQUIRE(t.insert(1, 11));
  const auto before = allocations();
  for (std::uint32_t n = 2; n < 200; ++n) {
    REQUIRE(t.insert(n, n));
    t.erase(n);
  }
  if (counts_allocations) CHECK(allocations() == before);
  CHECK(t.find(1) == 11);
}

TEST_CASE("a table of endpoints that has grown finds the old and the new ones without a search", "[srq]") {
  table t;
  for (std::uint32_t n = 16; n < 32; ++n) {
    REQUIRE(t.insert(n, n + 100));
    CHECK(t.find_fast(n) == n + 100);
    CHECK(t.find_fast(16) == 116);
  }
  for (std::uint32_t n = 16; n < 32; ++n) CHECK(t.find_fast(n) == n + 100);
  t.free();
  for (std::uint32_t n = 16; n < 32; ++n) CHECK(t.find(n) == 0);
  REQUIRE(t.insert(17, 7));
  CHECK(t.find(17) == 7);
}

TEST_CASE("an endpoint leaves its table from any place behind its first one", "[srq]") {
  table t;
  for (std::uint32_t i = 0; i < 5; ++i) REQUIRE(t.insert(16 * i + 3, i + 1)); // all of them begin at one place
  for (const std::uint32_t i : {1u, 3u, 4u, 2u, 0u}) {
    t.erase(16 * i + 3);
    CHECK(t.find(16 * i + 3) == 0);
  }
}

TEST_CASE("threads never take the same entry of a shared queue", "[srq]") {
  constexpr std::uint32_t n = 4;
  entries queue(n);
  std::array<std::atomic<int>, n> owners{};
  std::array<std::atomic<int>, n> last_user{};
  std::atomic<int> turns{0}; // entries that the other thread had before
  std::atomic<bool> twice{false};
  const auto take = [&](int user) {
    // On a busy machine the threads may run one after the other for a while, and then never meet.
    for (int i = 0; (i < 200'000 || (turns < 20'000 && i < 2'000'000)) && !twice; ++i) {
      dat::detail::work_entry* e = nullptr;
      if (!queue.take(e)) continue;
      const auto which = static_cast<std::size_t>(e->id() & 0xffff'ffff) / sizeof *e % n;
      if (++owners[which] != 1) twice = true;
      if (last_user[which].exchange(user) != user) ++turns;
      --owners[which];
      queue.give_back(*e);
    }
  };
  std::jthread other(take, 1);
  take(2);
  other.join();
  CHECK_FALSE(twice);
}

TEST_CASE("a shared queue of the least and of the largest size takes exactly its buffers", "[srq]") {
  fake::world w;
  w.devices[0].attr = fake::rxe_attr();
  w.devices[0].attr->max_srq = 1;
  w.devices[0].attr->max_srq_wr = 31;
  w.devices[0].attr->max_srq_sge = 2;
  const clean_world world(w);
  end e;
  const std::uint32_t n = GENERATE(1u, 31u);
  CAPTURE(n);
  auto srq = must(e.pz.create_srq({.max_recv_dtos = n, .max_recv_iov = 2}));
  const auto size = must(srq.query()).max_recv_dtos;
  CHECK(size >= n);
  std::uint32_t posted = 0;
  while (posted < 64 && srq.post(dat::recv{e.at(0, 8)})) ++posted;
  CHECK(posted == size);
  CHECK(srq.post(dat::recv{}).error().object_id() == srq.native_handle()->handle);
  is_error(e.pz.create_srq({.max_recv_dtos = 32}), dat::return_type::invalid_parameter, dat::return_subtype::arg3);
  is_error(e.pz.create_srq({.max_recv_dtos = 1, .max_recv_iov = 3}), dat::return_type::invalid_parameter,
           dat::return_subtype::arg3);
}

TEST_CASE("a shared queue that fails reports it, once", "[srq]") {
  const clean_world world;
  end e;
  auto srq = must(e.pz.create_srq({.max_recv_dtos = 7}));
  fake::async(IBV_EVENT_SRQ_ERR, srq.native_handle());
  CHECK(async_of(e.ia) == events{"error"});
  fake::async(IBV_EVENT_SRQ_ERR, srq.native_handle());
  CHECK(async_of(e.ia).empty());
}

TEST_CASE("a low watermark of 1 is reported like any other, once", "[srq]") {
  const fake::with queried{fake::current(), [](fake::manners& m) { m.srq_query = true; }};
  const clean_world world;
  end e;
  auto srq = must(e.pz.create_srq({.max_recv_dtos = 7}));
  must(srq.set_low_watermark(1));
  CHECK(async_of(e.ia) == events{"low"}); // there is no buffer
  fake::async(IBV_EVENT_SRQ_LIMIT_REACHED, srq.native_handle());
  CHECK(async_of(e.ia).empty());
  for (int i = 0; i < 4; ++i) must(srq.post(dat::recv{e.at(0, 8)}));
  must(srq.set_low_watermark(3));
  fake::async(IBV_EVENT_SRQ_LIMIT_REACHED, srq.native_handle()); // of the watermark 1
  CHECK(async_of(e.ia).empty());
}

TEST_CASE("the first low watermark is reported without a query of the device", "[srq]") {
  const clean_world world;
  end e;
  auto srq = must(e.pz.create_srq({.max_recv_dtos = 7}));
  for (int i = 0; i < 4; ++i) must(srq.post(dat::recv{e.at(0, 8)}));
  must(srq.set_low_watermark(2));
  const auto before = fake::count(fake::call::ibv_query_srq);
  fake::async(IBV_EVENT_SRQ_LIMIT_REACHED, srq.native_handle()); // of a device that keeps its limit
  CHECK(async_of(e.ia) == events{"low"});
  CHECK(fake::count(fake::call::ibv_query_srq) == before);
}

TEST_CASE("a shared queue waits for the work entries of its ia, and for a thread that changes it", "[srq][locks]") {
  const clean_world world;
  end e;
  auto srq = must(e.pz.create_srq({.max_recv_dtos = 7}));
  auto& ia = *dat::detail::core_access::of(e.ia);
  dat::srq second;
  CHECK(locked_out(ia.work_mutex, [&] { second = must(e.pz.create_srq({.max_recv_dtos = 7})); }));
  const auto core = dat::detail::core_access::of(srq);
  CHECK(locked_out((*core).*member(lock_of_srq()), [&] { (void)srq.close(); }));
  CHECK_FALSE(srq);
  // Its entries are found until it has the lock.
  dat::detail::work_entry* entry = nullptr;
  REQUIRE(dat::detail::core_access::of(second)->take(entry));
  const auto id = entry->id();
  dat::detail::core_access::of(second)->give_back(*entry);
  bool found = false;
  CHECK(locked_out(
      ia.work_mutex, [&] { (void)second.close(); }, [&] { found = ia.work.find(id) == entry; }));
  CHECK(found);
  CHECK(ia.work.find(id) == nullptr);
}

TEST_CASE("a shared queue frees its work entries when no other thread uses those of its ia", "[srq][locks]") {
  const clean_world world;
  end e;
  auto srq = must(e.pz.create_srq({.max_recv_dtos = 7}));
  auto& ia = *dat::detail::core_access::of(e.ia);
  auto& evd = static_cast<dat::detail::merged_evd&>(*dat::detail::core_access::of(e.evd));
  std::unique_lock taking(evd.*member(lock_of_evd()));
  other_call closing([&] { (void)srq.close(); });
  CHECK(closing.waits()); // for the thread that takes completions
  std::unique_lock entries(ia.work_mutex);
  taking.unlock();
  CHECK(closing.waits());
  entries.unlock();
  closing.join();
  CHECK_FALSE(srq);
}

TEST_CASE("a shared queue ends after a thread that takes completions has left its evd", "[srq][locks]") {
  const clean_world world;
  end e;
  auto srq = must(e.pz.create_srq({.max_recv_dtos = 7}));
  CHECK(waits(
      fake::call::ibv_poll_cq, [&] { (void)e.evd.dequeue(); }, [&] { (void)srq.close(); }));
}

} // namespace locked_changes
