// The fake's data path: data moves, and operations complete, wait or fail.
// SPDX-License-Identifier: BSL-1.0
#include "self_test_support.hpp"

using namespace self_test;

TEST_CASE("a send puts its bytes into the posted receive and completes on both ends") {
  fake::reset();
  pair p;
  REQUIRE(p.server.post_recv(7, 512) == 0);
  std::strcpy(p.client.buffer.data(), "over the wire");
  REQUIRE(p.client.post_send(8) == 0);
  const auto s = p.client.one(), r = p.server.one();
  CHECK(s.wr_id == 8);
  CHECK(s.status == IBV_WC_SUCCESS);
  CHECK(s.opcode == IBV_WC_SEND);
  CHECK(r.wr_id == 7);
  CHECK(r.opcode == IBV_WC_RECV);
  CHECK(r.byte_len == 16);
  CHECK(r.qp_num == p.server.qp->qp_num);
  CHECK(r.wc_flags == IBV_WC_GRH);
  CHECK(std::string{p.server.buffer.data() + 512} == "over the wire");
  p.close();
  CHECK(fake::leaks() == "");
}

TEST_CASE("only signaled sends complete, and an unsignaled one arrives as well") {
  fake::reset();
  pair p;
  REQUIRE(p.server.post_recv(1) == 0);
  REQUIRE(p.client.post_send(2, 0, 16, 0) == 0);
  CHECK(p.client.poll().empty());
  CHECK(p.server.one().wr_id == 1);
  p.close();
}

TEST_CASE("RDMA write, read and write with immediate move bytes by address and rkey") {
  fake::reset();
  pair p;
  std::strcpy(p.client.buffer.data(), "written");
  REQUIRE(p.client.post_rdma(IBV_WR_RDMA_WRITE, 1, p.server, 100, 8) == 0);
  CHECK(p.client.one().opcode == IBV_WC_RDMA_WRITE);
  CHECK(std::string{p.server.buffer.data() + 100} == "written");
  CHECK(p.server.poll().empty());

  std::strcpy(p.server.buffer.data() + 200, "fetched");
  REQUIRE(p.client.post_rdma(IBV_WR_RDMA_READ, 2, p.server, 200, 8) == 0);
  CHECK(p.client.one().opcode == IBV_WC_RDMA_READ);
  CHECK(std::string{p.client.buffer.data()} == "fetched");

  REQUIRE(p.server.post_recv(3) == 0);
  REQUIRE(p.client.post_rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 4, p.server, 300, 8) == 0);
  CHECK(p.client.one().status == IBV_WC_SUCCESS);
  const auto r = p.server.one();
  CHECK(r.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
  CHECK(r.byte_len == 8);
  CHECK(r.wc_flags == (unsigned(IBV_WC_GRH) | unsigned(IBV_WC_WITH_IMM)));
  CHECK(ntohl(r.imm_data) == 0x7777);
  CHECK(std::string{p.server.buffer.data() + 300} == "fetched");
  p.close();
}

TEST_CASE("atomics return the old value and change the remote one") {
  fake::reset();
  pair p;
  std::uint64_t value = 40;
  std::memcpy(p.server.buffer.data(), &value, 8);
  auto s = p.client.sge(8, 8);
  auto w = p.client.wr(1, IBV_WR_ATOMIC_FETCH_AND_ADD, s);
  w.wr.atomic.remote_addr = reinterpret_cast<std::uint64_t>(p.server.buffer.data());
  w.wr.atomic.rkey = p.server.mr->rkey;
  w.wr.atomic.compare_add = 2;
  REQUIRE(p.client.post(w) == 0);
  CHECK(p.client.one().opcode == IBV_WC_FETCH_ADD);
  std::memcpy(&value, p.client.buffer.data() + 8, 8);
  CHECK(value == 40);
  w.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  w.wr.atomic.compare_add = 42;
  w.wr.atomic.swap = 7;
  REQUIRE(p.client.post(w) == 0);
  CHECK(p.client.one().opcode == IBV_WC_COMP_SWAP);
  std::memcpy(&value, p.server.buffer.data(), 8);
  CHECK(value == 7);
  REQUIRE(p.client.post(w) == 0); // the value no longer equals the operand
  p.client.one();
  std::memcpy(&value, p.server.buffer.data(), 8);
  CHECK(value == 7);
  s.length = 4;
  CHECK(p.client.post(w) == EINVAL);
  p.close();
}

