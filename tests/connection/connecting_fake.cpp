// Connecting and accepting: partitions, descriptors, packet numbers, the limit of an accept, and device limits of zero.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/csp.hpp>
#include <dat/descriptor.hpp>
#include <dat/ep_params.hpp>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

std::uint32_t psn_of(const dat::ep<dat::rc>& ep) {
  const auto wire = must(ep.export_descriptor()).to_wire();
  return dat::detail::get_be<std::uint32_t>(&wire[16]);
}

std::uint16_t pkey_index_of(const dat::ep<dat::rc>& ep) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(ep.native_handle(), &attr, IBV_QP_PKEY_INDEX, &init) == 0);
  return attr.pkey_index;
}

ibv_mtu path_mtu_of(const dat::ep<dat::rc>& ep) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(ep.native_handle(), &attr, IBV_QP_PATH_MTU, &init) == 0);
  return attr.path_mtu;
}

} // namespace

TEST_CASE("a failed accept leaves no partition to the next connection", "[ep]") {
  fake::world w;
  for (auto& d : w.devices) d.ports[0].link_layer = IBV_LINK_LAYER_INFINIBAND;
  w.pkey_index = 1;
  clean_world world(w);
  end a("fk1");
  end b("fk2");
  a.make_ep();
  b.make_ep();
  auto psp = must(b.ia.create_psp(service, b.evd));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  auto request = request_on(b.evd);
  fake::fail(fake::call::ibv_modify_qp, 2, ENOMEM); // the transition to RTR fails
  is_error(request.accept(b.ep), return_type::insufficient_resources, return_subtype::resource_tep);
  CHECK(pkey_index_of(b.ep) == 1);
  fake::tweak([](fake::world& now) { now.pkey_index = 0; });
  must(request.accept(b.ep));
  CHECK(pkey_index_of(b.ep) == 0);
  settle(a, b);
  CHECK(b.take() == events{"established"});
}

