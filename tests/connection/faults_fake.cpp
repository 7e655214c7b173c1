// Connections that fail to be established, or that end: failures of the network, the peer and the device.
// SPDX-License-Identifier: BSL-1.0
#include "attempt.hpp"
#include "world.hpp"

#include <dat/ep_params.hpp>

#include <algorithm>

using namespace unit;
using dat::ep_state;

TEST_CASE("a step of a connect that fails after the call has returned is an event, by the step", "[CONN-058]") {
  struct {
    fake::call step;
    std::string event;
  } const rows[] = {{fake::call::rdma_resolve_route, "unreachable"}, {fake::call::rdma_connect, "non_peer_rejected"}};
  for (const auto& row : rows) {
    clean_world world;
    end a("fk1");
    end b("fk2");
    a.make_ep();
    auto psp = must(b.ia.create_psp(service, b.evd));
    fake::fail(row.step, 1, ENOMEM);
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
    const auto seen = a.take();
    INFO(row.event);
    REQUIRE(seen.size() == 1);
    CHECK(seen[0].starts_with(row.event));
    CHECK(a.ep.state() == ep_state::disconnected);
    must(a.ep.reset());
    CHECK(a.ep.state() == ep_state::unconnected);
  }
}

TEST_CASE_METHOD(attempt, "an address that resolves to another adapter or port ends the attempt before its request",
                 "[ADDR-019]") {
  const auto resolves_to = [&](ibv_context* device, std::uint8_t port) {
    must(a.ep.connect(b.ia.address(), service, plenty));
    rdma_cm_id* const id = fake::ids().back();
    fake::intercept(fake::call::rdma_ack_cm_event, [=] { // the last call before dat inspects the result
      id->verbs = device;
      id->port_num = port;
    });
    settle();
    fake::intercept(fake::call::rdma_ack_cm_event, {});
    CHECK(fake::count(fake::call::rdma_resolve_route) == 0);
    CHECK(fake::count(fake::call::rdma_connect) == 0);
  };
  rdma_cm_id* const of_b = fake::ids().back();
  SECTION("another adapter") { resolves_to(of_b->verbs, 1); }
  SECTION("another port") {
    must(a.ep.connect(b.ia.address(), service, plenty));
    ibv_context* const own = fake::ids().back()->verbs;
    must(a.ep.disconnect());
    must(a.ep.reset());
    must(a.ep.post(dat::recv{a.at(0, 8)}.cookie(1)));
    settle();
    a.take();
    resolves_to(own, 2);
  }
  ended("unreachable " + std::to_string(ENETUNREACH));
}

TEST_CASE_METHOD(attempt, "each failure that the connection manager reports ends the attempt once",
                 "[CONN-016][CONN-024][EVENT-096][EVENT-097][EPS-007][CONN-059]") {
  /// The event `event` comes in place of `due`.
  const auto fails = [&](rdma_cm_event_type due, rdma_cm_event_type event, int error, const std::string& as) {
    fake::hold_events(due);
    connect();
    fake::deliver({.event = event, .status = -error, .id = fake::ids().back()});
    settle();
    ended(as + " " + std::to_string(error));
  };
  SECTION("the host is unknown") {
    fails(RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ADDR_ERROR, EHOSTUNREACH, "unreachable");
  }
  SECTION("no route") { fails(RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_ROUTE_ERROR, ETIMEDOUT, "unreachable"); }
  SECTION("the request gets no answer") {
    fails(RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_UNREACHABLE, ETIMEDOUT, "unreachable");
  }
  SECTION("the connection manager reports an error") {
    fails(RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_ERROR, EINVAL, "non_peer_rejected");
  }
  SECTION("the peer disconnects before the connection is established") {
    fails(RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_DISCONNECTED, 0, "non_peer_rejected");
  }
}

