// Connections by hand: a program on rdma_cm as its manual pages have it, with one event channel, and one thread or two.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "ends.hpp"

#include <arpa/inet.h>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <infiniband/verbs.h>
#include <mutex>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <utility>
#include <vector>

namespace connecting {

class raw_end {
public:
  /// With a thread of its own for the event channel, that thread does the intermediate steps of connections and hands
  /// the other events to the working thread, so connections advance while the working thread is busy.
  explicit raw_end(place p, bool threaded = false)
      : place_(std::move(p)), channel_(rdma_create_event_channel()), threaded_(threaded) {
    if (!channel_) give_up("rdma_create_event_channel", std::strerror(errno));
    if (threaded_) check("pthread_create", pthread_create(&thread_, nullptr, &run, this));
  }
  raw_end(const raw_end&) = delete;
  raw_end& operator=(const raw_end&) = delete;
  ~raw_end() {
    if (threaded_) {
      pthread_cancel(thread_); // the thread sleeps for the next event
      pthread_join(thread_, nullptr);
    }
    if (cq_) ibv_destroy_cq(cq_);
    if (pd_) ibv_dealloc_pd(pd_);
    rdma_destroy_event_channel(channel_);
  }

  /// Answers as many requests as the job has. Calls `ready` when the peer may begin, and `all_up` when all connections
  /// are established.
  template <class Ready, class AllUp>
  void serve(const job& j, Ready ready, AllUp all_up) {
    rdma_cm_id* listener = make_id();
    sockaddr_in a = address(place_.local, place_.port);
    check("rdma_bind_addr", rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&a)));
    check("rdma_listen", rdma_listen(listener, 0));
    equip(listener);
    ready();
    std::size_t up = 0;
    for (std::size_t over = 0; over < j.total;) {
      const auto [what, id] = next();
      switch (what) {
      case RDMA_CM_EVENT_CONNECT_REQUEST: {
        make_qp(id);
        rdma_conn_param p = parameters();
        check("rdma_accept", rdma_accept(id, &p));
        break;
      }
      case RDMA_CM_EVENT_ESTABLISHED:
        if (!j.held) check("rdma_disconnect", rdma_disconnect(id));
        if (++up == j.total && j.held) all_up();
        break;
      case RDMA_CM_EVENT_DISCONNECTED:
        if (j.held) check("rdma_disconnect", rdma_disconnect(id)); // the answer
        end(id);
        ++over;
        break;
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        break;
      default:
        give_up("server", rdma_event_str(what));
      }
    }
    rdma_destroy_id(listener);
  }

  template <class AllUp>
  void connect(const job& j, AllUp all_up) {
    std::size_t begun = 0;
    std::vector<rdma_cm_id*> held;
    held.reserve(j.total);
    for (; begun < j.together; ++begun) begin();
    for (std::size_t over = 0; over < j.total;) {
      const auto [what, id] = next();
      switch (what) {
      case RDMA_CM_EVENT_ESTABLISHED:
        if (!j.held) break;
        held.push_back(id);
        if (begun < j.total) begin(), ++begun;
        if (held.size() < j.total) break;
        all_up();
        for (rdma_cm_id* one : held) check("rdma_disconnect", rdma_disconnect(one));
        break;
      case RDMA_CM_EVENT_DISCONNECTED:
        if (!j.held) check("rdma_disconnect", rdma_disconnect(id)); // the answer
        end(id);
        ++over;
        if (begun < j.total) begin(), ++begun;
        break;
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        break;
      default:
        give_up("client", rdma_event_str(what));
      }
    }
  }

private:
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
  using event = std::pair<rdma_cm_event_type, rdma_cm_id*>;
  /// The next event that is more than an intermediate step of a connection.
  event read() {
    for (;;) {
      rdma_cm_event* e = nullptr;
      check("rdma_get_cm_event", rdma_get_cm_event(channel_, &e));
      const event copy(e->event, e->id);
      rdma_ack_cm_event(e);
      if (!go_on(copy.first, copy.second)) return copy;
    }
  }
  bool go_on(rdma_cm_event_type what, rdma_cm_id* id) {
    if (what == RDMA_CM_EVENT_ADDR_RESOLVED) {
      check("rdma_resolve_route", rdma_resolve_route(id, 2000));
      return true;
    }
    if (what != RDMA_CM_EVENT_ROUTE_RESOLVED) return false;
    equip(id);
    make_qp(id);
    rdma_conn_param p = parameters();
    check("rdma_connect", rdma_connect(id, &p));
    return true;
  }
  event next() {
    if (!threaded_) return read();
    std::unique_lock lock(mutex_);
    more_.wait(lock, [&] { return !events_.empty(); });
    const event first = events_.front();
    events_.pop_front();
    return first;
  }
  static void* run(void* self) {
    auto& me = *static_cast<raw_end*>(self);
    for (;;) {
      const event e = me.read();
      {
        const std::lock_guard lock(me.mutex_);
        me.events_.push_back(e);
      }
      me.more_.notify_one();
    }
  }
  rdma_cm_id* make_id() {
    rdma_cm_id* id = nullptr;
    check("rdma_create_id", rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP));
    return id;
  }
  /// Objects that all connections share, on the device of the first connection.
  void equip(rdma_cm_id* id) {
    if (pd_) return;
    pd_ = ibv_alloc_pd(id->verbs);
    cq_ = ibv_create_cq(id->verbs, 4096, nullptr, nullptr, 0);
    if (!pd_ || !cq_) give_up("verbs objects", std::strerror(errno));
  }
  void make_qp(rdma_cm_id* id) {
    ibv_qp_init_attr a{};
    a.send_cq = a.recv_cq = cq_;
    a.cap = {depth, depth, segments, segments, 0};
    a.qp_type = IBV_QPT_RC;
    check("rdma_create_qp", rdma_create_qp(id, pd_, &a));
  }
  void begin() {
    rdma_cm_id* id = make_id();
    sockaddr_in from = address(place_.local, 0);
    sockaddr_in to = address(place_.remote, place_.port);
    check("rdma_resolve_addr",
          rdma_resolve_addr(id, reinterpret_cast<sockaddr*>(&from), reinterpret_cast<sockaddr*>(&to), 2000));
  }
  static void end(rdma_cm_id* id) {
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
  }

  place place_;
  rdma_event_channel* channel_;
  bool threaded_;
  pthread_t thread_{};
  std::mutex mutex_; // guards events_
  std::condition_variable more_;
  std::deque<event> events_;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
};

} // namespace connecting
