// Leftovers of one life of an endpoint in the next: entries, completions, buffers of a shared queue, deferred work.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/descriptor.hpp>
#include <dat/ep_params.hpp>
#include <dat/srq.hpp>

#include <dat/detail/handle/core_access.hpp>

#include <atomic>
#include <thread>
#include <vector>

using namespace unit;

namespace {

/// One endpoint with a completions-only evd for completions and another evd for connection events.
struct polled_end {
  explicit polled_end(std::string_view device, const dat::ia_options& options, std::uint32_t length)
      : ia(must(dat::ia::open(device, options))),
        pz(must(ia.create_pz())),
        completions(must(ia.create_evd<dat::stream::dto>(length))),
        connections(must(ia.create_evd<dat::stream::connection>(64))),
        mem(must(pz.register_memory(memory, all_rights))) {}
  std::array<char, 4096> memory{};
  dat::ia ia;
  dat::pz pz;
  dat::evd<dat::stream::dto> completions;
  dat::evd<dat::stream::connection> connections;
  region mem;
  dat::ep<dat::rc> make_ep(const dat::ep_attributes& a) {
    return must(pz.create_ep<dat::rc>({.recv = completions, .request = completions, .connect = connections}, a));
  }
};

} // namespace

TEST_CASE("an evd as long as the requests of its endpoints has room for their graceful disconnects", "[ep][DISC-033]") {
  clean_world world;
  constexpr int endpoints = 37;
  constexpr int each = 3;
  polled_end a("fk1", manual, endpoints * each);
  end b("fk2");
  auto evd = must(b.ia.create_evd<all_streams>(1024));
  auto psp = must(b.ia.create_psp(service, evd));
  auto receives = must(a.ia.create_evd<dat::stream::dto>(256));
  std::vector<dat::ep<dat::rc>> ours;
  std::vector<dat::ep<dat::rc>> theirs;
  for (int i = 0; i < endpoints; ++i) {
    ours.push_back(must(a.pz.create_ep<dat::rc>({.recv = receives, .request = a.completions, .connect = a.connections},
                                                {.max_request_dtos = each, .max_recv_dtos = 4})));
    theirs.push_back(must(b.pz.create_ep<dat::rc>(evd, {.max_request_dtos = 4, .max_recv_dtos = 4})));
    for (int k = 0; k < each; ++k) must(theirs.back().post(dat::recv{b.at(0, 8)}));
    must(ours.back().connect(b.ia.address(), service, plenty));
    settle(a.ia, b.ia);
    must(request_on(evd).accept(theirs.back()));
    settle(a.ia, b.ia);
    CHECK(take(a.connections) == events{"established"});
    CHECK(take(evd) == events{"established"});
    for (int k = 0; k < each; ++k) must(ours.back().post(dat::send{must(a.mem.slice(0, 8))}));
    (void)take(evd);
  }
  for (auto& ep : ours) must(ep.disconnect(dat::close_mode::graceful));
  settle(a.ia, b.ia);
  CHECK(take(a.completions).size() == endpoints * each);
  CHECK(take(a.connections) == events(endpoints, "disconnected"));
  CHECK_FALSE(a.ia.async_evd().dequeue());
}

TEST_CASE("completions of an earlier life are no events, on an evd that only its consumer polls", "[ep]") {
  const clean_world world;
  polled_end a("fk1", manual, 64);
  end b("fk2");
  auto psp = must(b.ia.create_psp(service, b.evd));
  b.make_ep();
  auto ep = a.make_ep({});
  for (std::uint64_t i = 0; i < 3; ++i) must(ep.post(dat::recv{must(a.mem.slice(0, 8))}.cookie(i)));
  must(ep.connect(b.ia.address(), service, plenty));
  settle(a.ia, b.ia);
  must(request_on(b.evd).accept(b.ep));
  settle(a.ia, b.ia);
  must(ep.disconnect());
  settle(a.ia, b.ia);
  CHECK(fake::unread_completions(a.completions.native_handle()) == 3); // flushed
  must(ep.reset());
  CHECK(take(a.completions).empty());
}

