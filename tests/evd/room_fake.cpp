// Room in an evd: for the completions of its endpoints, and for events when memory is short; and completion vectors.
// SPDX-License-Identifier: BSL-1.0
#include "allocations.hpp"
#include "async_events.hpp"
#include "world.hpp"

#include <dat/ep_params.hpp>
#include <dat/srq.hpp>

#include <algorithm>
#include <cerrno>
#include <vector>

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

/// Two adapters, with all events of b on one evd and the completions of a's requests on another.
struct many {
  explicit many(std::uint32_t room, std::uint32_t each)
      : requests(must(a.ia.create_evd<dat::stream::dto>(room))),
        receives(must(a.ia.create_evd<dat::stream::dto>(256))),
        psp(must(b.ia.create_psp(service, b.evd))),
        sizes{.max_request_dtos = each, .max_recv_dtos = 4} {}
  end a{"fk1"};
  end b{"fk2"};
  dat::evd<dat::stream::dto> requests;
  dat::evd<dat::stream::dto> receives;
  dat::psp psp;
  dat::ep_attributes sizes;
  std::vector<dat::ep<dat::rc>> near;
  std::vector<dat::ep<dat::rc>> far;

  void add() {
    near.push_back(must(a.pz.create_ep<dat::rc>({.recv = receives, .request = requests, .connect = a.evd}, sizes)));
    far.push_back(must(b.pz.create_ep<dat::rc>(b.evd, {.max_request_dtos = 4, .max_recv_dtos = 4})));
    must(near.back().connect(b.ia.address(), service, plenty));
    settle(a, b);
    must(request_on(b.evd).accept(far.back()));
    settle(a, b);
    (void)a.take();
    (void)b.take();
  }
};

/// A world whose first device has completion queues of up to 127 entries.
fake::world with_queues_of_127() {
  fake::world w;
  w.devices[0].attr = fake::rxe_attr();
  w.devices[0].attr->max_cqe = 127;
  return w;
}

} // namespace

TEST_CASE("an evd that was made for the requests of many endpoints has room for their graceful disconnects", "[evd]") {
  const clean_world clean;
  constexpr std::uint32_t endpoints = 37;
  constexpr std::uint32_t each = 3;
  many m(endpoints * each, each);
  for (std::uint32_t i = 0; i < endpoints; ++i) m.add();
  for (std::uint32_t i = 0; i < endpoints; ++i)
    for (std::uint32_t k = 0; k < each; ++k) {
      must(m.far[i].post(dat::recv{}));
      must(m.near[i].post(dat::send{}));
    }
  for (auto& ep : m.near) must(ep.disconnect(dat::close_mode::graceful));
  settle(m.a, m.b);
  std::size_t sent = 0;
  while (m.requests.drain(dat::overloaded{[&](const dat::send_done&) { ++sent; }, [](const auto&) {}}) != 0) {
  }
  CHECK(sent == endpoints * each);
  settle(m.a, m.b);
  CHECK(m.a.take() == events(endpoints, "disconnected"));
  CHECK(take_async<dat::evd_overflow>(m.a.ia) == 0);
}

TEST_CASE("an evd grows with the endpoints that are attached to it", "[evd][ep]") {
  const clean_world clean;
  end a;
  auto evd = must(a.ia.create_evd<dat::stream::dto>(1));
  CHECK(evd.native_handle()->cqe < 100);
  auto ep = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd},
                                         {.max_request_dtos = 60, .max_recv_dtos = 40}));
  CHECK(evd.native_handle()->cqe >= 101); // this number includes the marker
  CHECK(evd.capacity() == 1);
  must(evd.resize(2)); // the connect evd needs no room for completions
  CHECK(evd.native_handle()->cqe >= 101);
}

