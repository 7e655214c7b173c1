// examples/01_hello.cpp by hand, which bench/compile_time.py compares with. It connects to itself by rdma_cm.
// SPDX-License-Identifier: BSL-1.0
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <system_error>
#include <variant>

namespace {

void check(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::exit(1);
}

/// The next event of the connection manager, which must have this type.
rdma_cm_id* expect(rdma_event_channel* channel, rdma_cm_event_type type) {
  rdma_cm_event* event = nullptr;
  check(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
  check(event->event == type, rdma_event_str(event->event));
  rdma_cm_id* id = event->id;
  rdma_ack_cm_event(event);
  return id;
}

void create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_cq* cq) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = cq;
  attributes.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  check(rdma_create_qp(id, pd, &attributes) == 0, "rdma_create_qp");
}

ibv_wc completion(ibv_cq* cq) {
  ibv_wc wc{};
  int n = 0;
  while (n == 0) n = ibv_poll_cq(cq, 1, &wc);
  check(n == 1 && wc.status == IBV_WC_SUCCESS, "completion");
  return wc;
}

} // namespace

int main(int argc, char** argv) {
  std::array<char, 64> outbox{"Hello, RDMA!"};
  std::array<char, 64> inbox{};
  rdma_event_channel* channel = rdma_create_event_channel();
  check(channel, "rdma_create_event_channel");
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* where = nullptr;
  check(argc > 1 && rdma_getaddrinfo(argv[1], "7471", &hints, &where) == 0, "usage: raw_hello ADDRESS");

  rdma_cm_id* listener = nullptr;
  rdma_cm_id* client = nullptr;
  check(rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
  check(rdma_bind_addr(listener, where->ai_dst_addr) == 0 && rdma_listen(listener, 1) == 0, "rdma_listen");
  check(rdma_create_id(channel, &client, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
  check(rdma_resolve_addr(client, nullptr, where->ai_dst_addr, 2000) == 0, "rdma_resolve_addr");
  expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  check(rdma_resolve_route(client, 2000) == 0, "rdma_resolve_route");
  expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);

  ibv_pd* pd = ibv_alloc_pd(client->verbs);
  check(pd, "ibv_alloc_pd");
  ibv_cq* cq = ibv_create_cq(client->verbs, 16, nullptr, nullptr, 0);
  check(cq, "ibv_create_cq");
  ibv_mr* out = ibv_reg_mr(pd, outbox.data(), outbox.size(), 0);
  const int writable = IBV_ACCESS_LOCAL_WRITE; // of the type that the macro ibv_reg_mr compares it with
  ibv_mr* in = ibv_reg_mr(pd, inbox.data(), inbox.size(), writable);
  check(out && in, "ibv_reg_mr");

  create_qp(client, pd, cq);
  rdma_conn_param parameters{};
  parameters.retry_count = 6;
  parameters.rnr_retry_count = 7;
  check(rdma_connect(client, &parameters) == 0, "rdma_connect");
  rdma_cm_id* server = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  create_qp(server, pd, cq);
  ibv_sge to{reinterpret_cast<std::uintptr_t>(inbox.data()), sizeof inbox, in->lkey};
  ibv_recv_wr receive{.wr_id = 2, .next = nullptr, .sg_list = &to, .num_sge = 1};
  ibv_recv_wr* bad_receive = nullptr;
  check(ibv_post_recv(server->qp, &receive, &bad_receive) == 0, "ibv_post_recv");
  check(rdma_accept(server, &parameters) == 0, "rdma_accept");
  expect(channel, RDMA_CM_EVENT_ESTABLISHED);
  expect(channel, RDMA_CM_EVENT_ESTABLISHED);

  ibv_sge from{reinterpret_cast<std::uintptr_t>(outbox.data()), sizeof outbox, out->lkey};
  ibv_send_wr send{};
  send.wr_id = 1;
  send.sg_list = &from;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  ibv_send_wr* bad_send = nullptr;
  check(ibv_post_send(client->qp, &send, &bad_send) == 0, "ibv_post_send");
  completion(cq);
  completion(cq);
  std::puts(inbox.data());

  rdma_disconnect(client);
  for (rdma_cm_id* id : {client, server}) {
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
  }
  rdma_destroy_id(listener);
  ibv_dereg_mr(out);
  ibv_dereg_mr(in);
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
  rdma_freeaddrinfo(where);
  rdma_destroy_event_channel(channel);
}
