// Connections that fail to be established, or that end: failures of the network, the peer and the device.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>

#include <algorithm>
#include <chrono>
#include <poll.h>
#include <thread>

using namespace unit;
using dat::ep_state;

namespace {

const std::string flushed(to_string(dat::dto_status::flushed));

/// A time limit that ends a test soon, but only after a busy machine has done the earlier steps.
constexpr auto soon = 1s;

/// An endpoint with one receive posted, and a peer that listens.
struct attempt {
  clean_world world;
  end a{"fk1"};
  end b{"fk2"};
  dat::psp psp = must(b.ia.create_psp(service, b.evd));

  explicit attempt(const fake::world& of = {}) : world(of) {
    a.make_ep();
    b.make_ep();
    must(a.ep.post(dat::recv{a.at(0, 8)}.cookie(1)));
  }
  void settle() { unit::settle(a, b); }
  void connect(dat::timeout limit = plenty) {
    must(a.ep.connect(b.ia.address(), service, limit, bytes_of("hi")));
    settle();
  }
  rdma_cm_id* active_id() { return fake::id_of_qp(a.ep.number()); }
  void deliver(rdma_cm_event_type type, int status = 0, const std::string& data = {}) {
    fake::deliver({.event = type, .status = status, .private_data = data, .id = active_id()});
    settle();
  }
  /// Checks that the attempt has ended with this event and no other, and that the endpoint can be used again.
  void ended(const std::string& event) {
    CHECK(a.ep.state() == ep_state::disconnected);
    auto seen = a.take();
    std::sort(seen.begin(), seen.end());
    events expected{event, flushed + " 1"};
    std::sort(expected.begin(), expected.end());
    CHECK(seen == expected);
    settle();
    CHECK(a.take().empty());
    CHECK_FALSE(a.ep.connect(b.ia.address(), service, plenty));
    must(a.ep.reset());
    CHECK(a.ep.state() == ep_state::unconnected);
    fake::release_events();
    b.take();
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle();
    auto again = must(b.pz.create_ep<dat::rc>(b.evd));
    must(request_on(b.evd).accept(again));
    settle();
    CHECK(a.take() == events{"established"});
  }
};

/// Waits for the next event of an evd.
template <dat::streams S>
std::string next(dat::evd<S>& evd) {
  auto e = evd.wait(plenty);
  return e ? std::visit(describe{}, e.value()) : std::string(e.error().message());
}

} // namespace

TEST_CASE_METHOD(
    attempt,
    "a lost response gives connection_timed_out to the active side and accept_completion_error to the passive side",
    "[CONN-025][CONN-041][EPS-010][CR-037][CONN-027]") {
  must(b.ep.post(dat::recv{b.at(0, 8)}.cookie(2)));
  fake::drop_next(RDMA_CM_EVENT_CONNECT_RESPONSE);
  connect(soon);
  must(request_on(b.evd).accept(b.ep));
  CHECK(b.ep.state() == ep_state::completion_pending);
  CHECK(next(a.evd) == "timed_out");
  CHECK(a.take() == events{flushed + " 1"});
  CHECK(a.ep.state() == ep_state::disconnected);
  settle();
  CHECK(b.ep.state() == ep_state::disconnected);
  auto seen = b.take();
  std::sort(seen.begin(), seen.end());
  CHECK(seen == events{"accept_completion_error 4", flushed + " 2"});
}

