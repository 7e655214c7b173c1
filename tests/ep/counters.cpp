// Counters: what each number counts.
// SPDX-License-Identifier: BSL-1.0
#include "datagram_end.hpp"
#include "world.hpp"

#include <dat/batch.hpp>
#include <dat/counters.hpp>
#include <dat/credits.hpp>
#include <dat/srq.hpp>
#include <dat/ud.hpp>

#include <array>
#include <thread>

using namespace unit;
using dat::connection_outcome;
using dat::dto_operation;

namespace {

using operation_numbers = dat::counter_values::by_operation;
constexpr auto ignore_event = [](const auto&) noexcept {};

} // namespace

TEST_CASE("operations are counted by kind, with bytes, when posted and when complete", "[counters]") {
  clean_world world;
  pair p;
  dat::counters a;
  dat::counters b;
  must(b.post(p.b.ep, dat::recv{p.b.at(0, 64)}, dat::recv{p.b.at(64, 32)}));
  must(a.post(p.a.ep, dat::send{p.a.at(0, 10)}, dat::send{p.a.at(0, 20)}.immediate(1)));
  must(a.post(p.a.ep, dat::rdma_write{p.a.at(0, 8), must(p.b.mem.remote(0, 8))}.suppress_completion(),
              dat::rdma_read{p.a.at(0, 4), must(p.b.mem.remote(0, 4))}));
  fake::finish();
  CHECK(a.drain(p.a.evd, ignore_event) == 3);
  CHECK(b.drain(p.b.evd, ignore_event) == 2);
  const auto active = a.read();
  const auto passive = b.read();
  CHECK(active.of(dto_operation::send) == operation_numbers{1, 10, 2, 30});
  CHECK(active.of(dto_operation::send_immediate) == operation_numbers{1, 20, 0, 0}); // completes as a send
  CHECK(active.of(dto_operation::rdma_write) == operation_numbers{1, 8, 0, 0});
  CHECK(active.of(dto_operation::rdma_read) == operation_numbers{1, 4, 1, 4});
  CHECK(active.drains == 1);
  CHECK(active.most_drained == 3);
  CHECK(active.most_requests == 4);
  CHECK(passive.of(dto_operation::recv) == operation_numbers{2, 96, 1, 10});
  CHECK(passive.of(dto_operation::recv_immediate) == operation_numbers{0, 0, 1, 20});
  CHECK(passive.most_receives == 2);
  CHECK(passive.most_requests == 0);
}

TEST_CASE("a parent counts what its children count", "[counters]") {
  clean_world world;
  pair p;
  dat::counters all;
  dat::counters a(&all);
  dat::counters b(&all);
  must(b.post(p.b.ep, dat::recv{p.b.at(0, 64)}));
  must(a.post(p.a.ep, dat::send{p.a.at(0, 10)}));
  fake::finish();
  a.drain(p.a.evd, ignore_event);
  b.drain(p.b.evd, ignore_event);
  CHECK(all.read().of(dto_operation::send).completed == 1);
  CHECK(all.read().of(dto_operation::recv).bytes == 10);
  CHECK(all.read().drains == 2);
  CHECK(a.read().of(dto_operation::recv) == operation_numbers{});
}

TEST_CASE("refused posts and failed operations are counted, the failed by their status", "[counters]") {
  clean_world world;
  pair p;
  dat::counters c;
  SECTION("a refused post counts no operation") {
    is_error(c.post(p.a.ep, dat::send{p.a.at(0, 4)}, dat::rdma_read{p.a.at(0, 8), must(p.b.mem.remote(0, 4))}),
             dat::return_type::length_error);
    CHECK(c.read().refused_posts == 1);
    CHECK(c.read().of(dto_operation::send) == operation_numbers{});
  }
  SECTION("of a chain that the device refuses in part, the posted operations count") {
    // The test fills the device's queue up to one place, without dat's knowledge.
    auto* qp = p.a.ep.native_handle();
    fake::hold(qp);
    ibv_send_wr stranger{};
    stranger.opcode = IBV_WR_RDMA_WRITE;
    ibv_send_wr* bad = nullptr;
    while (ibv_post_send(qp, &stranger, &bad) == 0) {
    }
    REQUIRE(fake::complete(qp));
    const dat::rdma_write write{p.a.at(0, 4), p.b.mem.remote()};
    const auto r = c.post(p.a.ep, write, write, write);
    REQUIRE_FALSE(r);
    REQUIRE(r.error().index() == 1);
    CHECK(c.read().of(dto_operation::rdma_write) == operation_numbers{1, 4, 0, 0});
    CHECK(c.read().most_requests == 1);
    CHECK(c.read().refused_posts == 1);
    fake::hold(qp, false);
  }
  SECTION("an empty endpoint") {
    dat::ep<dat::rc> none;
    is_error(c.post(none, dat::send{}), dat::return_type::invalid_handle, dat::return_subtype::handle_ep);
    CHECK(c.read().refused_posts == 1);
    CHECK(c.read().most_requests == 0);
  }
  SECTION("failures") {
    const auto far = must(p.b.mem.remote(0, 8));
    must(p.b.mem.close());
    must(c.post(p.a.ep, dat::rdma_write{p.a.at(0, 8), far}, dat::send{p.a.at(0, 4)}));
    p.settle();
    c.drain(p.a.evd, ignore_event);
    CHECK(c.read().of(dat::dto_status::remote_access) == 1);
    CHECK(c.read().of(dat::dto_status::flushed) == 1);
    CHECK(c.read().of(dto_operation::rdma_write).completed == 0);
    CHECK(c.read().of(connection_outcome::broken) == 1);
  }
}