TEST_CASE("a zero-length write reads neither address nor rkey") {
  fake::reset();
  pair p;
  ibv_send_wr w{}, *bad = nullptr;
  w.opcode = IBV_WR_RDMA_WRITE;
  w.send_flags = IBV_SEND_SIGNALED;
  REQUIRE(ibv_post_send(p.client.qp, &w, &bad) == 0);
  CHECK(p.client.one().status == IBV_WC_SUCCESS);
  p.close();
}

TEST_CASE("a send without a posted receive waits, and runs when one is posted") {
  fake::reset();
  pair p;
  REQUIRE(p.client.post_send(1) == 0);
  CHECK(p.client.poll().empty());
  CHECK(fake::pending_sends(p.client.qp) == 1);
  SECTION("posted late") {
    REQUIRE(p.server.post_recv(2) == 0);
    CHECK(p.client.one().status == IBV_WC_SUCCESS);
    CHECK(p.server.one().wr_id == 2);
  }
  SECTION("the retries are exhausted") {
    CHECK(fake::give_up(p.client.qp));
    CHECK(p.client.one().status == IBV_WC_RNR_RETRY_EXC_ERR);
    CHECK(fake::qp_state(p.client.qp) == IBV_QPS_ERR);
    CHECK(fake::qp_state(p.server.qp) == IBV_QPS_RTS);
  }
  p.close();
}

TEST_CASE("a receive that is too short fails both ends with the statuses of the chosen kind") {
  const auto kind = GENERATE(fake::statuses::rxe, fake::statuses::iba);
  fake::world w;
  w.wc_statuses = kind;
  fake::reset(w);
  pair p;
  REQUIRE(p.server.post_recv(1, 0, 8) == 0);
  REQUIRE(p.server.post_recv(2) == 0);
  REQUIRE(p.client.post_send(3) == 0);
  const bool rxe = kind == fake::statuses::rxe;
  CHECK(p.client.one().status == (rxe ? IBV_WC_REM_OP_ERR : IBV_WC_REM_INV_REQ_ERR));
  const auto r = p.server.poll();
  REQUIRE(r.size() == 2);
  CHECK(r[0].wr_id == 1);
  CHECK(r[0].status == (rxe ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_LOC_LEN_ERR));
  CHECK(r[1].wr_id == 2);
  CHECK(r[1].status == IBV_WC_WR_FLUSH_ERR);
  CHECK(fake::qp_state(p.client.qp) == IBV_QPS_ERR);
  CHECK(fake::qp_state(p.server.qp) == IBV_QPS_ERR);
  p.close();
}

