// Tests of the fake: the behaviour of its personalities.
// SPDX-License-Identifier: BSL-1.0
#include "personality.hpp"
#include "self_test_support.hpp"

using namespace self_test;
using fake::personality;

namespace {

/// A new world with the behaviour of a personality.
struct as {
  fake::with scope;
  explicit as(personality p, const fake::world& w = {}) : scope(p) { fake::reset(w); }
  ~as() {
    CHECK(fake::leaks() == "");
    fake::reset();
  }
};

int to_error(ibv_qp* qp) {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_ERR;
  return ibv_modify_qp(qp, &a, IBV_QP_STATE);
}

/// The types of the asynchronous events that are queued.
std::vector<ibv_event_type> async_events(ibv_context* ctx) {
  unblock(ctx->async_fd);
  std::vector<ibv_event_type> all;
  ibv_async_event e;
  while (ibv_get_async_event(ctx, &e) == 0) {
    all.push_back(e.event_type);
    ibv_ack_async_event(&e);
  }
  return all;
}

ibv_srq* shared_queue(const end& e) {
  ibv_srq_init_attr i{};
  i.attr = {7, 1, 0};
  auto* s = ibv_create_srq(e.pd, &i);
  REQUIRE(s);
  return s;
}

} // namespace

TEST_CASE("a personality holds for the worlds that begin within its scope", "[personality]") {
  const auto before = fake::current();
  {
    const fake::with outer{personality::mlx5};
    CHECK(fake::current() == personality::mlx5);
    {
      const fake::with inner{personality::kind};
      CHECK(fake::current() == personality::kind);
    }
    CHECK(fake::current() == personality::mlx5);
  }
  CHECK(fake::current() == before);
  CHECK(std::string{fake::name(personality::mlx5)} == "mlx5");
  CHECK(fake::personalities().front() == personality::kind);
}

TEST_CASE("what a world sets itself, a personality leaves alone", "[personality]") {
  fake::world own;
  own.devices[0].ports[0].lid = 9; // this change makes the devices those of the test
  const as world{personality::ib, own};
  auto* ctx = open_device();
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(ctx, 1, &port) == 0);
  CHECK(port.lid == 9);
  CHECK(port.link_layer == IBV_LINK_LAYER_ETHERNET);
  ibv_close_device(ctx);
}

TEST_CASE("mlx5: flush completions come after the call that causes them", "[personality]") {
  const as world{personality::mlx5};
  fake::hold_late();
  end e;
  REQUIRE(e.post_recv(1) == 0);
  REQUIRE(to_error(e.qp) == 0);
  REQUIRE(e.post_recv(2) == 0);
  CHECK(e.poll().empty());
  fake::finish();
  const auto all = e.poll();
  REQUIRE(all.size() == 2);
  CHECK(all[0].wr_id == 1);
  CHECK(all[1].wr_id == 2);
  CHECK(all[0].status == IBV_WC_WR_FLUSH_ERR);
  CHECK(all[0].vendor_err != 0);
  CHECK(all[0].byte_len != 0); // not valid in a completion that failed
  e.close();
}

TEST_CASE("mlx5: flush completions arrive by themselves and notify", "[personality]") {
  const as world{personality::mlx5};
  end e;
  REQUIRE(e.post_recv(1) == 0);
  REQUIRE(ibv_req_notify_cq(e.cq, 0) == 0);
  REQUIRE(to_error(e.qp) == 0);
  pollfd p{e.channel->fd, POLLIN, 0};
  REQUIRE(::poll(&p, 1, 20000) == 1);
  CHECK(e.one().wr_id == 1);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  REQUIRE(ibv_get_cq_event(e.channel, &cq, &context) == 0);
  ibv_ack_cq_events(cq, 1);
  e.close();
}

TEST_CASE("mlx5: destroying a queue pair removes its completions, late ones too", "[personality]") {
  const as world{personality::mlx5};
  fake::hold_late();
  end e;
  REQUIRE(e.post_recv(1) == 0);
  REQUIRE(to_error(e.qp) == 0);
  e.make_qp();
  fake::finish();
  CHECK(e.poll().empty());
  e.close();
}

