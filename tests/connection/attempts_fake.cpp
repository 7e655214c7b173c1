// What is left behind by requests that are refused, attempts that are repeated, and accepts that fail.
// SPDX-License-Identifier: BSL-1.0
#include "late_handshake.hpp"
#include "world.hpp"

#include <dat/csp.hpp>
#include <dat/descriptor.hpp>
#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>

#include <netinet/in.h>

using namespace unit;
using dat::ep_state;
using dat::return_type;

TEST_CASE("a repeated request whose peer's address is not found is unreachable at the time limit", "[connection]") {
  const clean_world world;
  end a("fk1");
  end b("fk2");
  a.make_ep();
  const auto psp = must(b.ia.create_psp(service, b.evd));
  must(a.ep.connect(b.ia.address(), service, 2s));
  settle(a, b);
  REQUIRE(fake::id_of_qp(a.ep.number()));
  fake::hold_events(RDMA_CM_EVENT_ADDR_RESOLVED);
  const auto asked = fake::count(fake::call::rdma_resolve_addr);
  fake::deliver({.event = RDMA_CM_EVENT_REJECTED, .status = 10, .qp_num = a.ep.number()}); // the peer's is stale
  const auto ended = must(a.evd.wait(plenty));
  CHECK(std::visit(describe{}, ended) == "unreachable " + std::to_string(ETIMEDOUT));
  CHECK(fake::count(fake::call::rdma_resolve_addr) == asked + 1);
  CHECK(a.ep.state() == ep_state::disconnected);
  fake::release_events();
}

TEST_CASE("an endpoint whose service point had no room for a request is free for the next one", "[connection]") {
  const clean_world world;
  end a("fk1");
  end b("fk2");
  auto small = must(b.ia.create_evd<dat::stream::connection_requests>(1));
  auto psp = must(b.ia.create_psp(service, b.evd));
  b.make_ep();
  auto rsp = must(b.ia.create_rsp(service + 1, b.ep, small));
  const auto filler = must(b.ia.create_psp(service + 2, small));
  const auto ask = [&](std::uint16_t port) {
    auto ep = must(a.pz.create_ep<dat::rc>(a.evd));
    must(ep.connect(b.ia.address(), port, plenty));
    return ep;
  };
  std::vector<dat::ep<dat::rc>> asking;
  while (small.query() && asking.size() < 64 && a.take().empty()) { // until the evd is full
    asking.push_back(ask(service + 2));
    settle(a, b);
  }
  const auto next = ask(service);
  settle(a, b);
  auto other = request_on(b.evd);
  SECTION("the endpoint shows no peer") {
    const auto refused = ask(service + 1);
    settle(a, b);
    CHECK(refused.state() == ep_state::disconnected);
    CHECK(b.ep.state() == ep_state::reserved);
    CHECK_FALSE(must(b.ep.query()).remote_address);
    CHECK_FALSE(b.ep.remote_address());
  }
  SECTION("the refusal leaves the endpoint to a request that came before its end") {
    bool handed = false;
    fake::intercept(fake::call::rdma_reject_ece, [&] {
      if (std::exchange(handed, true)) return;
      (void)take(small);
      must(other.handoff(service + 1));
    });
    const auto refused = ask(service + 1);
    settle(a, b);
    fake::intercept(fake::call::rdma_reject_ece, {});
    REQUIRE(handed);
    CHECK(b.ep.state() == ep_state::passive_connection_pending);
    auto again = request_on(small);
    must(again.accept());
    settle(a, b);
    CHECK(next.state() == ep_state::connected);
  }
}

TEST_CASE("an accept that fails after its endpoint was disconnected keeps no id", "[connection]") {
  const clean_world world;
  asking_ends ends;
  end& b = ends.b;
  auto request = ends.ask();
  const auto ids = fake::live().ids;
  fake::fail(fake::call::rdma_accept, 1, EIO);
  fake::intercept(fake::call::rdma_accept, [&] { must(b.ep.disconnect()); });
  must(request.accept(b.ep)); // the disconnect has the outcome
  fake::intercept(fake::call::rdma_accept, {});
  CHECK(b.ep.state() == ep_state::disconnected);
  CHECK(b.take() == events{"disconnected"});
  CHECK(fake::live().ids == ids - 1);
}