TEST_CASE("keys, ranges and rights of a remote region are checked") {
  fake::reset();
  pair p;
  REQUIRE(p.server.post_recv(9) == 0);
  auto s = p.client.sge(0, 16);
  auto w = p.client.wr(1, IBV_WR_RDMA_WRITE, s);
  w.wr.rdma = {reinterpret_cast<std::uint64_t>(p.server.buffer.data()), p.server.mr->rkey};
  ibv_mr* readable = nullptr;
  const auto fails_with = [&](ibv_wc_status expected) {
    REQUIRE(p.client.post(w) == 0);
    CHECK(p.client.one().status == expected);
    CHECK(p.server.one().status == IBV_WC_WR_FLUSH_ERR);
    CHECK(fake::qp_state(p.server.qp) == IBV_QPS_ERR);
  };
  SECTION("wrong key") {
    w.wr.rdma.rkey ^= 0x100;
    fails_with(IBV_WC_REM_ACCESS_ERR);
  }
  SECTION("beyond the end") {
    w.wr.rdma.remote_addr += 4081;
    fails_with(IBV_WC_REM_ACCESS_ERR);
  }
  SECTION("longer than the region") {
    readable =
        ibv_reg_mr(p.server.pd, p.server.buffer.data(), 8, int(IBV_ACCESS_LOCAL_WRITE) | int(IBV_ACCESS_REMOTE_WRITE));
    w.wr.rdma.rkey = readable->rkey;
    fails_with(IBV_WC_REM_ACCESS_ERR);
  }
  SECTION("before the start") {
    w.wr.rdma.remote_addr -= 1;
    fails_with(IBV_WC_REM_ACCESS_ERR);
  }
  SECTION("no right to write") {
    readable = ibv_reg_mr(p.server.pd, p.server.buffer.data(), 64, int(IBV_ACCESS_REMOTE_READ));
    w.wr.rdma.rkey = readable->rkey;
    fails_with(IBV_WC_REM_ACCESS_ERR);
  }
  SECTION("the queue pair takes no writes") {
    ibv_qp_attr a{};
    REQUIRE(ibv_modify_qp(p.server.qp, &a, IBV_QP_ACCESS_FLAGS) == 0);
    fails_with(IBV_WC_REM_INV_REQ_ERR);
  }
  if (readable) ibv_dereg_mr(readable);
  p.close();
}

TEST_CASE("the last byte of a region can be written") {
  fake::reset();
  pair p;
  REQUIRE(p.client.post_rdma(IBV_WR_RDMA_WRITE, 1, p.server, 4080, 16) == 0);
  CHECK(p.client.one().status == IBV_WC_SUCCESS);
  p.close();
}

TEST_CASE("a bad local key fails the sender alone") {
  fake::reset();
  pair p;
  REQUIRE(p.server.post_recv(1) == 0);
  auto s = p.client.sge(0, 16);
  s.lkey ^= 0x100;
  auto w = p.client.wr(2, IBV_WR_SEND, s);
  REQUIRE(p.client.post(w) == 0);
  CHECK(p.client.one().status == IBV_WC_LOC_QP_OP_ERR);
  CHECK(p.server.poll().empty());
  CHECK(fake::qp_state(p.server.qp) == IBV_QPS_RTS);
  p.close();
}

TEST_CASE("moving to ERR flushes sends and receives in order, and later posts flush, too") {
  const bool missing = GENERATE(false, true);
  fake::world w;
  w.flush_late_receives = !missing;
  fake::reset(w);
  pair p;
  fake::hold(p.client.qp);
  for (const std::uint64_t id : {1u, 2u}) REQUIRE(p.client.post_send(id, 0, 16, 0) == 0);
  for (const std::uint64_t id : {11u, 12u}) REQUIRE(p.client.post_recv(id) == 0);
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_ERR;
  REQUIRE(ibv_modify_qp(p.client.qp, &a, IBV_QP_STATE) == 0);
  std::vector<std::uint64_t> order;
  for (const auto& wc : p.client.poll()) {
    CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
    order.push_back(wc.wr_id);
  }
  CHECK(order == std::vector<std::uint64_t>{1, 2, 11, 12});
  REQUIRE(p.client.post_send(3, 0, 16, 0) == 0);
  CHECK(p.client.one().wr_id == 3);
  REQUIRE(p.client.post_recv(13) == 0);
  CHECK(p.client.poll().size() == (missing ? 0 : 1));
  REQUIRE(ibv_modify_qp(p.client.qp, &a, IBV_QP_STATE) == 0);
  CHECK(p.client.poll().size() == (missing ? 1 : 0));
  p.close();
}

TEST_CASE("posting in the wrong state is refused, and a refused send stays queued as on rxe") {
  fake::reset();
  pair p;
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RESET;
  REQUIRE(ibv_modify_qp(p.client.qp, &a, IBV_QP_STATE) == 0);
  CHECK(p.client.post_recv(1) == EINVAL);
  CHECK(p.client.post_send(2) == EINVAL);
  CHECK(fake::pending_sends(p.client.qp) == 1);
  p.client.make_qp();
  CHECK(p.client.post_recv(3) == 0);
  CHECK(p.client.post_send(4) == EINVAL);
  REQUIRE(p.client.drive() == 0);
  CHECK(p.client.poll().empty());
  p.close();
}

