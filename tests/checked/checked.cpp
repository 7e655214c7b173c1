// Each finding of a checked build: the mistake, and the same program without it.
// SPDX-License-Identifier: BSL-1.0
#include "findings.hpp"

#include <dat/batch.hpp>
#include <dat/policies.hpp>
#include <dat/ud.hpp>

#include <string>

using namespace checked_tests;

namespace {

/// Runs `inside` once in another thread, while the calling thread is inside the next call of `where`.
template <class F>
void during(fake::call where, F inside) {
  auto busy = std::make_shared<bool>(false);
  fake::intercept(where, [busy, inside] {
    if (std::exchange(*busy, true)) return;
    std::thread(inside).join();
  });
}

} // namespace

TEST_CASE("findings have their names", "[checked]") {
  STATIC_REQUIRE(to_string(finding::overlapping_calls) == "overlapping_calls");
  STATIC_REQUIRE(to_string(finding::changed_send_buffer) == "changed_send_buffer");
  STATIC_REQUIRE(to_string(finding::evd_overflow) == "evd_overflow");
  STATIC_REQUIRE(to_string(finding::empty_evd) == "empty_evd");
  STATIC_REQUIRE(to_string(static_cast<finding>(9)) == "unknown finding");
}

TEST_CASE("an ordinary post of a checked build tracks the memory that it names", "[checked]") {
  const clean_world world;
  const findings all;
  pair p;
  std::array<char, 64> bytes{};
  auto mem = must(p.a.pz.register_memory(bytes, all_rights));
  const auto piece = must(mem.slice(0, 8));
  must(p.a.ep.post(dat::recv{piece}.cookie(77)));
  is_error(mem.close(), dat::return_type::invalid_state, dat::return_subtype::lmr_in_use);
  CHECK(dat::tracked::last_offender(p.a.ia)->cookie.value() == 77);
  must(p.b.ep.post(dat::send{}));
  CHECK(p.a.take() == events{"received 77"});
  must(mem.close()); // the completion was taken
  is_error(p.a.ep.post(dat::recv{piece}), dat::return_type::privileges_violation);
  CHECK(found.empty());

  auto other = must(p.a.pz.register_memory(bytes, all_rights));
  must(p.a.ep.post(dat::recv{must(other.slice(0, 4))}));
  other = {};
  REQUIRE(found.size() == 1);
  CHECK(found[0].what == finding::closed_region);
  CHECK(found[0].object_id == p.a.ep.number());
  CHECK(found[0].address == bytes.data());
}

TEST_CASE("an ordinary post of a datagram endpoint tracks its memory in a checked build", "[checked]") {
  const clean_world world;
  end a;
  auto evd = must(a.ia.create_evd<ud_streams>(16));
  const auto ep = must(a.pz.create_ep<dat::ud>(evd));
  const auto self = must(ep.address_of(must(ep.address())));
  auto mem = must(a.pz.register_memory(a.memory, all_rights));
  must(ep.post(dat::recv{must(mem.slice(0, 48))}.cookie(3)));
  is_error(mem.close(), dat::return_type::invalid_state, dat::return_subtype::lmr_in_use);
  must(ep.post(dat::ib::send_to{must(mem.slice(64, 8)), self}.cookie(4)));
  (void)must(evd.wait_for<dat::ib::datagram_recv_done>(plenty));
  (void)must(evd.wait_for<dat::ib::datagram_send_done>(plenty));
  must(mem.close());
}

TEST_CASE("a post of a datagram endpoint by the policy unchecked is not tracked in a checked build", "[checked]") {
  const clean_world world;
  const findings all;
  end a;
  auto evd = must(a.ia.create_evd<ud_streams>(16));
  const auto ep = must(a.pz.create_ep<dat::ud>(evd));
  const auto self = must(ep.address_of(must(ep.address())));
  auto mem = must(a.pz.register_memory(a.memory, all_rights));
  must(ep.post<dat::unchecked>(dat::ib::send_to{must(mem.slice(64, 8)), self}));
  must(mem.close()); // nothing names it
  CHECK_FALSE(dat::tracked::last_offender(a.ia));
  CHECK(found.empty());
}

TEST_CASE("two posts of one kind to an endpoint that overlap are reported with both calls", "[checked][SAFE-011]") {
  const clean_world world;
  const findings all;
  pair p;
  must(p.b.ep.post(dat::recv{}, dat::recv{}, dat::recv{}));
  during(fake::call::ibv_post_send, [&] {
    is_error(p.a.ep.post_n(1, [&](std::size_t) { return dat::send{p.a.at(0, 1)}; }), dat::return_type::invalid_state);
  });
  must(p.a.ep.post(dat::send{}.cookie(1)));
  REQUIRE(found.size() == 1);
  CHECK(found[0].what == finding::overlapping_calls);
  CHECK(found[0].call == "ep.post_n");
  CHECK(found[0].other_call == "ep.post");
  CHECK(found[0].object == "ep");
  CHECK(found[0].object_id == p.a.ep.number());
  CHECK_FALSE(found[0].remedy.empty());
  CHECK(p.a.take() == events{"sent 1"});
  fake::intercept(fake::call::ibv_post_send, {});

  found.clear();
  during(fake::call::ibv_post_recv, [&] { is_error(p.a.ep.post(dat::recv{}), dat::return_type::invalid_state); });
  must(p.a.ep.post(dat::recv{}));
  REQUIRE(found.size() == 1);
  CHECK(found[0].call == "ep.post(recv)");
  CHECK(found[0].other_call == "ep.post(recv)");
}

