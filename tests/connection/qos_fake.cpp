// Quality of service and several paths, as parameters of connections and datagrams.
// SPDX-License-Identifier: BSL-1.0
#include "datagram_end.hpp"
#include "world.hpp"

#include <dat/descriptor.hpp>
#include <dat/ep_params.hpp>
#include <dat/multicast.hpp>
#include <dat/ud.hpp>

using namespace unit;
using dat::multipath;
using dat::qos;
using dat::return_subtype;
using dat::return_type;

namespace {

ibv_ah_attr path_of(const dat::ep<dat::rc>& ep) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(ep.native_handle(), &attr, IBV_QP_AV, &init) == 0);
  return attr.ah_attr;
}
int class_of(const dat::ep<dat::rc>& ep) { return path_of(ep).grh.traffic_class; }

constexpr qos marked(std::uint8_t traffic_class) { return {.traffic_class = traffic_class}; }

/// A service on `b`, and an attempt of `a` to connect to it.
struct qos_ends {
  explicit qos_ends(const dat::ia_options& options = manual) : a("fk1", options), b("fk2", manual) {
    a.make_ep();
    b.make_ep();
  }
  end a;
  end b;
  dat::psp psp = must(b.ia.create_psp(service, b.evd));

  void connect(const dat::connect_options& asking, const dat::connect_options& accepting = {}) {
    must(a.ep.connect(b.ia.address(), service, plenty, {}, asking));
    settle(a, b);
    must(request_on(b.evd).accept(b.ep, {}, accepting));
    settle(a, b);
    REQUIRE(a.ep.state() == dat::ep_state::connected);
  }
};

} // namespace

TEST_CASE("the classes of DAT_QOS are code points of differentiated services", "[qos]") {
  STATIC_REQUIRE(qos::best_effort().traffic_class == 0);
  STATIC_REQUIRE(qos::high_throughput().traffic_class == 10 << 2);
  STATIC_REQUIRE(qos::low_latency().traffic_class == 18 << 2);
  STATIC_REQUIRE(qos::economy().traffic_class == 1 << 2);
  STATIC_REQUIRE(qos::premium().traffic_class == 46 << 2);
  STATIC_REQUIRE(dat::provider_attributes().qos_supported == 0xf);
  STATIC_REQUIRE(marked(4).or_else({.traffic_class = 8, .service_level = 2, .flow_label = 7}) ==
                 qos{.traffic_class = 4, .service_level = 2, .flow_label = 7});
  STATIC_REQUIRE(qos{}.or_else(marked(8)) == marked(8));
  SHOWS("EPATTR-004", "CONN-051");
}

TEST_CASE("a connection is of best effort, unless connect, the endpoint or the ia sets another quality", "[qos]") {
  clean_world world;
  SECTION("by default") {
    qos_ends t;
    t.connect({});
    if (path_of(t.a.ep).is_global != 0) CHECK(class_of(t.a.ep) == 0);
    SHOWS("CONN-010", "REQ-060");
  }
  SECTION("of connect; the peer answers in the same class") {
    qos_ends t;
    t.connect({.qos = qos::premium()});
    if (path_of(t.a.ep).is_global == 0) SKIP("paths within a subnet of InfiniBand have no traffic class");
    CHECK(class_of(t.a.ep) == 46 << 2);
    CHECK(class_of(t.b.ep) == 46 << 2);
  }
  SECTION("of connect, whose request is repeated") {
    qos_ends t;
    must(t.a.ep.connect(t.b.ia.address(), service, plenty, {}, {.qos = qos::premium()}));
    settle(t.a, t.b);
    const auto requests = fake::count(fake::call::rdma_connect);
    fake::deliver({.event = RDMA_CM_EVENT_REJECTED, .status = 10, .qp_num = t.a.ep.number()}); // a stale connection
    settle(t.a, t.b);
    (void)t.b.take();
    while (fake::count(fake::call::rdma_connect) == requests) settle(t.a, t.b);
    must(request_on(t.b.evd).accept(t.b.ep));
    settle(t.a, t.b);
    REQUIRE(t.a.ep.state() == dat::ep_state::connected);
    if (path_of(t.a.ep).is_global == 0) SKIP("paths within a subnet of InfiniBand have no traffic class");
    CHECK(class_of(t.a.ep) == 46 << 2);
    CHECK(class_of(t.b.ep) == 46 << 2);
    SHOWS("CONN-051", "CONN-069");
  }
  SECTION("of accept") {
    qos_ends t;
    t.connect({.qos = qos::premium()}, {.qos = qos::economy()});
    if (path_of(t.a.ep).is_global == 0) SKIP("paths within a subnet of InfiniBand have no traffic class");
    CHECK(class_of(t.a.ep) == 46 << 2);
    CHECK(class_of(t.b.ep) == 1 << 2);
  }
  SECTION("of the endpoint") {
    qos_ends t;
    must(t.a.ep.modify({.qos = qos{.traffic_class = 0x20, .service_level = 5, .flow_label = 0x12345}}));
    CHECK(t.a.ep.attributes().qos.service_level == 5);
    t.connect({});
    CHECK(path_of(t.a.ep).sl == 5);
    if (path_of(t.a.ep).is_global == 0) return;
    CHECK(class_of(t.a.ep) == 0x20);
    CHECK(path_of(t.a.ep).grh.flow_label == 0x12345);
  }
  SECTION("of the ia; connect overrides one member") {
    dat::ia_options options = manual;
    options.qos = {.traffic_class = 0x40, .service_level = 3};
    qos_ends t(options);
    t.connect({.qos = marked(0x60)});
    CHECK(path_of(t.a.ep).sl == 3);
    if (path_of(t.a.ep).is_global != 0) CHECK(class_of(t.a.ep) == 0x60);
  }
}

