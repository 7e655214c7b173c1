// Endpoints that modify has changed, or has failed to change: what of it a later connection uses.
// SPDX-License-Identifier: BSL-1.0
#include "lock_waits.hpp"

#include <unit/late_handshake.hpp>

#include <dat/ep_params.hpp>

#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

/// The passive side learns of its connection by the first message, because ESTABLISHED is late.
struct late_established : late_handshake {
  late_established() = default;
  ~late_established() { fake::release_events(); }
  late_established(const late_established&) = delete;
  late_established& operator=(const late_established&) = delete;

  /// Connects, and sends before `b` has heard that it is connected.
  void send_early() {
    must(b.ep.post(dat::recv{b.at(0, 8)}.cookie(1)));
    accept();
    a.ia.run();
    CHECK(a.take() == events{"established"});
    must(a.ep.post(dat::send{a.at(0, 8)}));
    fake::finish();
  }
};

unsigned peer_rights(dat::ep<dat::rc>& of) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(of.native_handle(), &attr, IBV_QP_ACCESS_FLAGS, &init) == 0);
  return attr.qp_access_flags;
}

} // namespace

TEST_CASE("a message that overtakes the end of the handshake waits for the event in the evd that modify has set",
          "[ep]") {
  const clean_world world;
  late_established s;
  auto both = must(s.b.ia.create_evd<all_streams>(16));
  must(s.b.ep.modify({.recv = both, .connect = both}));
  s.send_early();
  CHECK(take(both).empty());
  settle(s.a, s.b);
  CHECK(take(both) == events{"established", "received 1"});
}

TEST_CASE("a query waits for a modify that is under way, and has all of what it has set", "[ep][locks]") {
  const clean_world world;
  end e{"fk1"};
  auto other = must(e.ia.create_evd<all_streams>(16));
  auto ep = must(e.pz.create_ep<dat::rc>(e.evd));
  std::optional<dat::expected<dat::ep_params>> during;
  const auto change = [&] { must(ep.modify({.recv = other, .request = other, .connect = other})); };
  CHECK(waits(fake::call::ibv_create_qp, change, [&] { during = ep.query(); }));
  const dat::ep_params now = must(std::move(*during));
  CHECK(now.recv == other.id());
  CHECK(now.request == other.id());
  CHECK(now.connect == other.id());
  SHOWS("SAFE-024");
}

TEST_CASE("after a modify that fails, a message still waits for the event of its connection", "[ep]") {
  const clean_world world;
  late_established s;
  auto other = must(s.b.ia.create_evd<all_streams>(16));
  fake::fail(fake::call::ibv_create_qp, 1, ENOMEM);
  is_error(s.b.ep.modify({.connect = other, .max_recv_iov = 3}), return_type::insufficient_resources,
           return_subtype::resource_tep);
  s.send_early();
  CHECK(s.b.take().empty());
  settle(s.a, s.b);
  CHECK(s.b.take() == events{"established", "received 1"});
  CHECK(take(other).empty());
}

TEST_CASE("modify sets the attributes that it names, and no others", "[ep]") {
  using std::chrono::milliseconds;
  const clean_world world;
  late_established s;
  const auto before = must(s.b.ep.query()).attributes;
  must(s.b.ep.modify({.accept_timeout = milliseconds(700)}));
  const auto first = must(s.b.ep.query()).attributes;
  CHECK(first.accept_timeout == milliseconds(700));
  CHECK((first.ack_timeout == before.ack_timeout && first.keep_alive == before.keep_alive));
  must(s.b.ep.modify({.ack_timeout = milliseconds(9), .keep_alive = milliseconds(90)}));
  const auto second = must(s.b.ep.query()).attributes;
  CHECK((second.ack_timeout == milliseconds(9) && second.keep_alive == milliseconds(90)));
  CHECK(second.accept_timeout == milliseconds(700));
}

TEST_CASE("on iWARP a peer has the rights of the latest attributes", "[ep][iwarp]") {
  const fake::with iwarp(fake::personality::iwarp);
  const clean_world world;
  end a("fk1"), b("fk2");
  const auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep({.max_rdma_read_in = std::uint8_t{0}});
  b.make_ep();
  must(a.ep.modify({.max_rdma_read_in = std::uint8_t{4}}));
  must(b.ep.modify({.max_rdma_read_in = std::uint8_t{0}}));
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(b.ep));
  settle(a, b);
  CHECK(a.take() == events{"established"});
  CHECK(b.take() == events{"established"});
  CHECK((peer_rights(a.ep) & IBV_ACCESS_REMOTE_READ) != 0);
  CHECK((peer_rights(b.ep) & IBV_ACCESS_REMOTE_READ) == 0);
}

