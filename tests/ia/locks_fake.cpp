// Calls that need a lock wait while another thread is inside a call of verbs with that lock.
// SPDX-License-Identifier: BSL-1.0
#include "datagram_end.hpp"
#include "lock_waits.hpp"
#include "world.hpp"

#include <dat/cno.hpp>
#include <dat/ep_params.hpp>
#include <dat/rmr.hpp>
#include <dat/srq.hpp>
#include <dat/ud.hpp>

#include <optional>

using namespace unit;

namespace {

constexpr auto with_binds = all_streams | dat::stream::rmr_bind;

} // namespace

TEST_CASE("calls on an endpoint wait for one that changes its connection", "[locks]") {
  const clean_world world;
  pair p;
  const auto disconnect = [&] { (void)p.a.ep.disconnect(); };
  const auto during = [&](auto other) { return waits(fake::call::ibv_modify_qp, disconnect, other); };
  SECTION("query") {
    CHECK(during([&] { (void)p.a.ep.query(); }));
  }
  SECTION("set_watermark") {
    CHECK(during([&] { (void)p.a.ep.set_watermark(dat::no_watermark, dat::no_watermark); }));
  }
  SECTION("modify") {
    CHECK(during([&] { (void)p.a.ep.modify({}); }));
  }
  SECTION("another disconnect") {
    CHECK(during([&] { (void)p.a.ep.disconnect(); }));
  }
  SECTION("connect") {
    CHECK(during([&] { (void)p.a.ep.connect(p.b.ia.address(), service, plenty); }));
  }
  SECTION("dup_connect of another endpoint") {
    auto other = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
    CHECK(during([&] { (void)other.dup_connect(p.a.ep, plenty); }));
  }
  SECTION("a failure of the queue pair") {
    fake::async(IBV_EVENT_QP_FATAL, p.a.ep.native_handle());
    CHECK(during([&] { p.a.ia.run(); }));
  }
  SECTION("the end of an accept that fails") {
    p.b.ep = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
    auto from = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
    must(from.connect(p.b.ia.address(), service, plenty));
    p.settle();
    (void)p.b.evd.wait_for<dat::disconnected>(0s);
    auto request = must(p.b.evd.wait_for<dat::connection_request>(0s));
    fake::fail(fake::call::rdma_accept, 1, EIO);
    const auto accept = [&] { (void)request.accept(p.b.ep); };
    CHECK(waits(fake::call::rdma_destroy_id, accept, [&] { (void)p.b.ep.query(); }));
  }
  SECTION("lost completions") {
    fake::async(IBV_EVENT_CQ_ERR, p.a.evd.native_handle());
    CHECK(during([&] { p.a.ia.run(); }));
  }
  p.settle();
}

TEST_CASE("calls on an evd wait for one that polls its device", "[locks]") {
  const clean_world world;
  pair p;
  constexpr auto kinds = dat::stream::dto | dat::stream::connection | dat::stream::software;
  auto evd = must(p.a.ia.create_evd<kinds>(16));
  auto ep = must(p.a.pz.create_ep<dat::rc>(evd));
  auto peer = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  p.connect(ep, peer);
  (void)take(evd);
  const auto during = [&](auto other, bool apart = false) {
    return waits(
        fake::call::ibv_poll_cq, [&] { (void)evd.dequeue(); }, other, apart);
  };
  SECTION("post") {
    CHECK(during([&] { (void)evd.post(dat::cookie(1)); }));
  }
  SECTION("resize") {
    CHECK(during([&] { (void)evd.resize(32); }));
  }
  SECTION("dequeue") {
    CHECK(during([&] { (void)evd.dequeue(); }));
  }
  SECTION("the creation of an endpoint") {
    CHECK(during([&] { (void)p.a.pz.create_ep<dat::rc>(evd); }));
  }
  SECTION("the end of an endpoint") {
    CHECK(during([&] { ep = {}; }));
  }
  SECTION("the reset of an endpoint") {
    must(ep.disconnect());
    p.settle();
    (void)take(evd);
    CHECK(during([&] { (void)ep.reset(); }, true));
  }
  SECTION("a wait for several events") {
    CHECK(waits(
        fake::call::ibv_poll_cq, [&] { (void)evd.resize(32); }, [&] { (void)evd.wait(0s, 2); }, true));
  }
  SECTION("modify_cno") {
    auto cno = must(p.a.ia.create_cno());
    CHECK(during([&] { (void)evd.modify_cno(cno); }, true));
    must(evd.modify_cno({}));
  }
  SECTION("a disconnect that looks for a message") {
    must(peer.disconnect());
    p.settle();
    must(peer.reset());
    must(ep.disconnect());
    must(ep.reset());
    const auto psp = must(p.a.ia.create_psp(static_cast<std::uint16_t>(service + 1), p.a.evd));
    must(peer.connect(p.a.ia.address(), service + 1, plenty));
    p.settle();
    must(must(p.a.evd.wait_for<dat::connection_request>(0s)).accept(ep));
    (void)take(evd);
    REQUIRE(ep.state() == dat::ep_state::completion_pending);
    CHECK(during([&] { (void)ep.disconnect(); }, true));
  }
  SECTION("a notification of the device") {
    auto cno = must(p.a.ia.create_cno());
    must(evd.modify_cno(cno));
    const auto notify = [&] {
      (void)ep.post(dat::rdma_write{p.a.at(0, 1), p.b.mem.remote()});
      fake::finish();
      p.a.ia.run();
    };
    CHECK(during(notify));
    evd = {};
    ep = {};
  }
  SECTION("a connection event") {
    const auto end = [&] {
      (void)peer.disconnect();
      p.a.ia.run();
    };
    CHECK(during(end));
  }
}