TEST_CASE("queue depth, segments and inline data have limits") {
  fake::reset();
  pair p;
  fake::hold(p.client.qp);
  for (unsigned i = 0; i < 15; ++i) REQUIRE(p.client.post_send(i) == 0);
  CHECK(p.client.post_send(15) == ENOMEM);
  for (unsigned i = 0; i < 15; ++i) REQUIRE(p.server.post_recv(i) == 0);
  CHECK(p.server.post_recv(15) == ENOMEM);
  fake::hold(p.client.qp, false);
  CHECK(p.client.poll().size() == 15);
  CHECK(p.client.post_send(16, 0, 65, IBV_SEND_INLINE) == EINVAL);
  std::array<ibv_sge, 5> five{};
  five.fill(p.client.sge(0, 1));
  auto w = p.client.wr(17, IBV_WR_SEND, five[0]);
  w.num_sge = 5;
  CHECK(p.client.post(w) == EINVAL);
  REQUIRE(p.server.poll().size() == 15);
  REQUIRE(p.server.post_recv(18) == 0);
  w.num_sge = 4;
  CHECK(p.client.post(w) == 0);
  CHECK(p.server.one().byte_len == 4);
  p.close();
}

TEST_CASE("inline data may be overwritten after the post") {
  fake::reset();
  pair p;
  std::strcpy(p.client.buffer.data(), "first");
  REQUIRE(p.client.post_send(1, 0, 16, IBV_SEND_INLINE) == 0);
  std::strcpy(p.client.buffer.data(), "later");
  REQUIRE(p.server.post_recv(2, 64) == 0);
  CHECK(std::string{p.server.buffer.data() + 64} == "first");
  p.close();
}

TEST_CASE("held sends are completed by script, in any order and with any status") {
  fake::reset();
  pair p;
  REQUIRE(p.server.post_recv(20) == 0);
  fake::hold(p.client.qp);
  for (const std::uint64_t id : {1u, 2u, 3u}) REQUIRE(p.client.post_send(id, 0, 16, 0) == 0);
  CHECK(p.client.poll().empty());
  CHECK_FALSE(fake::complete(p.client.qp, 4));
  CHECK(fake::complete(p.client.qp, 2));
  CHECK(p.server.one().wr_id == 20);
  CHECK(fake::complete(p.client.qp, {}, IBV_WC_RETRY_EXC_ERR));
  const auto all = p.client.poll();
  REQUIRE(all.size() == 2);
  CHECK(all[0].wr_id == 1);
  CHECK(all[0].status == IBV_WC_RETRY_EXC_ERR);
  CHECK(all[1].wr_id == 3);
  CHECK(all[1].status == IBV_WC_WR_FLUSH_ERR);
  CHECK_FALSE(fake::complete(p.client.qp));
  p.close();
}

TEST_CASE("a send whose acknowledgement is lost has arrived, and fails at its sender") {
  fake::reset();
  pair p;
  fake::hold(p.client.qp);
  CHECK_FALSE(fake::lose_acknowledgement(p.client.qp));
  for (const std::uint64_t id : {1u, 2u}) REQUIRE(p.client.post_send(id, 0, 16, 0) == 0);
  CHECK_FALSE(fake::lose_acknowledgement(p.client.qp)); // without a receive, the message did not arrive
  REQUIRE(p.server.post_recv(20) == 0);
  CHECK(fake::lose_acknowledgement(p.client.qp));
  CHECK(p.server.one().wr_id == 20);
  const auto all = p.client.poll();
  REQUIRE(all.size() == 2);
  CHECK(all[0].wr_id == 1);
  CHECK(all[0].status == IBV_WC_RETRY_EXC_ERR);
  CHECK(all[1].wr_id == 2);
  CHECK(all[1].status == IBV_WC_WR_FLUSH_ERR);
  p.close();
}

