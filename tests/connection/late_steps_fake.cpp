// Steps of connections that come late: repeated attempts, events that meet a failed call, data before the last
// handshake message, requests that no listener takes.
// SPDX-License-Identifier: BSL-1.0
#include "attempt.hpp"
#include "late_handshake.hpp"
#include "lock_waits.hpp"

#include <dat/detail/connection/connection_state.hpp>
#include <dat/detail/handle/core_access.hpp>

#include <cerrno>
#include <string>

namespace unit {

/// The timer of a connection, whose type is private, too.
template <auto Member>
struct timer_of_connections {
  friend auto timer_member(const attempt&) { return Member; }
};
auto timer_member(const attempt&);
template struct timer_of_connections<&dat::detail::connection_state::timer_>;

} // namespace unit

using namespace unit;
using dat::detail::connection_state;
using dat::detail::core_access;

namespace {

/// The pause before the next attempt ends now, unless it has ended already.
void end_pause(attempt& t) {
  auto& c = *core_access::of(t.a.ep)->connection();
  auto& timer = c.*timer_member(t);
  if (c.ia().reactor.cancel(timer)) timer.run(timer);
}

/// The time limit of the connect passes now.
void expire(attempt& t) {
  auto& c = *core_access::of(t.a.ep)->connection();
  auto& timer = c.*timer_member(t);
  REQUIRE(c.ia().reactor.cancel(timer));
  timer.run(timer);
}

} // namespace

TEST_CASE("the time limit of a connect ends a repeated attempt that the network does not answer", "[connection]") {
  attempt t;
  t.connect();
  fake::hold_events(RDMA_CM_EVENT_ADDR_RESOLVED);
  const auto created = fake::count(fake::call::rdma_create_id);
  t.deliver(RDMA_CM_EVENT_REJECTED, 10); // the peer takes the queue pair for that of an earlier connection
  CHECK(t.a.ep.state() == ep_state::active_connection_pending);
  end_pause(t);
  CHECK(fake::count(fake::call::rdma_create_id) == created + 1);
  CHECK(t.a.ep.state() == ep_state::active_connection_pending);
  expire(t);
  CHECK(fake::count(fake::call::rdma_create_id) == created + 1);
  t.ended("unreachable 110");
}

TEST_CASE("a repeated attempt that cannot begin ends the connect at once", "[connection]") {
  const auto step = GENERATE(fake::call::rdma_create_id, fake::call::rdma_bind_addr, fake::call::rdma_resolve_addr);
  CAPTURE(fake::name(step));
  attempt t;
  t.connect();
  fake::fail(step, 1, ENOSPC);
  t.deliver(RDMA_CM_EVENT_REJECTED, 10); // the peer takes the queue pair for that of an earlier connection
  end_pause(t);
  t.ended("non_peer_rejected " + std::to_string(ENOSPC));
}

TEST_CASE("the time limit of a connect waits for a call on the endpoint", "[locks][connection]") {
  attempt t;
  t.connect();
  const auto ep = core_access::of(t.a.ep);
  auto& timer = ep->connection().get()->*timer_member(t);
  REQUIRE(ep->ia().reactor.cancel(timer));
  const auto hold = [&](auto inside) { ep->locked([&](auto&) { inside(); }); };
  CHECK(waits_while(hold, [&] { timer.run(timer); }));
  CHECK(t.a.ep.state() == ep_state::disconnected);
}

TEST_CASE("the id of a cancelled accept stays until the peer has answered the disconnect", "[connection]") {
  const clean_world world;
  late_handshake late;
  end& a = late.a;
  end& b = late.b;
  late.accept();
  settle(a, b);
  must(b.ep.disconnect());
  const auto ids = fake::live().ids;
  const auto disconnects = fake::count(fake::call::rdma_disconnect);
  fake::release_events();
  fake::hold_events(RDMA_CM_EVENT_DISCONNECTED); // the peer does not get the disconnect yet
  settle(a, b);
  CHECK(fake::count(fake::call::rdma_disconnect) == disconnects + 1);
  CHECK(fake::live().ids == ids);
  fake::release_events();
  settle(a, b);
  CHECK(a.take() == events{"established", "disconnected"});
  settle(a, b);
  CHECK(fake::live().ids < ids);
}

TEST_CASE("an event of a connect that has failed meanwhile has no effect", "[connection]") {
  const clean_world world;
  end a{"fk1"};
  a.make_ep();
  std::atomic<bool> resolving{false}, go{false};
  fake::intercept(fake::call::rdma_resolve_addr, [&] {
    resolving = true;
    while (!go) std::this_thread::yield();
  });
  fake::fail(fake::call::rdma_resolve_addr, 1, EIO);
  std::optional<dat::expected<void>> result;
  const auto to = must(dat::ia_address::parse("10.99.2.1"));
  other_call connects([&] { result = a.ep.connect(to, service, plenty); });
  while (!resolving) std::this_thread::yield();
  std::optional<other_call> reads;
  auto& id_owner = *static_cast<dat::detail::connection_base*>(fake::ids().back()->context);
  const dat::detail::ref<dat::detail::connection_base> attempted(&id_owner);
  // Both threads wait for the endpoint, and the one that connects was the first.
  core_access::of(a.ep)->locked([&](auto&) {
    go = true;
    CHECK(connects.waits());
    fake::deliver({.event = RDMA_CM_EVENT_ADDR_RESOLVED, .id = fake::ids().back()});
    reads.emplace([&] { a.ia.run(); });
    CHECK(reads->waits());
  });
  connects.join();
  reads->join();
  fake::intercept(fake::call::rdma_resolve_addr, {});
  REQUIRE(result);
  CHECK(result->error().sys_errno() == EIO);
  CHECK(a.ep.state() == ep_state::unconnected);
  CHECK_FALSE(core_access::of(a.ep)->connection());
  CHECK_FALSE(attempted->id()); // its port is free, although the attempt was still in use
  CHECK(a.take().empty());
}

TEST_CASE("a connection breaks when it is up if more messages wait than its hard watermark, which was set meanwhile",
          "[ep]") {
  const clean_world world;
  late_handshake late;
  end& a = late.a;
  end& b = late.b;
  for (std::uint64_t n = 0; n < 3; ++n) must(b.ep.post(dat::recv{b.at(0, 8)}.cookie(n)));
  late.accept();
  a.ia.run();
  CHECK(a.take() == events{"established"});
  for (int i = 0; i < 3; ++i) must(a.ep.post(dat::send{a.at(0, 8)}.suppress_completion()));
  fake::finish();
  CHECK_FALSE(b.evd.dequeue());
  must(b.ep.set_watermark(dat::no_watermark, 1));
  CHECK(b.ep.state() == ep_state::completion_pending); // only a connection that is up breaks
  settle(a, b);
  CHECK(b.ep.state() == ep_state::disconnected);
  CHECK(b.take() == events{"established", "received 0", "received 1", "received 2", "broken"});
  fake::release_events();
}

TEST_CASE("a request that arrives where nothing listens ends, so that its peer does not wait", "[connection]") {
  const clean_world world;
  end a;
  const dat::detail::ref<connection_state> c(
      new connection_state(dat::detail::ref(&*core_access::of(a.ia)), connection_state::phase::over),
      dat::detail::adopt);
  rdma_event_channel* const channel = rdma_create_event_channel();
  rdma_cm_id* child = nullptr;
  REQUIRE(rdma_create_id(channel, &child, nullptr, RDMA_PS_TCP) == 0);
  const auto before = fake::live().ids;
  c->on_request(child, {});
  CHECK(fake::live().ids == before - 1);
  rdma_destroy_event_channel(channel);
}