TEST_CASE("each connection manager event ends an accepted or established connection once, with its own event",
          "[connection]") {
  struct report {
    rdma_cm_event_type type;
    int status;
    const char* accepted; ///< the event before the last handshake message; "" for none
    const char* up;
  };
  const report reports[] = {
      {RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, "accept_completion_error 110", ""},
      {RDMA_CM_EVENT_REJECTED, 4, "accept_completion_error 4", "disconnected"},
      {RDMA_CM_EVENT_REJECTED, 28, "accept_completion_error 28",
       "disconnected"}, // the peer ended the connection after its last handshake message
      {RDMA_CM_EVENT_CONNECT_ERROR, -EINVAL, "accept_completion_error 22", "broken"},
      {RDMA_CM_EVENT_DISCONNECTED, 0, "accept_completion_error 0", "disconnected"},
      {RDMA_CM_EVENT_DEVICE_REMOVAL, 0, "accept_completion_error 0", "broken"},
      {RDMA_CM_EVENT_ADDR_CHANGE, 0, "", ""},
      {RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, "", ""},
  };
  for (const auto& r : reports)
    for (const bool up : {false, true}) {
      INFO(rdma_event_str(r.type) << ", " << r.status << (up ? ", established" : ", accepted"));
      attempt t;
      must(t.b.ep.post(dat::recv{t.b.at(0, 8)}.cookie(2)));
      if (!up) fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
      t.connect();
      must(request_on(t.b.evd).accept(t.b.ep));
      t.settle();
      CHECK(t.b.take() == (up ? events{"established"} : events{}));
      for (int twice = 0; twice < 2; ++twice) {
        if (fake::id_of_qp(t.b.ep.number()))
          fake::deliver({.event = r.type, .status = r.status, .qp_num = t.b.ep.number()});
        t.settle();
      }
      const std::string end = up ? r.up : r.accepted;
      auto seen = t.b.take();
      std::sort(seen.begin(), seen.end());
      if (end.empty()) {
        CHECK(seen.empty());
        CHECK(t.b.ep.state() == (up ? ep_state::connected : ep_state::completion_pending));
        fake::release_events();
        continue;
      }
      events expected{end, flushed + " 2"};
      std::sort(expected.begin(), expected.end());
      CHECK(seen == expected);
      CHECK(t.b.ep.state() == ep_state::disconnected);
      must(t.b.ep.reset());
      fake::release_events();
      t.settle();
      CHECK(t.b.take().empty());
    }
  SHOWS("CONN-016", "CONN-027", "CONN-028", "CR-037", "EPS-025", "EVENT-097", "EVENT-098");
}

TEST_CASE("an unusable reply ends the attempt locally and by an event at the peer",
          "[EPS-014][CONN-022][CONN-059][EPS-025]") {
  // With partitions, as on InfiniBand, dat reads the queue pair attributes of one more state.
  fake::world with_partitions;
  for (auto& device : with_partitions.devices)
    for (auto& port : device.ports) port.link_layer = IBV_LINK_LAYER_INFINIBAND;
  struct step {
    fake::call which;
    unsigned nth;
    fake::world world = {};
  };
  using enum fake::call;
  for (const step& f : {step{rdma_init_qp_attr, 1},
                        {rdma_init_qp_attr, 2},
                        {rdma_init_qp_attr, 3, with_partitions},
                        {ibv_modify_qp, 1},
                        {ibv_modify_qp, 2},
                        {rdma_establish, 1}}) {
    INFO(name(f.which) << ' ' << f.nth);
    attempt t(f.world);
    must(t.b.ep.post(dat::recv{t.b.at(0, 8)}.cookie(2)));
    t.connect();
    fake::hold_events();
    must(request_on(t.b.evd).accept(t.b.ep));
    fake::fail(f.which, f.nth, EIO);
    fake::release_events();
    t.settle();
    CHECK(fake::forget_faults() == 0);
    auto there = t.b.take();
    std::sort(there.begin(), there.end());
    CHECK(there == events{"accept_completion_error 28", flushed + " 2"});
    t.ended("non_peer_rejected " + std::to_string(EIO));
  }
}

