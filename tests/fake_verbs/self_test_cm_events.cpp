// The fake's connection events that are lost, late or forged, and removed devices.
// SPDX-License-Identifier: BSL-1.0
#include "self_test_support.hpp"

using namespace self_test;

TEST_CASE("a lost response leaves the client waiting, and a lost establishment the server") {
  fake::reset();
  before b;
  SECTION("response") {
    fake::drop_next(RDMA_CM_EVENT_CONNECT_RESPONSE);
    b.request();
    b.accept();
    CHECK(next(b.client.events).event == -1);
    CHECK(b.client.drive() == EINVAL);
  }
  SECTION("establishment, forced by rdma_notify") {
    fake::drop_next(RDMA_CM_EVENT_ESTABLISHED);
    b.request();
    b.accept();
    REQUIRE(next(b.client.events).event == RDMA_CM_EVENT_CONNECT_RESPONSE);
    REQUIRE(b.client.drive() == 0);
    REQUIRE(rdma_establish(b.client.id) == 0);
    CHECK(next(b.server.events).event == -1);
    REQUIRE(rdma_notify(b.server.id, IBV_EVENT_COMM_EST) == 0);
    CHECK(next(b.server.events).event == RDMA_CM_EVENT_ESTABLISHED);
    CHECK(rdma_notify(b.server.id, IBV_EVENT_COMM_EST) == -1);
    CHECK(errno == EISCONN);
  }
  b.close();
}

TEST_CASE("held events arrive when released, in the order of the script") {
  fake::reset();
  before b;
  fake::hold_events();
  CHECK(b.request().event == -1);
  REQUIRE(fake::held_events() == std::vector<rdma_cm_event_type>{RDMA_CM_EVENT_CONNECT_REQUEST});
  CHECK_FALSE(readable(b.server.events->fd));
  REQUIRE(fake::release_event());
  CHECK(readable(b.server.events->fd));
  b.server.id = next(b.server.events).id;
  REQUIRE(rdma_reject(b.server.id, nullptr, 0) == 0);
  CHECK(next(b.client.events).event == -1);
  CHECK_FALSE(fake::release_event(1));
  fake::release_events();
  CHECK(next(b.client.events).event == RDMA_CM_EVENT_REJECTED);
  b.close();
}