TEST_CASE("an endpoint whose completions have no room is refused with the number of events needed", "[evd][ep]") {
  const clean_world clean(with_queues_of_127());
  end a;
  auto evd = must(a.ia.create_evd<dat::stream::dto>(8));
  const dat::ep_attributes half{.max_request_dtos = 60, .max_recv_dtos = 40};
  const auto make = [&] { return a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd}, half); };
  auto first = must(make());
  const auto refused = make();
  is_error(refused, return_type::insufficient_resources, return_subtype::resource_tevd);
  CHECK_THAT(refused.error().message(), support::contains_text("202 completions"));
  CHECK_THAT(refused.error().message(), support::contains_text("max_cqe"));
  must(first.close()); // closing it returns its room
  first = must(make());
  auto other = must(a.ia.create_evd<dat::stream::dto>(8));
  const auto all = a.pz.create_ep<dat::rc>({.recv = other, .request = other, .connect = a.evd},
                                           {.max_request_dtos = 60, .max_recv_dtos = 66});
  CHECK(all.has_value()); // 127 completions, with the marker
}

TEST_CASE("a device that cannot resize refuses the endpoint, unless the evd was made large enough", "[evd][ep]") {
  const clean_world clean;
  end a;
  auto small = must(a.ia.create_evd<dat::stream::dto>(8));
  auto ample = must(a.ia.create_evd<dat::stream::dto>(200));
  const dat::ep_attributes sizes{.max_request_dtos = 60, .max_recv_dtos = 40};
  for (unsigned n : {1u, 2u}) fake::fail(fake::call::ibv_resize_cq, n, EOPNOTSUPP);
  const auto refused = a.pz.create_ep<dat::rc>({.recv = small, .request = small, .connect = a.evd}, sizes);
  is_error(refused, return_type::insufficient_resources, return_subtype::resource_tevd);
  CHECK(refused.error().verb() == "ibv_resize_cq");
  CHECK_THAT(refused.error().message(), support::contains_text("101 completions"));
  fake::forget_faults();
  const auto before = fake::count(fake::call::ibv_resize_cq);
  CHECK(a.pz.create_ep<dat::rc>({.recv = ample, .request = ample, .connect = a.evd}, sizes));
  CHECK(fake::count(fake::call::ibv_resize_cq) == before);
}

TEST_CASE("endpoints of one srq need room for its entries once", "[evd][srq]") {
  const fake::with resizable{fake::current(), [](fake::manners& m) { m.srq_resize = true; }};
  const clean_world clean;
  end a;
  auto evd = must(a.ia.create_evd<dat::stream::dto | dat::stream::software>(8));
  auto srq = must(a.pz.create_srq({.max_recv_dtos = 60}));
  std::vector<dat::ep<dat::with_srq<dat::rc>>> all;
  for (int i = 0; i < 10; ++i)
    all.push_back(must(a.pz.create_ep<dat::rc>({.recv = evd, .request = a.evd, .connect = a.evd}, srq)));
  CHECK(evd.native_handle()->cqe < 10 * 60);
  CHECK(evd.native_handle()->cqe >= 60);
  must(srq.resize(500));
  const int enough = evd.native_handle()->cqe;
  CHECK(enough >= 500);
  all.push_back(must(a.pz.create_ep<dat::rc>({.recv = evd, .request = a.evd, .connect = a.evd}, srq)));
  CHECK(evd.native_handle()->cqe == enough);
  // Another srq needs room of its own.
  auto second = must(a.pz.create_srq({.max_recv_dtos = 3000}));
  all.push_back(must(a.pz.create_ep<dat::rc>({.recv = evd, .request = a.evd, .connect = a.evd}, second)));
  CHECK(evd.native_handle()->cqe >= 500 + 3000);
}

TEST_CASE("an srq needs a merged recv evd", "[evd][srq]") {
  const clean_world clean;
  end a;
  auto evd = must(a.ia.create_evd<dat::stream::dto>(8));
  auto srq = must(a.pz.create_srq({.max_recv_dtos = 4}));
  const auto refused = a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd}, srq);
  is_error(refused, return_type::model_not_supported);
  SHOWS("EP-014", "EP-030");
  CHECK_THAT(refused.error().message(), support::contains_text("dat::stream::software"));
  CHECK(a.pz.create_ep<dat::rc>({.recv = a.evd, .request = evd, .connect = a.evd}, srq));
}

