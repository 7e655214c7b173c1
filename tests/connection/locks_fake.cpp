// Events and calls that need the lock of an endpoint, a service point or an ia wait while another thread has it.
// SPDX-License-Identifier: BSL-1.0
#include "late_handshake.hpp"
#include "lock_waits.hpp"
#include "world.hpp"

#include <dat/cno.hpp>
#include <dat/descriptor.hpp>
#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>

#include <dat/detail/handle/core_access.hpp>

#include <support/asleep.hpp>

#include <atomic>
#include <thread>

using namespace unit;
using dat::ep_state;

namespace {

/// The period is too long to pass during a test.
constexpr dat::ep_attributes tested_hourly{.keep_alive = 1h};

auto& locked_core(const dat::ep<dat::rc>& ep) { return *dat::detail::core_access::of(ep); }

/// Whether `other` waits while another thread has the lock of the endpoint.
template <class Other>
bool waits_for(const dat::ep<dat::rc>& ep, Other other) {
  return waits_while([&](auto inside) { locked_core(ep).locked([&](auto&) { inside(); }); }, other);
}

/// Whether `other` waits while another thread has the lock of the ia's list of objects. One endpoint exists.
template <class Other>
bool waits_for(const dat::ia& ia, Other other) {
  const auto hold = [&](auto inside) {
    (void)dat::detail::core_access::of(ia)->find(dat::detail::child_kind::endpoint, [&](dat::detail::ia_child&) {
      inside();
      return false;
    });
  };
  return waits_while(hold, other);
}

} // namespace

TEST_CASE("events that change a connection wait for a call on its endpoint", "[locks][connection]") {
  const clean_world world;
  pair p(tested_hourly);
  SECTION("the loss of the device") {
    fake::async(IBV_EVENT_DEVICE_FATAL, p.a.ia.native_handle());
    CHECK(waits_for(p.a.ep, [&] { p.a.ia.run(); }));
    CHECK(p.a.ep.state() == ep_state::disconnected);
  }
  SECTION("a failure of its queue pair") {
    fake::async(IBV_EVENT_QP_FATAL, p.a.ep.native_handle());
    CHECK(waits_for(p.a.ep, [&] { p.a.ia.run(); }));
    CHECK(p.a.ep.state() == ep_state::disconnected);
  }
  SECTION("the peer's disconnect") {
    must(p.b.ep.disconnect());
    CHECK(waits_for(p.a.ep, [&] { p.a.ia.run(); }));
    p.settle();
    CHECK(p.a.take() == events{"disconnected"});
  }
  SECTION("the time of a test of its peer") {
    CHECK(waits_for(p.a.ep, [&] { locked_core(p.a.ep).test_peer(); }));
  }
  p.settle();
}

TEST_CASE("data that establishes a connection waits for a call on its endpoint", "[locks][connection]") {
  const clean_world world;
  end a("fk1");
  end b("fk2");
  auto received = must(b.ia.create_evd<dat::stream::dto>(16));
  a.make_ep();
  b.ep = must(b.pz.create_ep<dat::rc>({.recv = received, .request = b.evd, .connect = b.evd}));
  const auto psp = must(b.ia.create_psp(service, b.evd));
  must(b.ep.post(dat::recv{b.at(0, 8)}.cookie(5)));
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(b.ep));
  settle(a, b);
  REQUIRE(b.ep.state() == ep_state::completion_pending);
  must(a.ep.post(dat::send{a.at(0, 8)}));
  fake::finish();
  CHECK(waits_for(b.ep, [&] { (void)received.dequeue(); }));
  CHECK(b.ep.state() == ep_state::connected);
  fake::release_events();
  settle(a, b);
  CHECK(b.take() == events{"established"});
}

TEST_CASE("calls on an endpoint wait for one that makes its queue pair or connects it", "[locks][connection]") {
  const clean_world world;
  pair p;
  const auto query = [&] { (void)p.a.ep.query(); };
  SECTION("reset") {
    must(p.a.ep.disconnect());
    p.settle();
    CHECK(waits(
        fake::call::ibv_create_qp, [&] { must(p.a.ep.reset()); }, query));
  }
  SECTION("connect by a descriptor") {
    p.a.make_ep();
    p.b.make_ep();
    const auto there = must(p.b.ep.export_descriptor());
    CHECK(waits(
        fake::call::ibv_modify_qp, [&] { must(p.a.ep.connect(there)); }, query));
  }
  SECTION("modify") {
    p.a.make_ep();
    CHECK(waits(
        fake::call::ibv_create_qp, [&] { must(p.a.ep.modify({.max_recv_dtos = 5})); }, query));
  }
  SECTION("accept") {
    p.b.make_ep();
    auto from = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
    must(from.connect(p.b.ia.address(), service, plenty));
    p.settle();
    (void)p.b.evd.wait_for<dat::disconnected>(0s);
    auto request = must(p.b.evd.wait_for<dat::connection_request>(0s));
    CHECK(waits(
        fake::call::ibv_modify_qp, [&] { must(request.accept(p.b.ep)); }, [&] { (void)p.b.ep.query(); }));
  }
  p.settle();
  (void)p.a.take();
  (void)p.b.take();
}

