// What endpoints leave behind when they are reset or end: completions, queue pairs, entries, and counts.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/descriptor.hpp>
#include <dat/ep_params.hpp>
#include <dat/srq.hpp>

#include <dat/detail/handle/core_access.hpp>

using namespace unit;
using dat::ep_state;

TEST_CASE("a reset endpoint knows nothing of its last connection", "[ep]") {
  const clean_world world;
  pair p;
  must(p.a.ep.disconnect());
  p.settle();
  must(p.a.ep.reset());
  const auto now = must(p.a.ep.query());
  CHECK(now.state == ep_state::unconnected);
  CHECK_FALSE(now.remote_address);
  CHECK(now.local_address == p.a.ia.address());
  CHECK_FALSE(p.a.ep.remote_address());
  CHECK_FALSE(dat::detail::core_access::of(p.a.ep)->connection());
}

TEST_CASE("a watermark that a connection exceeded does not break the next one", "[ep]") {
  const clean_world world;
  pair p({.soft_high_watermark = 2, .hard_high_watermark = 5});
  const auto arrive = [&](int n) {
    for (int i = 0; i < n; ++i) {
      must(p.b.ep.post(dat::recv{p.b.at(0, 8)}));
      must(p.a.ep.post(dat::send{p.a.at(0, 8)}));
    }
    fake::finish();
    (void)p.b.evd.dequeue(); // polls all of them
  };
  arrive(7);
  must(p.b.ep.disconnect()); // before the reactor has compared the count
  must(p.b.ep.reset());
  p.settle();
  must(p.a.ep.reset());
  (void)p.a.take();
  (void)p.b.take();
  p.connect();
  arrive(4);
  p.settle();
  CHECK(p.b.ep.state() == ep_state::connected);
  CHECK(p.b.take().size() == 3);
}

TEST_CASE("an endpoint without a queue pair refuses what its adapter lacks, and nothing else", "[ep]") {
  const bool atomic_writes = GENERATE(false, true);
  CAPTURE(atomic_writes);
  fake::world w;
  for (auto& d : w.devices) d.atomic_writes = atomic_writes;
  const clean_world world(w);
  end a;
  std::array<std::uint64_t, 1> words{};
  auto mem = must(a.pz.register_memory(words, all_rights));
  auto ep = must(a.ia.create_ep<dat::rc>({.recv = a.evd, .request = a.evd, .connect = a.evd}));
  REQUIRE(ep.state() == ep_state::unconfigured_unconnected);
  const auto refused = ep.post(dat::ib::atomic_write{must(mem.remote().slice(0, 1)), 7});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().type() ==
        (atomic_writes ? dat::return_type::invalid_state : dat::return_type::model_not_supported));
}

TEST_CASE("an endpoint in the place of one that has ended does not touch the work of its neighbour", "[ep]") {
  const clean_world world;
  const dat::ep_attributes sizes{.max_request_dtos = 4, .max_recv_dtos = 4};
  pair p(sizes);
  auto before = must(p.a.pz.create_ep<dat::rc>(p.a.evd, sizes));
  must(p.a.ep.disconnect());
  p.settle();
  must(p.a.ep.reset()); // its entries are now behind those of `before`
  must(p.b.ep.reset());
  (void)p.a.take();
  (void)p.b.take();
  p.connect();
  before = {};
  const auto instead = must(p.a.pz.create_ep<dat::rc>(p.a.evd, sizes));
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), p.b.mem.remote()}.cookie(3)));
  must(p.a.ep.disconnect(dat::close_mode::graceful)); // posts a marker, which has the first entry
  p.settle();
  CHECK(p.a.take() == events{"written 3", "disconnected"});
  CHECK(p.b.take() == events{"disconnected"});
}

TEST_CASE("the id of a connection ends with the answer of the peer, not with the ia", "[ep]") {
  const clean_world world;
  pair p;
  const auto connected = fake::ids().size();
  p.a.ep = {};
  p.settle();
  CHECK(p.b.take() == events{"disconnected"});
  CHECK(fake::ids().size() < connected);
  p.b.ep = {};
  p.settle();
  CHECK(fake::ids().size() == connected - 2);
}

TEST_CASE("the id of a connection that was dropped before it was established ends with the attempt of its peer",
          "[ep]") {
  const clean_world world;
  end a("fk1");
  end b("fk2");
  a.make_ep();
  b.make_ep();
  const auto psp = must(b.ia.create_psp(service, b.evd));
  fake::hold_events(RDMA_CM_EVENT_CONNECT_RESPONSE);
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(b.ep));
  rdma_cm_id* const accepted = fake::id_of_qp(b.ep.number());
  REQUIRE(accepted);
  b.ep = {};
  const auto held = fake::ids().size();
  fake::deliver({.event = RDMA_CM_EVENT_UNREACHABLE, .status = -ETIMEDOUT, .id = accepted});
  settle(a, b);
  CHECK(fake::ids().size() == held - 1);
  fake::release_events();
  settle(a, b);
  (void)a.take();
}

TEST_CASE("an endpoint gives the place of its work back when it ends", "[ep]") {
  const clean_world world;
  end a("fk1");
  const auto place = [&] {
    const auto ep = must(a.pz.create_ep<dat::rc>(a.evd, {.max_request_dtos = 4, .max_recv_dtos = 4}));
    return static_cast<std::uint32_t>(dat::detail::core_access::of(ep)->tag());
  };
  const auto first = place();
  CHECK(place() == first);
}

TEST_CASE("a post on an endpoint that has ended does not touch the work of the endpoint in its place", "[ep]") {
  const clean_world world;
  pair p;
  must(p.a.ep.disconnect());
  p.settle();
  const auto event = must(p.a.evd.wait_for<dat::disconnected>(plenty)); // keeps the endpoint's memory
  p.a.ep = {};
  must(p.b.ep.reset());
  (void)p.b.take();
  p.a.make_ep();
  p.connect();
  must(p.a.ep.post(dat::recv{p.a.at(0, 8)}.cookie(7)));
  is_error(event.ep().post(dat::recv{p.a.at(8, 8)}.cookie(99)), dat::return_type::invalid_handle,
           dat::return_subtype::handle_ep);
  must(p.b.ep.post(dat::send{p.b.at(0, 8)}));
  p.settle();
  CHECK(must(p.a.evd.wait_for<dat::recv_done>(plenty)).cookie() == dat::cookie(7));
}
