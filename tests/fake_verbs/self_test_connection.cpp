// The fake's connection manager: addresses, requests, answers, ends, and events that are lost, late or forged.
// SPDX-License-Identifier: BSL-1.0
#include "self_test_support.hpp"

using namespace self_test;

namespace {

/// Client and listener before rdma_connect.
struct before {
  end client{"fk1"}, server{"fk2"};
  rdma_cm_id* listener = nullptr;
  before() {
    listener = listen_on(server, 5000);
    resolve(client, 5000);
  }
  seen request(const std::string& data = "hello") {
    auto p = client.param(data);
    REQUIRE(rdma_connect(client.id, &p) == 0);
    auto r = next(server.events);
    server.id = r.id;
    return r;
  }
  void accept(const std::string& data = "welcome") {
    REQUIRE(server.drive() == 0);
    auto p = server.param(data);
    REQUIRE(rdma_accept(server.id, &p) == 0);
  }
  void close() {
    client.close();
    rdma_destroy_id(listener);
    server.close();
  }
};

} // namespace

TEST_CASE("a request and a response carry private data padded to their full size, and swapped depths") {
  fake::reset();
  before b;
  auto p = b.client.param("hello");
  p.responder_resources = 4;
  p.initiator_depth = 5;
  REQUIRE(rdma_connect(b.client.id, &p) == 0);
  const auto r = next(b.server.events);
  REQUIRE(r.event == RDMA_CM_EVENT_CONNECT_REQUEST);
  CHECK(r.data == "hello" + std::string(51, '\0'));
  CHECK(r.conn.responder_resources == 5);
  CHECK(r.conn.initiator_depth == 4);
  CHECK(r.conn.qp_num == b.client.qp->qp_num);
  b.server.id = r.id;
  REQUIRE(b.server.drive() == 0);
  auto q = b.server.param("welcome");
  q.responder_resources = 3;
  q.initiator_depth = 2;
  REQUIRE(rdma_accept(b.server.id, &q) == 0);
  const auto a = next(b.client.events);
  REQUIRE(a.event == RDMA_CM_EVENT_CONNECT_RESPONSE);
  CHECK(a.data == "welcome" + std::string(189, '\0'));
  CHECK(a.conn.qp_num == b.server.qp->qp_num);
  REQUIRE(b.client.drive() == 0);
  ibv_qp_attr x{};
  ibv_qp_init_attr i{};
  REQUIRE(ibv_query_qp(b.client.qp, &x, IBV_QP_STATE, &i) == 0);
  CHECK(x.max_rd_atomic == 4); // 3, rounded to a power of two
  CHECK(x.max_dest_rd_atomic == 2);
  CHECK(x.timeout == 19);
  CHECK(x.retry_cnt == 6);
  CHECK(x.path_mtu == IBV_MTU_1024);
  b.close();
  CHECK(fake::leaks() == "");
}

TEST_CASE("private data that is too long is refused") {
  fake::reset();
  before b;
  auto p = b.client.param(std::string(57, 'x'));
  CHECK(rdma_connect(b.client.id, &p) == -1);
  CHECK(errno == EINVAL);
  REQUIRE(b.request(std::string(56, 'x')).data == std::string(56, 'x'));
  SECTION("response") {
    auto q = b.server.param(std::string(197, 'y'));
    CHECK(rdma_accept(b.server.id, &q) == -1);
    CHECK(errno == EINVAL);
    const auto r = next(b.client.events);
    CHECK(r.event == RDMA_CM_EVENT_REJECTED);
    CHECK(r.status == 28);
  }
  SECTION("reject") {
    const std::string data(149, 'z');
    CHECK(rdma_reject(b.server.id, data.data(), 149) == -1);
    CHECK(errno == EINVAL);
    REQUIRE(rdma_reject(b.server.id, data.data(), 148) == 0);
    CHECK(next(b.client.events).data == std::string(148, 'z'));
  }
  b.close();
}