TEST_CASE("a send to a broken peer runs out of retries") {
  fake::reset();
  pair p;
  fake::break_qp(p.server.qp);
  REQUIRE(p.client.post_send(1) == 0);
  CHECK(p.client.one().status == IBV_WC_RETRY_EXC_ERR);
  p.close();
}

TEST_CASE("a shared receive queue feeds its queue pairs, reports its limit and never flushes") {
  fake::reset();
  pair p;
  ibv_srq_init_attr i{};
  i.attr = {3, 2, 2};
  auto* srq = ibv_create_srq(p.server.pd, &i);
  REQUIRE(srq);
  p.server.make_qp(srq);
  CHECK(p.server.post_recv(1) == EINVAL);
  auto s = p.server.sge(0, 64);
  ibv_recv_wr w{1, nullptr, &s, 1}, *bad = nullptr;
  for (int n = 0; n < 3; ++n) REQUIRE(ibv_post_srq_recv(srq, &w, &bad) == 0);
  CHECK(ibv_post_srq_recv(srq, &w, &bad) == ENOMEM);
  fake::break_qp(p.server.qp);
  CHECK(p.server.poll().empty());
  CHECK(ibv_destroy_srq(srq) == EBUSY);
  unblock(p.server.ctx->async_fd);
  ibv_async_event a;
  CHECK(ibv_get_async_event(p.server.ctx, &a) == -1);
  CHECK(fake::complete_recv(p.server.qp));
  CHECK(ibv_get_async_event(p.server.ctx, &a) == -1);
  CHECK(fake::complete_recv(p.server.qp));
  REQUIRE(ibv_get_async_event(p.server.ctx, &a) == 0);
  CHECK(a.event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
  CHECK(a.element.srq == srq);
  ibv_ack_async_event(&a);
  p.server.make_qp();
  CHECK(ibv_destroy_srq(srq) == 0);
  p.close();
  CHECK(fake::leaks() == "");
}

TEST_CASE("a refused send is carried out with the next accepted one, unless the world is configured otherwise") {
  const bool stays = GENERATE(true, false);
  fake::world w;
  w.rejected_sends_stay = stays;
  fake::reset(w);
  before b;
  CHECK(b.client.post_send(1) == EINVAL);
  REQUIRE(b.server.post_recv(11) == 0);
  REQUIRE(b.server.post_recv(12) == 0);
  b.establish();
  CHECK(b.client.poll().empty());
  REQUIRE(b.client.post_send(2) == 0);
  const auto done = b.client.poll();
  REQUIRE(done.size() == (stays ? 2 : 1));
  CHECK(done.front().wr_id == (stays ? 1 : 2));
  CHECK(done.back().wr_id == 2);
  b.close();
}

TEST_CASE("a message takes a buffer of the shared receive queue") {
  fake::reset();
  before b;
  ibv_srq_init_attr i{};
  i.attr = {3, 1, 1};
  auto* srq = ibv_create_srq(b.server.pd, &i);
  REQUIRE(srq);
  b.server.make_qp(srq);
  b.establish();
  REQUIRE(b.client.post_send(1) == 0);
  CHECK(b.client.poll().empty());
  auto s = b.server.sge(64, 64);
  ibv_recv_wr w{5, nullptr, &s, 1}, *bad = nullptr;
  REQUIRE(ibv_post_srq_recv(srq, &w, &bad) == 0);
  CHECK(b.client.one().status == IBV_WC_SUCCESS);
  CHECK(b.server.one().wr_id == 5);
  ibv_async_event a;
  REQUIRE(ibv_get_async_event(b.server.ctx, &a) == 0);
  CHECK(a.event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
  ibv_ack_async_event(&a);
  b.server.make_qp();
  CHECK(ibv_destroy_srq(srq) == 0);
  b.close();
  CHECK(fake::leaks() == "");
}