TEST_CASE("the first packet number of a connection by descriptor is random and changes with each life", "[ep]") {
  clean_world world;
  end a("fk1");
  end b("fk2");
  std::vector<dat::ep<dat::rc>> all;
  std::set<std::uint32_t> numbers;
  for (int i = 0; i < 8; ++i) {
    all.push_back(must(a.pz.create_ep<dat::rc>(a.evd)));
    CHECK(psn_of(all.back()) == psn_of(all.back()));
    CHECK(psn_of(all.back()) <= 0xff'ffff);
    numbers.insert(psn_of(all.back()));
  }
  CHECK(numbers.size() > 6); // of 2^24 possible numbers
  b.make_ep();
  must(all[0].connect(must(b.ep.export_descriptor())));
  const auto before = psn_of(all[0]);
  must(all[0].disconnect());
  must(all[0].reset());
  CHECK(psn_of(all[0]) != before);
}

TEST_CASE("both sides of a connection by descriptor take the smaller of their MTUs", "[ep]") {
  const ibv_mtu of_a = GENERATE(IBV_MTU_512, IBV_MTU_4096);
  const ibv_mtu of_b = GENERATE(IBV_MTU_512, IBV_MTU_4096);
  fake::world w;
  w.devices[0].ports[0].active_mtu = of_a;
  w.devices[1].ports[0].active_mtu = of_b;
  clean_world world(w);
  end a("fk1");
  end b("fk2");
  a.make_ep();
  b.make_ep();
  const auto there = must(a.ep.export_descriptor());
  must(a.ep.connect(must(b.ep.export_descriptor())));
  must(b.ep.connect(there));
  CHECK(path_mtu_of(a.ep) == std::min(of_a, of_b));
  CHECK(path_mtu_of(b.ep) == std::min(of_a, of_b));
}

TEST_CASE("a connection by descriptor cannot be duplicated, since its peer need not listen", "[ep]") {
  clean_world world;
  pair p;
  auto first = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  auto second = must(p.b.pz.create_ep<dat::rc>(p.b.evd));
  must(first.connect(must(second.export_descriptor())));
  must(second.connect(must(first.export_descriptor())));
  (void)p.b.take();
  auto another = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  is_error(another.dup_connect(first, plenty), return_type::invalid_state, return_subtype::ep_connected);
  CHECK(another.state() == dat::ep_state::unconnected);
  must(another.dup_connect(p.a.ep, plenty)); // a connection by rdma_cm can be duplicated
  p.settle();
  CHECK(request_on(p.b.evd));
}

TEST_CASE("an accept ends when the peer does not finish the handshake in time", "[ep]") {
  clean_world world;
  end a("fk1"); // reads nothing, so sends no last message
  end b("fk2", automatic);
  auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  b.make_ep({.accept_timeout = 1ms});
  must(a.ep.connect(b.ia.address(), service, plenty));
  std::optional<dat::cr> request;
  while (!request) {
    a.ia.run();
    if (auto r = b.evd.wait_for<dat::connection_request>(1ms)) request = std::move(r).value();
  }
  must(request->accept(b.ep));
  const auto ended = must(b.evd.wait_for<dat::accept_completion_error>(plenty));
  CHECK(ended.ep() == b.ep);
  CHECK(b.ep.state() == dat::ep_state::disconnected);
}

TEST_CASE("the time limit of an accept has no effect on an established connection", "[ep]") {
  clean_world world;
  end a("fk1", automatic);
  end b("fk2", automatic);
  auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  b.make_ep({.accept_timeout = 10s});
  must(a.ep.connect(b.ia.address(), service, plenty));
  must(must(b.evd.wait_for<dat::connection_request>(plenty)).accept(b.ep));
  must(b.evd.wait_for<dat::established>(plenty));
  must(a.evd.wait_for<dat::established>(plenty));
  CHECK(b.ep.state() == dat::ep_state::connected);
  is_error(b.pz.create_ep<dat::rc>(b.evd, {.accept_timeout = 0ms}), return_type::invalid_parameter,
           return_subtype::arg7);
}

TEST_CASE("a device that reports max_qp_wr 0 gives no endpoint", "[ep]") {
  fake::world w;
  w.devices[0].attr = fake::rxe_attr();
  w.devices[0].attr->max_qp_wr = 0;
  clean_world world(w);
  end a("fk1");
  is_error(a.pz.create_ep<dat::rc>(a.evd), return_type::invalid_parameter, return_subtype::arg7);
  is_error(a.pz.create_ep<dat::rc>(a.evd, {.max_request_dtos = 1, .max_recv_dtos = 1}), return_type::invalid_parameter,
           return_subtype::arg7);
}

// --- the evd of another ia -------------------------------------------------------------------------------------------

TEST_CASE("connection events can go to the evd of another ia of the adapter, and completions cannot", "[REQ-012]") {
  clean_world world;
  end a{"fk1"};
  end other{"fk1"};
  end b{"fk2"};
  b.make_ep();
  auto psp = must(b.ia.create_psp(service, b.evd));
  const auto refused = [&](const dat::ep_evds& evds) { return a.pz.create_ep<dat::rc>(evds).error(); };
  using enum return_subtype;
  CHECK(refused({.recv = other.evd, .request = a.evd, .connect = a.evd}).subtype() == handle_evd_recv);
  CHECK(refused({.recv = a.evd, .request = other.evd, .connect = a.evd}).subtype() == handle_evd_request);
  CHECK(refused({.recv = a.evd, .request = a.evd, .connect = b.evd}).subtype() == handle_evd_conn);
  SHOWS("EP-008", "EVENT-006");
  a.ep = must(a.pz.create_ep<dat::rc>({.recv = a.evd, .request = a.evd, .connect = other.evd}));
  CHECK(must(a.ep.query()).connect == other.evd.id());
  must(a.ep.post(dat::recv{a.at(0, 8)}.cookie(5)));
  const auto connect = [&] {
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
    must(request_on(b.evd).accept(b.ep));
    settle(a, b);
  };
  connect();
  CHECK(a.take().empty());
  CHECK(other.take() == events{"established"});
  must(b.ep.post(dat::send{b.at(0, 8)}));
  CHECK(a.take() == events{"received 5"});
  CHECK(other.evd.close().error().subtype() == evd_in_use);
  SHOWS("REQ-159");
  must(b.ep.disconnect());
  settle(a, b);
  CHECK(other.take() == events{"disconnected"});
  // Without its evd the endpoint still works, and its events are lost.
  must(other.ia.close(dat::close_mode::abrupt));
  must(a.ep.reset());
  must(b.ep.reset());
  b.take();
  connect();
  CHECK(a.ep.state() == dat::ep_state::connected);
  must(a.ep.close());
}

TEST_CASE("an event of another ia's endpoint leaves data waiting for the established of its own", "[CR-036]") {
  clean_world world;
  end a{"fk1"};
  end b{"fk2"};
  end other{"fk2"};
  a.make_ep();
  b.make_ep();
  // Like b's endpoint, this is the first of its ia, so both have the same number in the tables of their ias.
  other.ep = must(other.pz.create_ep<dat::rc>({.recv = other.evd, .request = other.evd, .connect = b.evd}));
  auto psp = must(b.ia.create_psp(service, b.evd));
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  must(b.ep.post(dat::recv{b.at(0, 8)}.cookie(5)));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(b.ep));
  settle(a, b);
  must(a.ep.post(dat::send{a.at(0, 8)}));
  must(other.ep.connect(a.ia.address(), service + 1, plenty)); // at a port without a service point
  for (int i = 0; i < 12; ++i) {
    fake::finish();
    other.ia.run();
  }
  REQUIRE(other.ep.state() == dat::ep_state::disconnected);
  settle(a, b);
  const events got = b.take();
  REQUIRE(got.size() == 3);
  CHECK(got[0].starts_with("non_peer_rejected"));
  CHECK(got[1] == "established");
  CHECK(got[2] == "received 5");
  fake::release_events();
}