TEST_CASE("mlx5: a completion queue that overruns takes its queue pairs with it", "[personality]") {
  const as world{personality::mlx5};
  end e;
  ibv_wc wc{};
  for (int i = 0; i < e.cq->cqe; ++i) fake::forge(e.cq, wc);
  CHECK(fake::qp_state(e.qp) == IBV_QPS_INIT);
  fake::forge(e.cq, wc);
  CHECK(fake::qp_state(e.qp) == IBV_QPS_ERR);
  CHECK(async_events(e.ctx) == std::vector{IBV_EVENT_CQ_ERR});
  CHECK(e.poll().size() == std::size_t(e.cq->cqe));
  fake::forge(e.cq, wc);
  CHECK(e.poll().empty());
  CHECK(async_events(e.ctx).empty()); // the event is reported once only
  e.close();
}

TEST_CASE("mlx5: the last receive of a shared queue is announced, after the flush completions", "[personality]") {
  const as world{personality::mlx5};
  fake::hold_late();
  end e;
  auto* srq = shared_queue(e);
  e.make_qp(srq);
  REQUIRE(to_error(e.qp) == 0);
  CHECK(async_events(e.ctx).empty());
  fake::finish();
  CHECK(async_events(e.ctx) == std::vector{IBV_EVENT_QP_LAST_WQE_REACHED});
  REQUIRE(to_error(e.qp) == 0);
  fake::finish();
  CHECK(async_events(e.ctx).empty());
  e.make_qp();
  ibv_destroy_srq(srq);
  e.close();
}

TEST_CASE("mlx5: a shared queue keeps its size", "[personality]") {
  const as world{personality::mlx5};
  end e;
  auto* srq = shared_queue(e);
  ibv_srq_attr a{};
  a.max_wr = 15;
  CHECK(ibv_modify_srq(srq, &a, IBV_SRQ_MAX_WR) == EINVAL);
  REQUIRE(ibv_query_srq(srq, &a) == 0);
  CHECK(a.max_wr == 7);
  ibv_destroy_srq(srq);
  e.close();
}

TEST_CASE("mlx5: only reads have a length when they complete", "[personality]") {
  const as world{personality::mlx5};
  pair p;
  REQUIRE(p.client.post_rdma(IBV_WR_RDMA_WRITE, 1, p.server, 64, 8) == 0);
  CHECK(p.client.one().byte_len != 8);
  REQUIRE(p.client.post_rdma(IBV_WR_RDMA_READ, 2, p.server, 64, 8) == 0);
  CHECK(p.client.one().byte_len == 8);
  p.close();
}

TEST_CASE("ib: a connection of the subnet goes by LID and service level, without a route header", "[personality]") {
  const as world{personality::ib};
  pair p;
  ibv_qp_attr a{};
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(p.client.qp, &a, IBV_QP_AV, &init) == 0);
  CHECK(a.ah_attr.is_global == 0);
  CHECK(a.ah_attr.dlid == 0x22);
  CHECK(a.ah_attr.sl == 3);
  CHECK(a.pkey_index == 1);
  REQUIRE(p.server.post_recv(1) == 0);
  REQUIRE(p.client.post_send(2) == 0);
  const auto wc = p.server.one();
  CHECK((wc.wc_flags & IBV_WC_GRH) == 0);
  CHECK(wc.slid == 0x11);
  ibv_gid gid{};
  REQUIRE(ibv_query_gid(p.client.ctx, 1, 0, &gid) == 0);
  CHECK(std::memcmp(p.client.id->route.addr.addr.ibaddr.sgid.raw, gid.raw, sizeof gid.raw) == 0);
  p.close();
}

TEST_CASE("ib: the GID table of a port has no IP addresses, its P_Key table has two entries", "[personality]") {
  const as world{personality::ib};
  auto* ctx = open_device();
  ibv_gid_entry g{};
  REQUIRE(ibv_query_gid_ex(ctx, 1, 0, &g, 0) == 0);
  CHECK(g.gid_type == IBV_GID_TYPE_IB);
  CHECK(ibv_query_gid_ex(ctx, 1, 1, &g, 0) == ENODATA);
  CHECK(ibv_get_pkey_index(ctx, 1, htons(0x8001)) == 1);
  ibv_close_device(ctx);
}

