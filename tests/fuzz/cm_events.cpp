// Sequences of events of the connection manager: each connection begins and ends at most once, and nothing is left.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/cr.hpp>
#include <dat/ep_params.hpp>
#include <dat/multicast.hpp>
#include <dat/rsp.hpp>
#include <dat/ud.hpp>

namespace {

using namespace fuzz;

/// An endpoint, and its events since it was made or reset.
struct tracked {
  dat::ep<dat::rc> ep;
  int begun = 0;
  int ended = 0;
};

struct run : two_ends {
  explicit run(input& bytes) : in(bytes) {}
  input& in;
  dat::psp psp = must(b.ia.create_psp(service, b.evd));
  dat::psp making = must(b.ia.create_psp(service + 1, b.evd, dat::psp_flags::provider));
  dat::rsp rsp; ///< sometimes, the service point is at service + 2
  dat::ib::datagram_service asked = must(dat::ib::datagram_service::listen(b.ia, service, b.evd));
  std::array<tracked, 2> of_a;
  std::array<tracked, 2> of_b;
  dat::ep<dat::ud> near = must(a.pz.create_ep<dat::ud>(a.evd));
  dat::ep<dat::ud> far = must(b.pz.create_ep<dat::ud>(b.evd));
  dat::ib::multicast_group group;
  dat::cr request;
  dat::ep<dat::rc> made_by_request;
  dat::ib::datagram_request datagram;
  bool removed = false;