TEST_CASE("a completion for which memory is short breaks its connection, and the loss is reported once", "[evd]") {
  if (!refuses_allocations) SKIP("the build cannot refuse memory");
  const clean_world clean;
  pair p;
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}));
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}));
  fake::finish();
  ibv_wc wc{};
  REQUIRE(ibv_poll_cq(p.b.evd.native_handle(), 1, &wc) == 1);
  // The device reports the receive repeatedly, which only a faulty device does. The evd has no room for these
  // completions.
  for (bool lost = false; !lost;) {
    for (int i = 0; i < 50; ++i) fake::forge(p.b.evd.native_handle(), wc);
    const out_of_memory short_of_it(0);
    const auto waited = p.b.evd.wait_for<dat::rdma_write_done>(0us);
    lost = out_of_memory::failed();
    is_error(waited, lost ? return_type::invalid_state : return_type::timeout_expired);
  }
  p.settle();
  CHECK(p.b.ep.state() == dat::ep_state::disconnected);
  CHECK(take_async<dat::evd_overflow>(p.b.ia) == 1);
}

TEST_CASE("a wait for an event behind a full ring finds it", "[evd]") {
  const clean_world clean;
  pair p({.max_request_dtos = 8, .max_recv_dtos = 8});
  auto evd = must(p.a.ia.create_evd<dat::stream::dto | dat::stream::software>(2));
  auto ep = must(p.a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = p.a.evd}));
  auto far = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  p.connect(ep, far);
  must(ep.post(dat::recv{}));
  for (int i = 0; i < 5; ++i) {
    must(far.post(dat::recv{}));
    must(ep.post(dat::send{}));
  }
  must(far.post(dat::send{}));
  CHECK(evd.wait_for<dat::recv_done>(plenty)); // behind five sends, on an evd that was created for two
  CHECK(take(evd).size() == 5);
}

TEST_CASE("evds take the completion vectors in turn, unless one is chosen", "[evd]") {
  fake::world w;
  w.num_comp_vectors = 4;
  const clean_world clean(w);
  end a;
  std::vector<std::uint32_t> vectors;
  for (int i = 0; i < 4; ++i) {
    auto evd = must(a.ia.create_evd<dat::stream::dto>(8));
    vectors.push_back(must(evd.query()).completion_vector);
  }
  std::sort(vectors.begin(), vectors.end());
  CHECK(vectors == std::vector<std::uint32_t>{0, 1, 2, 3});
  for (std::uint32_t v = 0; v < 4; ++v)
    CHECK(must(must(a.ia.create_evd<dat::stream::dto>(8, {.completion_vector = v})).query()).completion_vector == v);
  is_error(a.ia.create_evd<dat::stream::dto>(8, {.completion_vector = 4}), return_type::invalid_parameter,
           return_subtype::arg3);
  CHECK(must(must(a.ia.create_evd<dat::stream::software>(8)).query()).completion_vector == 0);
}

TEST_CASE("endpoints that drop events share one hidden evd", "[evd][ep]") {
  const clean_world clean;
  end a;
  const auto before = fake::live();
  std::vector<dat::ep<dat::rc>> all;
  for (int i = 0; i < 5; ++i)
    all.push_back(must(a.pz.create_ep<dat::rc>(dat::ep_evds{dat::drop_events, dat::drop_events, dat::drop_events})));
  CHECK(fake::live().cqs == before.cqs + 1);
  CHECK(fake::live().comp_channels == before.comp_channels + 1);
  all.clear();
  CHECK(fake::live().cqs == before.cqs);
}

TEST_CASE("completions whose events are dropped leave the device without a call of the consumer", "[evd][ep]") {
  const clean_world clean;
  pair p;
  auto ep = must(p.a.pz.create_ep<dat::rc>({.recv = dat::drop_events, .request = dat::drop_events, .connect = p.a.evd},
                                           {.max_request_dtos = 8}));
  auto peer = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  p.connect(ep, peer);
  for (int i = 0; i < 40; ++i) {
    must(ep.post(dat::rdma_write{p.a.at(0, 1), p.b.mem.remote()}));
    fake::finish();
    p.a.ia.run();
    for (ibv_cq* const q : fake::cqs()) CHECK(fake::unread_completions(q) == 0);
  }
}