TEST_CASE("irrelevant connection manager events change nothing", "[EVENT-093][EPS-069]") {
  clean_world world;
  pair p;
  for (const auto kind : {RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_ESTABLISHED,
                          RDMA_CM_EVENT_MULTICAST_JOIN, RDMA_CM_EVENT_MULTICAST_ERROR})
    for (const auto* e : {&p.a, &p.b}) {
      fake::deliver({.event = kind, .qp_num = e->ep.number()});
      p.settle();
      CHECK(e->ep.state() == ep_state::connected);
    }
  CHECK(p.a.take().empty());
  CHECK(p.b.take().empty());
  must(p.b.ep.post(dat::recv{}));
  must(p.a.ep.post(dat::send{}));
  CHECK(p.a.take() == events{"sent 0"});
}

TEST_CASE("only a reject by the peer's consumer gives peer_rejected",
          "[CONN-021][CONN-022][CR-064][EPS-008][EPS-009][EVENT-095]") {
  struct reject {
    int reason;
    std::string data;
    std::string event;
    std::string shown;
  };
  const std::string mark("DAT");
  const auto marked = [&](const std::string& s) { return mark + static_cast<char>(s.size()) + s; };
  std::vector<reject> rejects{
      {28, "", "non_peer_rejected 28", ""},      // the peer's process has ended
      {28, marked(""), "peer_rejected", ""},     // a reject of dat, without data
      {28, marked("no"), "peer_rejected", "no"}, // dat
      {28, marked(std::string(3, '\0')), "peer_rejected", std::string(3, '\0')},
      {28, marked(std::string(56, 'x')), "peer_rejected", std::string(56, 'x')},
      {28, mark + '\xff' + "short", "peer_rejected", "short" + std::string(148 - 9, '\0')}, // a false length
      {28, "go away", "peer_rejected", "go away" + std::string(148 - 7, '\0')},             // a program without dat
      {28, mark, "peer_rejected", std::string()},                                           // padded: length 0
  };
  for (int reason = 1; reason < 36; ++reason)
    if (reason != 28 && reason != 10) { // 10: dat connects again
      rejects.push_back({reason, "", "non_peer_rejected " + std::to_string(reason), ""});
      rejects.push_back({reason, marked("no"), "non_peer_rejected " + std::to_string(reason), ""});
    }
  attempt t;
  fake::hold_events(RDMA_CM_EVENT_CONNECT_REQUEST);
  for (const auto& r : rejects) {
    INFO("reason " << r.reason << ", data " << r.data);
    t.connect();
    t.deliver(RDMA_CM_EVENT_REJECTED, r.reason, r.data);
    CHECK(t.a.ep.state() == ep_state::disconnected);
    int rejected = 0;
    t.a.evd.drain(dat::overloaded{[&](const dat::peer_rejected& e) {
                                    ++rejected;
                                    CHECK(r.event == "peer_rejected");
                                    CHECK(text_of(e.private_data()) == r.shown);
                                  },
                                  [&](const dat::non_peer_rejected& e) {
                                    ++rejected;
                                    CHECK(r.event == describe{}(e));
                                  },
                                  [](const dat::dto_failure&) {}, [](const auto&) { FAIL_CHECK("another event"); }});
    CHECK(rejected == 1);
    must(t.a.ep.reset());
  }
  SHOWS("CONN-051"); // the reasons 14 and 15 refuse the service level and the traffic class
  fake::release_events();
}

TEST_CASE("losing the device ends each connection on it once", "[EVENT-087]") {
  clean_world world;
  pair p;
  must(p.a.ep.post(dat::recv{}.cookie(3)));
  fake::remove_device("fk1");
  p.settle();
  CHECK(p.a.ep.state() == ep_state::disconnected);
  auto seen = p.a.take();
  std::sort(seen.begin(), seen.end());
  CHECK(seen == events{"broken", flushed + " 3"});
  CHECK(p.b.take() == events{"disconnected"});
  for (int i = 0; i < 20; ++i) p.settle(); // a dead descriptor is read a few times before dat stops reading it
  CHECK(p.a.take().empty());
  // The device and the connection manager have both reported one failure.
  int reported = 0;
  while (const auto e = p.a.ia.async_evd().dequeue())
    reported += std::holds_alternative<dat::ia_catastrophic>(e.assume_value()) ? 1 : 0;
  CHECK(reported == 1);
}