TEST_CASE("each way of not being accepted has its status") {
  fake::reset();
  before b;
  int status = 28;
  std::string data(148, '\0');
  SECTION("nobody listens") {
    rdma_destroy_id(std::exchange(b.listener, listen_on(b.server, 5001)));
    auto p = b.client.param();
    REQUIRE(rdma_connect(b.client.id, &p) == 0);
    status = 8;
  }
  SECTION("rejected with data") {
    b.request();
    REQUIRE(rdma_reject(b.server.id, "no", 2) == 0);
    data.replace(0, 2, "no");
  }
  SECTION("rejected by the provider") {
    b.request();
    REQUIRE(rdma_reject_ece(b.server.id, nullptr, 0) == 0);
    status = 35;
  }
  SECTION("the child id is destroyed") {
    b.request();
    rdma_destroy_id(std::exchange(b.server.id, nullptr));
  }
  SECTION("the listener is destroyed before the request is read") {
    auto p = b.client.param();
    REQUIRE(rdma_connect(b.client.id, &p) == 0);
    rdma_destroy_id(std::exchange(b.listener, listen_on(b.server, 5001)));
    CHECK(next(b.server.events).event == -1);
  }
  const auto r = next(b.client.events);
  CHECK(r.event == RDMA_CM_EVENT_REJECTED);
  CHECK(r.status == status);
  CHECK(r.data == data);
  auto p = b.client.param();
  CHECK(rdma_connect(b.client.id, &p) == -1); // an id serves one attempt
  CHECK(errno == EINVAL);
  b.close();
  CHECK(fake::leaks() == "");
}

TEST_CASE("a connect that is given up leaves the passive side without an event and unable to accept") {
  fake::reset();
  before b;
  b.request();
  rdma_destroy_id(std::exchange(b.client.id, nullptr));
  CHECK(next(b.server.events).event == -1);
  CHECK(b.server.drive() == EINVAL);
  auto p = b.server.param();
  CHECK(rdma_accept(b.server.id, &p) == -1);
  CHECK(errno == EINVAL);
  b.close();
}

TEST_CASE("the active side may still reject a response") {
  fake::reset();
  before b;
  b.request();
  b.accept();
  REQUIRE(next(b.client.events).event == RDMA_CM_EVENT_CONNECT_RESPONSE);
  SECTION("by rdma_reject") { REQUIRE(rdma_reject(b.client.id, nullptr, 0) == 0); }
  SECTION("by destroying its id") { rdma_destroy_id(std::exchange(b.client.id, nullptr)); }
  const auto r = next(b.server.events);
  CHECK(r.event == RDMA_CM_EVENT_REJECTED);
  CHECK(r.status == 28);
  b.close();
}

TEST_CASE("the initiator of a disconnect hears of its end only after the peer has answered") {
  const bool timewait = GENERATE(false, true);
  fake::world w;
  w.timewait_exit = timewait;
  fake::reset(w);
  pair p;
  REQUIRE(rdma_disconnect(p.client.id) == 0);
  CHECK(next(p.client.events).event == -1);
  REQUIRE(next(p.server.events).event == RDMA_CM_EVENT_DISCONNECTED);
  CHECK(fake::qp_state(p.server.qp) == IBV_QPS_RTS);
  REQUIRE(rdma_disconnect(p.server.id) == 0);
  CHECK(next(p.client.events).event == RDMA_CM_EVENT_DISCONNECTED);
  CHECK(next(p.client.events).event == (timewait ? int(RDMA_CM_EVENT_TIMEWAIT_EXIT) : -1));
  CHECK(next(p.server.events).event == (timewait ? int(RDMA_CM_EVENT_TIMEWAIT_EXIT) : -1));
  p.close();
}

TEST_CASE("destroying a connected id disconnects the peer, disconnecting before that does nothing") {
  fake::reset();
  before b;
  CHECK(rdma_disconnect(b.client.id) == -1);
  b.request();
  CHECK(rdma_disconnect(b.client.id) == 0);
  CHECK(next(b.server.events).event == -1);
  b.accept();
  REQUIRE(next(b.client.events).event == RDMA_CM_EVENT_CONNECT_RESPONSE);
  REQUIRE(b.client.drive() == 0);
  REQUIRE(rdma_establish(b.client.id) == 0);
  REQUIRE(next(b.server.events).event == RDMA_CM_EVENT_ESTABLISHED);
  rdma_destroy_id(std::exchange(b.client.id, nullptr));
  CHECK(next(b.server.events).event == RDMA_CM_EVENT_DISCONNECTED);
  b.close();
}

