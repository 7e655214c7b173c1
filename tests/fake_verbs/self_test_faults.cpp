// The fake's fault injection, sweep, counts and trace.
// SPDX-License-Identifier: BSL-1.0
#include "self_test_support.hpp"

#include <thread>

using namespace self_test;

TEST_CASE("the nth call fails once, in the style of its function, and has no effect") {
  fake::reset();
  end e;
  fake::fail(fake::call::ibv_alloc_pd, 2, ENOSPC);
  auto* one = ibv_alloc_pd(e.ctx);
  CHECK(one);
  errno = 0;
  CHECK(ibv_alloc_pd(e.ctx) == nullptr);
  CHECK(errno == ENOSPC);
  auto* three = ibv_alloc_pd(e.ctx);
  CHECK(three);
  CHECK(fake::live().pds == 3);

  fake::fail(fake::call::ibv_dealloc_pd);
  CHECK(ibv_dealloc_pd(one) == EBUSY);
  CHECK(ibv_dealloc_pd(one) == 0);
  CHECK(ibv_dealloc_pd(three) == 0);

  fake::fail(fake::call::rdma_create_id, 1, EMFILE);
  CHECK(rdma_create_id(e.events, &e.id, nullptr, RDMA_PS_TCP) == -1);
  CHECK(errno == EMFILE);
  CHECK(e.id == nullptr);

  fake::fail(fake::call::ibv_post_recv, 1, ENOMEM);
  ibv_recv_wr w{}, *bad = nullptr;
  CHECK(ibv_post_recv(e.qp, &w, &bad) == ENOMEM);
  CHECK(bad == &w);
  CHECK(fake::posted_receives(e.qp) == 0);

  fake::fail(fake::call::ibv_poll_cq);
  ibv_wc wc;
  CHECK(ibv_poll_cq(e.cq, 1, &wc) < 0);
  CHECK(ibv_poll_cq(e.cq, 1, &wc) == 0);

  ibv_port_attr port;
  fake::fail(fake::call::ibv_query_port, 1, ENODEV);
  CHECK(ibv_query_port(e.ctx, 1, &port) == ENODEV);
  fake::fail(fake::call::ibv_reg_mr, 1, EAGAIN);
  CHECK(ibv_reg_mr(e.pd, e.buffer.data(), 8, 0) == nullptr);
  CHECK(errno == EAGAIN);
  fake::fail(fake::call::ibv_modify_qp, 1, EIO);
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RESET;
  CHECK(ibv_modify_qp(e.qp, &a, IBV_QP_STATE) == EIO);
  CHECK(fake::qp_state(e.qp) == IBV_QPS_INIT);
  CHECK(fake::forget_faults() == 0);
  fake::fail(fake::call::ibv_open_device, 99);
  CHECK(fake::forget_faults() == 1);
  e.close();
  CHECK(fake::leaks() == "");
}

TEST_CASE("counts and trace record the calls") {
  fake::reset();
  end e;
  const auto before = fake::count(fake::call::ibv_alloc_pd);
  fake::fail(fake::call::ibv_alloc_pd);
  CHECK(ibv_alloc_pd(e.ctx) == nullptr);
  CHECK(fake::count(fake::call::ibv_alloc_pd) == before + 1);
  CHECK(fake::trace(1) == "ibv_alloc_pd(context#1) -> ENOMEM (injected)\n");
  e.close();
  CHECK(fake::trace(1) == "ibv_close_device(context#1)\n");
  CHECK(fake::trace().find("ibv_create_qp(pd#1) = qp#1\n") != std::string::npos);
}

namespace {

/// Opens a device, creates a pd and a region, and destroys the created objects. `careless` leaks the pd on failure.
void flow(bool careless) {
  auto* c = open_device();
  if (!c) return;
  static char memory[64];
  if (auto* pd = ibv_alloc_pd(c)) {
    auto* mr = ibv_reg_mr(pd, memory, sizeof memory, 0);
    if (mr) ibv_dereg_mr(mr);
    if (mr || !careless) ibv_dealloc_pd(pd);
  }
  ibv_close_device(c);
}

} // namespace

TEST_CASE("a sweep fails every call of a flow once and finds what is left behind") {
  std::vector<std::string> runs;
  const auto careful = fake::for_each_failure([&](const fake::injected& i) {
    flow(false);
    runs.push_back(i.text());
    CHECK(i.hit() == i.active);
  });
  CHECK(runs == std::vector<std::string>{"no failure", "ibv_get_device_list #1 fails with ENOSYS",
                                         "ibv_open_device #1 fails with EACCES", "ibv_alloc_pd #1 fails with ENOMEM",
                                         "ibv_reg_mr #1 fails with ENOMEM"});
  CHECK(careful.runs == 4);
  CHECK(careful.dirty.empty());
  CHECK(careful.not_hit.empty());

  const auto careless = fake::for_each_failure([](const fake::injected&) { flow(true); });
  REQUIRE(careless.dirty.size() == 1);
  CHECK(careless.dirty[0] ==
        "ibv_reg_mr #1 fails with ENOMEM: leaked: 1 pd (pd#1); context#1 closed while it has pd#1");

  fake::sweep_options all;
  all.groups = fake::group::teardown;
  const auto teardown = fake::for_each_failure([](const fake::injected&) { flow(false); }, all);
  CHECK(teardown.runs == 3); // dereg, dealloc, close
  CHECK(teardown.dirty.size() == 3);

  const auto fickle = fake::for_each_failure([](const fake::injected& i) {
    if (!i.active) flow(false);
  });
  CHECK(fickle.not_hit.size() == 4);
}

TEST_CASE("the table of calls is complete") {
  CHECK(fake::calls().size() > 60);
  for (const auto c : fake::calls()) {
    INFO(fake::name(c));
    CHECK((fake::typical_errno(c) == 0) == (fake::group_of(c) == fake::group::none));
    if (fake::typical_errno(c)) CHECK(fake::errno_name(fake::typical_errno(c)).front() == 'E');
  }
  CHECK(fake::errno_name(ENOMEM) == "ENOMEM");
  CHECK(fake::errno_name(4711) == "errno 4711");
}

TEST_CASE("two threads may send, receive and poll at the same time") {
  fake::reset();
  pair p;
  constexpr std::uint64_t n = 500;
  const auto work = [&](end& self, std::size_t in, std::size_t out, std::uint64_t& received) {
    std::uint64_t posted = 0, sent = 0, done = 0;
    while (done < n || received < n) {
      if (posted < n && posted < received + 8) posted += self.post_recv(posted, in, 16) == 0;
      if (sent < n && sent < done + 4) sent += self.post_send(sent, out) == 0;
      for (const auto& wc : self.poll()) ++(wc.opcode == IBV_WC_RECV ? received : done);
    }
  };
  std::uint64_t a = 0, b = 0;
  std::jthread other{[&] { work(p.server, 0, 1024, b); }};
  work(p.client, 0, 1024, a);
  other.join();
  CHECK(a == n);
  CHECK(b == n);
  p.close();
  CHECK(fake::leaks() == "");
}