TEST_CASE("a shared buffer that holds half a message returns to its queue when the endpoint ends",
          "[ep][srq][SRQ-083]") {
  const auto end_by = GENERATE(0, 1);
  CAPTURE(end_by);
  fake::world slow_flush;
  slow_flush.destroy_drops = true; // like mlx5
  clean_world world(slow_flush);
  end a("fk1", automatic);
  end b("fk2", automatic);
  auto srq = must(b.pz.create_srq({.max_recv_dtos = 3}));
  auto psp = must(b.ia.create_psp(service, b.evd));
  std::size_t posted = 0;
  while (srq.post(dat::recv{b.at(0, 8)})) ++posted;
  REQUIRE(posted >= 3);
  for (int client = 0; client < 5; ++client) {
    a.make_ep();
    auto ep = must(b.pz.create_ep<dat::rc>(b.evd, srq));
    must(a.ep.connect(b.ia.address(), service, plenty));
    must(must(b.evd.wait_for<dat::connection_request>(plenty)).accept(ep));
    must(b.evd.wait_for<dat::established>(plenty));
    must(a.evd.wait_for<dat::established>(plenty));
    REQUIRE(fake::begin_message(ep.native_handle()));
    if (end_by == 0) {
      must(ep.close());
    } else {
      must(ep.disconnect());
      must(ep.reset());
      must(ep.close());
    }
    (void)b.take();
    must(a.ep.close());
    (void)a.take();
    must(srq.post(dat::recv{b.at(0, 8)})); // uses the entry that the half-received message held
    CHECK_FALSE(srq.post(dat::recv{b.at(0, 8)}));
  }
}

TEST_CASE("an endpoint that was never connected detaches from its shared queue at once", "[ep][srq]") {
  clean_world world;
  end b("fk2");
  auto srq = must(b.pz.create_srq({.max_recv_dtos = 3}));
  std::size_t posted = 0;
  while (srq.post(dat::recv{b.at(0, 8)})) ++posted;
  auto ep = must(b.pz.create_ep<dat::rc>(b.evd, srq));
  // The shared queue no longer refers to the queue pair that a modify has replaced.
  const auto& queue = *dat::detail::core_access::of(srq);
  const std::uint32_t before = ep.native_handle()->qp_num;
  CHECK(queue.owner_of(before));
  must(ep.modify({.max_request_dtos = 99}));
  REQUIRE(ep.native_handle()->qp_num != before);
  CHECK(queue.owner_of(ep.native_handle()->qp_num));
  CHECK_FALSE(queue.owner_of(before));
  must(ep.close());
  CHECK(must(srq.query()).outstanding == posted);
}

TEST_CASE("a shared buffer that holds half a message returns to its queue after a connection that failed half way",
          "[ep][srq]") {
  fake::world slow_flush;
  slow_flush.destroy_drops = true; // like mlx5
  clean_world world(slow_flush);
  end a("fk1");
  end b("fk2");
  auto srq = must(b.pz.create_srq({.max_recv_dtos = 3}));
  std::size_t posted = 0;
  while (srq.post(dat::recv{b.at(0, 8)})) ++posted;
  a.make_ep();
  auto ep = must(b.pz.create_ep<dat::rc>(b.evd, srq));
  int moves = 0;
  fake::intercept(fake::call::ibv_modify_qp, [&] {
    if (++moves == 2) CHECK(fake::begin_message(ep.native_handle())); // the queue pair is in RTR
  });
  fake::fail(fake::call::ibv_modify_qp, 2, EIO);
  CHECK(ep.connect(must(a.ep.export_descriptor())).error().sys_errno() == EIO);
  fake::intercept(fake::call::ibv_modify_qp, {});
  REQUIRE(ep.state() == dat::ep_state::disconnected);
  must(ep.reset());
  must(ep.close());
  (void)b.take();
  CHECK(must(srq.query()).outstanding == posted - 1);
  must(srq.post(dat::recv{b.at(0, 8)})); // uses the entry that the half-received message held
}

TEST_CASE("a reset while another thread takes completions leaves the next life its whole queue", "[ep]") {
  clean_world world;
  polled_end a("fk1", automatic, 256);
  end b("fk2", automatic);
  auto psp = must(b.ia.create_psp(service, b.evd));
  constexpr std::uint32_t depth = 8;
  auto ours = a.make_ep({.max_request_dtos = depth, .max_recv_dtos = depth});
  b.make_ep();
  std::jthread poller([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) a.completions.drain([](const auto&) {});
  });
  for (int life = 0; life < 50; ++life) {
    for (std::uint32_t i = 0; i < depth; ++i) must(ours.post(dat::recv{a.mem}));
    must(ours.connect(b.ia.address(), service, plenty));
    must(must(b.evd.wait_for<dat::connection_request>(plenty)).accept(b.ep));
    must(a.connections.wait_for<dat::established>(plenty));
    must(b.evd.wait_for<dat::established>(plenty));
    must(ours.disconnect());
    must(a.connections.wait_for<dat::disconnected>(plenty));
    must(b.evd.wait_for<dat::disconnected>(plenty));
    must(ours.reset());
    must(b.ep.reset());
  }
  poller.request_stop();
  poller.join();
  for (std::uint32_t i = 0; i < depth; ++i) must(ours.post(dat::recv{a.mem}));
}

