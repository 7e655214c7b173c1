// What an evd counts: the completions that its endpoints may have, the events that are queued, and who feeds it.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/cno.hpp>
#include <dat/ep_params.hpp>
#include <dat/srq.hpp>

#include <optional>

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

/// A device whose completion queues have up to 127 entries.
fake::world small_queues() {
  fake::world w;
  w.devices[0].attr = fake::rxe_attr();
  w.devices[0].attr->max_cqe = 127;
  return w;
}

} // namespace

TEST_CASE("an evd has room again for endpoints, when others have left it in any way", "[evd][ep]") {
  const clean_world world(small_queues());
  end e;
  auto evd = must(e.ia.create_evd<dat::stream::dto | dat::stream::software>(4));
  const dat::ep_attributes most{.max_request_dtos = 40, .max_recv_dtos = 70};
  const auto make = [&] { return e.pz.create_ep<dat::rc>({.recv = evd, .request = e.evd, .connect = e.evd}, most); };
  for (int i = 0; i < 3; ++i) {
    auto ep = must(make());
    is_error(make(), return_type::insufficient_resources, return_subtype::resource_tevd);
    switch (i) {
    case 0:
      must(ep.close());
      break;
    case 1:
      must(ep.modify({.recv = e.evd}));
      break;
    default: // smaller: a second endpoint has room beside it
      must(ep.modify({.max_recv_dtos = 20}));
      must(must(make()).close());
    }
  }
}

TEST_CASE("an endpoint that could not be made leaves no claim on its evds", "[evd][ep]") {
  const clean_world world(small_queues());
  end e;
  auto evd = must(e.ia.create_evd<dat::stream::dto | dat::stream::software>(4));
  const dat::ep_attributes most{.max_request_dtos = 40, .max_recv_dtos = 70};
  const auto make = [&](const dat::evd_ref<dat::stream::dto>& request) {
    return e.pz.create_ep<dat::rc>({.recv = evd, .request = request, .connect = e.evd}, most);
  };
  SECTION("because its queue pair was refused") {
    fake::fail(fake::call::ibv_create_qp, 1, ENOMEM);
    CHECK_FALSE(make(e.evd));
  }
  SECTION("because the device could not be armed for the cno") {
    auto cno = must(e.ia.create_cno());
    must(evd.modify_cno(cno));
    fake::fail(fake::call::ibv_req_notify_cq, 1, EIO);
    CHECK_FALSE(make(e.evd));
    CHECK(fake::forget_faults() == 0);
    must(evd.modify_cno({}));
    must(must(make(e.evd)).close());
    return;
  }
  SECTION("because its other evd has no room") {
    auto full = must(e.ia.create_evd<dat::stream::dto>(4));
    const auto first =
        must(e.pz.create_ep<dat::rc>({.recv = e.evd, .request = full, .connect = e.evd}, {.max_request_dtos = 95}));
    is_error(make(full), return_type::insufficient_resources, return_subtype::resource_tevd);
  }
  // Another way of notification, which would differ from that of an endpoint.
  dat::ep_attributes other = most;
  other.recv_completion = dat::completion_notification::selective;
  must(e.pz.create_ep<dat::rc>({.recv = evd, .request = e.evd, .connect = e.evd}, other));
}

TEST_CASE("an evd has room again for the entries of a shared queue, when the last of its endpoints has left",
          "[evd][srq]") {
  const clean_world world(small_queues());
  end e;
  auto evd = must(e.ia.create_evd<dat::stream::dto | dat::stream::software>(4));
  using shared = dat::ep<dat::with_srq<dat::rc>>;
  for (int i = 0; i < 3; ++i) {
    auto first = must(e.pz.create_srq({.max_recv_dtos = 63}));
    auto second = must(e.pz.create_srq({.max_recv_dtos = 31}));
    auto third = must(e.pz.create_srq({.max_recv_dtos = 63}));
    const auto make = [&](dat::srq& srq) {
      return e.pz.create_ep<dat::rc>({.recv = evd, .request = e.evd, .connect = e.evd}, srq, {.max_request_dtos = 4});
    };
    shared a = must(make(first)), b = must(make(first)), c = must(make(second));
    is_error(make(third), return_type::insufficient_resources, return_subtype::resource_tevd);
    must(a.close());
    is_error(make(third), return_type::insufficient_resources, return_subtype::resource_tevd);
    must(b.close());
    shared d = must(make(third));
    must(c.close());
    must(d.close());
  }
}

TEST_CASE("an evd shrinks to the events that are queued, and not below, taken from the device or not", "[evd]") {
  const clean_world world;
  pair p;
  constexpr auto kinds = dat::stream::dto | dat::stream::connection | dat::stream::software;
  auto evd = must(p.a.ia.create_evd<kinds>(64));
  auto ep = must(p.a.pz.create_ep<dat::rc>(evd, {.max_request_dtos = 8, .max_recv_dtos = 8}));
  auto peer = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  p.connect(ep, peer);
  CHECK(take(evd) == events{"established"});
  for (std::uint64_t i = 0; i < 5; ++i) must(ep.post(dat::rdma_write{p.a.at(0, 1), p.b.mem.remote()}.cookie(i)));
  fake::finish();
  is_error(evd.resize(4), return_type::invalid_state, return_subtype::evd_in_use);
  must(evd.resize(5));
  CHECK(take(evd).size() == 5);
  for (std::uint64_t i = 0; i < 3; ++i) must(evd.post(dat::cookie(i)));
  is_error(evd.resize(2), return_type::invalid_state, return_subtype::evd_in_use);
  must(evd.resize(3));
  CHECK(evd.post(dat::cookie(9)).error().type() == return_type::queue_full);
  CHECK(take(evd) == events{"software 0", "software 1", "software 2"});
  must(evd.resize(1));
}

TEST_CASE("an evd counts no events of endpoints that were closed", "[evd]") {
  const clean_world world;
  end a("fk1"), b("fk2");
  const auto psp = must(b.ia.create_psp(service, b.evd));
  auto evd = must(a.ia.create_evd<dat::stream::connection>(1));
  for (int i = 0; i < 4; ++i) {
    std::optional<dat::ep<dat::rc>> two[2];
    for (auto& one : two) {
      one = must(a.pz.create_ep<dat::rc>({.recv = a.evd, .request = a.evd, .connect = evd}));
      b.make_ep();
      must(one->connect(b.ia.address(), service, plenty));
      settle(a, b);
      must(request_on(b.evd).accept(b.ep));
      settle(a, b);
      must(one->disconnect());
      settle(a, b);
      (void)b.take();
    }
    // Four events are queued, and none was taken.
    for (auto& one : two) must(one->close());
  }
  CHECK(take(evd).size() <= 1);
  must(evd.resize(1));
}
