// The device of an evd: when it is armed, and the state of an evd whose device or endpoint fails or ends.
// SPDX-License-Identifier: BSL-1.0
#include "async_events.hpp"
#include "world.hpp"

#include <dat/ep_params.hpp>

#include <dat/detail/base/to_read.hpp>
#include <dat/detail/handle/core_access.hpp>

#include <poll.h>
#include <string>

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

std::size_t armings() { return fake::count(fake::call::ibv_req_notify_cq); }

/// The failures that no call could return.
std::size_t failures_of(dat::ia& ia) { return take_async<dat::provider_internal_error>(ia); }

/// A device whose completion queues have at most 64 places.
fake::world with_small_queues() {
  fake::world w;
  w.devices[0].attr = fake::rxe_attr();
  w.devices[0].attr->max_cqe = 64;
  return w;
}

} // namespace

TEST_CASE("an endpoint for whose evd the device cannot be armed is refused, and feeds it no longer", "[evd][arming]") {
  const clean_world clean;
  end a;
  auto cno = must(a.ia.create_cno());
  auto evd = must(a.ia.create_evd<dat::stream::dto>(16));
  must(evd.modify_cno(cno));
  CHECK(armings() == 0);
  const unsigned which = GENERATE(1u, 2u); // the arming of the receives, or of the requests
  fake::fail(fake::call::ibv_req_notify_cq, which, EIO);
  const auto create = [&] { return a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd}); };
  const auto refused = create();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().verb() == "ibv_req_notify_cq");
  CHECK(refused.error().sys_errno() == EIO);
  // Without an endpoint that feeds the evd, the device is not armed.
  const auto before = armings();
  must(evd.disable());
  must(evd.enable()); // arms the device, if an endpoint feeds the evd
  CHECK(armings() == before);
  const auto ep = must(create());
  const auto fed = armings();
  must(evd.disable());
  must(evd.enable());
  CHECK(armings() > fed);
}

TEST_CASE("an evd that has ended arms no device", "[evd][arming]") {
  const clean_world clean;
  end a;
  auto evd = must(a.ia.create_evd<dat::stream::dto>(16));
  const auto core = dat::detail::core_access::of(evd);
  must(evd.close());
  // Attaches like an endpoint that is created while another thread closes the ia.
  CHECK(core->attach({.entries = 1}, {}));
  const auto before = armings();
  core->set_enabled(true);
  CHECK(armings() == before);
  core->detach({.entries = 1});
}

TEMPLATE_TEST_CASE_SIG("a waiter reads the notification that ends its sleep, so that it can sleep again",
                       "[evd][arming]", ((dat::streams S), S), dat::stream::dto,
                       dat::stream::dto | dat::stream::software) {
  const clean_world clean;
  pair p;
  const auto mode =
      S == dat::stream::dto ? dat::completion_notification::evd_threshold : dat::completion_notification::selective;
  auto evd = must(p.a.ia.create_evd<S>(16));
  auto ep = must(p.a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = p.a.evd},
                                           {.recv_completion = mode, .request_completion = mode}));
  auto far = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  p.connect(ep, far);
  const auto has_notified = [&] {
    pollfd channel = dat::detail::to_read(ep.native_handle()->send_cq->channel->fd);
    return ::poll(&channel, 1, 0) == 1;
  };
  for (int i = 0; i < 3; ++i) {
    is_error(evd.wait(1ms), return_type::timeout_expired); // arms the device
    must(far.post(dat::recv{}));
    must(ep.post(dat::send{}));
    CHECK(take(evd) == events{"sent 0"});
    if (S == dat::stream::dto) CHECK(has_notified()); // a merged evd may have read the notification, to detect a break
    is_error(evd.wait(1ms), return_type::timeout_expired);
    CHECK_FALSE(has_notified());
  }
}

TEST_CASE("only eight failures in a row make a completion channel a dead one", "[evd][reactor]") {
  const clean_world clean;
  pair p;
  auto evd = must(p.a.ia.create_evd<dat::stream::dto>(16));
  auto cno = must(p.a.ia.create_cno());
  must(evd.modify_cno(cno));
  auto ep = must(p.a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = p.a.evd}));
  const auto complete = [&] { fake::forge(evd.native_handle(), ibv_wc{}); };
  const auto reads = [] { return fake::count(fake::call::ibv_get_cq_event); };
  const auto run_until = [&](std::size_t count) {
    for (const auto until = std::chrono::steady_clock::now() + plenty;
         reads() < count && std::chrono::steady_clock::now() < until;)
      p.a.ia.run();
  };
  for (int round = 0; round < 3; ++round) {
    complete();
    for (unsigned n = 1; n <= 7; ++n) fake::fail(fake::call::ibv_get_cq_event, n, EIO);
    const auto before = reads();
    run_until(before + 9); // seven that fail, the event, and the end of the channel
    CHECK(reads() >= before + 9);
    CHECK(evd.drain([](const auto&) {}) == 0);
  }
  CHECK(failures_of(p.a.ia) == 0);
  complete();
  for (unsigned n = 1; n <= 8; ++n) fake::fail(fake::call::ibv_get_cq_event, n, EIO);
  run_until(reads() + 8);
  CHECK(failures_of(p.a.ia) == 1);
}