TEST_CASE("creating an evd allocates the memory for its software events", "[evd]") {
  const clean_world clean;
  end a;
  auto evd = must(a.ia.create_evd<dat::stream::software>(64));
  const std::size_t before = allocations();
  std::size_t posted = 0;
  while (evd.post(dat::cookie(posted))) ++posted;
  CHECK(allocations() == before);
  CHECK(posted == 64);
  CHECK(take(evd).size() == 64);
}

TEST_CASE("completions of no endpoint are neither events nor a failure of the device", "[evd]") {
  const clean_world clean;
  pair p;
  const auto forge = [&] {
    ibv_wc unknown{};
    unknown.wr_id = 1;
    for (int i = 0; i < 3; ++i) fake::forge(p.a.evd.native_handle(), unknown);
  };
  forge();
  is_error(p.a.evd.dequeue(), return_type::queue_empty);
  is_error(p.a.evd.wait(0s), return_type::timeout_expired);
  forge();
  is_error(p.a.evd.wait(0s), return_type::timeout_expired);
  is_error(p.a.evd.wait(0s), return_type::timeout_expired);
  forge();
  is_error(p.a.evd.wait_for<dat::recv_done>(0s), return_type::timeout_expired);
  is_error(p.a.evd.wait_for<dat::recv_done>(0s), return_type::timeout_expired);
  CHECK(p.a.ia.async_evd().drain([](const auto&) {}) == 0);
}

TEST_CASE("the events of a connection need no memory when they come", "[evd]") {
  if (!refuses_allocations) SKIP("the build cannot refuse memory");
  const clean_world world;
  end a("fk1"), b("fk2");
  const auto psp = must(b.ia.create_psp(service, b.evd));
  auto evd = must(a.ia.create_evd<dat::stream::connection>(1));
  auto ep = must(a.pz.create_ep<dat::rc>({.recv = a.evd, .request = a.evd, .connect = evd}));
  b.make_ep();
  must(ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(b.ep));
  const auto run = [&] {
    const out_of_memory none(0);
    for (int i = 0; i < 4; ++i) a.ia.run();
    CHECK_FALSE(out_of_memory::failed());
  };
  run();
  settle(a, b);
  must(b.ep.disconnect());
  b.ia.run();
  run();
  CHECK(take(evd) == events{"established", "disconnected"});
  settle(a, b);
}

TEST_CASE("modify divides the room of an evd anew, as if the endpoint had left it", "[evd][ep]") {
  const clean_world clean(with_queues_of_127());
  end a;
  auto evd = must(a.ia.create_evd<dat::stream::dto>(8));
  auto other = must(a.ia.create_evd<dat::stream::dto>(8));
  auto ep = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd},
                                         {.max_request_dtos = 60, .max_recv_dtos = 66}));
  must(ep.modify({.max_recv_dtos = 65})); // fewer completions than before
  must(ep.modify({.max_request_dtos = 30, .max_recv_dtos = 96}));
  CHECK(ep.attributes().max_recv_dtos == 96);
  // One completion too many still has no room, and the device then refuses no later change.
  const auto refused = ep.modify({.max_request_dtos = 31});
  is_error(refused, return_type::insufficient_resources, return_subtype::resource_tevd);
  CHECK_THAT(refused.error().message(), support::contains_text("128 completions"));
  fake::fail(fake::call::ibv_create_qp, 1, ENOMEM);
  is_error(ep.modify({.max_request_dtos = 29, .max_recv_dtos = 97}), return_type::insufficient_resources,
           return_subtype::resource_tep);
  is_error(a.pz.create_ep<dat::rc>({.recv = evd, .request = other, .connect = a.evd}, {.max_recv_dtos = 1}),
           return_type::insufficient_resources, return_subtype::resource_tevd);
  // The queues exchange their evds: each one has room for its present queue or for the new one.
  must(ep.modify({.request = other, .max_request_dtos = 100}));
  must(ep.modify({.recv = other, .request = evd}));
  is_error(a.pz.create_ep<dat::rc>({.recv = other, .request = evd, .connect = a.evd}, {.max_recv_dtos = 60}),
           return_type::insufficient_resources, return_subtype::resource_tevd);
  must(ep.close());
  CHECK(a.pz.create_ep<dat::rc>({.recv = other, .request = evd, .connect = a.evd},
                                {.max_request_dtos = 126, .max_recv_dtos = 126}));
}