TEST_CASE_METHOD(attempt, "the time limit of each phase reports which message is missing",
                 "[CONN-024][CONN-025][CONN-026][EPS-011]") {
  SECTION("the address") {
    fake::hold_events(RDMA_CM_EVENT_ADDR_RESOLVED);
    connect(2ms);
    CHECK(next(a.evd) == "unreachable " + std::to_string(ETIMEDOUT));
  }
  SECTION("the route") {
    fake::hold_events(RDMA_CM_EVENT_ROUTE_RESOLVED);
    connect(2ms);
    CHECK(next(a.evd) == "unreachable " + std::to_string(ETIMEDOUT));
  }
  SECTION("the address, which comes when the limit has passed: it is that of the whole attempt") {
    fake::hold_events(RDMA_CM_EVENT_ADDR_RESOLVED);
    connect(2ms);
    const auto passed = std::chrono::steady_clock::now() + 2ms;
    while (std::chrono::steady_clock::now() < passed) std::this_thread::yield();
    fake::release_events();
    CHECK_FALSE(next(a.evd).starts_with("established"));
    settle();
    CHECK(b.take().empty()); // no request was sent
    SHOWS("CONN-041");
  }
  SECTION("the peer's host does not answer the request") {
    fake::hold_events(RDMA_CM_EVENT_CONNECT_REQUEST);
    connect(soon);
    CHECK(next(a.evd) == "timed_out");
  }
  SECTION("the peer's consumer does not answer the request") {
    connect(soon);
    auto request = request_on(b.evd);
    CHECK(next(a.evd) == "timed_out");
    settle();
    CHECK(b.take().empty()); // the passive side gets no event
    // The peer has given up: accept succeeds, and its outcome is accept_completion_error.
    must(request.accept(b.ep));
    settle();
    CHECK(b.ep.state() == ep_state::disconnected);
    CHECK(b.take() == events{"accept_completion_error " + std::to_string(EINVAL)});
  }
  CHECK(a.take() == events{flushed + " 1"});
  fake::release_events();
  settle();
  CHECK(a.take().empty());
  CHECK(a.ep.state() == ep_state::disconnected);
}

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

TEST_CASE_METHOD(attempt, "the resolver gets the remaining time limit in whole milliseconds, at most ten seconds",
                 "[CONN-040]") {
  // A failed name lookup is reported only when the resolver's time has passed, however long the consumer's limit is.
  struct limit {
    dat::timeout given;
    int least;
    int most;
  };
  fake::hold_events(RDMA_CM_EVENT_ADDR_RESOLVED);
  for (const limit l :
       {limit{1us, 1, 1}, {999us, 1, 1}, {5s, 1, 5000}, {1h, 10'000, 10'000}, {dat::infinite, 10'000, 10'000}}) {
    must(a.ep.connect(b.ia.address(), service, l.given));
    CHECK(fake::resolve_timeout_ms() >= l.least);
    CHECK(fake::resolve_timeout_ms() <= l.most);
    must(a.ep.disconnect());
    must(a.ep.reset());
    settle();
  }
  fake::release_events();
}

TEST_CASE_METHOD(attempt, "a request whose sender has given up can still be rejected", "[CR-063][CR-013]") {
  connect(soon);
  auto request = request_on(b.evd);
  CHECK(next(a.evd) == "timed_out");
  settle();
  CHECK(unpadded(request.private_data()) == "hi");
  must(request.reject(bytes_of("too late")));
  CHECK_FALSE(request);
}

TEST_CASE_METHOD(attempt, "the time limit of connect ends when the connection is established", "[CONN-043]") {
  const auto before = std::chrono::steady_clock::now();
  must(a.ep.connect(b.ia.address(), service, soon));
  settle();
  must(request_on(b.evd).accept(b.ep));
  settle();
  REQUIRE(a.take() == events{"established"});
  // The test waits beyond the limit on purpose: no event may come when the limit has passed.
  while (std::chrono::steady_clock::now() < before + soon + 1ms) settle();
  CHECK(a.take().empty());
  CHECK(a.ep.state() == ep_state::connected);
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
          "[CR-037][CR-041][EPS-025][CONN-016][CONN-027][CONN-028][EVENT-097][EVENT-098]") {
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

TEST_CASE("the rights of the peer follow the latest attributes, also after a failed accept", "[EPATTR-013]") {
  clean_world world;
  end a{"fk1"};
  end b{"fk2"};
  const auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  b.make_ep({.max_rdma_read_in = std::uint8_t{0}});
  must(b.ep.modify({.max_rdma_read_in = std::uint8_t{4}}));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  auto request = request_on(b.evd);
  fake::fail(fake::call::ibv_modify_qp, 1, EIO); // the transition that grants the read access fails
  CHECK_FALSE(request.accept(b.ep));
  CHECK(fake::forget_faults() == 0);
  must(request.accept(b.ep));
  settle(a, b);
  CHECK(a.take() == events{"established"});
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(b.ep.native_handle(), &attr, IBV_QP_ACCESS_FLAGS, &init) == 0);
  CHECK((attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) != 0);
}

