// One end in hand-written C verbs, connected by rdma_cm.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "link.hpp"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <string>
#include <utility>

namespace pingpong {

class raw_link {
public:
  static constexpr const char* name = "raw";

  /// Listens at `local` and waits for the peer. Calls `ready` as soon as the peer may connect.
  template <class Ready>
  void serve(const std::string& local, std::uint16_t port, Ready ready) {
    rdma_cm_id* listener = make_id();
    sockaddr_in a = address(local, port);
    check("rdma_bind_addr", rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&a)));
    check("rdma_listen", rdma_listen(listener, 1));
    ready();
    next(RDMA_CM_EVENT_CONNECT_REQUEST, [&](const rdma_cm_event& e) { id_ = e.id; });
    make_queues();
    mine_ = {htobe64(reinterpret_cast<std::uint64_t>(memory_.memory.data() + buffers::target)), htonl(mr_->rkey)};
    rdma_conn_param p = parameters();
    p.private_data = &mine_;
    p.private_data_len = sizeof mine_;
    check("rdma_accept", rdma_accept(id_, &p));
    next(RDMA_CM_EVENT_ESTABLISHED, [](const rdma_cm_event&) {});
    rdma_destroy_id(listener);
  }

  void connect(const std::string& local, const std::string& remote, std::uint16_t port) {
    id_ = make_id();
    sockaddr_in from = address(local, 0);
    sockaddr_in to = address(remote, port);
    check("rdma_resolve_addr",
          rdma_resolve_addr(id_, reinterpret_cast<sockaddr*>(&from), reinterpret_cast<sockaddr*>(&to), 2000));
    next(RDMA_CM_EVENT_ADDR_RESOLVED, [](const rdma_cm_event&) {});
    check("rdma_resolve_route", rdma_resolve_route(id_, 2000));
    next(RDMA_CM_EVENT_ROUTE_RESOLVED, [](const rdma_cm_event&) {});
    make_queues();
    rdma_conn_param p = parameters();
    check("rdma_connect", rdma_connect(id_, &p));
    next(RDMA_CM_EVENT_ESTABLISHED, [&](const rdma_cm_event& e) {
      if (e.param.conn.private_data_len < sizeof theirs_) give_up("private data", "missing");
      std::memcpy(&theirs_, e.param.conn.private_data, sizeof theirs_);
    });
  }

  raw_link() = default;
  raw_link(const raw_link&) = delete;
  raw_link& operator=(const raw_link&) = delete;
  ~raw_link() {
    if (!mr_) return;
    rdma_disconnect(id_);
    rdma_destroy_qp(id_);
    if (unacknowledged_ != 0) ibv_ack_cq_events(cq_, unacknowledged_);
    ibv_destroy_cq(cq_);
    ibv_destroy_comp_channel(events_);
    ibv_dereg_mr(mr_);
    ibv_dealloc_pd(pd_);
    rdma_destroy_id(id_);
    rdma_destroy_event_channel(channel_);
  }

  void send(std::size_t bytes) { send_with(bytes, IBV_SEND_SIGNALED); }
  /// Only one of `quiet` such sends has a completion.
  void send_quietly(std::size_t bytes) { send_with(bytes, ++sends_ % quiet == 0 ? IBV_SEND_SIGNALED : 0); }
  void write(std::size_t bytes) { access(bytes, IBV_WR_RDMA_WRITE); }
  void read(std::size_t bytes) { access(bytes, IBV_WR_RDMA_READ); }
  void add() {
    ibv_sge sge = piece(buffers::out, 8);
    ibv_send_wr wr;
    begin(wr, sge, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_SIGNALED);
    wr.wr.atomic.remote_addr = be64toh(theirs_.address);
    wr.wr.atomic.rkey = ntohl(theirs_.rkey);
    wr.wr.atomic.compare_add = 1;
    wr.wr.atomic.swap = 0;
    post(wr);
  }

  /// Waits until the peer has ended the connection.
  void await_end() {
    next(RDMA_CM_EVENT_DISCONNECTED, [](const rdma_cm_event&) {});
  }

  /// Takes completions until `enough` returns true.
  template <waiting How, class Enough>
  void until(Enough enough) {
    while (!enough()) {
      if (take() != 0 || How == waiting::polling) continue;
      if (ibv_req_notify_cq(cq_, 0) != 0) give_up("ibv_req_notify_cq", "failed");
      if (take() != 0) continue;
      ibv_cq* cq;
      void* context;
      if (ibv_get_cq_event(events_, &cq, &context) != 0) give_up("ibv_get_cq_event", std::strerror(errno));
      if (++unacknowledged_ == 64) ibv_ack_cq_events(cq_, std::exchange(unacknowledged_, 0u));
    }
  }

  counters done;

