// Service points and endpoints whose verbs calls fail, in the fake world.
// SPDX-License-Identifier: BSL-1.0
#include "attempt.hpp"

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>
#include <dat/ud.hpp>

#include <cerrno>
#include <netinet/in.h>
#include <string>

using namespace unit;
using dat::ep_state;
using dat::return_type;

TEST_CASE("create_psp_any fails when no qualifier is free", "[PSP-031][PSP-032]") {
  clean_world world;
  end e;
  for (const int err : {EADDRINUSE, EADDRNOTAVAIL}) {
    fake::fail(fake::call::rdma_bind_addr, 1, err);
    is_error(e.ia.create_psp_any(e.evd), return_type::conn_qual_unavailable);
  }
  fake::fail(fake::call::rdma_bind_addr, 1, ENOMEM);
  const auto none = e.ia.create_psp_any(e.evd);
  REQUIRE_FALSE(none);
  CHECK(none.error().type() == return_type::insufficient_resources);
  SHOWS("PSP-033");
  must(e.ia.create_psp_any(e.evd)); // the failed call left no service point behind
}

TEST_CASE("the error of a service point that could not be made names its kind and its port", "[connection]") {
  clean_world world;
  end e;
  e.make_ep();
  const auto refused = [&](auto create) {
    fake::fail(fake::call::rdma_bind_addr, 1, ENOMEM);
    return create().error().message();
  };
  constexpr dat::communicator tcp{AF_INET, SOCK_STREAM, 0};
  const auto text = std::to_string(service);
  CHECK_THAT(refused([&] { return e.ia.create_psp(service, e.evd); }), support::contains_text("psp " + text));
  CHECK_THAT(refused([&] { return e.ia.create_rsp(service, e.ep, e.evd); }), support::contains_text("rsp " + text));
  CHECK_THAT(refused([&] { return e.ia.create_csp(tcp, e.ia.address().with_port(service), e.evd); }),
             support::contains_text("csp " + text));
}

TEST_CASE("a request that could not be handed off keeps the endpoint that waits for it, and its context",
          "[connection]") {
  clean_world world;
  end a("fk1");
  end b("fk2");
  a.make_ep();
  b.make_ep();
  auto small = must(b.ia.create_evd<dat::stream::connection_requests | dat::stream::software>(1));
  must(small.post(1));
  auto full = must(b.ia.create_psp(service + 1, small));
  auto rsp = must(b.ia.create_rsp(service, b.ep, b.evd));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  auto request = request_on(b.evd);
  must(request.set_context(77));
  is_error(request.handoff(service + 1), return_type::invalid_state);
  CHECK(request.local_ep() == b.ep);
  CHECK(must(request.context()).value() == 77);
  must(request.accept());
  settle(a, b);
  CHECK(b.take() == events{"established"});
}

TEST_CASE("a request of a closed service point can be handed to the next one at its port", "[connection]") {
  attempt t;
  t.connect();
  auto request = request_on(t.b.evd);
  is_error(request.handoff(service), return_type::invalid_parameter, dat::return_subtype::arg2);
  must(t.psp.close());
  is_error(request.handoff(service), return_type::invalid_parameter, dat::return_subtype::arg2);
  t.psp = must(t.b.ia.create_psp(service, t.b.evd));
  must(request.handoff(service));
  request = request_on(t.b.evd);
  CHECK(request.service() == t.psp.id());
  is_error(request.handoff(service), return_type::invalid_parameter, dat::return_subtype::arg2);
  must(request.accept(t.b.ep));
  t.settle();
  CHECK(t.a.take() == events{"established"});
  CHECK(t.b.take() == events{"established"});
}

TEST_CASE("an evd is in use until its service point has ended at the connection manager", "[connection]") {
  clean_world world;
  end e;
  auto evd = must(e.ia.create_evd<ud_streams>(4));
  bool in_use = true;
  const auto try_to_close = [&] { in_use = in_use && !evd.close(); };
  {
    const auto psp = must(e.ia.create_psp(service, evd));
    fake::intercept(fake::call::rdma_destroy_id, try_to_close);
  }
  fake::intercept(fake::call::rdma_destroy_id, {});
  CHECK(in_use);
  {
    const auto listener = must(dat::ib::datagram_service::listen(e.ia, service, evd));
    fake::intercept(fake::call::rdma_destroy_id, try_to_close);
  }
  fake::intercept(fake::call::rdma_destroy_id, {});
  CHECK(in_use);
  must(evd.close());
}

TEST_CASE("modify refuses a port that the program may not use", "[EP-079]") {
  clean_world world;
  end e;
  e.make_ep();
  const auto privileged = e.ia.address().with_port(80);
  fake::fail(fake::call::rdma_bind_addr, 1, EACCES);
  is_error(e.ep.modify({.local_address = privileged}), return_type::invalid_parameter, dat::return_subtype::arg3);
  CHECK(must(e.ep.query()).local_address == e.ia.address());
  must(e.ep.modify({.local_address = privileged}));
  CHECK(must(e.ep.query()).local_address == privileged);
}

TEST_CASE("every verbs call fails once while service points and endpoints are created",
          "[PSP-020][PSP-031][PSP-033][CSP-011][RSP-012]"
          "[EP-001][EP-067]") {
  // A failed call can be repeated, and leaves no object behind.
  const auto result = fake::for_each_failure([&](const fake::injected& i) {
    INFO(i.text());
    const auto twice = [](auto make) {
      auto made = make();
      if (!made) made = make();
      if (!made) FAIL(made.error().message());
      return std::move(made).value();
    };
    auto ia = twice([] { return dat::ia::open("fk2", manual); });
    auto pz = twice([&] { return ia.create_pz(); });
    auto evd = twice([&] { return ia.create_evd<all_streams>(16); });
    auto ep = twice([&] { return ia.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = evd}); });
    if (!ep.modify({.pz = &pz, .max_recv_dtos = 5})) {
      CHECK(ep.state() == ep_state::unconfigured_unconnected);
      CHECK(ep.attributes().max_recv_dtos == 64);
      CHECK_FALSE(must(ep.query()).has_pz);
      must(ep.modify({.pz = &pz, .max_recv_dtos = 5}));
    }
    CHECK(ep.state() == ep_state::unconnected);
    const auto number = ep.number();
    if (!ep.modify({.max_recv_dtos = 6})) {
      CHECK(ep.attributes().max_recv_dtos == 5);
      CHECK(ep.number() == number);
      must(ep.modify({.max_recv_dtos = 6}));
    }
    auto psp = twice([&] { return ia.create_psp(7002, evd); });
    auto any = twice([&] { return ia.create_psp_any(evd); });
    auto rsp = ia.create_rsp(7001, ep, evd);
    if (!rsp) {
      CHECK(ep.state() == ep_state::unconnected);
      rsp = ia.create_rsp(7001, ep, evd);
    }
    REQUIRE(rsp);
    CHECK(ep.state() == ep_state::reserved);
    const int domain = ia.address().family() == dat::address_family::ipv4 ? AF_INET : AF_INET6;
    auto csp = twice([&] { return ia.create_csp({domain, SOCK_STREAM, 0}, ia.address().with_port(7003), evd); });
  });
  CHECK(result.runs > 20);
  for (const auto& d : result.dirty) FAIL_CHECK(d);
  fake::reset();
}
