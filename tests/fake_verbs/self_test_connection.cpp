// The fake's connection manager: addresses, requests, answers, ends.
// SPDX-License-Identifier: BSL-1.0
#include "self_test_support.hpp"

using namespace self_test;

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

TEST_CASE("each way of refusing a request has its status") {
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
  CHECK(rdma_connect(b.client.id, &p) == -1); // an id is valid for one attempt
  CHECK(errno == EINVAL);
  b.close();
  CHECK(fake::leaks() == "");
}

TEST_CASE("a connect that is cancelled leaves the passive side without an event and unable to accept") {
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
  SECTION("by destroying its id") { REQUIRE(rdma_destroy_id(std::exchange(b.client.id, nullptr)) == 0); }
  const auto r = next(b.server.events);
  CHECK(r.event == RDMA_CM_EVENT_REJECTED);
  CHECK(r.status == 28);
  b.close();
}

TEST_CASE("the side that disconnects gets its event only after the peer has answered") {
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

TEST_CASE("disconnects that cross give each end one event") {
  fake::reset();
  pair p;
  fake::hold_events(RDMA_CM_EVENT_DISCONNECTED);
  REQUIRE(rdma_disconnect(p.client.id) == 0);
  REQUIRE(rdma_disconnect(p.server.id) == 0);
  CHECK(fake::held_events().size() == 2);
  fake::release_events();
  for (auto* e : {&p.client, &p.server}) CHECK(next(e->events).event == RDMA_CM_EVENT_DISCONNECTED);
  for (auto* e : {&p.client, &p.server}) CHECK(rdma_disconnect(e->id) == 0);
  for (auto* e : {&p.client, &p.server}) CHECK(next(e->events).event == -1);
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

TEST_CASE("ids have librdmacm's own context, device and port, and a port is taken once") {
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
  rdma_destroy_id(std::exchange(e.id, nullptr));
  REQUIRE(rdma_create_id(e.events, &e.id, nullptr, RDMA_PS_TCP) == 0);
  auto mine = at("10.99.1.1");
  CHECK(rdma_resolve_addr(e.id, raw(mine), raw(far), 100) == -1); // the id is bound to a device, but there is no route
  CHECK(errno == ENETUNREACH);
  REQUIRE(rdma_resolve_addr(e.id, nullptr, raw(near), 100) == 0);
  const auto s = next(e.events);
  CHECK(s.event == RDMA_CM_EVENT_ADDR_ERROR);
  CHECK(s.status == -ETIMEDOUT);
  CHECK(rdma_resolve_route(e.id, 100) == -1);
  e.close();
}

TEST_CASE("a full backlog drops requests silently") {
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

TEST_CASE("a port is free again when its listener ends, with or without connections") {
  fake::reset();
  pair p;
  rdma_destroy_id(p.listener);
  p.listener = listen_on(p.server, 5000);
  CHECK(fake::listener(5000) == p.listener);
  p.close();
}