TEST_CASE("irrelevant connection manager events change nothing", "[EVENT-093][EPS-069]") {
  clean_world world;
  pair p;
  for (const auto type : {RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_ESTABLISHED,
                          RDMA_CM_EVENT_MULTICAST_JOIN, RDMA_CM_EVENT_MULTICAST_ERROR})
    for (const auto* e : {&p.a, &p.b}) {
      fake::deliver({.event = type, .qp_num = e->ep.number()});
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

TEST_CASE("the peer's private data arrives as given, padded with zeros", "[CONN-018][EVENT-016][CR-035]") {
  attempt t;
  SECTION("a dat peer") {
    t.connect();
    auto request = request_on(t.b.evd);
    CHECK(request.private_data().size() == 56);
    CHECK(unpadded(request.private_data()) == "hi");
    CHECK(request.remote_address().to_string().starts_with("10.99.1.1:"));
    CHECK(request.local_address().port() == service);
    must(request.accept(t.b.ep, bytes_of(std::string(56, 'y'))));
    t.settle();
    auto up = must(t.a.evd.wait_for<dat::established>());
    CHECK(text_of(up.private_data()) == std::string(56, 'y'));
    auto there = must(t.b.evd.wait_for<dat::established>());
    CHECK(there.private_data().empty());
  }
  SECTION("a peer that sends more data than dat can send") {
    fake::hold_events(RDMA_CM_EVENT_CONNECT_REQUEST);
    t.connect();
    const std::string data = std::string(100, '\0') + "far behind";
    t.deliver(RDMA_CM_EVENT_CONNECT_RESPONSE, 0, data);
    auto up = must(t.a.evd.wait_for<dat::established>());
    CHECK(up.private_data().size() == 196);
    CHECK(unpadded(up.private_data()) == data);
    fake::release_events();
  }
}

TEST_CASE("a loopback address is refused at once, with the address to use", "[connection][address]") {
  const clean_world world;
  end a("fk1");
  a.make_ep();
  for (const char* text : {"127.0.0.1", "::1"}) {
    const auto r = a.ep.connect(must(dat::ia_address::parse(text)), service, plenty);
    is_error(r, dat::return_type::invalid_address, dat::return_subtype::address_unsupported);
    CHECK_THAT(r.error().message(), support::contains_text("such as ia.address()"));
    CHECK(a.ep.state() == ep_state::unconnected);
  }
}

TEST_CASE("port 0 is refused by every call that takes a port, without effect", "[connection][psp][rsp]") {
  const clean_world world;
  end a("fk1");
  a.make_ep();
  const std::uint16_t none = 0;
  const auto refused = [](const auto& r, std::string_view call) {
    is_error(r, dat::return_type::invalid_parameter);
    CHECK(r.error().call() == call);
    CHECK_THAT(r.error().message(), support::contains_text("is a port, 1 to 65535"));
  };
  refused(a.ep.connect(a.ia.address(), none, plenty), "ep.connect");
  CHECK(a.ep.state() == ep_state::unconnected);
  refused(a.ia.create_psp(none, a.evd), "ia.create_psp");
  refused(a.ia.create_rsp(none, a.ep, a.evd), "ia.create_rsp");
  refused(a.ia.create_rsp(none, a.evd), "ia.create_rsp");
  CHECK(a.ep.state() == ep_state::unconnected);
}

TEST_CASE("data of more than 56 bytes is refused in every message, without effect",
          "[CONN-044][CR-025][CR-057][CR-028]") {
  // The connection manager keeps lengths in a byte: a length that fits after truncation must be refused as well.
  const auto length = GENERATE(57u, 255u, 256u, 312u);
  attempt t;
  const std::string big(length, 'z');
  const auto e = t.a.ep.connect(t.b.ia.address(), service, plenty, bytes_of(big));
  REQUIRE_FALSE(e);
  CHECK(e.error().type() == dat::return_type::invalid_parameter);
  CHECK(t.a.ep.state() == ep_state::unconnected);
  t.connect();
  auto request = request_on(t.b.evd);
  CHECK(request.accept(t.b.ep, bytes_of(big)).error().type() == dat::return_type::invalid_parameter);
  CHECK(t.b.ep.state() == ep_state::unconnected);
  CHECK(request.reject(bytes_of(big)).error().type() == dat::return_type::invalid_parameter);
  REQUIRE(request);
  must(request.accept(t.b.ep, bytes_of(std::string(56, 'z'))));
  t.settle();
  CHECK(t.a.take() == events{"established"});
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
  for (const auto type : {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR}) {
    clean_world world;
    pair p;
    fake::async(type, p.a.ep.native_handle());
    fake::async(type, p.a.ep.native_handle());
    p.settle();
    CHECK(p.a.ep.state() == ep_state::disconnected);
    CHECK(p.a.take() == events{"broken"});
    CHECK(p.b.take() == events{"disconnected"});
  }
}

TEST_CASE("asynchronous events without a failure break no connection", "[EVENT-088][EVENT-089][EVENT-090]") {
  clean_world world;
  pair p;
  for (const auto type : {IBV_EVENT_COMM_EST, IBV_EVENT_SQ_DRAINED, IBV_EVENT_PATH_MIG, IBV_EVENT_QP_LAST_WQE_REACHED})
    fake::async(type, p.a.ep.native_handle());
  for (const auto type : {IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_GID_CHANGE, IBV_EVENT_CLIENT_REREGISTER})
    fake::async(type, p.a.ia.native_handle());
  p.settle();
  CHECK(p.a.ep.state() == ep_state::connected);
  CHECK(p.a.take().empty());
  CHECK(fake::live().unacked_async_events == 0);
}

TEST_CASE("an error of a queue pair that is being set up ends the attempt", "[EPS-059]") {
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

TEST_CASE("when both sides disconnect at once, each side gets one event", "[DISC-027][DISC-018][CONN-016][EPS-056]") {
  clean_world world;
  for (const bool a_first : {false, true}) {
    pair p;
    must((a_first ? p.a : p.b).ep.disconnect());
    must((a_first ? p.b : p.a).ep.disconnect());
    p.settle();
    CHECK(p.a.take() == events{"disconnected"});
    CHECK(p.b.take() == events{"disconnected"});
    must(p.a.ep.disconnect()); // this call has no effect
    p.settle();
    CHECK(p.a.take().empty());
  }
}

TEST_CASE("a disconnect that crosses another message gives one event on each side, in every order",
          "[DISC-022][DISC-023][EPS-017][DISC-021]") {
  // Held events are released in every order.
  std::vector<std::size_t> order{0, 1, 2};
  do {
    attempt t;
    t.connect();
    auto request = request_on(t.b.evd);
    fake::hold_events();
    must(request.accept(t.b.ep)); // the event CONNECT_RESPONSE of a
    must(t.a.ep.disconnect());    // the event REJECTED of b ends the attempt
    must(t.b.ep.disconnect());
    t.settle();
    for (const auto i : order) {
      fake::release_event(i);
      t.settle();
    }
    fake::release_events();
    t.settle();
    auto seen = t.a.take();
    std::erase(seen, flushed + " 1");
    CHECK(seen == events{"disconnected"});
    CHECK(t.b.take() == events{"disconnected"});
    CHECK(t.a.ep.state() == ep_state::disconnected);
    CHECK(t.b.ep.state() == ep_state::disconnected);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("late messages of an old connection do not reach the new one", "[DISC-049][EPS-069][DISC-055]") {
  fake::world w;
  w.timewait_exit = GENERATE(false, true);
  clean_world world(w);
  pair p;
  fake::hold_events(RDMA_CM_EVENT_DISCONNECTED);
  must(p.a.ep.disconnect());
  must(p.b.ep.disconnect());
  p.settle();
  CHECK(p.a.take() == events{"disconnected"});
  CHECK(p.b.take() == events{"disconnected"});
  must(p.a.ep.reset());
  must(p.b.ep.reset());
  p.connect();
  const auto undisturbed = [&] {
    fake::release_events();
    p.settle();
    CHECK(p.a.ep.state() == ep_state::connected);
    CHECK(p.b.ep.state() == ep_state::connected);
    CHECK(p.a.take().empty());
    CHECK(p.b.take().empty());
  };
  undisturbed();
  // A reject that comes after its attempt was cancelled.
  must(p.a.ep.disconnect());
  p.settle();
  CHECK(p.a.take() == events{"disconnected"});
  CHECK(p.b.take() == events{"disconnected"});
  must(p.a.ep.reset());
  must(p.b.ep.reset());
  fake::hold_events(RDMA_CM_EVENT_REJECTED);
  must(p.a.ep.connect(p.b.ia.address(), service, plenty));
  p.settle();
  must(request_on(p.b.evd).reject());
  p.settle();
  must(p.a.ep.disconnect());
  CHECK(p.a.take() == events{"disconnected"});
  must(p.a.ep.reset());
  p.connect();
  undisturbed();
  SHOWS("DISC-041");
}

TEST_CASE("a disconnect comes after data that has arrived before the last handshake message",
          "[DISC-024][DISC-019][CR-036]") {
  const bool by_peer = GENERATE(false, true);
  CAPTURE(by_peer);
  attempt t;
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  must(t.b.ep.post(dat::recv{t.b.at(0, 8)}.cookie(5)));
  must(t.b.ep.post(dat::recv{t.b.at(8, 8)}.cookie(6)));
  t.connect();
  must(request_on(t.b.evd).accept(t.b.ep));
  t.settle();
  must(t.a.ep.post(dat::send{t.a.at(0, 8)}));
  const auto before = fake::count(fake::call::rdma_disconnect);
  must((by_peer ? t.a : t.b).ep.disconnect());
  CHECK(fake::count(fake::call::rdma_disconnect) > before); // by this side, not in answer to the peer
  t.settle();
  fake::release_events();
  t.settle();
  events got = t.b.take();
  CHECK(std::erase(got, flushed + " 6") == 1); // failures have no order
  CHECK(got == events{"established", "received 5", "disconnected"});
  CHECK(t.b.ep.state() == ep_state::disconnected);
}

TEST_CASE("an event comes after data that has arrived before the last handshake message", "[CR-036]") {
  struct report {
    rdma_cm_event_type type;
    int status;
    const char* end; ///< "" if no event comes because the connection stays
  };
  for (const report& r : {report{RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, ""},
                          {RDMA_CM_EVENT_REJECTED, 28, "disconnected"},
                          {RDMA_CM_EVENT_CONNECT_ERROR, -EINVAL, "broken"},
                          {RDMA_CM_EVENT_DEVICE_REMOVAL, 0, "broken"}}) {
    INFO(rdma_event_str(r.type) << ", " << r.status);
    attempt t;
    fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
    must(t.b.ep.post(dat::recv{t.b.at(0, 8)}.cookie(5)));
    t.connect();
    must(request_on(t.b.evd).accept(t.b.ep));
    t.settle();
    must(t.a.ep.post(dat::send{t.a.at(0, 8)}));
    fake::deliver({.event = r.type, .status = r.status, .qp_num = t.b.ep.number()});
    t.settle();
    events expected{"established", "received 5"};
    if (*r.end != 0) expected.emplace_back(r.end);
    CHECK(t.b.take() == expected);
    CHECK(t.b.ep.state() == (*r.end != 0 ? ep_state::disconnected : ep_state::connected));
    fake::release_events();
    t.settle();
    CHECK(t.b.take().empty());
  }
}

TEST_CASE("data that has arrived keeps accept_timeout from ending the connection", "[CR-036]") {
  attempt t;
  t.b.make_ep({.accept_timeout = 1ms});
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  must(t.b.ep.post(dat::recv{t.b.at(0, 8)}.cookie(5)));
  t.connect();
  must(request_on(t.b.evd).accept(t.b.ep));
  while (t.a.ep.state() != ep_state::connected) { // b does not read the clock meanwhile
    fake::finish();
    t.a.ia.run();
  }
  must(t.a.ep.post(dat::send{t.a.at(0, 8)}));
  std::this_thread::sleep_for(2ms); // longer than the limit
  t.settle();
  CHECK(t.b.ep.state() == ep_state::connected);
  CHECK(t.b.take() == events{"established", "received 5"});
  fake::release_events();
}

TEST_CASE("a disconnect before any data cancels an accept", "[CONN-020]") {
  attempt t;
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  must(t.b.ep.post(dat::recv{t.b.at(0, 8)}.cookie(5)));
  t.connect();
  must(request_on(t.b.evd).accept(t.b.ep));
  t.settle();
  must(t.b.ep.disconnect());
  t.settle();
  events got = t.b.take();
  CHECK(std::erase(got, flushed + " 5") == 1);
  CHECK(got == events{"disconnected"});
  fake::release_events();
}

TEST_CASE("data that arrives before the last handshake message establishes the connection",
          "[CR-036][EPS-024][DISC-024][EVENT-035][CONN-020]") {
  attempt t;
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  SECTION("one merged evd for all events") {
    must(t.b.ep.post(dat::recv{t.b.at(0, 8)}.cookie(5)));
    t.connect();
    must(request_on(t.b.evd).accept(t.b.ep));
    t.settle();
    CHECK(t.a.take() == events{"established"});
    CHECK(t.b.ep.state() == ep_state::completion_pending);
    CHECK(t.b.take().empty());
    must(t.a.ep.post(dat::send{t.a.at(0, 8)}));
    t.b.take();
    t.settle();
    CHECK(t.b.ep.state() == ep_state::connected);
  }
  SECTION("a completions-only evd for completions") {
    auto completions = must(t.b.ia.create_evd<dat::stream::dto>(16));
    t.b.ep = must(t.b.pz.create_ep<dat::rc>({.recv = completions, .request = completions, .connect = t.b.evd}));
    must(t.b.ep.post(dat::recv{t.b.at(0, 8)}.cookie(5)));
    t.connect();
    must(request_on(t.b.evd).accept(t.b.ep));
    t.settle();
    CHECK(t.b.ep.state() == ep_state::completion_pending);
    must(t.a.ep.post(dat::send{t.a.at(0, 8)}));
    CHECK(unit::take(completions) == events{"received 5"});
    CHECK(t.b.ep.state() == ep_state::connected);
    CHECK(t.b.take() == events{"established"});
    must(t.b.ep.post(dat::send{}));
    must(t.b.ep.close());
    fake::release_events();
    t.settle();
    return;
  }
  SECTION("a second merged evd for completions") {
    auto completions = must(t.b.ia.create_evd<dat::stream::dto | dat::stream::connection>(16));
    t.b.ep = must(t.b.pz.create_ep<dat::rc>({.recv = completions, .request = completions, .connect = t.b.evd}));
    must(t.b.ep.post(dat::recv{t.b.at(0, 8)}.cookie(5)));
    t.connect();
    must(request_on(t.b.evd).accept(t.b.ep));
    t.settle();
    must(t.a.ep.post(dat::send{t.a.at(0, 8)}));
    CHECK(unit::take(completions) == events{"received 5"});
    t.settle();
    CHECK(t.b.ep.state() == ep_state::connected);
    CHECK(t.b.take() == events{"established"});
    must(t.b.ep.close());
    fake::release_events();
    return;
  }
  const auto first = t.b.take();
  CHECK(first == events{"established", "received 5"});
  CHECK(fake::count(fake::call::rdma_notify) == 0); // see ep_core::arrived
  fake::release_events();
  t.settle();
  CHECK(t.b.take().empty());
  CHECK(t.b.ep.state() == ep_state::connected);
}

TEST_CASE("a full evd refuses requests at once, and takes requests again when it has room",
          "[PSP-005][PSP-007][EVENT-071]") {
  clean_world world;
  end a("fk1");
  end b("fk2");
  auto requests = must(b.ia.create_evd<dat::stream::connection_requests>(2));
  auto psp = must(b.ia.create_psp(service, requests));
  std::vector<dat::ep<dat::rc>> eps;
  for (int i = 0; i < 4; ++i) eps.push_back(must(a.pz.create_ep<dat::rc>(a.evd)));
  for (auto& e : eps) must(e.connect(b.ia.address(), service, plenty));
  settle(a, b);
  CHECK(a.take() == events{"non_peer_rejected 35", "non_peer_rejected 35"});
  { auto one = request_on(requests); }
  settle(a, b);
  CHECK(a.take() == events{"non_peer_rejected 35"}); // dropped without an answer
  must(eps[3].reset());
  must(eps[3].connect(b.ia.address(), service, plenty));
  settle(a, b);
  CHECK(unit::take(requests) == events{"request", "request"});
}

TEST_CASE("a closed service point refuses new requests, and delivered requests can still be answered",
          "[PSP-034][PSP-035][PSP-036][PSP-038]") {
  attempt t;
  t.connect();
  auto request = request_on(t.b.evd);
  must(t.psp.close());
  CHECK(t.psp.port() == 0);
  auto other = must(t.a.pz.create_ep<dat::rc>(t.a.evd));
  must(other.connect(t.b.ia.address(), service, plenty));
  t.settle();
  CHECK(t.a.take() == events{"non_peer_rejected 8"});
  must(request.accept(t.b.ep));
  t.settle();
  CHECK(t.a.take() == events{"established"});
  t.psp = must(t.b.ia.create_psp(service, t.b.evd)); // the port is free again
}

TEST_CASE("a qualifier has one service point at a time", "[PSP-001][PSP-019]") {
  attempt t;
  const auto r = t.b.ia.create_psp(service, t.b.evd);
  REQUIRE_FALSE(r);
  CHECK(r.error().type() == dat::return_type::conn_qual_in_use);
  CHECK(r.error().verb() == "rdma_bind_addr");
  CHECK(r.error().object_id() == service);
  must(t.psp.close());
  CHECK(t.b.ia.create_psp(service, t.b.evd));
}

TEST_CASE("calls in a wrong state return that state",
          "[EPS-001][CONN-038][DISC-003][DISC-044][DISC-045][DISC-046][EPS-045]") {
  attempt t;
  using dat::return_subtype;
  const auto state = [](const dat::expected<void>& r) {
    CHECK(r.error().type() == dat::return_type::invalid_state);
    return r.error().subtype();
  };
  const auto connect = [&] { return t.a.ep.connect(t.b.ia.address(), service, plenty); };
  CHECK(state(t.a.ep.disconnect()) == return_subtype::ep_unconnected);
  must(t.a.ep.reset());
  CHECK(fake::posted_receives(t.a.ep.native_handle()) == 1); // untouched
  t.connect();
  CHECK(state(connect()) == return_subtype::ep_actconnpending);
  CHECK(state(t.a.ep.reset()) == return_subtype::ep_actconnpending);
  CHECK(state(t.a.ep.post(dat::send{})) == return_subtype::ep_actconnpending);
  CHECK(must(t.a.ep.remote_address()) == t.b.ia.address().with_port(service)); // set by connect
  fake::hold_events(RDMA_CM_EVENT_ESTABLISHED);
  auto request = request_on(t.b.evd);
  must(request.accept(t.b.ep));
  CHECK(state(t.b.ep.reset()) == return_subtype::ep_complpending);
  CHECK(state(t.b.ep.post(dat::send{})) == return_subtype::ep_complpending);
  t.settle();
  fake::release_events();
  t.settle();
  CHECK(state(connect()) == return_subtype::ep_connected);
  CHECK(state(t.a.ep.reset()) == return_subtype::ep_connected);
  CHECK(must(t.a.ep.remote_address()).port() == service);
  CHECK(must(t.b.ep.local_address()).port() == service);
  must(t.a.ep.disconnect());
  CHECK(state(connect()) == return_subtype::ep_disconnected);
}

TEST_CASE("connect checks its arguments before it changes anything", "[CONN-040][CONN-054][EPS-012][ADDR-006]") {
  attempt t;
  const auto ids = fake::live().ids;
  const auto to = t.b.ia.address();
  CHECK(t.a.ep.connect(to, service, 0us).error().type() == dat::return_type::invalid_parameter);
  CHECK(t.a.ep.connect(to, service, -1us).error().type() == dat::return_type::invalid_parameter);
  for (const char* bad : {"0.0.0.0", "224.0.0.1", "::", "ff02::1"}) {
    INFO(bad);
    const auto r = t.a.ep.connect(must(dat::ia_address::parse(bad)), service, plenty);
    REQUIRE_FALSE(r);
    CHECK(r.error().type() == dat::return_type::invalid_address);
  }
  CHECK(fake::live().ids == ids);
  CHECK(t.a.ep.state() == ep_state::unconnected);
  CHECK(fake::posted_receives(t.a.ep.native_handle()) == 1);
  must(t.a.ep.connect(must(t.b.ia.address(dat::address_family::ipv6)), service, dat::infinite));
  t.settle();
  CHECK(request_on(t.b.evd).remote_address().family() == dat::address_family::ipv6);
}