TEST_CASE("on iWARP rights that the device refuses end the attempt, and an accept names the call", "[ep][iwarp]") {
  const fake::with iwarp(fake::personality::iwarp);
  const clean_world world;
  end a("fk1"), b("fk2");
  const auto psp = must(b.ia.create_psp(service, b.evd));
  a.make_ep();
  b.make_ep();
  SECTION("of the side that connects") {
    must(a.ep.modify({.max_rdma_read_in = std::uint8_t{0}}));
    fake::fail(fake::call::ibv_modify_qp, 1, ENOMEM);
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
    CHECK(a.take() == events{"non_peer_rejected " + std::to_string(ENOMEM)});
    CHECK(b.take().empty());
  }
  SECTION("of the side that accepts") {
    must(b.ep.modify({.max_rdma_read_in = std::uint8_t{0}}));
    must(a.ep.connect(b.ia.address(), service, plenty));
    settle(a, b);
    auto request = request_on(b.evd);
    fake::fail(fake::call::ibv_modify_qp, 1, ENOMEM);
    const auto refused = request.accept(b.ep);
    is_error(refused, return_type::insufficient_resources, return_subtype::resource_tep);
    CHECK(refused.error().verb() == "ibv_modify_qp");
    CHECK(refused.error().sys_errno() == ENOMEM);
  }
}

TEST_CASE("a fatal event of a queue pair that posts atomic writes breaks its endpoint", "[ep][ib]") {
  fake::world w;
  for (auto& d : w.devices) d.atomic_writes = true;
  const clean_world world(w);
  pair p;
  fake::async(IBV_EVENT_QP_FATAL, p.a.ep.native_handle());
  p.settle();
  CHECK(p.a.take() == events{"broken"});
}

TEST_CASE("an endpoint chooses which completions wake when it gets its evd", "[ep]") {
  using dat::completion_notification;
  const clean_world clean;
  end a;
  auto evd = must(a.ia.create_evd<dat::stream::dto | dat::stream::software>(64));
  auto other = must(a.ia.create_evd<dat::stream::dto | dat::stream::software>(64));
  const auto first = must(a.pz.create_ep<dat::rc>({.recv = evd, .request = evd, .connect = a.evd},
                                                  {.recv_completion = completion_notification::selective}));
  const auto chosen = [](const auto& ep, completion_notification recv, completion_notification request) {
    const auto now = must(ep.query()).attributes;
    return now.recv_completion == recv && now.request_completion == request;
  };
  constexpr auto open = completion_notification::by_default;
  constexpr auto selective = completion_notification::selective;
  constexpr auto threshold = completion_notification::evd_threshold;

  auto late = must(a.ia.create_ep<dat::rc>());
  CHECK(chosen(late, open, open));
  must(late.post(dat::recv{a.at(0, 8)}.cookie(1))); // of no zone yet, and it notifies in any case
  must(late.modify({.pz = &a.pz, .recv = evd, .request = evd, .connect = a.evd}));
  CHECK(chosen(late, selective, selective));
  // The choice stays, so a receive that is posted refuses another one.
  is_error(late.modify({.recv_completion = threshold}), return_type::invalid_state, return_subtype::ep_notready);

  // Each queue chooses when it has its own evd.
  auto parts = must(a.ia.create_ep<dat::rc>());
  must(parts.modify({.pz = &a.pz, .request = other}));
  CHECK(chosen(parts, open, threshold));
  must(parts.modify({.recv = evd, .connect = a.evd}));
  CHECK(chosen(parts, selective, threshold));

  // A value that was given is no default.
  auto given = must(a.ia.create_ep<dat::rc>({}, {.recv_completion = threshold, .request_completion = threshold}));
  is_error(given.modify({.pz = &a.pz, .recv = evd, .request = evd, .connect = a.evd}), return_type::invalid_parameter,
           return_subtype::arg7);
  must(given.modify({.pz = &a.pz, .recv = other, .request = other, .connect = a.evd}));
  CHECK(chosen(given, threshold, threshold));
}