TEST_CASE("ids know librdmacm's own context, device and port, and ports are taken once") {
  fake::reset();
  end e;
  rdma_cm_id *a = nullptr, *b = nullptr;
  REQUIRE(rdma_create_id(e.events, &a, &e, RDMA_PS_TCP) == 0);
  REQUIRE(rdma_create_id(e.events, &b, &e, RDMA_PS_TCP) == 0);
  CHECK(a->verbs == nullptr);
  auto mine = at("10.99.1.1", 6000), other = at("10.99.2.1", 6000), foreign = at("10.1.1.1"), any = at("0.0.0.0", 6000);
  CHECK(rdma_bind_addr(a, raw(foreign)) == -1);
  CHECK(errno == EADDRNOTAVAIL);
  REQUIRE(rdma_bind_addr(a, raw(mine)) == 0);
  REQUIRE(a->verbs);
  CHECK(a->verbs != e.ctx);
  CHECK(std::string{ibv_get_device_name(a->verbs->device)} == "fk1");
  CHECK(a->verbs->device == e.ctx->device);
  CHECK(a->port_num == 1);
  CHECK(ntohs(rdma_get_src_port(a)) == 6000);
  CHECK(rdma_bind_addr(a, raw(mine)) == -1);
  CHECK(rdma_bind_addr(b, raw(mine)) == -1);
  CHECK(errno == EADDRINUSE);
  CHECK(rdma_bind_addr(b, raw(any)) == -1);
  CHECK(errno == EADDRNOTAVAIL);
  CHECK(rdma_bind_addr(b, raw(other)) == 0);
  rdma_destroy_id(b);
  rdma_destroy_id(a);
  REQUIRE(rdma_create_id(e.events, &a, &e, RDMA_PS_TCP) == 0);
  mine.sin_port = 0;
  REQUIRE(rdma_bind_addr(a, raw(mine)) == 0);
  CHECK(ntohs(rdma_get_src_port(a)) >= 32768);
  rdma_destroy_id(a);
  e.close();
  CHECK(fake::leaks() == "");
}

TEST_CASE("addresses without an owner do not resolve") {
  fake::reset();
  end e;
  REQUIRE(rdma_create_id(e.events, &e.id, nullptr, RDMA_PS_TCP) == 0);
  auto near = at("10.99.1.200", 1), far = at("192.0.2.1", 1);
  CHECK(rdma_resolve_addr(e.id, nullptr, raw(far), 100) == -1);
  CHECK(errno == ENETUNREACH);
  REQUIRE(rdma_resolve_addr(e.id, nullptr, raw(near), 100) == 0);
  const auto s = next(e.events);
  CHECK(s.event == RDMA_CM_EVENT_ADDR_ERROR);
  CHECK(s.status == -ETIMEDOUT);
  CHECK(rdma_resolve_route(e.id, 100) == -1);
  e.close();
}

TEST_CASE("a full backlog drops requests without a word") {
  fake::reset();
  end server{"fk2"}, one, two;
  rdma_cm_id* l = nullptr;
  REQUIRE(rdma_create_id(server.events, &l, nullptr, RDMA_PS_TCP) == 0);
  auto a = at("10.99.2.1", 5000);
  REQUIRE(rdma_bind_addr(l, raw(a)) == 0);
  REQUIRE(rdma_listen(l, 1) == 0);
  for (auto* e : {&one, &two}) {
    resolve(*e, 5000);
    auto p = e->param();
    REQUIRE(rdma_connect(e->id, &p) == 0);
  }
  server.id = next(server.events).id;
  CHECK(next(server.events).event == -1);
  CHECK(next(two.events).event == -1);
  for (auto* e : {&one, &two, &server}) {
    if (e == &server) rdma_destroy_id(l);
    e->close();
  }
  CHECK(fake::leaks() == "");
}

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
  SECTION("a response from nowhere") {
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

TEST_CASE("removing a device tells its contexts, its ids and their peers") {
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