TEST_CASE("an evd keeps its connection events until they have no place left", "[evd]") {
  const clean_world clean;
  end a{"fk1"};
  end b{"fk2"};
  auto psp = must(b.ia.create_psp(service, b.evd));
  auto connections = must(a.ia.create_evd<dat::stream::connection>(2));
  std::vector<dat::ep<dat::rc>> near;
  std::vector<dat::ep<dat::rc>> far;
  for (int i = 0; i < 2; ++i) {
    near.push_back(must(a.pz.create_ep<dat::rc>({.recv = a.evd, .request = a.evd, .connect = connections})));
    far.push_back(must(b.pz.create_ep<dat::rc>(b.evd)));
    must(near.back().connect(b.ia.address(), service, plenty));
    settle(a, b);
    must(request_on(b.evd).accept(far.back()));
    settle(a, b);
    (void)b.take();
  }
  SECTION("as many as there are places for the other endpoint") {
    must(near[0].close());
    CHECK(take(connections) == events{"established", "established"});
  }
  SECTION("more than that: those of the endpoint that was closed go") {
    must(near[0].disconnect());
    must(near[0].close());
    CHECK(take(connections) == events{"established"});
  }
}

TEST_CASE("a reset leaves no completion of the earlier life in the device", "[evd][ep]") {
  const clean_world clean;
  pair p;
  for (int i = 0; i < 3; ++i) {
    must(p.a.ep.post(dat::recv{p.a.at(0, 8)}));
    must(p.a.ep.disconnect());
    p.settle();
    fake::forge(p.a.evd.native_handle(), ibv_wc{}); // a late completion
    must(p.a.ep.reset());
    CHECK(fake::unread_completions(p.a.evd.native_handle()) == 0);
    CHECK(p.a.take() == events{"disconnected"});
    must(p.b.ep.reset());
    (void)p.b.take();
    p.connect();
  }
}

TEST_CASE("an evd without completions has not failed, however many events are wanted", "[evd]") {
  const clean_world clean;
  end a;
  auto evd = must(a.ia.create_evd<dat::stream::dto>(16));
  for (const std::size_t most : {1u, 2u, 15u, 16u, 17u, 1000u}) CHECK(evd.drain([](const auto&) {}, most) == 0);
  is_error(evd.dequeue(), return_type::queue_empty);
  CHECK(evd.wait(0s).error().type() == return_type::timeout_expired);
  CHECK(failures_of(a.ia) == 0);
}

TEST_CASE("an evd for one stream has all its places", "[evd]") {
  const clean_world clean;
  end a;
  auto evd = must(a.ia.create_evd<dat::stream::software>(1000));
  for (std::uint64_t i = 0; i < 1000; ++i) must(evd.post(i));
  CHECK_FALSE(evd.post(1000));
  CHECK(take(evd).size() == 1000);
}

TEST_CASE("a modify that the second evd has no room for leaves the mode of the first", "[evd][ep]") {
  const clean_world clean(with_small_queues());
  end a;
  constexpr auto streams = dat::stream::dto | dat::stream::software;
  auto recv = must(a.ia.create_evd<streams>(8));
  auto request = must(a.ia.create_evd<streams>(8));
  auto ep = must(a.pz.create_ep<dat::rc>({.recv = recv, .request = request, .connect = a.evd},
                                         {.max_request_dtos = 4, .max_recv_dtos = 4}));
  using dat::completion_notification;
  const auto change = [&](std::uint32_t requests) {
    return ep.modify({.max_request_dtos = requests,
                      .recv_completion = completion_notification::selective,
                      .request_completion = completion_notification::selective});
  };
  fake::fail(fake::call::ibv_resize_cq, 1, ENOMEM);
  is_error(change(63), return_type::insufficient_resources, return_subtype::resource_tevd);
  CHECK(must(recv.query()).config == completion_notification::evd_threshold);
  CHECK(must(request.query()).config == completion_notification::evd_threshold);
  must(change(8));
  CHECK(must(recv.query()).config == completion_notification::selective);
  CHECK(must(request.query()).config == completion_notification::selective);
}

TEST_CASE("a device of one completion vector has vector 0 only", "[evd]") {
  fake::world w;
  w.num_comp_vectors = 1;
  const clean_world clean(w);
  end a;
  for (int i = 0; i < 3; ++i) {
    auto evd = must(a.ia.create_evd<dat::stream::dto>(8));
    CHECK(must(evd.query()).completion_vector == 0);
  }
  is_error(a.ia.create_evd<dat::stream::dto>(8, {.completion_vector = 1}), return_type::invalid_parameter,
           return_subtype::arg3);
}

TEST_CASE("the room that an endpoint has in its evd follows its attributes, and ends with it", "[evd][ep]") {
  const clean_world clean(with_small_queues());
  end a;
  auto evd = must(a.ia.create_evd<all_streams>(8));
  auto other = must(a.ia.create_evd<all_streams>(8));
  const auto create = [&](std::uint32_t requests, std::uint32_t receives) {
    return a.pz.create_ep<dat::rc>(evd, {.max_request_dtos = requests, .max_recv_dtos = receives});
  };
  /// The events that one more endpoint would need room for.
  const auto needed = [&] {
    const auto r = create(60, 60);
    REQUIRE_FALSE(r);
    CHECK(r.error().subtype() == return_subtype::resource_tevd);
    return r.error().index();
  };
  const auto empty = needed();
  auto ep = must(create(4, 4));
  const auto both = needed();
  CHECK(both > empty);
  SECTION("more receives") {
    must(ep.modify({.max_recv_dtos = 20}));
    CHECK(needed() == both + 16);
  }
  SECTION("more requests") {
    must(ep.modify({.max_request_dtos = 20}));
    CHECK(needed() == both + 16);
  }
  SECTION("receives in another evd") {
    must(ep.modify({.recv = other, .max_recv_dtos = 20}));
    CHECK(needed() == both - 4);
  }
  must(ep.close());
  CHECK(needed() == empty);
}
