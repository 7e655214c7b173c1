// Completions that wait for the first event of their connection, when that never comes.
// SPDX-License-Identifier: BSL-1.0
#include "allocations.hpp"
#include "async_events.hpp"
#include "late_handshake.hpp"
#include "world.hpp"

#include <dat/detail/handle/core_access.hpp>

using namespace unit;

TEST_CASE("completions of attempts that ended leave their places to those of later connections", "[evd]") {
  const clean_world world;
  end a("fk1"), b("fk2");
  const auto psp = must(b.ia.create_psp(service, b.evd));
  auto cno = must(b.ia.create_cno());
  must(b.evd.modify_cno(cno));
  (void)cno.wait(0s); // takes the trigger that modify_cno may have caused
  const dat::ep_attributes small{.max_request_dtos = 2, .max_recv_dtos = 4};
  for (int i = 0; i < 40; ++i) { // more completions than the evd has places
    b.make_ep(small);
    for (std::uint64_t n = 0; n < 4; ++n) must(b.ep.post(dat::recv{}.cookie(n)));
    fake::break_qp(b.ep.native_handle());
    fake::finish();
    if (i < 10) { // no event comes before that of the connection
      CHECK_FALSE(b.evd.dequeue());
      CHECK_FALSE(cno.wait(0s));
    } else { // and the evd needs no more memory
      const out_of_memory none(0);
      CHECK_FALSE(b.evd.dequeue());
      CHECK_FALSE(out_of_memory::failed());
    }
    must(b.ep.close());
  }
  a.make_ep(small);
  b.make_ep(small);
  for (std::uint64_t n = 0; n < 4; ++n) must(b.ep.post(dat::recv{}.cookie(n)));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  must(request_on(b.evd).accept(b.ep));
  a.ia.run();
  CHECK(a.take() == events{"established"});
  for (int i = 0; i < 2; ++i) must(a.ep.post(dat::send{}));
  fake::finish();
  CHECK_FALSE(b.evd.dequeue());
  settle(a, b);
  CHECK(b.take() == events{"established", "received 0", "received 1"});
  fake::release_events();
}

TEST_CASE("early completions for which an evd has no memory when their connection begins are reported as lost",
          "[evd]") {
  if (!refuses_allocations) SKIP("the build cannot refuse memory");
  const clean_world world;
  late_handshake l;
  must(l.b.ep.post(dat::recv{l.b.at(0, 8)}.cookie(1)));
  l.accept();
  l.a.ia.run();
  must(l.a.ep.post(dat::send{l.a.at(0, 8)}));
  fake::finish();
  ibv_wc wc{};
  REQUIRE(ibv_poll_cq(l.b.evd.native_handle(), 1, &wc) == 1);
  const auto core = dat::detail::core_access::of(l.b.evd);
  auto& evd = static_cast<dat::detail::merged_evd&>(*core);
  // A device that reports a message again and again: the endpoint has no places for so many completions.
  for (int i = 0; i < 20; ++i) {
    for (int j = 0; j < 32; ++j) fake::forge(l.b.evd.native_handle(), wc);
    CHECK(evd.count_events() == 0);
  }
  {
    const out_of_memory none(0);
    for (int i = 0; i < 4; ++i) l.b.ia.run();
    CHECK(out_of_memory::failed());
  }
  CHECK(l.b.ep.state() == dat::ep_state::connected);
  CHECK(take_async<dat::evd_overflow>(l.b.ia) == 1);
  fake::release_events();
  settle(l.a, l.b);
  (void)l.b.take();
}