TEST_CASE("a connection by descriptor knows both addresses, and runs no more reads than both sides allow", "[ep]") {
  const fake::with ethernet(fake::personality::kind); // a path without a GRH needs no look-up
  const clean_world world;
  end a("fk1");
  end b("fk2");
  a.make_ep({.max_rdma_read_out = 8});
  b.make_ep({.max_rdma_read_in = 3});
  const auto there = must(b.ep.export_descriptor());
  fake::fail(fake::call::ibv_create_ah, 1, EHOSTUNREACH); // the link address of the peer is not found
  CHECK(a.ep.connect(there).error().verb() == "ibv_create_ah");
  CHECK(a.ep.state() == dat::ep_state::unconnected);
  must(a.ep.connect(there));
  const auto now = must(a.ep.query());
  CHECK(now.local_address.with_port(0) == a.ia.address());
  REQUIRE(now.remote_address);
  CHECK(now.remote_address->with_port(0) == b.ia.address());
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(a.ep.native_handle(), &attr, IBV_QP_MAX_QP_RD_ATOMIC, &init) == 0);
  CHECK(attr.max_rd_atomic == 2);
}

TEST_CASE("the link-local address of a peer has the scope of the service point", "[connection]") {
  fake::world w;
  w.devices[0].ports[0].addresses = {"10.99.1.1", "fe80::5"};
  const clean_world world(w);
  end a("fk1");
  constexpr dat::communicator tcp6{AF_INET6, SOCK_STREAM, 0};
  is_error(a.ia.create_csp(dat::communicator{}, a.evd), return_type::invalid_parameter, return_subtype::arg2);
  const auto here = must(dat::ia_address::parse("fe80::5%lo"));
  REQUIRE(here.scope_id() != 0);
  const auto csp = must(a.ia.create_csp(tcp6, here.with_port(service), a.evd));
  fake::deliver({.event = RDMA_CM_EVENT_CONNECT_REQUEST, .remote_address = "fe80::77", .port = service});
  a.ia.run();
  const auto request = request_on(a.evd);
  CHECK(request.remote_address().with_port(0) == must(dat::ia_address::parse("fe80::77%lo")));
  CHECK(request.local_address() == here.with_port(service));
}
