// The fake's devices, memory, completion queues, events and order of destruction.
// SPDX-License-Identifier: BSL-1.0
#include "self_test_support.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace self_test;

namespace {

/// Runs `f` in a child process; returns its stderr if it aborted, otherwise "ended".
std::string aborts(const std::function<void()>& f) {
  int fd[2];
  REQUIRE(::pipe(fd) == 0);
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL); // the test framework would report it as a failed case
    ::dup2(fd[1], 2);
    f();
    ::_exit(0);
  }
  ::close(fd[1]);
  std::string text;
  char part[512];
  for (ssize_t n = 0; (n = ::read(fd[0], part, sizeof part)) > 0;) text.append(part, std::size_t(n));
  ::close(fd[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? text : "ended";
}

bool has_text(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

} // namespace

TEST_CASE("devices, ports, GIDs and P_Keys are as configured") {
  fake::world w;
  w.devices = {{"alpha", {{{"10.0.0.1"}}, {{"10.0.1.1", "fd00::1"}, IBV_PORT_DOWN}}}};
  fake::reset(w);
  auto* c = open_device("alpha");
  REQUIRE(c);
  CHECK(open_device("fk1") == nullptr);
  ibv_device_attr d;
  REQUIRE(ibv_query_device(c, &d) == 0);
  CHECK(d.phys_port_cnt == 2);
  CHECK(d.max_sge == 32);
  CHECK(d.node_guid == ibv_get_device_guid(c->device));
  ibv_port_attr p;
  REQUIRE(ibv_query_port(c, 1, &p) == 0);
  CHECK(p.state == IBV_PORT_ACTIVE);
  CHECK(p.link_layer == IBV_LINK_LAYER_ETHERNET);
  REQUIRE(ibv_query_port(c, 2, &p) == 0);
  CHECK(p.state == IBV_PORT_DOWN);
  CHECK(ibv_query_port(c, 3, &p) == EINVAL);
  ibv_gid g;
  REQUIRE(ibv_query_gid(c, 1, 1, &g) == 0);
  CHECK(g.raw[10] == 0xff);
  CHECK(g.raw[15] == 1);
  CHECK(ibv_query_gid(c, 3, 0, &g) == -1);
  ibv_gid_entry table[8];
  CHECK(ibv_query_gid_table(c, table, 8, 0) == 5);
  __be16 key = 0;
  REQUIRE(ibv_query_pkey(c, 1, 0, &key) == 0);
  CHECK(key == 0xffff);
  fake::set_port_state("alpha", 2, IBV_PORT_ACTIVE);
  ibv_async_event a;
  REQUIRE(ibv_get_async_event(c, &a) == 0);
  CHECK(a.event_type == IBV_EVENT_PORT_ACTIVE);
  CHECK(a.element.port_num == 2);
  ibv_ack_async_event(&a);
  CHECK(ibv_close_device(c) == 0);
  CHECK(fake::leaks() == "");
  w.devices.clear();
  fake::reset(w);
  int n = -1;
  auto** list = ibv_get_device_list(&n);
  REQUIRE(list);
  CHECK(n == 0);
  CHECK(fake::live().device_lists == 1);
  ibv_free_device_list(list);
}

TEST_CASE("a registration is refused where the kernel refuses it") {
  fake::reset();
  end e;
  const auto refused = [&](void* p, std::size_t n, int access) {
    errno = 0;
    auto* m = ibv_reg_mr(e.pd, p, n, access);
    if (m) ibv_dereg_mr(m);
    return errno;
  };
  auto* b = e.buffer.data();
  CHECK(refused(b, 0, 0) == EINVAL);
  CHECK(refused(nullptr, 8, 0) == EFAULT);
  CHECK(refused(b, 8, IBV_ACCESS_REMOTE_WRITE) == EINVAL);
  CHECK(refused(b, 8, IBV_ACCESS_ON_DEMAND) == EINVAL);
  CHECK(refused(b, 8, IBV_ACCESS_ZERO_BASED) == EOPNOTSUPP);
  CHECK(refused(b, 8, 0) == 0);
  CHECK(refused(b, 8, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | int(IBV_ACCESS_RELAXED_ORDERING)) == 0);
  const auto page = std::size_t(::sysconf(_SC_PAGESIZE));
  auto* hole = ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(hole != MAP_FAILED);
  CHECK(refused(hole, 2 * page, 0) == 0);
  REQUIRE(::munmap(static_cast<char*>(hole) + page, page) == 0);
  CHECK(refused(hole, 2 * page, 0) == EFAULT);
  CHECK(refused(hole, page, 0) == 0);
  ::munmap(hole, page);
  e.close();
}

TEST_CASE("one arming gives one event, for the next completion, or for a solicited one only") {
  fake::reset();
  pair p;
  auto& s = p.server;
  for (unsigned i = 0; i < 6; ++i) REQUIRE(s.post_recv(i) == 0);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  const auto fired = [&] {
    if (!readable(s.channel->fd)) {
      errno = 0;
      CHECK(ibv_get_cq_event(s.channel, &cq, &context) == -1);
      CHECK(errno == EAGAIN);
      return false;
    }
    REQUIRE(ibv_get_cq_event(s.channel, &cq, &context) == 0);
    CHECK(cq == s.cq);
    CHECK(context == &s);
    ibv_ack_cq_events(cq, 1);
    return true;
  };
  const auto send = [&](unsigned flags) { REQUIRE(p.client.post_send(1, 0, 1, flags) == 0); };
  send(0);
  CHECK_FALSE(fired()); // the completion queue is not armed
  REQUIRE(ibv_req_notify_cq(s.cq, 0) == 0);
  CHECK_FALSE(fired()); // the completion came before the arming
  send(0);
  send(0);
  CHECK(fired());
  CHECK_FALSE(fired());
  REQUIRE(ibv_req_notify_cq(s.cq, 1) == 0);
  send(0);
  CHECK_FALSE(fired());
  send(IBV_SEND_SOLICITED);
  CHECK(fired());
  REQUIRE(ibv_req_notify_cq(s.cq, 0) == 0);
  REQUIRE(ibv_req_notify_cq(s.cq, 1) == 0);
  send(0); // an arming for all completions is not reduced
  CHECK(fired());
  REQUIRE(ibv_req_notify_cq(s.cq, 1) == 0);
  REQUIRE(s.post_recv(9) == 0);
  fake::break_qp(s.qp);
  CHECK(fired()); // an error always notifies
  p.close();
  CHECK(fake::leaks() == "");
}

TEST_CASE("a completion queue that overruns loses completions and reports it") {
  fake::reset();
  end e;
  auto* small = ibv_create_cq(e.ctx, 2, nullptr, nullptr, 0);
  REQUIRE(small);
  CHECK(small->cqe == 3);
  for (std::uint64_t i = 1; i <= 5; ++i) {
    ibv_wc wc{};
    wc.wr_id = i;
    fake::forge(small, wc);
  }
  CHECK(fake::unread_completions(small) == 3);
  CHECK(ibv_resize_cq(small, 2) == EINVAL);
  CHECK(ibv_resize_cq(small, 7) == 0);
  ibv_async_event a;
  for (int i = 0; i < 2; ++i) {
    REQUIRE(ibv_get_async_event(e.ctx, &a) == 0);
    CHECK(a.event_type == IBV_EVENT_CQ_ERR);
    CHECK(a.element.cq == small);
    ibv_ack_async_event(&a);
  }
  CHECK_FALSE(readable(e.ctx->async_fd));
  CHECK(ibv_create_cq(e.ctx, 0, nullptr, nullptr, 0) == nullptr);
  CHECK(ibv_create_cq(e.ctx, 32768, nullptr, nullptr, 0) == nullptr);
  CHECK(ibv_create_cq(e.ctx, 1, nullptr, nullptr, 2) == nullptr);
  CHECK(ibv_destroy_cq(small) == 0);
  e.close();
}

TEST_CASE("a state change needs its attributes and a legal pair of states") {
  fake::reset();
  end e;
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RTS;
  CHECK(ibv_modify_qp(e.qp, &a, IBV_QP_STATE) == EINVAL);
  a.qp_state = IBV_QPS_RTR;
  CHECK(ibv_modify_qp(e.qp, &a, IBV_QP_STATE) == EINVAL);
  a.qp_state = IBV_QPS_INIT;
  CHECK(ibv_modify_qp(e.qp, &a, IBV_QP_STATE) == 0);
  CHECK(ibv_modify_qp(e.qp, &a, IBV_QP_STATE | IBV_QP_CAP) == EINVAL);
  a.port_num = 2;
  CHECK(ibv_modify_qp(e.qp, &a, IBV_QP_STATE | IBV_QP_PORT) == EINVAL);
  a.qp_state = IBV_QPS_RESET;
  CHECK(ibv_modify_qp(e.qp, &a, IBV_QP_STATE) == 0);
  a.qp_state = IBV_QPS_ERR;
  CHECK(ibv_modify_qp(e.qp, &a, IBV_QP_STATE) == EINVAL);
  e.close();
}

TEST_CASE("objects in use cannot be destroyed") {
  fake::reset();
  end e;
  CHECK(ibv_dealloc_pd(e.pd) == EBUSY);
  CHECK(ibv_destroy_cq(e.cq) == EBUSY);
  CHECK(ibv_destroy_comp_channel(e.channel) == EBUSY);
  auto text = fake::leaks();
  for (const char* part :
       {"1 context (context#1)", "1 pd", "1 mr", "1 comp channel", "1 cq", "1 qp", "1 event channel"}) {
    INFO(part);
    CHECK(has_text(text, part));
  }
  CHECK(fake::live().total() == 7);
  e.close();
  CHECK(fake::leaks() == "");
  CHECK(fake::live().total() == 0);
}

TEST_CASE("wrong orders that real libraries do not report are recorded in the ledger") {
  fake::reset();
  auto* c = open_device();
  auto* pd = ibv_alloc_pd(c);
  REQUIRE(pd);
  CHECK(ibv_close_device(c) == 0);
  REQUIRE(fake::violations().size() == 1);
  CHECK(fake::violations()[0] == "context#1 closed while it has pd#1");
  CHECK(has_text(fake::leaks(), "1 pd (pd#1)"));
  fake::reset();
  CHECK(fake::violations().empty());
}

TEST_CASE("misuse aborts and names the object") {
  fake::reset();
  end e;
  CHECK(has_text(aborts([&] {
                   ibv_dereg_mr(e.mr);
                   ibv_dereg_mr(e.mr);
                 }),
                 "ibv_dereg_mr: mr#1 was destroyed before"));
  CHECK(has_text(aborts([&] {
                   ibv_destroy_qp(e.qp);
                   e.post_recv(1);
                 }),
                 "ibv_post_recv: qp#1 was destroyed before"));
  CHECK(has_text(aborts([&] {
                   ibv_destroy_qp(e.qp);
                   ibv_destroy_cq(e.cq);
                   e.poll();
                 }),
                 "ibv_poll_cq: cq#1 was destroyed before"));
  CHECK(has_text(aborts([&] { ibv_ack_cq_events(e.cq, 1); }), "cq#1 has 0 events to acknowledge, not 1"));
  CHECK(has_text(aborts([&] {
                   rdma_create_id(e.events, &e.id, nullptr, RDMA_PS_TCP);
                   auto a = at("10.99.1.200", 1);
                   rdma_resolve_addr(e.id, nullptr, raw(a), 1);
                   rdma_cm_event* event = nullptr;
                   rdma_get_cm_event(e.events, &event);
                   rdma_destroy_id(e.id); // this call would wait for its own acknowledgement
                 }),
                 "rdma_destroy_id(id#1) waits for events"));
  CHECK(aborts([&] { e.close(); }) == "ended");
  e.close();
}

TEST_CASE("a destroy waits until another thread has acknowledged") {
  fake::reset();
  end e;
  REQUIRE(rdma_create_id(e.events, &e.id, nullptr, RDMA_PS_TCP) == 0);
  fake::cm_event forged{RDMA_CM_EVENT_ADDR_CHANGE};
  forged.id = e.id;
  fake::deliver(forged);
  rdma_cm_event* event = nullptr;
  REQUIRE(rdma_get_cm_event(e.events, &event) == 0);
  std::jthread other{[&] { rdma_ack_cm_event(event); }};
  CHECK(rdma_destroy_id(std::exchange(e.id, nullptr)) == 0);
  other.join();
  CHECK(fake::live().unacked_cm_events == 0);
  e.close();
}

TEST_CASE("blocking channels block until an event comes") {
  fake::reset();
  end e;
  auto* blocking = rdma_create_event_channel();
  REQUIRE(rdma_create_id(blocking, &e.id, nullptr, RDMA_PS_TCP) == 0);
  seen got;
  std::jthread reader{[&] { got = next(blocking); }};
  fake::cm_event forged{RDMA_CM_EVENT_ADDR_CHANGE, 3};
  forged.id = e.id;
  fake::deliver(forged);
  reader.join();
  CHECK(got.event == RDMA_CM_EVENT_ADDR_CHANGE);
  CHECK(got.status == 3);
  rdma_destroy_id(std::exchange(e.id, nullptr));
  rdma_destroy_event_channel(blocking);
  e.close();
  CHECK(fake::leaks() == "");
}

TEST_CASE("async events name their object and hold its destruction until acknowledged") {
  fake::reset();
  end e;
  fake::async(IBV_EVENT_QP_FATAL, e.qp);
  fake::async(IBV_EVENT_CQ_ERR, e.cq);
  fake::async(IBV_EVENT_LID_CHANGE, e.ctx, 1);
  CHECK(readable(e.ctx->async_fd));
  ibv_async_event a, b;
  REQUIRE(ibv_get_async_event(e.ctx, &a) == 0);
  CHECK(a.event_type == IBV_EVENT_QP_FATAL);
  CHECK(a.element.qp == e.qp);
  CHECK(fake::live().unacked_async_events == 1);
  std::jthread other{[&] { ibv_ack_async_event(&a); }};
  ibv_destroy_qp(e.qp);
  other.join();
  e.qp = nullptr;
  e.make_qp();
  CHECK(ibv_destroy_cq(e.cq) == EBUSY);
  REQUIRE(ibv_get_async_event(e.ctx, &b) == 0);
  CHECK(b.element.cq == e.cq);
  ibv_ack_async_event(&b);
  REQUIRE(ibv_get_async_event(e.ctx, &b) == 0);
  CHECK(b.event_type == IBV_EVENT_LID_CHANGE);
  ibv_ack_async_event(&b);
  unblock(e.ctx->async_fd);
  CHECK(ibv_get_async_event(e.ctx, &b) == -1);
  CHECK(errno == EAGAIN);
  fake::async(IBV_EVENT_QP_REQ_ERR, e.qp); // no program reads the event, so it is removed with its queue pair
  e.close();
  CHECK(fake::leaks() == "");
}
