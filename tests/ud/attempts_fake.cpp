// Attempts of datagram endpoints to learn a peer's address: how each failure of the network and of a call ends them.
// SPDX-License-Identifier: BSL-1.0
#include <unit/datagram_end.hpp>
#include <unit/lock_waits.hpp>
#include <unit/world.hpp>

#include <dat/ud.hpp>

#include <dat/detail/datagram/ud_core.hpp>
#include <dat/detail/handle/core_access.hpp>

#include <cerrno>
#include <mutex>

namespace unit {
struct lock_of_datagrams {
  friend dat::detail::control_mutex dat::detail::ud_core::*member(lock_of_datagrams);
};
template struct opened_member<lock_of_datagrams, &dat::detail::ud_core::mutex_>;
} // namespace unit

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

/// The events that have come, as text.
struct describe_attempts : describe {
  using describe::operator();
  std::string operator()(const dat::ib::datagram_established&) const { return "known"; }
  std::string operator()(const dat::ib::datagram_request&) const { return "asked"; }
  template <class E>
  requires(!std::is_invocable_v<describe, const E&>) std::string operator()(const E&) const { return "datagram"; }
};

events outcome(datagram_end& of) {
  events all;
  while (of.evd.drain([&](const auto& e) { all.push_back(describe_attempts{}(e)); }) != 0) {
  }
  return all;
}

/// The same, once there is an event.
events first_outcome(datagram_end& of) {
  events all;
  while (all.empty()) {
    of.ia.run();
    all = outcome(of);
  }
  return all;
}

/// An endpoint that asks, a service, and no further object.
struct asking {
  datagram_end a{"fk1"};
  datagram_end b{"fk2"};
  dat::ib::datagram_service listener = must(dat::ib::datagram_service::listen(b.ia, service, b.evd));
  std::size_t idle = fake::live().ids;
  auto ask(dat::timeout limit = plenty) { return a.ep.connect(b.ia.address(), service, limit, bytes_of("who")); }
  void run() { settle(a.ia, b.ia); }
};

} // namespace

TEST_CASE("a datagram attempt whose step fails ends at once, with the reason, and holds nothing of the adapter",
          "[ud]") {
  struct {
    fake::call verb;
    int err;
    const char* outcome;
  } const all[] = {{fake::call::rdma_resolve_route, ENODEV, "unreachable 19"},
                   {fake::call::rdma_connect, ENOMEM, "non_peer_rejected 12"}};
  for (const auto& [verb, err, text] : all) {
    INFO(fake::name(verb));
    const clean_world clean;
    asking s;
    fake::fail(verb, 1, err);
    must(s.ask());
    s.run();
    CHECK(outcome(s.a) == events{text});
    CHECK(fake::live().ids == s.idle);
  }
  for (const auto verb : {fake::call::rdma_create_id, fake::call::rdma_bind_addr, fake::call::rdma_resolve_addr}) {
    INFO(fake::name(verb));
    const clean_world clean;
    asking s;
    fake::fail(verb, 1, ENOMEM);
    is_error(s.ask(), return_type::insufficient_resources, return_subtype::resource_tep);
    CHECK(fake::live().ids == s.idle);
    s.run();
    CHECK(outcome(s.a).empty());
  }
}

TEST_CASE("each event of the connection manager ends a datagram attempt with the outcome that it means", "[ud]") {
  struct {
    rdma_cm_event_type event;
    int status;
    const char* outcome;
  } const all[] = {{RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT, "unreachable 110"},
                   {RDMA_CM_EVENT_ROUTE_ERROR, -EINVAL, "unreachable 22"},
                   {RDMA_CM_EVENT_CONNECT_ERROR, -EIO, "unreachable 5"},
                   {RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, "unreachable 110"},
                   {RDMA_CM_EVENT_UNREACHABLE, 0, "unreachable 0"},
                   {RDMA_CM_EVENT_UNREACHABLE, 1, "non_peer_rejected 1"},
                   {RDMA_CM_EVENT_UNREACHABLE, 2, "peer_rejected"},
                   {RDMA_CM_EVENT_UNREACHABLE, 3, "non_peer_rejected 3"},
                   {RDMA_CM_EVENT_REJECTED, 28, "non_peer_rejected 28"},
                   {RDMA_CM_EVENT_REJECTED, -28, "non_peer_rejected 28"},
                   {RDMA_CM_EVENT_DEVICE_REMOVAL, 0, "non_peer_rejected 0"}};
  for (const auto& [event, status, text] : all) {
    INFO(rdma_event_str(event) << ' ' << status);
    const clean_world clean;
    asking s;
    fake::hold_events(RDMA_CM_EVENT_ADDR_RESOLVED);
    must(s.ask());
    rdma_cm_id* const attempt = fake::ids().back();
    fake::deliver({.event = event, .status = status, .id = attempt});
    s.a.ia.run();
    events expected{text};
    if (event == RDMA_CM_EVENT_DEVICE_REMOVAL) expected.emplace_back("broken"); // it also ends the endpoint
    CHECK(outcome(s.a) == expected);
    CHECK(fake::live().ids == s.idle);
  }
}