TEST_CASE("requests of post_n are counted, as many as are posted", "[counters]") {
  clean_world world;
  pair p({.max_request_dtos = 64});
  dat::counters c;
  const auto far = must(p.b.mem.remote(0, 64));
  const auto make = [&](std::size_t i) { return dat::rdma_write{p.a.at(0, i + 1), far}.cookie(i); };
  SECTION("all") {
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{16}, std::size_t{17}, std::size_t{40}}) {
      CAPTURE(n);
      dat::counters mine(&c);
      must(mine.post_n(p.a.ep, n, make));
      CHECK(mine.read().of(dto_operation::rdma_write) == operation_numbers{n, n * (n + 1) / 2, 0, 0});
      CHECK(mine.read().most_requests == n);
      fake::finish();
      mine.drain(p.a.evd, ignore_event);
      CHECK(mine.read().of(dto_operation::rdma_write) == operation_numbers{n, n * (n + 1) / 2, n, n * (n + 1) / 2});
    }
    CHECK(c.read().of(dto_operation::rdma_write).posted == 0 + 1 + 16 + 17 + 40);
    CHECK(c.read().refused_posts == 0);
  }
  SECTION("each by its own kind") {
    must(c.post_n(p.a.ep, 20, [&](std::size_t i) {
      auto write = dat::rdma_write{p.a.at(0, 4), far};
      return i % 4 == 3 ? write.immediate(7) : write;
    }));
    CHECK(c.read().of(dto_operation::rdma_write) == operation_numbers{15, 60, 0, 0});
    CHECK(c.read().of(dto_operation::rdma_write_immediate) == operation_numbers{5, 20, 0, 0});
  }
  SECTION("those before a refused one") {
    const auto refused_at = [&](std::size_t at, std::size_t n) {
      dat::counters mine;
      const auto r = mine.post_n(p.a.ep, n, [&](std::size_t i) {
        return dat::rdma_write{p.a.at(0, i == at ? 65 : i + 1), far}; // longer than the remote segment
      });
      is_error(r, dat::return_type::length_error);
      CHECK(r.error().index() == at);
      CHECK(mine.read().of(dto_operation::rdma_write) == operation_numbers{at, at * (at + 1) / 2, 0, 0});
      CHECK(mine.read().refused_posts == 1);
      fake::finish();
      p.a.evd.drain(ignore_event);
    };
    for (const std::size_t at : {0u, 1u, 15u, 16u, 17u, 31u, 32u}) {
      CAPTURE(at);
      refused_at(at, 33);
    }
  }
  SECTION("none, for want of room") {
    is_error(c.post_n(p.a.ep, 65, make), dat::return_type::insufficient_resources, dat::return_subtype::resource_tep);
    CHECK(c.read().of(dto_operation::rdma_write) == operation_numbers{});
    CHECK(c.read().refused_posts == 1);
    CHECK(c.read().most_requests == 0);
  }
}

