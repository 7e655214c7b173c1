// The ways by which a post reaches the device: unchecked, in lists, by post_n, refused, and when the connection ends.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/credits.hpp>
#include <dat/ib_query.hpp>
#include <dat/policies.hpp>

#include <support/worker.hpp>

#include <algorithm>
#include <array>
#include <atomic>

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

constexpr auto word_rights = dat::local_read | dat::local_write | dat::remote_read | dat::remote_atomic;

/// The length of the message that the receive with this cookie has received.
template <class Events>
std::size_t length_of(Events& evd, std::uint64_t cookie) {
  fake::finish();
  const auto got = must(evd.template wait_for<dat::recv_done>(0s));
  CHECK(got.cookie() == dat::cookie(cookie));
  return got.bytes();
}

} // namespace

TEST_CASE("an unchecked list without segments sends nothing and receives nothing", "[posting]") {
  const clean_world world;
  pair p;
  const dat::iov<1, dat::local_read.value> nothing;
  const dat::iov<1, dat::local_write.value> no_room;
  must(p.b.ep.post<dat::unchecked>(dat::recv{p.b.at(0, 8)}.cookie(1), dat::recv{p.b.at(8, 8)}.cookie(2)));
  must(p.a.ep.post<dat::unchecked>(dat::send{p.a.at(0, 5)}));
  must(p.a.ep.post<dat::unchecked>(dat::send{nothing}));
  CHECK(length_of(p.b.evd, 1) == 5);
  CHECK(length_of(p.b.evd, 2) == 0);
  must(p.b.ep.post<dat::unchecked>(dat::recv{p.b.at(16, 8)}.cookie(3)));
  must(p.a.ep.post<dat::unchecked>(dat::send{}));
  CHECK(length_of(p.b.evd, 3) == 0);
  p.b.memory.fill('-');
  must(p.b.ep.post<dat::unchecked>(dat::recv{no_room}.cookie(4)));
  must(p.a.ep.post<dat::unchecked>(dat::send{p.a.at(0, 5)}));
  const auto all = p.b.take();
  REQUIRE_FALSE(all.empty());
  CHECK(all.front() != "received 4");
  CHECK(std::string_view(p.b.memory.data(), 24) == std::string(24, '-'));
  p.settle();
  (void)p.a.take();
}

TEST_CASE("an unchecked receive of another zone reaches the device", "[posting]") {
  const clean_world world;
  pair p;
  auto stranger = must(p.b.ia.create_pz());
  auto foreign = must(stranger.register_memory(p.b.memory, all_rights));
  is_error(p.b.ep.post(dat::recv{must(foreign.slice(0, 8))}), return_type::protection_violation,
           return_subtype::protection_write);
  must(p.b.ep.post<dat::unchecked>(dat::recv{must(foreign.slice(0, 8))}.cookie(1)));
  CHECK(fake::posted_receives(p.b.ep.native_handle()) == 1);
}

TEST_CASE("post_n posts requests without data as empty messages, each in its place", "[posting]") {
  const clean_world world;
  pair p;
  for (std::uint64_t i = 0; i < 6; ++i) must(p.b.ep.post(dat::recv{p.b.at(i * 8, 8)}.cookie(i)));
  must(p.a.ep.post_n(
      6, [&](std::size_t i) { return dat::send{p.a.at(0, i % 3 == 1 ? 0 : i + 1)}.cookie(dat::cookie(100 + i)); }));
  CHECK(p.a.take() == events{"sent 100", "sent 101", "sent 102", "sent 103", "sent 104", "sent 105"});
  for (std::uint64_t i = 0; i < 6; ++i) CHECK(length_of(p.b.evd, i) == (i % 3 == 1 ? 0 : i + 1));
}

TEST_CASE("an atomic changes one word, and its local segment may be longer", "[posting]") {
  const clean_world world;
  pair p;
  std::array<std::uint64_t, 3> here{1, 1, 1};
  std::array<std::uint64_t, 3> there{7, 8, 9};
  auto mine = must(p.a.pz.register_memory(here, word_rights));
  auto theirs = must(p.b.pz.register_memory(there, word_rights));
  must(p.a.ep.post(dat::ib::fetch_and_add{mine, must(theirs.remote(1, 2)), 5}.cookie(1)));
  CHECK(p.a.take() == events{"added 1"});
  CHECK(here == std::array<std::uint64_t, 3>{8, 1, 1});
  CHECK(there == std::array<std::uint64_t, 3>{7, 13, 9});
}