TEST_CASE("a reset returns when no thread takes completions of the last connection any more", "[locks][connection]") {
  const clean_world world;
  end a("fk1");
  end b("fk2");
  constexpr auto kinds = dat::stream::dto | dat::stream::software;
  auto received = must(a.ia.create_evd<kinds>(16));
  auto requests = must(a.ia.create_evd<kinds>(16));
  a.ep = must(a.pz.create_ep<dat::rc>({.recv = received, .request = requests, .connect = a.evd}));
  b.make_ep();
  const auto there = must(b.ep.export_descriptor());
  must(a.ep.connect(there));
  must(a.ep.disconnect());
  const auto here = std::this_thread::get_id();
  std::atomic<pid_t> resets{static_cast<pid_t>(::syscall(SYS_gettid))};
  std::atomic<bool> inside{false}, done{false}, waited{false};
  int polls = 0;
  std::jthread takes;
  // The reset polls each evd once. While it polls the second one, a thread begins to poll the first one.
  fake::intercept(fake::call::ibv_poll_cq, [&] {
    if (std::this_thread::get_id() == here) {
      if (++polls != 2) return;
      takes = std::jthread([&] { (void)received.dequeue(); });
      while (!inside) std::this_thread::yield();
    } else if (!inside.exchange(true)) {
      support::until_locked_out(resets, 20s, [&] { return done.load(); });
      waited = !done;
    }
  });
  must(a.ep.reset());
  done = true;
  takes.join();
  fake::intercept(fake::call::ibv_poll_cq, {});
  CHECK(waited);
}

TEST_CASE("the end of a request and the calls of its service point wait for each other", "[locks][connection]") {
  const clean_world world;
  end a("fk1");
  end b("fk2");
  a.make_ep();
  b.make_ep();
  auto rsp = must(b.ia.create_rsp(service, b.ep, b.evd));
  must(a.ep.connect(b.ia.address(), service, plenty));
  SECTION("query waits for a call on the endpoint, which may have the request") {
    settle(a, b);
    CHECK(waits_for(b.ep, [&] { (void)rsp.query(); }));
  }
  // The thread that delivers the request has the lock of the service point, and waits for that of the endpoint.
  const auto during_delivery = [&](auto other) {
    std::optional<other_call> delivers;
    const auto hold = [&](auto inside) {
      locked_core(b.ep).locked([&](auto&) {
        delivers.emplace([&] { settle(a, b); });
        CHECK(delivers->waits());
        inside();
      });
    };
    return waits_while(hold, other);
  };
  SECTION("query waits for the request that arrives") {
    CHECK(during_delivery([&] { (void)rsp.query(); }));
  }
  SECTION("close waits for the request that arrives") {
    CHECK(during_delivery([&] { must(rsp.close()); }));
    CHECK(b.ep.state() == ep_state::passive_connection_pending);
  }
  settle(a, b);
  (void)b.take();
}

TEST_CASE("an accept does not delay other calls of its endpoint while the kernel takes it", "[locks][connection]") {
  const clean_world world;
  asking_ends ends;
  end& a = ends.a;
  end& b = ends.b;
  auto request = ends.ask();
  CHECK_FALSE(waits(
      fake::call::rdma_accept, [&] { must(request.accept(b.ep)); }, [&] { (void)b.ep.query(); }));
  settle(a, b);
}

TEST_CASE("calls and events that look through the objects of an ia wait for one that changes them", "[locks][ia]") {
  const clean_world world;
  pair p;
  auto cno = must(p.a.ia.create_cno());
  SECTION("an object is made") {
    CHECK(waits_for(p.a.ia, [&] { (void)p.a.ia.create_cno(); }));
  }
  SECTION("an object ends") {
    CHECK(waits_for(p.a.ia, [&] { must(cno.close()); }));
  }
  SECTION("the ia is closed") {
    bool closed = true;
    CHECK(waits_for(p.a.ia, [&] { closed = p.a.ia.close(dat::close_mode::graceful).has_value(); }));
    CHECK_FALSE(closed);
  }
  SECTION("a queue pair fails") {
    fake::async(IBV_EVENT_QP_FATAL, p.a.ep.native_handle());
    CHECK(waits_for(p.a.ia, [&] { p.a.ia.run(); }));
  }
  SECTION("the device fails") {
    fake::async(IBV_EVENT_DEVICE_FATAL, p.a.ia.native_handle());
    CHECK(waits_for(p.a.ia, [&] { p.a.ia.run(); }));
  }
  p.settle();
}