TEST_CASE("requests of a batch are counted, as often as it is posted", "[counters]") {
  clean_world world;
  pair p;
  dat::counters c;
  const auto far = must(p.b.mem.remote(0, 8));
  dat::batch<4> b;
  must(c.post(p.a.ep, b));
  CHECK(c.read() == dat::counter_values{}); // an empty batch posts nothing
  REQUIRE(b.push_back(dat::rdma_write{p.a.at(0, 8), far}));
  REQUIRE(b.push_back(dat::rdma_write{p.a.at(0, 6), far}.immediate(1)));
  REQUIRE(b.push_back(dat::rdma_read{p.a.at(0, 4), far}));
  SECTION("a full and an endpoint's reference") {
    REQUIRE(b.push_back(dat::send{p.a.at(0, 2)}.immediate(1)));
    must(p.b.ep.post(dat::recv{p.b.at(0, 64)}, dat::recv{p.b.at(0, 64)}));
    must(p.b.ep.post(dat::recv{p.b.at(0, 64)}, dat::recv{p.b.at(0, 64)}));
    must(c.post(p.a.ep, b));
    CHECK(c.read().most_requests == 4);
    fake::finish();
    c.drain(p.a.evd, ignore_event);
    must(c.post(dat::ep_ref(p.a.ep), b));
    const auto v = c.read();
    CHECK(v.of(dto_operation::rdma_write) == operation_numbers{2, 16, 1, 8});
    CHECK(v.of(dto_operation::rdma_write_immediate) == operation_numbers{2, 12, 1, 6});
    CHECK(v.of(dto_operation::rdma_read) == operation_numbers{2, 8, 1, 4});
    CHECK(v.of(dto_operation::send_immediate) == operation_numbers{2, 4, 0, 0});
    CHECK(v.of(dto_operation::send) == operation_numbers{0, 0, 1, 2}); // completes as a send
    CHECK(v.refused_posts == 0);
  }
  SECTION("a refused one counts no operation") {
    REQUIRE(b.push_back(dat::rdma_write{p.a.at(0, 9), far}));
    is_error(c.post(p.a.ep, b), dat::return_type::length_error);
    CHECK(c.read().refused_posts == 1);
    CHECK(c.read().of(dto_operation::rdma_write) == operation_numbers{});
    CHECK(c.read().of(dto_operation::rdma_read) == operation_numbers{});
  }
}

TEST_CASE("buffers of a shared queue are counted, and how many are outstanding at most", "[counters]") {
  clean_world world;
  auto ia = must(dat::ia::open("fk1", manual));
  auto pz = must(ia.create_pz());
  auto srq = must(pz.create_srq({.max_recv_dtos = 3}));
  std::array<char, 64> memory{};
  auto lmr = must(pz.register_memory(memory, all_rights));
  dat::counters c;
  must(c.post(srq, dat::recv{lmr}, dat::recv{must(lmr.slice(0, 16))}));
  CHECK(c.read().of(dto_operation::recv) == operation_numbers{2, 80, 0, 0});
  CHECK(c.read().most_receives == 2);
  must(c.post(dat::srq_ref(srq), dat::recv{lmr}));
  is_error(c.post(srq, dat::recv{lmr}), dat::return_type::insufficient_resources, dat::return_subtype::resource_srq);
  CHECK(c.read().of(dto_operation::recv) == operation_numbers{3, 144, 0, 0});
  CHECK(c.read().most_receives == 3);
  CHECK(c.read().most_requests == 0);
  CHECK(c.read().refused_posts == 1);
  is_error(c.post(dat::srq(), dat::recv{lmr}), dat::return_type::invalid_handle, dat::return_subtype::handle_srq);
  CHECK(c.read().refused_posts == 2);
}

TEST_CASE("note_post counts operations that were posted without the counters", "[counters]") {
  clean_world world;
  pair p;
  dat::counters all;
  dat::counters c(&all);
  dat::send_credits credits(2);
  const dat::send one{p.a.at(0, 3)};
  must(credits.post(p.a.ep, one));
  CHECK(c.read().of(dto_operation::send) == operation_numbers{});
  c.note_post(one, dat::recv{p.a.at(0, 5)});
  CHECK(all.read().of(dto_operation::send) == operation_numbers{1, 3, 0, 0});
  CHECK(all.read().of(dto_operation::recv) == operation_numbers{1, 5, 0, 0});
  CHECK(all.read().refused_posts == 0);
}