TEST_CASE("an event that means no end of a datagram attempt does not end it", "[ud]") {
  const clean_world clean;
  asking s;
  fake::hold_events(RDMA_CM_EVENT_ADDR_RESOLVED);
  must(s.ask());
  fake::deliver({.event = RDMA_CM_EVENT_TIMEWAIT_EXIT, .id = fake::ids().back()});
  s.a.ia.run();
  CHECK(outcome(s.a).empty());
  fake::release_events();
  s.run();
  CHECK(outcome(s.b) == events{"asked"});
}

TEST_CASE("a datagram attempt that the time limit ended before its call failed succeeds as a call, and has one event",
          "[ud]") {
  const clean_world clean;
  asking s;
  fake::fail(fake::call::rdma_resolve_addr, 1, ENODEV);
  events seen;
  fake::intercept(fake::call::rdma_resolve_addr, [&] { seen = first_outcome(s.a); });
  must(s.ask(1ms));
  fake::intercept(fake::call::rdma_resolve_addr, {});
  CHECK(seen == events{"unreachable 110"});
  s.run();
  CHECK(outcome(s.a).empty());
  CHECK(fake::live().ids == s.idle);
}

TEST_CASE("a datagram attempt without a limit has no timer, and ends with its endpoint", "[ud]") {
  const clean_world clean;
  asking s;
  fake::hold_events(RDMA_CM_EVENT_ADDR_RESOLVED);
  must(s.ask(dat::infinite));
  must(s.a.ep.disconnect());
  CHECK(outcome(s.a) == events{"disconnected"});
  fake::release_events();
  s.run();
  CHECK(outcome(s.a).empty()); // the disconnected endpoint gets no event of the attempt
}

TEST_CASE("a datagram attempt needs a positive limit, at most 128 bytes, and an endpoint that is not disconnected",
          "[ud]") {
  const clean_world clean;
  asking s;
  const std::string most(128, 'x');
  const auto to = s.b.ia.address();
  is_error(s.ask(0ms), return_type::invalid_parameter, return_subtype::arg4);
  is_error(s.ask(-1ms), return_type::invalid_parameter, return_subtype::arg4);
  is_error(s.a.ep.connect(to, service, plenty, bytes_of(most + 'x')), return_type::invalid_parameter,
           return_subtype::arg5);
  is_error(s.a.ep.connect(must(dat::ia_address::parse("239.1.2.3")), service, plenty), return_type::invalid_address,
           return_subtype::address_unsupported);
  CHECK(fake::live().ids == s.idle);
  must(s.a.ep.connect(to, service, 1us, bytes_of(most)));
  CHECK(first_outcome(s.a).size() == 1);
  must(s.a.ep.disconnect());
  is_error(s.ask(), return_type::invalid_state, return_subtype::ep_disconnected);
  must(s.a.ep.close());
  is_error(s.ask(), return_type::invalid_handle, return_subtype::handle_ep);
}

TEST_CASE("an adapter without an address of the peer's family cannot reach it by datagrams", "[ud]") {
  const clean_world clean({.devices = {{"fk1", {{{"10.99.1.1"}}}}, {"fk2", {{{"fd99:2::1"}}}}}});
  datagram_end a("fk1");
  const auto to = must(dat::ia_address::parse("fd99:2::1"));
  is_error(a.ep.connect(to, service, plenty), return_type::invalid_address, return_subtype::address_unreachable);
  is_error(a.ep.address_of(dat::ib::datagram_address::at(to, 17)), return_type::invalid_address,
           return_subtype::address_unsupported);
  is_error(a.ep.address(dat::address_family::ipv6), return_type::invalid_address, return_subtype::address_unsupported);
}

