// Two connected ends, created by plain verbs and rdma_cm calls, for the tests of the fake itself.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "fake_verbs.hpp"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <stdexcept>

#if __has_include(<support/catch.hpp>)
#include <support/catch.hpp>
#else
#include <catch2/catch.hpp>
#endif

namespace self_test {

inline sockaddr_in at(const char* address, std::uint16_t port = 0) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(port);
  ::inet_pton(AF_INET, address, &a.sin_addr);
  return a;
}
inline sockaddr* raw(sockaddr_in& a) { return reinterpret_cast<sockaddr*>(&a); }

inline bool readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, 0) == 1;
}
inline void unblock(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

inline ibv_context* open_device(const char* name = "fk1") {
  int n = 0;
  auto** list = ibv_get_device_list(&n);
  ibv_context* c = nullptr;
  for (int i = 0; list && i < n; ++i)
    if (std::strcmp(ibv_get_device_name(list[i]), name) == 0) c = ibv_open_device(list[i]);
  if (list) ibv_free_device_list(list);
  return c;
}

/// The members of an event, copied before it was acknowledged.
struct seen {
  int event = -1; ///< -1: no event
  int status = 0;
  rdma_cm_id* id = nullptr;
  std::string data;
  rdma_conn_param conn{};
};

inline seen next(rdma_event_channel* c) {
  seen s;
  rdma_cm_event* e = nullptr;
  if (rdma_get_cm_event(c, &e) != 0) return s;
  s.event = e->event;
  s.status = e->status;
  s.id = e->id;
  s.conn = e->param.conn;
  if (e->param.conn.private_data)
    s.data.assign(static_cast<const char*>(e->param.conn.private_data), e->param.conn.private_data_len);
  s.conn.private_data = nullptr;
  rdma_ack_cm_event(e);
  return s;
}

/// Verbs objects of one end: one CQ for both directions, a buffer of 4096 bytes registered for everything.
struct end {
  ibv_context* ctx = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  rdma_event_channel* events = nullptr;
  rdma_cm_id* id = nullptr;
  std::string said;
  alignas(8) std::array<char, 4096> buffer{};

  explicit end(const char* device = "fk1") {
    ctx = open_device(device);
    REQUIRE(ctx);
    pd = ibv_alloc_pd(ctx);
    REQUIRE(pd);
    channel = ibv_create_comp_channel(ctx);
    REQUIRE(channel);
    unblock(channel->fd);
    cq = ibv_create_cq(ctx, 64, this, channel, 0);
    REQUIRE(cq);
    constexpr int all =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    mr = ibv_reg_mr(pd, buffer.data(), buffer.size(), all);
    REQUIRE(mr);
    make_qp();
    events = rdma_create_event_channel();
    REQUIRE(events);
    unblock(events->fd);
  }
  end(const end&) = delete;
  end& operator=(const end&) = delete;

  void make_qp(ibv_srq* srq = nullptr) {
    if (qp) ibv_destroy_qp(qp);
    ibv_qp_init_attr i{};
    i.send_cq = i.recv_cq = cq;
    i.srq = srq;
    i.cap = {15, 15, 4, 4, 64};
    i.qp_type = IBV_QPT_RC;
    qp = ibv_create_qp(pd, &i);
    REQUIRE(qp);
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    REQUIRE(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  }

  void close() {
    if (id) rdma_destroy_id(id);
    rdma_destroy_event_channel(events);
    ibv_destroy_qp(qp);
    ibv_dereg_mr(mr);
    ibv_destroy_cq(cq);
    ibv_destroy_comp_channel(channel);
    ibv_dealloc_pd(pd);
    ibv_close_device(ctx);
  }

  /// INIT (again, with the connection's rights), RTR, RTS by rdma_init_qp_attr; 0 or errno.
  int drive() {
    for (const auto to : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      ibv_qp_attr a{};
      a.qp_state = to;
      int mask = 0;
      if (rdma_init_qp_attr(id, &a, &mask) != 0) return errno;
      if (to == IBV_QPS_RTS) a.rnr_retry = 7;
      if (const int error = ibv_modify_qp(qp, &a, mask)) return error;
    }
    return 0;
  }
  rdma_conn_param param(const std::string& data = {}) {
    said = data; // outlives the parameter
    rdma_conn_param p{};
    p.private_data = said.data();
    p.private_data_len = std::uint8_t(said.size());
    p.responder_resources = p.initiator_depth = 4;
    p.retry_count = 6;
    p.rnr_retry_count = 7;
    p.qp_num = qp->qp_num;
    return p;
  }

  ibv_sge sge(std::size_t offset, std::uint32_t length) const {
    return {reinterpret_cast<std::uint64_t>(buffer.data()) + offset, length, mr->lkey};
  }
  int post_recv(std::uint64_t wr_id, std::size_t offset = 0, std::uint32_t length = 1024) {
    auto s = sge(offset, length);
    ibv_recv_wr wr{wr_id, nullptr, &s, 1}, *bad = nullptr;
    return ibv_post_recv(qp, &wr, &bad);
  }
  ibv_send_wr wr(std::uint64_t wr_id, ibv_wr_opcode op, ibv_sge& s) const {
    ibv_send_wr w{};
    w.wr_id = wr_id;
    w.sg_list = &s;
    w.num_sge = 1;
    w.opcode = op;
    w.send_flags = IBV_SEND_SIGNALED;
    return w;
  }
  int post(ibv_send_wr& w) {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &w, &bad);
  }
  int post_send(std::uint64_t wr_id, std::size_t offset = 0, std::uint32_t length = 16,
                unsigned flags = IBV_SEND_SIGNALED) {
    auto s = sge(offset, length);
    auto w = wr(wr_id, IBV_WR_SEND, s);
    w.send_flags = flags;
    return post(w);
  }
  int post_rdma(ibv_wr_opcode op, std::uint64_t wr_id, const end& to, std::size_t remote, std::uint32_t length) {
    auto s = sge(0, length);
    auto w = wr(wr_id, op, s);
    w.wr.rdma = {reinterpret_cast<std::uint64_t>(to.buffer.data()) + remote, to.mr->rkey};
    w.imm_data = htonl(0x7777);
    return post(w);
  }
  std::vector<ibv_wc> poll() {
    std::vector<ibv_wc> all;
    ibv_wc wc;
    while (ibv_poll_cq(cq, 1, &wc) == 1) all.push_back(wc);
    return all;
  }
  ibv_wc one() {
    auto all = poll();
    REQUIRE(all.size() == 1);
    return all[0];
  }
};

/// A listener on the server's channel.
inline rdma_cm_id* listen_on(end& server, std::uint16_t port, const char* address = "10.99.2.1") {
  rdma_cm_id* l = nullptr;
  REQUIRE(rdma_create_id(server.events, &l, nullptr, RDMA_PS_TCP) == 0);
  auto a = at(address, port);
  REQUIRE(rdma_bind_addr(l, raw(a)) == 0);
  REQUIRE(rdma_listen(l, 0) == 0);
  return l;
}

/// Moves a client id up to ROUTE_RESOLVED.
inline void resolve(end& client, std::uint16_t port, const char* address = "10.99.2.1") {
  REQUIRE(rdma_create_id(client.events, &client.id, nullptr, RDMA_PS_TCP) == 0);
  auto src = at("10.99.1.1"), dst = at(address, port);
  REQUIRE(rdma_resolve_addr(client.id, raw(src), raw(dst), 1000) == 0);
  REQUIRE(next(client.events).event == RDMA_CM_EVENT_ADDR_RESOLVED);
  REQUIRE(rdma_resolve_route(client.id, 1000) == 0);
  REQUIRE(next(client.events).event == RDMA_CM_EVENT_ROUTE_RESOLVED);
}

/// Creates client and listener, up to the call of rdma_connect.
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
  /// Connects, up to and including ESTABLISHED at the server.
  void establish() {
    REQUIRE(request().event == RDMA_CM_EVENT_CONNECT_REQUEST);
    accept();
    REQUIRE(next(client.events).event == RDMA_CM_EVENT_CONNECT_RESPONSE);
    REQUIRE(client.drive() == 0);
    REQUIRE(rdma_establish(client.id) == 0);
    REQUIRE(next(server.events).event == RDMA_CM_EVENT_ESTABLISHED);
  }
  void close() {
    client.close();
    rdma_destroy_id(listener);
    server.close();
  }
};

/// Connected.
struct pair : before {
  pair() { establish(); }
};

} // namespace self_test
