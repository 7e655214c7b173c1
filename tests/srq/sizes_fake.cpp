// The size of a shared receive queue at its limits, on devices that do not report the created size.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/srq.hpp>

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

/// A world whose devices resize shared queues and report their sizes, with small limits.
struct sized {
  explicit sized() : world(small()) {}
  static fake::world small() {
    fake::world w;
    w.devices[0].attr = fake::rxe_attr();
    w.devices[0].attr->max_srq_wr = 63;
    return w;
  }
  fake::with resizable{fake::current(), [](fake::manners& m) { m.srq_resize = m.srq_query = true; }};
  clean_world world;
  end a;
};

} // namespace

TEST_CASE("a shared queue can have the largest size of its device, and size 1", "[srq]") {
  sized s;
  auto srq = must(s.a.pz.create_srq({.max_recv_dtos = 3}));
  const auto most = must(s.a.ia.query()).max_recv_per_srq;
  CHECK(most == 63);
  must(srq.resize(most));
  CHECK(must(srq.query()).max_recv_dtos == most);
  is_error(srq.resize(most + 1), return_type::invalid_parameter, return_subtype::arg2);
  must(srq.resize(1));
  CHECK(must(srq.query()).max_recv_dtos == 1);
  is_error(srq.resize(0), return_type::invalid_parameter, return_subtype::arg2);
}

TEST_CASE("a shared queue that the device does not make smaller keeps its size, also if the device does not report it",
          "[srq]") {
  sized s;
  auto srq = must(s.a.pz.create_srq({.max_recv_dtos = 31}));
  const bool reports = GENERATE(true, false);
  CAPTURE(reports);
  fake::fail(fake::call::ibv_modify_srq, 1, EINVAL);
  if (!reports) fake::fail(fake::call::ibv_query_srq, 1, EOPNOTSUPP);
  must(srq.resize(7));
  CHECK(must(srq.query()).max_recv_dtos == 31);
  fake::forget_faults();
  std::size_t posted = 0;
  while (srq.post(dat::recv{s.a.at(0, 8)})) ++posted;
  CHECK(posted == 31);
}

TEST_CASE("a resize succeeds when the shared queue has the new size, although the device reports a failure", "[srq]") {
  sized s;
  auto srq = must(s.a.pz.create_srq({.max_recv_dtos = 31}));
  fake::intercept(fake::call::ibv_modify_srq, [&] {
    fake::intercept(fake::call::ibv_modify_srq, {});
    ibv_srq_attr attr{};
    attr.max_wr = 63;
    CHECK(ibv_modify_srq(srq.native_handle(), &attr, IBV_SRQ_MAX_WR) == 0);
    fake::fail(fake::call::ibv_modify_srq, 1, EIO); // the call that this interrupts
  });
  must(srq.resize(63));
  CHECK(must(srq.query()).max_recv_dtos == 63);
  std::size_t posted = 0;
  while (srq.post(dat::recv{s.a.at(0, 8)})) ++posted;
  CHECK(posted == 63);
}

TEST_CASE("a shared queue that the device makes smaller has the size that the device reports, or the one asked for",
          "[srq]") {
  sized s;
  auto srq = must(s.a.pz.create_srq({.max_recv_dtos = 31}));
  SECTION("reported") {
    must(srq.resize(5));
    CHECK(must(srq.query()).max_recv_dtos == 7); // a power of two less one
  }
  SECTION("not reported") {
    fake::fail(fake::call::ibv_query_srq, 1, EOPNOTSUPP);
    must(srq.resize(5));
    CHECK(must(srq.query()).max_recv_dtos == 5);
  }
}

TEST_CASE(
    "a shared queue has the size that was asked for if the device reports a smaller one, and never grows by shrinking",
    "[srq]") {
  sized s;
  auto srq = must(s.a.pz.create_srq({.max_recv_dtos = 31}));
  // The device changes the size between the call that resizes the queue and the call that reads its size.
  const auto device_changes_to = [&](std::uint32_t n) {
    fake::intercept(fake::call::ibv_query_srq, [&srq, n] {
      fake::intercept(fake::call::ibv_query_srq, {});
      ibv_srq_attr attr{};
      attr.max_wr = n;
      CHECK(ibv_modify_srq(srq.native_handle(), &attr, IBV_SRQ_MAX_WR) == 0);
    });
  };
  const auto changes = fake::count(fake::call::ibv_modify_srq);
  must(srq.resize(31));
  CHECK(fake::count(fake::call::ibv_modify_srq) == changes); // the size is the same
  device_changes_to(63);
  must(srq.resize(7));
  CHECK(must(srq.query()).max_recv_dtos == 31);
  device_changes_to(31);
  must(srq.resize(63));
  CHECK(must(srq.query()).max_recv_dtos == 63);
}