TEST_CASE("losing the device ends attempts and accepted connections", "[EVENT-087]") {
  attempt t;
  SECTION("the request waits for its answer") {
    fake::hold_events(RDMA_CM_EVENT_CONNECT_REQUEST);
    t.connect();
    fake::remove_device("fk1");
    t.settle();
    auto seen = t.a.take();
    std::sort(seen.begin(), seen.end());
    CHECK(seen == events{flushed + " 1", "non_peer_rejected 0"});
    fake::release_events();
  }
  SECTION("the request is accepted and the connection is not established yet") {
    fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
    t.connect();
    must(request_on(t.b.evd).accept(t.b.ep));
    t.settle();
    fake::remove_device("fk2");
    t.settle();
    CHECK(t.b.take() == events{"accept_completion_error 0"});
    CHECK(t.b.ep.state() == ep_state::disconnected);
    fake::release_events();
    t.settle();
    CHECK(t.b.take().empty());
  }
}

TEST_CASE("a queue pair in error breaks its connection once, and the peer is notified",
          "[EVENT-085][EVENT-099][EPS-061][EPS-063][CONN-030]") {
  for (const auto kind : {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR}) {
    clean_world world;
    pair p;
    fake::async(kind, p.a.ep.native_handle());
    fake::async(kind, p.a.ep.native_handle());
    p.settle();
    CHECK(p.a.ep.state() == ep_state::disconnected);
    CHECK(p.a.take() == events{"broken"});
    CHECK(p.b.take() == events{"disconnected"});
  }
}

TEST_CASE("asynchronous events without a failure break no connection", "[EVENT-088][EVENT-089][EVENT-090]") {
  clean_world world;
  pair p;
  for (const auto kind : {IBV_EVENT_COMM_EST, IBV_EVENT_SQ_DRAINED, IBV_EVENT_PATH_MIG, IBV_EVENT_QP_LAST_WQE_REACHED})
    fake::async(kind, p.a.ep.native_handle());
  for (const auto kind : {IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_GID_CHANGE, IBV_EVENT_CLIENT_REREGISTER})
    fake::async(kind, p.a.ia.native_handle());
  p.settle();
  CHECK(p.a.ep.state() == ep_state::connected);
  CHECK(p.a.take().empty());
  CHECK(fake::live().unacked_async_events == 0);
}

TEST_CASE("an error of a queue pair that is being set up ends the attempt", "") {
  attempt t;
  SECTION("active") {
    fake::hold_events(RDMA_CM_EVENT_CONNECT_REQUEST);
    t.connect();
    fake::async(IBV_EVENT_QP_FATAL, t.a.ep.native_handle());
    t.settle();
    auto seen = t.a.take();
    std::sort(seen.begin(), seen.end());
    CHECK(seen == events{flushed + " 1", "non_peer_rejected 0"});
    DEVIATES("CONN-033");
  }
  SECTION("passive") {
    fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
    t.connect();
    must(request_on(t.b.evd).accept(t.b.ep));
    fake::async(IBV_EVENT_QP_FATAL, t.b.ep.native_handle());
    t.settle();
    CHECK(t.b.take() == events{"accept_completion_error 0"});
    CHECK(t.b.ep.state() == ep_state::disconnected);
  }
  SECTION("unconnected") {
    fake::async(IBV_EVENT_QP_FATAL, t.a.ep.native_handle());
    t.settle();
    CHECK(t.a.ep.state() == ep_state::unconnected);
    CHECK(t.a.take().empty());
  }
  fake::release_events();
}