TEST_CASE("iwarp: both sides get ESTABLISHED, private data as long as it was, and queue pairs that run",
          "[personality]") {
  const as world{personality::iwarp};
  before b;
  const auto request = b.request("hello");
  REQUIRE(request.event == RDMA_CM_EVENT_CONNECT_REQUEST);
  CHECK(request.data == "hello");
  auto p = b.server.param("welcome");
  REQUIRE(rdma_accept(b.server.id, &p) == 0);
  const auto reply = next(b.client.events);
  CHECK(reply.event == RDMA_CM_EVENT_ESTABLISHED);
  CHECK(reply.data == "welcome");
  CHECK(next(b.server.events).event == RDMA_CM_EVENT_ESTABLISHED);
  CHECK(fake::qp_state(b.client.qp) == IBV_QPS_RTS);
  CHECK(fake::qp_state(b.server.qp) == IBV_QPS_RTS);
  REQUIRE(b.server.post_recv(1) == 0);
  REQUIRE(b.client.post_send(2) == 0);
  CHECK(b.server.one().wr_id == 1);
  CHECK(b.client.one().wr_id == 2);
  REQUIRE(rdma_disconnect(b.client.id) == 0);
  CHECK(next(b.client.events).event == RDMA_CM_EVENT_DISCONNECTED);
  CHECK(next(b.server.events).event == RDMA_CM_EVENT_DISCONNECTED);
  b.close();
}

TEST_CASE("iwarp: a reject has no reason and the data that it was sent with", "[personality]") {
  const as world{personality::iwarp};
  before b;
  REQUIRE(b.request().event == RDMA_CM_EVENT_CONNECT_REQUEST);
  REQUIRE(rdma_reject(b.server.id, "no", 2) == 0);
  const auto answer = next(b.client.events);
  CHECK(answer.event == RDMA_CM_EVENT_REJECTED);
  CHECK(answer.status == -ECONNREFUSED);
  CHECK(answer.data == "no");
  b.close();
}

TEST_CASE("iwarp: libsiw refuses immediate data, atomics and empty receives with a negative errno", "[personality]") {
  const as world{personality::iwarp};
  end e;
  for (const auto op : {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_LOCAL_INV,
                        IBV_WR_BIND_MW}) {
    auto s = e.sge(0, 8);
    auto w = e.wr(1, op, s);
    CHECK(e.post(w) == -EINVAL);
  }
  ibv_recv_wr empty{1, nullptr, nullptr, 0}, *bad = nullptr;
  CHECK(ibv_post_recv(e.qp, &empty, &bad) == -EINVAL);
  CHECK(bad == &empty);
  e.close();
}

TEST_CASE("iwarp: the driver has no ibv_query_srq and no ibv_resize_cq", "[personality]") {
  const as world{personality::iwarp};
  end e;
  auto* srq = shared_queue(e);
  ibv_srq_attr a{};
  CHECK(ibv_query_srq(srq, &a) == EOPNOTSUPP);
  CHECK(ibv_resize_cq(e.cq, 128) == -EOPNOTSUPP);
  ibv_destroy_srq(srq);
  e.close();
}

TEST_CASE("plain: a new queue pair gets the number of the one that has gone", "[personality]") {
  const as world{personality::plain};
  end e;
  const auto number = e.qp->qp_num;
  e.make_qp();
  CHECK(e.qp->qp_num == number);
  e.close();
}

TEST_CASE("removed: the descriptors of a removed device die, once its last event is read", "[personality]") {
  const as world{personality::removed};
  end e;
  fake::remove_device("fk1");
  pollfd p[] = {{e.ctx->async_fd, POLLIN, 0}, {e.channel->fd, POLLIN, 0}};
  REQUIRE(::poll(p, 2, 0) == 2);
  CHECK((p[1].revents & (POLLHUP | POLLERR)) != 0);
  CHECK(async_events(e.ctx) == std::vector{IBV_EVENT_DEVICE_FATAL});
  CHECK(errno == EIO);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  CHECK(ibv_get_cq_event(e.channel, &cq, &context) == -1);
  CHECK(errno == EIO);
  e.close();
}

TEST_CASE("rxe: a receive posted in the error state stays until the next move to it", "[personality]") {
  const as world{personality::rxe};
  end e;
  REQUIRE(to_error(e.qp) == 0);
  REQUIRE(e.post_recv(1) == 0);
  CHECK(e.poll().empty());
  REQUIRE(to_error(e.qp) == 0);
  CHECK(e.one().wr_id == 1);
  e.close();
}