TEST_CASE("calls on windows wait for one that binds another window", "[locks][rmr]") {
  const clean_world world;
  end b("fk2");
  end a("fk1");
  auto evd = must(a.ia.create_evd<with_binds>(64));
  auto ep = must(a.pz.create_ep<dat::rc>(evd));
  b.make_ep();
  const auto psp = must(b.ia.create_psp(service, b.evd));
  must(ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(b.ep));
  settle(a, b);
  (void)take(evd);
  auto first = must(a.pz.create_rmr_for_ep());
  auto second = must(a.pz.create_rmr_for_ep());
  auto spare = must(a.pz.register_memory(a.memory, all_rights));
  const auto bind_second = [&] { must(second.bind(ep, dat::bind{a.mem, 0, 8, dat::remote_write})); };
  const auto during = [&](auto other) { return waits(fake::call::ibv_post_send, bind_second, other); };
  SECTION("the completion of a bind") {
    must(first.bind(ep, dat::bind{a.mem, 0, 8, dat::remote_write}));
    CHECK(during([&] { (void)evd.dequeue(); }));
  }
  SECTION("the failure of a bind") {
    fake::hold(ep.native_handle());
    must(first.bind(ep, dat::bind{a.mem, 0, 8, dat::remote_write}));
    REQUIRE(fake::complete(ep.native_handle(), {}, IBV_WC_MW_BIND_ERR));
    fake::finish();
    CHECK(waits(
        fake::call::ibv_alloc_mw, [&] { (void)a.pz.create_rmr(); }, [&] { (void)evd.dequeue(); }));
  }
  SECTION("a message that closes a window") {
    must(ep.post(dat::recv{a.mem}));
    const auto named = must(first.bind(ep, dat::bind{a.mem, 0, 8, dat::remote_write}));
    (void)take(evd);
    must(b.ep.post(dat::send_with_invalidate{named}));
    fake::finish();
    CHECK(during([&] { (void)evd.dequeue(); }));
  }
  SECTION("a window that is made") {
    CHECK(during([&] { (void)a.pz.create_rmr(); }));
  }
  SECTION("a window that ends") {
    CHECK(during([&] { first = {}; }));
  }
  SECTION("a bind") {
    CHECK(during([&] { (void)first.bind(ep, dat::bind{a.mem, 8, 8, dat::remote_write}); }));
  }
  SECTION("a bind of a window for its zone") {
    auto third = must(a.pz.create_rmr());
    CHECK(during([&] { (void)third.bind(ep, dat::bind{a.mem, 8, 8, dat::remote_write}); }));
  }
  SECTION("a key that is compared with that of a window") {
    CHECK(during([&] { (void)first.is(1); }));
  }
  SECTION("a query of a window") {
    CHECK(during([&] { (void)first.query(); }));
  }
  SECTION("the end of the memory of a window") {
    must(first.bind(ep, dat::bind{spare, 0, 8, dat::remote_write}));
    (void)take(evd);
    CHECK(during([&] { spare = {}; }));
  }
  settle(a, b);
  (void)take(evd);
}

TEST_CASE("calls on a shared queue wait for one that changes it at the device", "[locks][srq]") {
  const clean_world world;
  end b;
  auto srq = must(b.pz.create_srq({.max_recv_dtos = 15}));
  const auto change = [&] { must(srq.set_low_watermark(1)); };
  const auto during = [&](auto other) { return waits(fake::call::ibv_modify_srq, change, other); };
  SECTION("query") {
    CHECK(during([&] { (void)srq.query(); }));
  }
  SECTION("resize") {
    CHECK(during([&] { (void)srq.resize(15); }));
  }
  SECTION("set_low_watermark") {
    CHECK(during([&] { (void)srq.set_low_watermark(2); }));
  }
  SECTION("a failure of the queue") {
    fake::async(IBV_EVENT_SRQ_LIMIT_REACHED, srq.native_handle());
    CHECK(during([&] { b.ia.run(); }));
  }
}

TEST_CASE("the resize of a shared queue waits for an endpoint that needs more room in their evd", "[locks][srq]") {
  const fake::with resizable{fake::current(), [](fake::manners& m) { m.srq_resize = true; }};
  const clean_world world;
  end a;
  auto evd = must(a.ia.create_evd<dat::stream::dto | dat::stream::software>(8));
  auto srq = must(a.pz.create_srq({.max_recv_dtos = 60}));
  const auto first = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = a.evd, .connect = a.evd}, srq));
  dat::ep<dat::rc> second;
  const auto attach = [&] {
    second = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd}, {.max_recv_dtos = 400}));
  };
  CHECK(waits(
      fake::call::ibv_resize_cq, attach, [&] { (void)srq.resize(500); }, true));
  CHECK(evd.native_handle()->cqe >= 900);
}

TEST_CASE("addresses of a datagram endpoint wait for one that is made, and a group for another", "[locks][ud]") {
  const clean_world world;
  datagram_end a("fk1");
  const auto own = must(a.ep.address());
  std::optional<dat::ib::address_handle> first = must(a.ep.address_of(own));
  const auto make = [&] { (void)must(a.ep.address_of(own)); };
  SECTION("an address that is made") {
    CHECK(waits(fake::call::ibv_create_ah, make, [&] { (void)a.ep.address_of(own); }));
  }
  SECTION("an address that ends") {
    CHECK(waits(fake::call::ibv_create_ah, make, [&] { first.reset(); }));
  }
  SECTION("the end of the endpoint") {
    CHECK(waits(fake::call::ibv_create_ah, make, [&] { a.ep = {}; }));
  }
}