TEST_CASE("events of connections are counted by outcome, and requests of peers apart", "[counters]") {
  clean_world world;
  end a("fk1");
  end b("fk2");
  a.make_ep();
  b.make_ep();
  dat::counters ca;
  dat::counters cb;
  auto psp = must(b.ia.create_psp(service, b.evd));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  auto first = must(b.evd.dequeue());
  cb.note(first); // counts the event in the variant
  must(std::get<dat::cr>(first).reject());
  settle(a, b);
  ca.drain(a.evd, ignore_event);
  must(a.ep.reset());
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  cb.drain(b.evd, dat::overloaded{[&](dat::cr& request) { must(request.accept(b.ep)); }, [](const auto&) {}});
  settle(a, b);
  ca.drain(a.evd, ignore_event);
  must(a.ep.disconnect());
  settle(a, b);
  ca.drain(a.evd, ignore_event);
  cb.drain(b.evd, ignore_event);
  const auto active = ca.read();
  CHECK(active.of(connection_outcome::peer_rejected) + active.of(connection_outcome::non_peer_rejected) == 1);
  CHECK(active.of(connection_outcome::established) == 1);
  CHECK(active.of(connection_outcome::disconnected) == 1);
  CHECK(active.connection_requests == 0);
  CHECK(cb.read().connection_requests == 2);
  CHECK(cb.read().of(connection_outcome::established) == 1);
  CHECK(to_string(connection_outcome::unreachable) == "unreachable");
  CHECK(to_string(static_cast<connection_outcome>(200)) == "unknown connection_outcome");
}

TEST_CASE("drains that find nothing and waits that expire are counted", "[counters]") {
  clean_world world;
  auto ia = must(dat::ia::open("fk1", automatic));
  auto evd = must(ia.create_evd<dat::stream::software>(8));
  dat::counters c;
  CHECK(c.drain(evd, ignore_event) == 0);
  is_error(c.wait_and_drain(evd, ignore_event, 1us), dat::return_type::timeout_expired);
  CHECK(c.read().most_drained == 0);
  must(evd.post(1));
  must(evd.post(2));
  CHECK(must(c.wait_and_drain(evd, ignore_event, plenty)) == 2);
  const auto v = c.read();
  CHECK(v.drains == 3);
  CHECK(v.empty_drains == 1);
  CHECK(v.expired_waits == 1);
  CHECK(v.wake_ups == 0); // the events were already queued
  CHECK(v.most_drained == 2);
  CHECK(v.other_events == 2);
  must(evd.set_unwaitable());
  must(evd.post(3));
  is_error(c.wait_and_drain(evd, ignore_event, plenty), dat::return_type::invalid_state,
           dat::return_subtype::evd_unwaitable);
  CHECK(c.drain(evd, ignore_event) == 1);
}

TEST_CASE("waits that another thread ends are counted as wake-ups", "[counters]") {
  clean_world world;
  auto ia = must(dat::ia::open("fk1", automatic));
  auto evd = must(ia.create_evd<dat::stream::software>(8));
  dat::counters all;
  dat::counters c(&all);
  std::uint64_t taken = 0;
  // The other thread may post before the wait has found the evd empty.
  while (c.read().wake_ups == 0) {
    std::jthread other([&](const std::stop_token& stop) {
      while (evd.dequeue().assume_error().subtype() != dat::return_subtype::evd_waiter && !stop.stop_requested())
        std::this_thread::yield();
      (void)evd.post(1);
    });
    taken += must(c.wait_and_drain(evd, ignore_event, plenty));
    other.join();
  }
  CHECK(c.read().wake_ups == 1);
  CHECK(all.read().wake_ups == 1);
  CHECK(c.read().expired_waits == 0);
  CHECK(c.read().other_events == taken);
}

TEST_CASE("datagrams are counted as such", "[counters]") {
  clean_world world;
  datagram_end a("fk1");
  datagram_end b("fk2");
  std::array<char, 128> out{};
  std::array<char, 128> in{};
  auto out_lmr = must(a.pz.register_memory(out, all_rights));
  auto in_lmr = must(b.pz.register_memory(in, all_rights));
  dat::counters ca;
  dat::counters cb;
  must(cb.post(b.ep, dat::recv{in_lmr}, dat::recv{in_lmr}));
  const auto peer = must(a.ep.address_of(must(b.ep.address())));
  must(ca.post(a.ep, dat::ib::send_to{must(out_lmr.slice(0, 16)), peer}));
  must(ca.post(a.ep, dat::ib::send_to{must(out_lmr.slice(0, 16)), peer}.immediate(7)));
  settle(a.ia, b.ia);
  ca.drain(a.evd, ignore_event);
  cb.drain(b.evd, ignore_event);
  CHECK(ca.read().of(dto_operation::send_ud) == operation_numbers{2, 32, 2, 32});
  CHECK(cb.read().of(dto_operation::recv).posted == 2);
  CHECK(cb.read().of(dto_operation::recv_ud).completed == 1);
  CHECK(cb.read().of(dto_operation::recv_ud_immediate).completed == 1);
}