TEST_CASE("an evd has room for every buffer of a shared queue that the device made larger than requested", "[srq]") {
  const fake::with resizable{fake::personality::kind, [](fake::manners& m) { m.srq_resize = m.srq_query = true; }};
  const clean_world world;
  pair p({.max_request_dtos = 128}, {});
  auto evd = must(p.b.ia.create_evd<all_streams>(1));
  auto srq = must(p.b.pz.create_srq({.max_recv_dtos = 31}));
  auto from = must(p.a.pz.create_ep<dat::rc>(p.a.evd, {.max_request_dtos = 128}));
  auto to = must(p.b.pz.create_ep<dat::rc>(evd, srq, {.max_request_dtos = 1}));
  p.connect(from, to);
  CHECK(take(evd) == events{"established"});
  must(srq.resize(64));
  const auto capacity = must(srq.query()).max_recv_dtos;
  CHECK(capacity == 127); // a power of two less one
  for (std::uint32_t i = 0; i < capacity; ++i) must(srq.post(dat::recv{p.b.at(0, 8)}));
  for (std::uint32_t i = 0; i < capacity; ++i) must(from.post(dat::send{p.a.at(0, 8)}.suppress_completion()));
  must(to.post(dat::rdma_write{p.b.at(0, 8), must(p.a.mem.remote(0, 8))}));
  fake::finish();
  CHECK(fake::unread_completions(evd.native_handle()) == capacity + 1);
  CHECK(take(evd).size() == capacity + 1);
  CHECK(to.state() == dat::ep_state::connected);
}

TEST_CASE("a shared queue uses no more room of the device than its evds have room for", "[srq]") {
  const fake::with resizable{fake::personality::kind, [](fake::manners& m) { m.srq_resize = m.srq_query = true; }};
  fake::world small;
  small.devices[0].attr = fake::rxe_attr();
  small.devices[0].attr->max_cqe = 100;
  const clean_world world(small);
  end a;
  auto srq = must(a.pz.create_srq({.max_recv_dtos = 31}));
  auto ep = must(a.pz.create_ep<dat::rc>(a.evd, srq, {.max_request_dtos = 10}));
  must(srq.resize(70)); // the device gives room for 127
  CHECK(must(srq.query()).max_recv_dtos == 70);
  std::size_t posted = 0;
  while (srq.post(dat::recv{a.at(0, 8)})) ++posted;
  CHECK(posted == 70);
  // An endpoint that comes later needs room for the present size only.
  auto evd = must(a.ia.create_evd<all_streams>(1));
  CHECK(a.pz.create_ep<dat::rc>(evd, srq, {.max_request_dtos = 10}));
}

TEST_CASE("a device that never resizes a shared queue lacks the room", "[srq]") {
  sized s;
  auto srq = must(s.a.pz.create_srq({.max_recv_dtos = 31}));
  for (const int refusal : {EINVAL, EOPNOTSUPP, ENOSYS}) {
    CAPTURE(refusal);
    fake::fail(fake::call::ibv_modify_srq, 1, refusal);
    is_error(srq.resize(63), return_type::insufficient_resources, return_subtype::resource_srq);
  }
  fake::fail(fake::call::ibv_modify_srq, 1, EIO);
  const auto r = srq.resize(63);
  REQUIRE_FALSE(r);
  CHECK(r.error().type() != return_type::insufficient_resources);
  // The device gets no limit if the queue is below the watermark already.
  must(srq.set_low_watermark(5));
  ibv_srq_attr attr{};
  REQUIRE(ibv_query_srq(srq.native_handle(), &attr) == 0);
  CHECK(attr.srq_limit == 0);
}

TEST_CASE("a buffer of a shared queue can be taken by itself, and names its endpoint", "[srq]") {
  const clean_world world;
  pair p;
  auto srq = must(p.b.pz.create_srq({.max_recv_dtos = 3}));
  auto from = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  auto to = must(p.b.pz.create_ep<dat::rc>(p.b.evd, srq));
  p.connect(from, to);
  (void)p.b.take();
  for (std::uint64_t i = 0; i < 20; ++i) {
    must(srq.post(dat::recv{p.b.at(0, 8)}.cookie(i)));
    must(from.post(dat::send{p.a.at(0, 5)}));
    fake::finish();
    const auto e = std::get<dat::recv_done>(must(p.b.evd.dequeue()));
    CHECK(e.ep() == to);
    CHECK(e.cookie().value() == i);
    CHECK(e.bytes() == 5);
  }
  CHECK(must(srq.query()).outstanding == 0);
}

TEST_CASE("a post to a shared queue that has ended says so, and one to an empty handle says that", "[srq]") {
  const clean_world world;
  end a;
  auto srq = must(a.pz.create_srq({.max_recv_dtos = 3}));
  must(a.ia.close(dat::close_mode::abrupt)); // ends the queue, but the handle still exists
  const auto hint_of = [](const dat::expected<void>& r) {
    REQUIRE_FALSE(r);
    CHECK(r.error().type() == return_type::invalid_handle);
    CHECK(r.error().subtype() == return_subtype::handle_srq);
    return r.error().message();
  };
  CHECK_THAT(hint_of(srq.post(dat::recv{})), support::contains_text("The srq is closed."));
  CHECK_THAT(hint_of(dat::srq().post(dat::recv{})), support::contains_text("The handle is empty"));
}
