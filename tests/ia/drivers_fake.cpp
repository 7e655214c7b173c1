// dat on drivers that behave differently from Soft-RoCE's: missing functions, negated errnos.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/srq.hpp>

using namespace unit;
using dat::return_subtype;
using dat::return_type;

TEST_CASE("a shared queue needs no ibv_query_srq", "[srq]") {
  const fake::with manner{fake::personality::plain};
  const clean_world world;
  end b;
  auto srq = must(b.pz.create_srq({.max_recv_dtos = 10, .max_recv_iov = 2}));
  CHECK(must(srq.query()).max_recv_dtos == 15); // the size that the driver created
  for (unsigned i = 0; i < 15; ++i) must(srq.post(dat::recv{b.at(0, 8)}.cookie(i)));
  CHECK_FALSE(srq.post(dat::recv{b.at(0, 8)}));
  must(srq.set_low_watermark(3));
}

TEST_CASE("another error of ibv_query_srq refuses the shared queue", "[srq]") {
  const clean_world world;
  end b;
  fake::fail(fake::call::ibv_query_srq, 1, EIO);
  const auto refused = b.pz.create_srq({.max_recv_dtos = 10, .max_recv_iov = 2});
  is_error(refused, return_type::internal_error);
  CHECK(refused.error().verb() == "ibv_query_srq");
}

TEST_CASE("a shared queue that the device cannot resize keeps its size", "[srq]") {
  const fake::with manner{fake::personality::mlx5};
  const clean_world world;
  end b;
  auto srq = must(b.pz.create_srq({.max_recv_dtos = 10, .max_recv_iov = 2}));
  is_error(srq.resize(100), return_type::insufficient_resources, return_subtype::resource_srq);
  must(srq.resize(5)); // a queue may be larger than requested
  CHECK(must(srq.query()).max_recv_dtos == 15);
  for (unsigned i = 0; i < 15; ++i) must(srq.post(dat::recv{b.at(0, 8)}.cookie(i)));
}

TEST_CASE("a negated errno means what the errno means", "[evd][ep]") {
  for (const int sign : {1, -1}) {
    INFO(sign);
    const fake::with manner{fake::personality::kind, [=](fake::manners& m) { m.negative_errnos = sign < 0; }};
    const clean_world world;
    pair p;
    fake::fail(fake::call::ibv_resize_cq, 1, EINVAL);
    is_error(p.a.evd.resize(128), return_type::invalid_state, return_subtype::evd_in_use);
    fake::fail(fake::call::ibv_post_send, 1, ENOMEM);
    const auto full = p.a.ep.post(dat::send{p.a.at(0, 8)});
    REQUIRE_FALSE(full);
    CHECK(full.error().type() == return_type::insufficient_resources);
    CHECK(full.error().sys_errno() == ENOMEM);
    fake::fail(fake::call::ibv_post_recv, 1, ENOMEM);
    const auto none = p.a.ep.post(dat::recv{p.a.at(0, 8)});
    REQUIRE_FALSE(none);
    CHECK(none.error().type() == return_type::insufficient_resources);
    CHECK(none.error().sys_errno() == ENOMEM);
  }
}