TEST_CASE("any event can be delivered to an id, to the id of a queue pair or to a listener") {
  fake::reset();
  before b;
  auto p = b.client.param();
  fake::drop_next(RDMA_CM_EVENT_CONNECT_REQUEST);
  REQUIRE(rdma_connect(b.client.id, &p) == 0);
  SECTION("a response that no peer has sent") {
    fake::cm_event e{RDMA_CM_EVENT_CONNECT_RESPONSE};
    e.private_data = "forged";
    e.qp_num = b.client.qp->qp_num;
    fake::deliver(e);
    CHECK(next(b.client.events).data.substr(0, 6) == "forged");
    CHECK(b.client.drive() == 0);
    CHECK(rdma_establish(b.client.id) == 0);
  }
  SECTION("unreachable") {
    fake::cm_event e{RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT};
    e.id = b.client.id;
    fake::deliver(e);
    const auto s = next(b.client.events);
    CHECK(s.event == RDMA_CM_EVENT_UNREACHABLE);
    CHECK(s.status == -ETIMEDOUT);
    CHECK(b.client.drive() == EINVAL);
  }
  SECTION("a request of a foreign peer") {
    fake::cm_event e{RDMA_CM_EVENT_CONNECT_REQUEST};
    e.port = 5000;
    e.private_data = "raw";
    fake::deliver(e);
    const auto s = next(b.server.events);
    REQUIRE(s.event == RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(s.data.size() == 56);
    CHECK(s.conn.qp_num == 0x9999);
    b.server.id = s.id;
    b.accept();
  }
  b.close();
  CHECK(fake::leaks() == "");
}

TEST_CASE("removing a device notifies its contexts, its ids and their peers") {
  fake::reset();
  pair p;
  fake::remove_device("fk1");
  ibv_async_event a;
  REQUIRE(ibv_get_async_event(p.client.ctx, &a) == 0);
  CHECK(a.event_type == IBV_EVENT_DEVICE_FATAL);
  ibv_ack_async_event(&a);
  CHECK(next(p.client.events).event == RDMA_CM_EVENT_DEVICE_REMOVAL);
  CHECK(next(p.server.events).event == RDMA_CM_EVENT_DISCONNECTED);
  CHECK(fake::qp_state(p.client.qp) == IBV_QPS_ERR);
  CHECK(ibv_alloc_pd(p.client.ctx) == nullptr);
  CHECK(errno == EIO);
  CHECK(open_device("fk1") == nullptr);
  CHECK(fake::qp_state(p.server.qp) == IBV_QPS_RTS);
  p.close();
  CHECK(fake::leaks() == "");
}

TEST_CASE("a second connection from a queue pair that the peer still holds is stale") {
  fake::reset();
  pair p;
  auto* old = std::exchange(p.client.id, nullptr);
  resolve(p.client, 5000);
  auto again = p.client.param();
  REQUIRE(rdma_connect(p.client.id, &again) == 0);
  std::vector<std::pair<int, int>> events;
  for (auto s = next(p.client.events); s.event >= 0; s = next(p.client.events)) events.emplace_back(s.event, s.status);
  CHECK(events == std::vector<std::pair<int, int>>{{RDMA_CM_EVENT_DISCONNECTED, 0}, {RDMA_CM_EVENT_REJECTED, 10}});
  rdma_destroy_id(old);
  p.close();
}

TEST_CASE("IPv6 addresses connect, too") {
  fake::reset();
  end client, server{"fk2"};
  const auto v6 = [](const char* text, std::uint16_t port) {
    sockaddr_in6 a{};
    a.sin6_family = AF_INET6;
    a.sin6_port = htons(port);
    ::inet_pton(AF_INET6, text, &a.sin6_addr);
    return a;
  };
  auto any = v6("::", 7000), to = v6("fd99:2::1", 7000);
  rdma_cm_id* l = nullptr;
  REQUIRE(rdma_create_id(server.events, &l, nullptr, RDMA_PS_TCP) == 0);
  REQUIRE(rdma_bind_addr(l, reinterpret_cast<sockaddr*>(&any)) == 0);
  CHECK(l->verbs == nullptr);
  REQUIRE(rdma_listen(l, 0) == 0);
  REQUIRE(rdma_create_id(client.events, &client.id, nullptr, RDMA_PS_TCP) == 0);
  REQUIRE(rdma_resolve_addr(client.id, nullptr, reinterpret_cast<sockaddr*>(&to), 100) == 0);
  REQUIRE(next(client.events).event == RDMA_CM_EVENT_ADDR_RESOLVED);
  CHECK(std::string{ibv_get_device_name(client.id->verbs->device)} == "fk2"); // the host's own address: same device
  REQUIRE(rdma_resolve_route(client.id, 100) == 0);
  REQUIRE(next(client.events).event == RDMA_CM_EVENT_ROUTE_RESOLVED);
  auto p = client.param();
  REQUIRE(rdma_connect(client.id, &p) == 0);
  const auto r = next(server.events);
  REQUIRE(r.event == RDMA_CM_EVENT_CONNECT_REQUEST);
  server.id = r.id;
  CHECK(r.id->route.addr.dst_addr.sa_family == AF_INET6);
  CHECK(rdma_get_src_port(r.id) == htons(7000));
  CHECK(rdma_get_dst_port(r.id) == rdma_get_src_port(client.id));
  rdma_destroy_id(l);
  client.close();
  server.close();
  CHECK(fake::leaks() == "");
}