private:
  struct window_of_peer {
    std::uint64_t address = 0;
    std::uint32_t rkey = 0;
  };

  static void check(const char* what, int result) {
    if (result != 0) give_up(what, std::strerror(errno));
  }
  static sockaddr_in address(const std::string& text, std::uint16_t port) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(port);
    if (inet_pton(AF_INET, text.c_str(), &a.sin_addr) != 1) give_up(text.c_str(), "not an IPv4 address");
    return a;
  }
  static rdma_conn_param parameters() {
    rdma_conn_param p{};
    p.responder_resources = p.initiator_depth = 16;
    p.retry_count = 6;
    p.rnr_retry_count = 7;
    return p;
  }
  rdma_cm_id* make_id() {
    if (!channel_) channel_ = rdma_create_event_channel();
    if (!channel_) give_up("rdma_create_event_channel", std::strerror(errno));
    rdma_cm_id* id = nullptr;
    check("rdma_create_id", rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP));
    return id;
  }
  template <class Use>
  void next(rdma_cm_event_type wanted, Use use) {
    rdma_cm_event* e = nullptr;
    check("rdma_get_cm_event", rdma_get_cm_event(channel_, &e));
    if (e->event != wanted) give_up(rdma_event_str(wanted), rdma_event_str(e->event));
    use(*e);
    rdma_ack_cm_event(e);
  }
  void make_queues() {
    pd_ = ibv_alloc_pd(id_->verbs);
    events_ = ibv_create_comp_channel(id_->verbs);
    cq_ = ibv_create_cq(id_->verbs, 2 * depth, nullptr, events_, 0);
    mr_ = ibv_reg_mr(pd_, memory_.memory.data(), memory_.memory.size(),
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                         IBV_ACCESS_REMOTE_ATOMIC);
    if (!pd_ || !events_ || !cq_ || !mr_) give_up("verbs objects", std::strerror(errno));
    ibv_qp_init_attr a{};
    a.send_cq = a.recv_cq = cq_;
    a.cap = {depth, depth, 4, 4, 0};
    a.qp_type = IBV_QPT_RC;
    check("rdma_create_qp", rdma_create_qp(id_, pd_, &a));
    for (std::size_t i = 0; i < receives; ++i) receive(i);
  }

  [[nodiscard]] ibv_sge piece(std::size_t offset, std::size_t bytes) const {
    return {reinterpret_cast<std::uint64_t>(memory_.memory.data()) + offset, static_cast<std::uint32_t>(bytes),
            mr_->lkey};
  }
  void send_with(std::size_t bytes, unsigned flags) {
    ibv_sge sge = piece(buffers::out, bytes);
    ibv_send_wr wr;
    begin(wr, sge, IBV_WR_SEND, flags);
    post(wr);
  }
  void access(std::size_t bytes, ibv_wr_opcode operation) {
    ibv_sge sge = piece(buffers::out, bytes);
    ibv_send_wr wr;
    begin(wr, sge, operation, IBV_SEND_SIGNALED);
    wr.wr.rdma.remote_addr = be64toh(theirs_.address);
    wr.wr.rdma.rkey = ntohl(theirs_.rkey);
    post(wr);
  }
  /// Writes the members that every request needs, and no others.
  static void begin(ibv_send_wr& wr, ibv_sge& sge, ibv_wr_opcode operation, unsigned flags) {
    wr.wr_id = 0;
    wr.next = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = operation;
    wr.send_flags = flags;
  }
  void post(ibv_send_wr& wr) {
    ibv_send_wr* bad;
    if (ibv_post_send(id_->qp, &wr, &bad) != 0) give_up("ibv_post_send", "failed");
  }
  void receive(std::size_t i) {
    ibv_sge sge = piece(buffers::in(i), largest);
    ibv_recv_wr wr;
    wr.wr_id = i;
    wr.next = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad;
    if (ibv_post_recv(id_->qp, &wr, &bad) != 0) give_up("ibv_post_recv", "failed");
  }
  int take() {
    ibv_wc wc[16];
    const int n = ibv_poll_cq(cq_, 16, wc);
    for (int i = 0; i < n; ++i) {
      if (wc[i].status != IBV_WC_SUCCESS) give_up("completion", ibv_wc_status_str(wc[i].status));
      if ((wc[i].opcode & IBV_WC_RECV) != 0) {
        ++done.received;
        receive(wc[i].wr_id);
      } else if (wc[i].opcode != IBV_WC_SEND) { // a write, a read or an atomic
        ++done.written;
      } else {
        ++done.sent;
      }
    }
    return n;
  }

  buffers memory_;
  window_of_peer mine_;
  window_of_peer theirs_;
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* events_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  unsigned unacknowledged_ = 0;
  std::size_t sends_ = 0;
};

} // namespace pingpong