TEST_CASE("a post of requests may overlap a post of receives, and posts one after the other are no overlap",
          "[checked][SAFE-011]") {
  const clean_world world;
  const findings all;
  pair p;
  must(p.b.ep.post(dat::recv{}, dat::recv{}));
  during(fake::call::ibv_post_send, [&] { must(p.a.ep.post(dat::recv{})); });
  must(p.a.ep.post(dat::send{}));
  std::thread([&] { must(p.a.ep.post(dat::send{})); }).join();
  CHECK(found.empty());
}

TEST_CASE("two threads that take from a completions-only evd at once are reported", "[checked]") {
  const clean_world world;
  const findings all;
  end e;
  auto bare = must(e.ia.create_evd<dat::stream::dto>(16));
  const auto nothing = [](const auto&) {};
  during(fake::call::ibv_poll_cq, [&] { is_error(bare.dequeue(), dat::return_type::queue_empty); });
  CHECK(bare.drain(nothing) == 0);
  REQUIRE(found.size() == 1);
  CHECK(found[0].what == finding::overlapping_calls);
  CHECK(found[0].call == "evd.dequeue");
  CHECK(found[0].other_call == "evd.drain");
  CHECK(found[0].object == "evd");
}

TEST_CASE("taking from a merged evd may overlap, and a visitor may take from its completions-only evd", "[checked]") {
  const clean_world world;
  const findings all;
  pair p;
  during(fake::call::ibv_poll_cq, [&] { (void)p.a.evd.drain([](const auto&) {}, 0); });
  CHECK(p.a.evd.drain([](const auto&) {}) == 0);
  fake::intercept(fake::call::ibv_poll_cq, {});
  auto bare = must(p.a.ia.create_evd<dat::stream::dto>(16));
  CHECK(bare.drain([](const auto&) {}) == 0);
  std::thread([&] { CHECK(bare.drain([](const auto&) {}) == 0); }).join();
  CHECK(found.empty());
}

TEST_CASE("a visitor that waits on the evd that calls it is told so, and so is one that dequeues from it",
          "[checked]") {
  const clean_world world;
  const findings all;
  pair p;
  must(p.a.ep.post(dat::recv{}, dat::recv{}));
  must(p.b.ep.post(dat::send{}));
  CHECK(must(p.a.evd.wait_and_drain(
            [&](const auto&) {
              const auto waited = p.a.evd.wait(plenty);
              is_error(waited, dat::return_type::invalid_state, dat::return_subtype::evd_waiter);
              CHECK(waited.error().message().find("visitor") != std::string::npos);
              is_error(p.a.evd.dequeue(), dat::return_type::invalid_state, dat::return_subtype::evd_waiter);
            },
            plenty)) == 1);
  REQUIRE(found.size() == 2);
  CHECK(found[0].what == finding::waiting_visitor);
  CHECK(found[0].call == "evd.wait");
  CHECK(found[0].other_call == "evd.drain");
  CHECK(found[0].object == "evd");
  CHECK(found[1].call == "evd.dequeue");
}

TEST_CASE("a wait after the drain, of a visitor on another evd, and beside the wait of another thread are no findings",
          "[checked]") {
  const clean_world world;
  const findings all;
  pair p;
  must(p.a.ep.post(dat::recv{}));
  must(p.b.ep.post(dat::send{}));
  CHECK(must(p.a.evd.wait_and_drain(
            [&](const auto&) {
              (void)must(p.b.evd.wait(plenty));
              std::thread([&] { // while this thread waits
                const auto waited = p.a.evd.wait(plenty);
                is_error(waited, dat::return_type::invalid_state, dat::return_subtype::evd_waiter);
                CHECK(waited.error().message().find("visitor") == std::string::npos);
              })
                  .join();
            },
            plenty)) == 1);
  is_error(p.a.evd.wait(dat::timeout(0)), dat::return_type::timeout_expired);
  CHECK(found.empty());
}

TEST_CASE("an evd that lost completions is reported once", "[checked]") {
  const clean_world world;
  const findings all;
  pair p;
  CHECK(found.empty());
  fake::async(IBV_EVENT_CQ_ERR, p.a.evd.native_handle());
  p.settle();
  REQUIRE(found.size() == 1);
  CHECK(found[0].what == finding::evd_overflow);
  CHECK(found[0].object == "evd");
  CHECK_FALSE(found[0].remedy.empty());
  (void)p.a.take();
}

TEST_CASE("a drain of an evd that was moved from is reported, and one of an evd without events is not",
          "[checked][mistakes]") {
  const clean_world world;
  const findings all;
  pair p;
  auto lean = must(p.a.ia.create_evd<dat::stream::dto>(4));
  const auto nothing = [](const auto&) {};
  CHECK(p.a.evd.drain(nothing) == 0);
  CHECK(lean.drain(nothing) == 0);
  CHECK(found.empty());
  const auto kept = std::move(lean);
  CHECK(lean.drain(nothing) == 0);
  decltype(p.a.evd) never_created;
  CHECK(never_created.drain(nothing) == 0);
  REQUIRE(found.size() == 2);
  for (const auto& f : found) {
    CHECK(f.what == finding::empty_evd);
    CHECK(f.call == "evd.drain");
    CHECK(f.remedy.find("moved from") != std::string_view::npos);
  }
}