TEST_CASE("an endpoint stays reserved while its service point looks for a port that both addresses have",
          "[connection]") {
  const clean_world world;
  end b("fk2");
  b.make_ep();
  // Any free port: what dat itself does where a caller names none.
  fake::fail(fake::call::rdma_listen, 2, EADDRINUSE);
  auto made = dat::detail::service_point::create(
      dat::detail::core_access::of(b.ia), dat::detail::core_access::of(b.evd),
      {.call = "ia.create_rsp",
       .kind = dat::service_kind::rsp,
       .ep = dat::detail::ref<dat::detail::ia_child>(dat::detail::core_access::of(b.ep)),
       .endpoints = &dat::detail::ep_core::request_functions});
  REQUIRE(made);
  CHECK(b.ep.state() == ep_state::reserved);
  CHECK(fake::count(fake::call::rdma_listen) == 4);
  made.assume_value()->end();
  CHECK(b.ep.state() == ep_state::unconnected);
}

TEST_CASE("the removal of the device at the connection manager is the end of the adapter", "[connection][ia]") {
  const clean_world world;
  pair p;
  fake::deliver({.event = RDMA_CM_EVENT_DEVICE_REMOVAL, .id = p.psp.native_handle()});
  p.settle();
  CHECK(p.b.ep.state() == ep_state::disconnected);
  CHECK(p.b.take() == events{"broken"});
  CHECK(p.b.ia.async_evd().dequeue());
}

TEST_CASE("errors of a common service point name its port, if there is one", "[connection]") {
  const clean_world world;
  end a;
  constexpr dat::communicator datagrams{AF_INET, SOCK_DGRAM, 0};
  const auto without = a.ia.create_csp(datagrams, a.evd);
  is_error(without, return_type::comm_not_supported);
  CHECK(without.error().object_id() == 0);
  const auto with = a.ia.create_csp(datagrams, a.ia.address().with_port(7003), a.evd);
  is_error(with, return_type::comm_not_supported);
  CHECK(with.error().object_id() == 7003);
}

TEST_CASE("private data of the longest size is sent, and one byte more is not", "[connection]") {
  const clean_world world;
  pair p;
  constexpr std::size_t most_data = 56;
  const std::string most(most_data, 'x');
  const std::string more(most_data + 1, 'x');
  auto ep = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  is_error(ep.connect(p.b.ia.address(), service, plenty, bytes_of(more)), return_type::invalid_parameter,
           dat::return_subtype::arg5);
  must(ep.connect(p.b.ia.address(), service, plenty, bytes_of(most)));
  p.settle();
  auto request = request_on(p.b.evd);
  CHECK(text_of(request.private_data()) == most);
  auto to = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  is_error(request.accept(to, bytes_of(more)), return_type::invalid_parameter, dat::return_subtype::arg4);
  is_error(request.reject(bytes_of(more)), return_type::invalid_parameter, dat::return_subtype::arg2);
  must(request.accept(to, bytes_of(most)));
  p.settle();
  const auto up = must(p.a.evd.wait_for<dat::established>(0s));
  CHECK(text_of(up.private_data()) == most);
}

TEST_CASE("a connection has the addresses of its id at the end of the handshake, which a port mapper may change",
          "[connection]") {
  const clean_world world;
  asking_ends ends;
  end& a = ends.a;
  end& b = ends.b;
  auto request = ends.ask();
  rdma_cm_id* const id = fake::id_of_qp(a.ep.number());
  REQUIRE(id);
  id->route.addr.src_sin.sin_port = htons(41234);
  must(request.accept(b.ep));
  settle(a, b);
  CHECK(a.take() == events{"established"});
  CHECK(must(a.ep.local_address()).port() == 41234);
}