TEST_CASE("a duplicated connection has its own quality of service", "[qos]") {
  clean_world world;
  qos_ends t;
  t.connect({.qos = marked(0x20)});
  if (path_of(t.a.ep).is_global == 0) SKIP("paths within a subnet of InfiniBand have no traffic class");
  auto second = must(t.a.pz.create_ep<dat::rc>(t.a.evd));
  auto other = must(t.b.pz.create_ep<dat::rc>(t.b.evd));
  (void)t.a.take();
  (void)t.b.take();
  is_error(second.dup_connect(t.a.ep, plenty, {}, {.service_level = 16}), return_type::invalid_parameter,
           return_subtype::arg6);
  must(second.dup_connect(t.a.ep, plenty, {}, marked(0x80)));
  settle(t.a, t.b);
  must(request_on(t.b.evd).accept(other));
  settle(t.a, t.b);
  CHECK(class_of(second) == 0x80);
  CHECK(class_of(t.a.ep) == 0x20);
  SHOWS("CONN-090");
}

TEST_CASE("a quality that no connection can have is refused, and the endpoint stays usable", "[qos]") {
  clean_world world;
  qos_ends t;
  const auto to = t.b.ia.address();
  is_error(t.a.ep.connect(to, service, plenty, {}, {.qos = {.service_level = 16}}), return_type::invalid_parameter,
           return_subtype::arg7);
  is_error(t.a.ep.connect(to, service, plenty, {}, {.qos = {.flow_label = 0x10'0000}}), return_type::invalid_parameter,
           return_subtype::arg7);
  CHECK(t.a.ep.state() == dat::ep_state::unconnected);
  is_error(t.a.ep.modify({.qos = qos{.service_level = 16}}), return_type::invalid_parameter, return_subtype::arg7);
  is_error(t.a.pz.create_ep<dat::rc>(t.a.evd, {.qos = {.flow_label = ~0u}}), return_type::invalid_parameter,
           return_subtype::arg7);
  dat::ia_options options = manual;
  options.qos.service_level = 99;
  is_error(dat::ia::open("fk1", options), return_type::invalid_parameter, return_subtype::arg2);
  fake::fail(fake::call::rdma_set_option, 1, ENOSYS);
  const auto refused = t.a.ep.connect(to, service, plenty, {}, {.qos = qos::premium()});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().verb() == "rdma_set_option");
  CHECK(t.a.ep.state() == dat::ep_state::unconnected);
  must(t.a.ep.connect(to, service, plenty));
  settle(t.a, t.b);
  auto request = request_on(t.b.evd);
  is_error(request.accept(t.b.ep, {}, {.qos = {.service_level = 200}}), return_type::invalid_parameter,
           return_subtype::arg6);
  must(request.accept(t.b.ep));
  settle(t.a, t.b);
  CHECK(t.a.take() == events{"established"});
  SHOWS("CONN-051");
}

TEST_CASE("several paths are refused by connect and by accept, and the request stays usable", "[qos]") {
  clean_world world;
  qos_ends t;
  const auto to = t.b.ia.address();
  STATIC_REQUIRE_FALSE(dat::provider_attributes().supports_multipath);
  STATIC_REQUIRE((multipath{0} == multipath::none && multipath{1} == multipath::requested));
  STATIC_REQUIRE(multipath{2} == multipath::required);
  STATIC_REQUIRE(dat::connect_options().multipath == multipath::none);
  for (const auto how : {multipath::requested, multipath::required})
    is_error(t.a.ep.connect(to, service, plenty, {}, {.multipath = how}), return_type::model_not_supported);
  for (const auto how : {static_cast<multipath>(3), static_cast<multipath>(255)})
    is_error(t.a.ep.connect(to, service, plenty, {}, {.multipath = how}), return_type::invalid_parameter,
             return_subtype::arg8);
  CHECK(t.a.ep.state() == dat::ep_state::unconnected);
  CHECK(t.a.take().empty());
  SHOWS("CONN-011", "CONN-052");
  must(t.a.ep.connect(to, service, plenty, {}, {.multipath = multipath::none}));
  settle(t.a, t.b);
  auto request = request_on(t.b.evd);
  for (const auto how : {multipath::requested, multipath::required})
    is_error(request.accept(t.b.ep, {}, {.multipath = how}), return_type::model_not_supported);
  is_error(request.accept(t.b.ep, {}, {.multipath = static_cast<multipath>(3)}), return_type::invalid_parameter,
           return_subtype::arg5);
  CHECK(t.b.ep.state() == dat::ep_state::unconnected);
  must(request.accept(t.b.ep, {}, {.multipath = multipath::none}));
  settle(t.a, t.b);
  CHECK(t.b.take() == events{"established"});
  SHOWS("HA-019", "HA-021", "REQ-186", "CR-029");
  CHECK(to_string(multipath::required) == "required");
  CHECK(to_string(static_cast<multipath>(9)) == "unknown multipath");
}

TEST_CASE("a connection by descriptor has the quality of the endpoint, or that of the call", "[qos]") {
  clean_world world;
  end a("fk1");
  end b("fk2");
  a.make_ep({.qos = {.service_level = 4}});
  b.make_ep();
  const auto there = must(b.ep.export_descriptor());
  is_error(a.ep.connect(there, {.service_level = 16}), return_type::invalid_parameter, return_subtype::arg3);
  must(a.ep.connect(there, {.traffic_class = 0x14, .flow_label = 77}));
  CHECK(path_of(a.ep).sl == 4);
  if (path_of(a.ep).is_global == 0) return;
  CHECK(class_of(a.ep) == 0x14);
  CHECK(path_of(a.ep).grh.flow_label == 77);
}

TEST_CASE("datagrams have the quality of their endpoint, or that of the address handle", "[qos][ud]") {
  clean_world world;
  datagram_end a("fk1", manual, {.qos = {.traffic_class = 0x28, .service_level = 2}});
  datagram_end b("fk2");
  const auto usual = must(a.ep.address_of(must(b.ep.address())));
  const auto special = must(a.ep.address_of(must(b.ep.address()), {.traffic_class = 0xb8, .flow_label = 9}));
  const auto by_descriptor = must(a.ep.connect(must(b.ep.export_descriptor()), {.service_level = 7}));
  is_error(a.ep.address_of(must(b.ep.address()), {.service_level = 16}), return_type::invalid_parameter,
           return_subtype::arg3);
  const auto paths = fake::ah_attributes();
  REQUIRE(paths.size() == 3);
  CHECK(paths[0].sl == 2);
  CHECK(paths[1].sl == 2);
  CHECK(paths[2].sl == 7);
  if (paths[0].is_global == 0) return;
  CHECK(paths[0].grh.traffic_class == 0x28);
  CHECK(paths[1].grh.traffic_class == 0xb8);
  CHECK(paths[1].grh.flow_label == 9);
  CHECK(paths[2].grh.traffic_class == 0x28);
}

TEST_CASE("sends to a multicast group have the quality of their endpoint, or that of the call", "[qos][multicast]") {
  clean_world world;
  datagram_end a("fk1", manual, {.qos = {.traffic_class = 0x28, .service_level = 2}});
  auto group = must(dat::ib::multicast_group::join(a.ep, must(dat::ia_address::parse("239.1.2.3"))));
  a.ia.run();
  CHECK(std::holds_alternative<dat::ib::group_joined>(must(a.evd.dequeue())));
  const auto usual = must(group.peer());
  const auto special = must(group.peer({.traffic_class = 0xb8, .service_level = 5, .flow_label = 9}));
  is_error(group.peer({.flow_label = 0x10'0000}), return_type::invalid_parameter, return_subtype::arg3);
  const auto paths = fake::ah_attributes();
  REQUIRE(paths.size() == 2);
  REQUIRE(paths[0].is_global == 1);
  CHECK(paths[0].sl == 2);
  CHECK(paths[0].grh.traffic_class == 0x28);
  CHECK(paths[1].sl == 5);
  CHECK(paths[1].grh.traffic_class == 0xb8);
  CHECK(paths[1].grh.flow_label == 9);
}