TEST_CASE("both sides of an exchange know each other: the address that was asked, and the source of the request",
          "[ud]") {
  const clean_world clean;
  asking s;
  must(s.ask());
  s.run();
  auto request = std::get<dat::ib::datagram_request>(must(s.b.evd.dequeue()));
  const auto from = request.remote_address();
  must(request.accept(s.b.ep, bytes_of("me")));
  s.run();
  const auto at_a = must(s.a.evd.dequeue());
  const auto at_b = must(s.b.evd.dequeue());
  const auto& active = std::get<dat::ib::datagram_established>(at_a);
  const auto& passive = std::get<dat::ib::datagram_established>(at_b);
  CHECK_FALSE(active.is_passive());
  CHECK(passive.is_passive());
  CHECK(active.remote_address() == s.b.ia.address().with_port(service));
  CHECK(passive.remote_address() == from);
  CHECK(text_of(active.private_data()) == "me");
  CHECK(text_of(passive.private_data()) == "who");
  CHECK(active.ep() == s.a.ep);
  CHECK_THAT(active.message(), support::contains_text("ib::datagram_established"));
  const auto to_b = must(active.peer());
  const auto to_a = must(passive.peer());
  CHECK(to_b.qp_number() == s.b.ep.number());
  CHECK(to_b.qkey() == RDMA_UDP_QKEY);
  CHECK(to_a.qp_number() == s.a.ep.number());
  CHECK(to_a.qkey() == RDMA_UDP_QKEY);
  CHECK(fake::live().ids == s.idle);
}

TEST_CASE("a rejected datagram attempt gets the data of the peer's consumer, with its length", "[ud]") {
  const clean_world clean;
  asking s;
  for (const std::string_view data : {"busy", ""}) {
    must(s.ask());
    s.run();
    must(std::get<dat::ib::datagram_request>(must(s.b.evd.dequeue())).reject(bytes_of(data)));
    s.run();
    const auto e = must(s.a.evd.dequeue());
    CHECK(text_of(std::get<dat::peer_rejected>(e).private_data()) == data);
  }
}

TEST_CASE("calls on the addresses of an endpoint wait for one that is inside the driver", "[ud][locks]") {
  const clean_world clean;
  datagram_end a("fk1");
  datagram_end b("fk2");
  const auto to_b = must(b.ep.address());
  auto one = must(a.ep.address_of(to_b));
  auto other = must(a.ep.address_of(to_b));
  const auto make = [&] { (void)a.ep.address_of(to_b); };
  SECTION("the end of a handle waits for the creation of another") {
    CHECK(waits(fake::call::ibv_create_ah, make, [&] { one = {}; }));
  }
  SECTION("a creation waits for another") { CHECK(waits(fake::call::ibv_create_ah, make, make, true)); }
  SECTION("a creation waits for the end of a handle") {
    CHECK(waits(
        fake::call::ibv_destroy_ah, [&] { one = {}; }, make));
  }
  SECTION("the end of a handle waits for that of the endpoint") {
    CHECK(waits(
        fake::call::ibv_destroy_ah, [&] { must(a.ep.close()); }, [&] { one = {}; }));
  }
  SECTION("the end of the endpoint's addresses waits for a call on them, when the queue pair has ended") {
    const auto core = dat::detail::ud_core::of(*dat::detail::core_access::of(a.ep));
    CHECK(locked_out_after(
        fake::call::ibv_destroy_qp, [&]() -> auto& { return (*core).*member(lock_of_datagrams()); },
        [&] { must(a.ep.close()); }));
  }
  SECTION("a disconnect waits for the creation of a handle") {
    CHECK(waits(fake::call::ibv_create_ah, make, [&] { must(a.ep.disconnect()); }));
  }
  one = {};
  other = {};
}

TEST_CASE("a datagram attempt whose request is not answered within its time limit has timed out", "[ud]") {
  const clean_world clean;
  asking s;
  fake::hold_events(RDMA_CM_EVENT_CONNECT_REQUEST);
  // On a busy machine the limit can pass before the request is sent. A longer limit follows then.
  events seen;
  for (dat::timeout limit = 50ms; limit < plenty; limit *= 2) {
    must(s.ask(limit));
    seen = first_outcome(s.a);
    if (seen != events{"unreachable " + std::to_string(ETIMEDOUT)}) break;
  }
  CHECK(seen == events{"timed_out"});
  fake::release_events();
  s.run();
}