TEST_CASE("a failure of a previous life that is taken late does not affect the present connection", "[ep]") {
  clean_world world;
  pair p;
  dat::detail::ep_core* const core = dat::detail::core_access::of(p.a.ep);
  const std::uint64_t marker = core->tag();
  const std::uint64_t entry = core->tag() + 128; // the wr_id of an entry of the first life
  must(p.a.ep.disconnect());
  p.settle();
  must(p.a.ep.reset());
  must(p.b.ep.reset());
  (void)p.a.take();
  (void)p.b.take();
  p.connect();
  core->broke(marker);
  core->broke(entry);
  p.settle();
  CHECK(p.a.ep.state() == dat::ep_state::connected);

  const std::uint64_t offset = GENERATE(0u, 128u); // a wr_id of the present life breaks the connection
  core->broke(core->tag() + offset);
  CHECK(p.a.ep.state() == dat::ep_state::disconnected);
}

TEST_CASE("repeated resets without taking completions do not fill the completion queue", "[ep]") {
  clean_world world; // these devices keep the completions of destroyed queue pairs, like rxe
  pair p({.max_request_dtos = 8, .max_recv_dtos = 40});
  for (int life = 0; life < 8; ++life) {
    for (int i = 0; i < 40; ++i) must(p.a.ep.post(dat::recv{p.a.at(0, 8)}));
    must(p.a.ep.disconnect());
    p.settle();
    must(p.a.ep.reset());
    must(p.b.ep.reset());
    must(p.a.ep.connect(p.b.ia.address(), service, plenty));
    p.settle();
    // On the evd of b, only the request matters.
    for (bool accepted = false; !accepted;) {
      auto e = must(p.b.evd.dequeue());
      if (auto* r = std::get_if<dat::cr>(&e)) {
        must(r->accept(p.b.ep));
        accepted = true;
      }
    }
    p.settle();
    REQUIRE(p.a.ep.state() == dat::ep_state::connected);
  }
  CHECK_FALSE(p.a.ia.async_evd().dequeue());
}

TEST_CASE("a graceful disconnect that becomes abrupt and is reset keeps the deferred work of the endpoint",
          "[ep][DISC-033]") {
  clean_world world;
  end a("fk1", automatic);
  end b("fk2", automatic);
  auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  b.make_ep();
  const auto connect = [&] {
    must(a.ep.connect(b.ia.address(), service, plenty));
    must(must(b.evd.wait_for<dat::connection_request>(plenty)).accept(b.ep));
    must(a.evd.wait_for<dat::established>(plenty));
    must(b.evd.wait_for<dat::established>(plenty));
  };
  for (int round = 0; round < 40; ++round) {
    connect();
    fake::hold(a.ep.native_handle());
    must(a.ep.post(dat::send{a.at(0, 8)}));
    must(a.ep.disconnect(dat::close_mode::graceful));
    for (int i = 0; i < round; ++i) std::this_thread::yield();
    must(a.ep.disconnect());
    must(a.ep.reset());
    must(b.evd.wait_for<dat::disconnected>(plenty));
    must(b.ep.reset());
    (void)a.take();
    (void)b.take();
  }
  connect();
  must(b.ep.post(dat::recv{b.at(0, 8)}));
  must(a.ep.post(dat::send{a.at(0, 8)}));
  must(a.ep.disconnect(dat::close_mode::graceful));
  // The consumer takes no completions, and the reactor ends the connection.
  must(b.evd.wait_for<dat::disconnected>(plenty));
  must(a.evd.wait_for<dat::disconnected>(plenty));
}

TEST_CASE("deferred work of a previous life does not affect the present one", "[ep]") {
  clean_world world;
  pair p;
  must(p.a.ep.post(dat::recv{p.a.at(0, 8)}));
  fake::break_qp(p.a.ep.native_handle());
  fake::finish();
  CHECK(p.a.evd.dequeue()); // the flushed receive is set aside, and the break is deferred to the reactor
  must(p.a.ep.disconnect());
  must(p.a.ep.reset());
  p.settle();
  must(p.b.ep.reset());
  (void)p.a.take();
  (void)p.b.take();
  p.connect();
  p.settle();
  CHECK(p.a.ep.state() == dat::ep_state::connected);
}