TEST_CASE("completions of extended operations come on the evd of the requests, between those of others", "[posting]") {
  const clean_world world;
  pair p;
  std::array<std::uint64_t, 2> here{};
  std::array<std::uint64_t, 2> there{7, 8};
  auto mine = must(p.a.pz.register_memory(here, word_rights));
  auto theirs = must(p.b.pz.register_memory(there, word_rights));
  auto received = must(p.a.ia.create_evd<dat::stream::dto>(16));
  auto requested = must(p.a.ia.create_evd<dat::stream::dto>(16));
  auto ep = must(p.a.pz.create_ep<dat::rc>({.recv = received, .request = requested, .connect = p.a.evd}));
  auto far = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  p.connect(ep, far);
  (void)p.a.take();
  (void)p.b.take();
  must(ep.post(dat::rdma_write{p.a.at(0, 1), p.b.mem.remote()}.cookie(1)));
  must(ep.post(dat::ib::fetch_and_add{must(mine.slice(0, 1)), must(theirs.remote(0, 1)), 5}.cookie(2)));
  must(ep.post(dat::rdma_write{p.a.at(0, 1), p.b.mem.remote()}.cookie(3)));
  CHECK(take(requested) == events{"written 1", "added 2", "written 3"});
  SHOWS("EVENT-031");
  CHECK(take(received).empty());
  CHECK(p.a.take().empty());
}

TEST_CASE("an atomic on a connection without reads is refused for that reason, and one without a word for its length",
          "[posting]") {
  const clean_world world;
  pair p({.max_rdma_read_out = 0});
  std::array<std::uint64_t, 1> word{};
  auto mine = must(p.a.pz.register_memory(word, word_rights));
  auto theirs = must(p.b.pz.register_memory(word, word_rights));
  is_error(p.a.ep.post(dat::ib::fetch_and_add{mine, theirs.remote(), 1}), return_type::invalid_parameter,
           return_subtype::arg1);
  is_error(p.a.ep.post(dat::ib::fetch_and_add{must(mine.slice(0, 0)), theirs.remote(), 1}), return_type::length_error);
  CHECK(p.a.take().empty());
}

TEST_CASE("an adapter without immediate data refuses it, before any request of the call is posted", "[posting]") {
  const fake::with iwarp(fake::personality::iwarp);
  const clean_world world;
  pair p;
  const auto before = fake::count(fake::call::ibv_post_send);
  const auto refused = [](const dat::expected<void>& r) {
    is_error(r, return_type::model_not_supported);
    CHECK(r.error().index() == 0);
  };
  refused(p.a.ep.post(dat::send{p.a.at(0, 4)}, dat::send{p.a.at(0, 4)}.immediate(1)));
  dat::batch<2> batch;
  CHECK(batch.push_back(dat::send{p.a.at(0, 4)}.immediate(1)));
  refused(p.a.ep.post(batch));
  CHECK(fake::count(fake::call::ibv_post_send) == before);
  batch.clear();
  CHECK(batch.push_back(dat::send{p.a.at(0, 4)}.cookie(2)));
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}));
  must(p.a.ep.post(batch));
  CHECK(p.a.take() == events{"sent 2"});
  const auto apart = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  refused(apart.post(dat::send{p.a.at(0, 4)}.immediate(1)));
}

TEST_CASE("a state that has no name of its own has no subtype", "[posting]") {
  CHECK(dat::detail::subtype_of(dat::ep_state::completion_pending) == return_subtype::ep_complpending);
  const auto behind = static_cast<int>(dat::ep_state::completion_pending) + 1;
  CHECK(dat::detail::subtype_of(static_cast<dat::ep_state>(behind)) == return_subtype::none);
}

TEST_CASE("a receive that is posted while its connection ends is flushed, also on devices that do not flush it",
          "[posting]") {
  const clean_world world;
  pair p;
  fake::tweak([](fake::world& w) { w.flush_late_receives = false; });
  bool over = false;
  fake::intercept(fake::call::ibv_post_recv, [&] {
    if (!std::exchange(over, true)) must(p.b.ep.disconnect(dat::close_mode::abrupt));
  });
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}.cookie(9)));
  fake::intercept(fake::call::ibv_post_recv, {});
  p.settle();
  const auto all = p.b.take();
  CHECK(std::count(all.begin(), all.end(), "flushed 9") == 1);
  (void)p.a.take();
}

TEST_CASE("requests and receives that are refused for the state leave both queues idle", "[posting]") {
  const clean_world world;
  end e;
  e.make_ep();
  is_error(e.ep.post(dat::send{}), return_type::invalid_state, return_subtype::ep_unconnected);
  CHECK(dat::detail::core_access::of(e.ep)->requests().used() == 0);
}