  tracked& slot(end& e) { return (&e == &a ? of_a : of_b)[in.below(2)]; }
  void step();
  void take(end& e);
  void deliver();
  void make(end& e, tracked& t) {
    if (t.ep.state() != dat::ep_state::disconnected || t.ep.native_handle()) return;
    if (auto made = e.pz.create_ep<dat::rc>(
            e.evd, {.max_request_dtos = 4, .max_recv_dtos = 4, .accept_timeout = std::chrono::milliseconds(1)}))
      t = {std::move(made).value()};
  }
};

void run::take(end& e) {
  const auto visit = [&](auto& event) {
    using E = std::remove_cvref_t<decltype(event)>;
    if constexpr (std::is_same_v<E, dat::cr>) {
      request = std::move(event);
    } else if constexpr (std::is_same_v<E, dat::ib::datagram_request>) {
      datagram = std::move(event);
    } else if constexpr (std::is_same_v<E, dat::ib::datagram_established>) {
      if (auto to = event.peer()) (void)(&e == &a ? near : far).post(dat::ib::send_to{e.at(0, 8), to.value()});
    } else if constexpr (std::is_base_of_v<dat::connection_event, E> && !std::is_same_v<E, dat::ib::group_joined>) {
      for (tracked& t : &e == &a ? of_a : of_b) {
        if (!(t.ep == event.ep()) || !event.ep()) continue;
        if constexpr (std::is_same_v<E, dat::established>)
          require(++t.begun == 1 && t.ended == 0, "established twice, or after the end");
        else
          require(++t.ended == 1, "a connection ended twice");
      }
    }
  };
  while (e.evd.drain(visit) != 0) {
  }
}

/// Delivers one event to a connection, or a request to the service point.
void run::deliver() {
  static constexpr rdma_cm_event_type any[] = {
      RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_ESTABLISHED,    RDMA_CM_EVENT_DISCONNECTED,
      RDMA_CM_EVENT_REJECTED,         RDMA_CM_EVENT_UNREACHABLE,    RDMA_CM_EVENT_CONNECT_ERROR,
      RDMA_CM_EVENT_TIMEWAIT_EXIT,    RDMA_CM_EVENT_ADDR_CHANGE,    RDMA_CM_EVENT_ADDR_RESOLVED,
      RDMA_CM_EVENT_ADDR_ERROR,       RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_ROUTE_ERROR,
      RDMA_CM_EVENT_CONNECT_REQUEST};
  fake::cm_event e{.event = in.one_of(any)};
  static constexpr int reasons[] = {10, 28, 8, 35, 4, 24, 0}; // stale, the consumer's, no listener, ...
  if (e.event == RDMA_CM_EVENT_REJECTED) e.status = in.one_of(reasons);
  if (e.event == RDMA_CM_EVENT_UNREACHABLE || e.event == RDMA_CM_EVENT_ADDR_ERROR) e.status = -ETIMEDOUT;
  e.remote_qp_num = in.number<std::uint16_t>();
  e.responder_resources = in.byte();
  e.initiator_depth = in.byte();
  e.private_data = text_of(in.data(56));
  if (e.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
    e.port = service;
    if (!removed) fake::deliver(e);
    return;
  }
  e.qp_num = slot(in.flag() ? a : b).ep.number();
  if (e.qp_num != 0 && fake::id_of_qp(e.qp_num)) fake::deliver(e);
}

void run::step() {
  end& e = in.flag() ? a : b;
  end& other = &e == &a ? b : a;
  tracked& t = slot(e);
  switch (in.below(24)) {
  case 0:
  case 1:
    make(e, t);
    (void)t.ep.connect(b.ia.address(), static_cast<std::uint16_t>(service + in.below(4)),
                       in.below(8) == 7 ? dat::timeout(1) : plenty);
    return;
  case 2:
    make(b, of_b[1]);
    if (rsp)
      (void)rsp.close();
    else if (auto made = b.ia.create_rsp(service + 2, of_b[1].ep, b.evd))
      rsp = std::move(made).value();
    return;
  case 3:
    (void)request.handoff(static_cast<std::uint16_t>(service + in.below(4)));
    return;
  case 4:
  case 5:
    make(b, of_b[0]);
    if (request.ep()) (void)request.ep().modify({.pz = &b.pz, .recv = b.evd, .request = b.evd, .connect = b.evd});
    if (!request.local_ep())
      (void)request.accept(of_b[0].ep, in.data(56));
    else if (request.accept(in.data(56)) && request.ep())
      made_by_request = std::move(request.ep());
    return;
  case 6:
    (void)request.reject(in.data(56));
    return;
  case 7:
    request = {};
    return;
  case 8:
  case 9:
    return deliver();
  case 10:
    (void)t.ep.disconnect(in.flag() ? dat::close_mode::graceful : dat::close_mode::abrupt);
    return;
  case 11:
    take(e); // events of the previous life of the endpoint do not count
    if (t.ep.reset()) t.begun = t.ended = 0;
    return;
  case 12:
    take(e);
    if (t.ep.close()) t = {};
    return;
  case 13:
    (void)t.ep.post(dat::recv{e.at(0, 8)});
    return;
  case 14:
    (void)t.ep.post(dat::send{e.at(8, 8)});
    return;
  case 15: {
    static constexpr rdma_cm_event_type lost[] = {RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE,
                                                  RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_DISCONNECTED};
    fake::drop_next(in.one_of(lost));
    return;
  }
  case 16:
    switch (in.below(3)) {
    case 0:
      return fake::release_events();
    case 1:
      return fake::hold_events();
    default:
      return fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
    }
  case 17:
    (void)fake::release_event(in.below(4));
    return;
  case 18:
    (void)near.connect(b.ia.address(), service, plenty, in.data(128));
    return;
  case 19:
    if (in.flag())
      (void)datagram.accept(far, in.data(128));
    else
      (void)datagram.reject(in.data(128));
    return;
  case 20:
    if (auto joined = dat::ib::multicast_group::join(near, must(dat::ia_address::parse("239.1.2.3"))))
      group = std::move(joined).value();
    return;
  case 21:
    if (t.ep.native_handle()) fake::async(IBV_EVENT_QP_FATAL, t.ep.native_handle());
    return;
  case 22:
    if (removed || in.below(4) != 0) return;
    removed = true;
    fake::remove_device(&e == &a ? "fk1" : "fk2");
    return;
  default:
    e.ia.run();
    if (in.flag()) other.ia.run();
    take(e);
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  return in_new_world([&] {
    input in(bytes, size);
    run r(in);
    for (int steps = 0; !in.empty() && steps < 200; ++steps) r.step();
    fake::release_events();
    r.settle();
    r.take(r.a);
    r.take(r.b);
  });
}