TEST_CASE("a receive that the device refuses leaves no flag to the next one", "[posting]") {
  const clean_world world;
  end a("fk1"), b("fk2");
  const auto psp = must(b.ia.create_psp(service, b.evd));
  const dat::ep_attributes selective{.recv_completion = dat::completion_notification::selective};
  auto receives = must(b.ia.create_evd<dat::stream::dto | dat::stream::software>(16));
  a.make_ep();
  b.ep = must(b.pz.create_ep<dat::rc>({.recv = receives, .request = b.evd, .connect = b.evd}, selective));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(b.ep));
  settle(a, b);
  (void)a.take(), (void)b.take();
  const auto& ring = dat::detail::core_access::of(b.ep)->receives();
  fake::fail(fake::call::ibv_post_recv, 1, ENOMEM);
  CHECK_FALSE(b.ep.post(dat::recv{b.at(0, 8)}.suppress_notification(), dat::recv{b.at(0, 8)}.suppress_notification()));
  CHECK(ring.used() == 0);
  const auto* const next = ring.next();
  CHECK(next->posted.notifies());
  CHECK(next->next->posted.notifies());
  must(b.ep.post(dat::recv{b.at(0, 8)}.cookie(2)));
  must(a.ep.post(dat::send{a.at(0, 4)}));
  fake::finish();
  CHECK(take(receives) == events{"received 2"});
  (void)a.take();
}

TEST_CASE("a list counts the segments that transfer something, and long lists keep their first one", "[posting]") {
  const clean_world world;
  pair p({.max_request_iov = 9});
  const dat::iov some{p.a.at(0, 4), p.a.at(4, 0), p.a.at(4, 4)};
  CHECK(some.size() == 2);
  for (std::size_t i = 0; i < 9; ++i) p.a.memory[2 * i] = static_cast<char>('a' + i);
  dat::iov<9, all_rights.value> all;
  for (std::size_t i = 0; i < 9; ++i) CHECK(all.push_back(p.a.at(2 * i, 1)));
  CHECK(all.size() == 9);
  must(p.a.ep.post(dat::rdma_write{all, must(p.b.mem.remote(0, 9))}.cookie(1)));
  CHECK(p.a.take() == events{"written 1"});
  CHECK(std::string_view(p.b.memory.data(), 9) == "abcdefghi");
  all.clear();
  for (std::size_t i = 9; i-- > 0;) CHECK(all.push_back(p.a.at(2 * i, 1)));
  must(p.a.ep.post(dat::rdma_write{all, must(p.b.mem.remote(0, 9))}.cookie(2)));
  CHECK(p.a.take() == events{"written 2"});
  CHECK(std::string_view(p.b.memory.data(), 9) == "ihgfedcba");
}

TEST_CASE("an empty part of a segment is of every zone", "[posting]") {
  const clean_world world;
  pair p;
  auto stranger = must(p.a.ia.create_pz());
  auto foreign = must(stranger.register_memory(p.a.memory, all_rights));
  const auto whole = must(foreign.slice(0, 8));
  is_error(p.a.ep.post(dat::send{must(whole.slice(0, 1))}), return_type::protection_violation,
           return_subtype::protection_read);
  must(p.b.ep.post(dat::recv{}));
  must(p.a.ep.post(dat::send{must(whole.slice(8, 0))}.cookie(1)));
  CHECK(p.a.take() == events{"sent 1"});
}

TEST_CASE("threads that take credits get as many as there are, together", "[credits]") {
  constexpr std::uint32_t all = 400'000;
  dat::send_credits credits(all);
  std::atomic<std::uint32_t> taken{0}, ready{0};
  const auto take = [&](support::worker&) {
    std::uint32_t n = 0;
    ++ready;
    while (ready != 2) std::this_thread::yield();
    while (credits.take()) ++n;
    taken += n;
  };
  {
    support::worker one(take), two(take);
    one.join(), two.join();
  }
  CHECK(taken == all);
  CHECK(credits.left() == 0);
}

TEST_CASE("an adapter has atomics of the scope that verbs reports", "[ib]") {
  struct row {
    ibv_atomic_cap reported;
    dat::ib::atomic_scope scope;
  };
  const auto [reported, scope] =
      GENERATE(row{IBV_ATOMIC_NONE, dat::ib::atomic_scope::none}, row{IBV_ATOMIC_HCA, dat::ib::atomic_scope::adapter},
               row{IBV_ATOMIC_GLOB, dat::ib::atomic_scope::global});
  CAPTURE(reported);
  fake::world w;
  w.devices[0].attr = fake::rxe_attr();
  w.devices[0].attr->atomic_cap = reported;
  const clean_world world(w);
  const end e;
  CHECK(must(dat::ib::query_extensions(e.ia)).atomics == scope);
}
