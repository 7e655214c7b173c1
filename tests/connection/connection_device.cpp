// Creating connections on a device: both sides, private data, states; service points that listen for them.
// SPDX-License-Identifier: BSL-1.0
#include "device_checks.hpp"
#include "device_table.hpp"

#include <dat/ep_params.hpp>
#include <dat/rmr.hpp>

#include <algorithm>

namespace device {

TEST_CASE("a connection comes up on both sides and carries private data both ways", "[connection]") {
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  const auto family = GENERATE(dat::address_family::ipv4, dat::address_family::ipv6);
  two_sides link({.progress = how});
  if (!link.a.ia.address(family) || !link.b.ia.address(family)) SKIP("the adapters have no address of this family");
  INFO(to_string(family));
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{56}}) {
    INFO(size << " bytes");
    auto active = link.a.make_ep();
    auto passive = link.b.make_ep();
    CHECK(active.state() == state::unconnected);
    CHECK(must(active.query()).local_address.port() == 0);
    const auto asked = pattern(size, 1);
    const auto answered = pattern(size, 2);

    auto wiped = asked;
    must(active.connect(must(link.b.ia.address(family)), link.port(), size == 0 ? dat::infinite : patience, wiped));
    std::fill(wiped.begin(), wiped.end(), std::byte{0xee}); // connect has copied the data
    CHECK(active.state() == state::active_connection_pending);
    SHOWS("CONN-002", "CONN-037", "EPS-005", "REQ-041", "REQ-048");

    auto request = link.at_b<dat::connection_request>();
    check_private_data(request.private_data(), asked);
    SHOWS("CONN-045", "CONN-047", "CR-001", "REQ-074", "EVENT-092", "PSP-016", "REQ-048");
    CHECK(request.local_address() == must(link.b.ia.address(family)).with_port(link.psp.port()));
    CHECK(request.service() == link.psp.id());
    CHECK(request.service().port() == link.psp.port());
    SHOWS("CR-011", "CR-012");
    CHECK(request.remote_address().with_port(0) == must(link.a.ia.address(family)));
    const auto from_port = request.remote_address().port();
    CHECK(from_port != 0);
    SHOWS("CR-004");

    must(request.accept(passive, answered));
    CHECK_FALSE(request);
    const auto begun = passive.state();
    CHECK((begun == state::completion_pending || begun == state::connected));
    SHOWS("CR-020", "REQ-055", "SAFE-032", "EVENT-015");
    const auto at_active = link.at_a<dat::established>(active);
    CHECK(active.state() == state::connected);
    check_private_data(at_active.private_data(), answered);
    SHOWS("EVENT-018");
    if (size == 0) SHOWS("CR-024");
    CHECK(at_active.ep() == active);
    SHOWS("REQ-055", "CONN-018", "CONN-064", "CR-026", "EPS-015", "EPS-023", "EVENT-094", "MODEL-017", "REQ-073");
    const auto at_passive = link.at_b<dat::established>(passive);
    CHECK(passive.state() == state::connected);
    CHECK(at_passive.private_data().empty());
    CHECK(at_passive.ep() == passive);
    SHOWS("CR-034", "CR-035", "CONN-003", "EPS-023", "EVENT-017", "EVENT-094", "REQ-043");

    CHECK(must(passive.query()).comm.domain == (family == dat::address_family::ipv4 ? AF_INET : AF_INET6));
    SHOWS("ADDR-016", "CR-030"); // the psp has no communicator, so its ia decides

    // Each side reports both addresses, and both sides report the same.
    CHECK(must(active.local_address()).port() == from_port);
    SHOWS("CONN-049", "EP-052", "MODEL-016", "ADDR-017", "REQ-045");
    CHECK(must(active.local_address()) == must(passive.remote_address()));
    CHECK(must(active.remote_address()) == must(passive.local_address()));

    exchange(link.a.evd, active, link.b.evd, passive);
    SHOWS("MODEL-004");
    link.disconnect(active, passive);
    // The event keeps the peer's private data.
    check_private_data(at_active.private_data(), answered);
    SHOWS("EVENT-016");
    CHECK(is_empty(link.a.evd));
    CHECK(is_empty(link.b.evd));
    SHOWS("ADDR-003", "REQ-171", "REQ-043", "CR-001", "CONN-003");
  }
}

TEST_CASE("private data longer than 56 bytes is refused, and the endpoint stays usable",
          "[connection][CONN-044][CR-025][CR-028][CR-057][CR-052][CR-015]"
          "[SAFE-032]") {
  two_sides link;
  auto active = link.a.make_ep();
  auto passive = link.b.make_ep();
  const auto long_data = pattern(57, 1);
  CHECK(error_of(active.connect(link.target(), link.port(), patience, long_data)) ==
        dat::error(type::invalid_parameter, subtype::arg5));
  CHECK(active.state() == state::unconnected);
  CHECK(is_empty(link.a.evd));
  SHOWS("CONN-057");
  CHECK(error_of(active.connect(link.target(), link.port(), patience, pattern(312, 1))).type() ==
        type::invalid_parameter); // 312 = 56 + 256

  const auto longest = pattern(56, 1);
  must(active.connect(link.target(), link.port(), patience, longest));
  auto request = link.at_b<dat::connection_request>();
  check_private_data(request.private_data(), longest);
  CHECK_FALSE(request.truncated());
  SHOWS("CR-009");
  DEVIATES("CONN-008", "IA-119", "REQ-047");
  must(passive.post(dat::recv{}.cookie(3)));
  CHECK(error_of(request.accept(passive, long_data)) == dat::error(type::invalid_parameter, subtype::arg4));
  CHECK(passive.state() == state::unconnected);
  CHECK(error_of(request.reject(long_data)) == dat::error(type::invalid_parameter, subtype::arg2));
  REQUIRE(request);
  check_private_data(request.private_data(), longest); // as before
  CHECK(active.state() == state::active_connection_pending);
  must(request.accept(passive));
  (void)link.at_a<dat::established>();
  (void)link.at_b<dat::established>();
  must(active.post(dat::send{}));
  CHECK(link.at_b<dat::recv_done>().cookie() == dat::cookie(3)); // posted before the refusals
  (void)link.at_a<dat::send_done>();
  auto third = link.a.make_ep();
  CHECK(error_of(third.dup_connect(active, patience, long_data)).type() == type::invalid_parameter);
  SHOWS("EVENT-018");
  CHECK(error_of(request.accept(passive)) == dat::error(type::invalid_handle, subtype::handle_cr));
  CHECK(error_of(request.reject()) == dat::error(type::invalid_handle, subtype::handle_cr));
}

TEST_CASE("two endpoints of one adapter instance connect to each other", "[connection][CONN-070]") {
  side only(0);
  const auto psp = must(only.ia.create_psp(next_port(), only.evd));
  auto active = only.make_ep();
  auto passive = only.make_ep();
  must(active.connect(only.ia.address(), must(dat::conn_qual::make(psp.port())), patience));
  must(must(only.evd.wait_for<dat::connection_request>(patience)).accept(passive));
  must(only.evd.wait_for<dat::established>(active, patience));
  must(only.evd.wait_for<dat::established>(passive, patience));
  must(passive.post(dat::recv{}.cookie(1)));
  must(active.post(dat::send{}.cookie(2)));
  const auto events = take(only.evd, 2);
  for (const auto& e : events) {
    if (const auto* r = std::get_if<dat::recv_done>(&e)) CHECK(r->ep() == passive);
    if (const auto* s = std::get_if<dat::send_done>(&e)) CHECK(s->ep() == active);
  }
  CHECK(count_of<dat::recv_done>(events) == 1);
  CHECK(count_of<dat::send_done>(events) == 1);
}

TEST_CASE("an endpoint connects, accepts and resets only in the states that allow it", "[connection]") {
  two_sides link;
  auto active = link.a.make_ep();
  auto passive = link.b.make_ep();
  const auto invalid = [](subtype s) { return dat::error(type::invalid_state, s); };
  const auto connect = [&] { return error_of(active.connect(link.target(), link.port(), patience)); };

  // unconnected
  must(active.post(dat::recv{}.cookie(77)));
  CHECK(error_of(active.connect(link.target(), link.port(), 0s)) == dat::error(type::invalid_parameter, subtype::arg4));
  SHOWS("ERR-018", "ERR-033");
  CHECK(error_of(active.connect(link.target(), link.port(), -1s)).type() == type::invalid_parameter);
  SHOWS("CONN-040");
  CHECK(active.state() == state::unconnected);
  CHECK(is_empty(link.a.evd)); // the receive stays posted: the message below arrives in it
  SHOWS("CONN-057");
  for (const auto how : {dat::close_mode::abrupt, dat::close_mode::graceful})
    CHECK(error_of(active.disconnect(how)) == invalid(subtype::ep_unconnected));
  SHOWS("EPS-045");
  CHECK(error_of(active.remote_address()) == invalid(subtype::ep_unconnected));
  SHOWS("ADDR-018");
  must(active.reset()); // no effect: the receive stays posted
  CHECK(active.state() == state::unconnected);

  // in active_connection_pending
  must(active.connect(link.target(), link.port(), patience));
  CHECK(connect() == invalid(subtype::ep_actconnpending));
  SHOWS("EPS-001");
  CHECK(error_of(active.reset()) == invalid(subtype::ep_actconnpending));
  SHOWS("DISC-046");
  auto request = link.at_b<dat::connection_request>();
  must(request.accept(passive));
  (void)link.at_a<dat::established>();
  (void)link.at_b<dat::established>();

  // connected
  CHECK(error_of(active.disconnect(static_cast<dat::close_mode>(2))) ==
        dat::error(type::invalid_parameter, subtype::arg2));
  CHECK(error_of(active.disconnect(static_cast<dat::close_mode>(255))).type() == type::invalid_parameter);
  CHECK(active.state() == state::connected);
  SHOWS("DISC-002");
  CHECK(connect() == invalid(subtype::ep_connected));
  CHECK(error_of(active.reset()) == invalid(subtype::ep_connected));
  auto other = link.a.make_ep();
  must(other.connect(link.target(), link.port(), patience));
  auto second = link.at_b<dat::connection_request>();
  CHECK(error_of(second.accept(passive)) == invalid(subtype::ep_connected));
  REQUIRE(second); // the failed accept left the request unchanged
  SHOWS("CR-022");
  must(second.reject());
  CHECK(link.at_a<dat::peer_rejected>().ep() == other);
  SHOWS("CR-028");
  must(passive.post(dat::send{}));
  CHECK(link.at_a<dat::recv_done>().cookie() == dat::cookie(77));
  SHOWS("DISC-045", "EPS-071");

  // disconnected
  must(active.disconnect());
  CHECK(active.state() == state::disconnected);
  CHECK(connect() == invalid(subtype::ep_disconnected));
  SHOWS("CONN-038", "EPS-068");
  for (const auto how : {dat::close_mode::abrupt, dat::close_mode::graceful}) must(active.disconnect(how));
  (void)link.at_a<dat::disconnected>();
  (void)link.at_b<dat::disconnected>();
  must(active.disconnect());
  CHECK(is_empty(link.a.evd)); // one event, however often disconnect is called
  SHOWS("DISC-003");

  // Disconnects again after a reset.
  must(active.reset());
  CHECK(is_empty(link.a.evd));
  CHECK(active.state() == state::unconnected);
  if (this_device().name == "rxe") { // siw reports no state
    ibv_qp_attr now{};
    ibv_qp_init_attr init{};
    REQUIRE(ibv_query_qp(active.native_handle(), &now, IBV_QP_STATE, &init) == 0);
    CHECK((now.qp_state == IBV_QPS_RESET || now.qp_state == IBV_QPS_INIT));
  }
  SHOWS("EPS-070", "DISC-044");
  CHECK(error_of(active.post(dat::send{})) == invalid(subtype::ep_unconnected));
  buffer memory(link.a.pz, 8);
  CHECK(error_of(active.post(dat::rdma_write{memory.lmr, memory.remote()})) == invalid(subtype::ep_unconnected));
  CHECK(error_of(active.post(dat::rdma_read{memory.lmr, memory.remote()})) == invalid(subtype::ep_unconnected));
  if (this_device().name != "siw") { // siw has neither memory windows nor immediate data and atomics
    auto window_of_it = must(link.a.pz.create_rmr());
    CHECK(error_of(window_of_it.bind(active, dat::bind{memory.lmr, dat::remote_write})) ==
          invalid(subtype::ep_unconnected));
    CHECK(error_of(window_of_it.unbind(active)) == invalid(subtype::ep_unconnected));
    CHECK(error_of(active.post(dat::send_with_invalidate{memory.remote()})) == invalid(subtype::ep_unconnected));
    CHECK(error_of(active.post(dat::send{}.immediate(1))) == invalid(subtype::ep_unconnected));
    CHECK(error_of(active.post(dat::rdma_write{memory.lmr, memory.remote()}.immediate(1))) ==
          invalid(subtype::ep_unconnected));
    const dat::local_segment<std::uint64_t, dat::mem_priv::local_write> old_value;
    const dat::remote_segment<std::uint64_t, dat::mem_priv::remote_atomic> word;
    CHECK(error_of(active.post(dat::ib::fetch_and_add{old_value, word, 1})) == invalid(subtype::ep_unconnected));
    CHECK(error_of(active.post(dat::ib::compare_and_swap{old_value, word, 1, 2})) == invalid(subtype::ep_unconnected));
  }
  must(active.post(dat::recv{}.cookie(78)));
  auto fresh = link.b.make_ep();
  link.connect(active, fresh);
  must(fresh.post(dat::send{}));
  CHECK(link.at_a<dat::recv_done>().cookie() == dat::cookie(78));
  SHOWS("DISC-053", "EPS-072");

  // The next endpoint was never connected.
  endpoint none;
  const auto null_ep = dat::error(type::invalid_handle, subtype::handle_ep);
  CHECK(error_of(none.connect(link.target(), link.port(), patience)) == null_ep);
  CHECK(error_of(none.disconnect()) == null_ep);
  CHECK(error_of(none.reset()) == null_ep);
  CHECK(error_of(none.close()) == null_ep);
}

TEST_CASE("a connection qualifier has one listener at a time", "[connection][PSP-001][PSP-019][REQ-052]") {
  side one(1);
  side two(1);
  const auto port = next_port();
  auto psp = must(one.ia.create_psp(port, one.evd));
  CHECK(psp.port() == port.port());
  SHOWS("PSP-013");
  for (side* s : {&one, &two}) {
    const auto taken = error_of(s->ia.create_psp(port, s->evd));
    CHECK(taken.type() == type::conn_qual_in_use);
    CHECK(taken.sys_errno() == EADDRINUSE);
    CHECK_THAT(taken.message(), support::contains_text("EADDRINUSE"));
  }
  // The qualifier is taken for other processes, too.
  peer_process other("listen", {addresses()[1].to_string(), std::to_string(port.port())});
  CHECK(other.hear() == "conn_qual_in_use");
  CHECK(other.wait() == 0);
  must(psp.close());
  const auto again = must(two.ia.create_psp(port, two.evd)); // close has ended when it returns
  CHECK(again.port() == port.port());
  SHOWS("PSP-039");
}

TEST_CASE("closing a service point stops listening and frees the qualifier",
          "[connection][PSP-034][PSP-036][PSP-037][PSP-038][PSP-040]") {
  two_sides link;
  const auto port = link.port();
  auto active = link.a.make_ep();
  auto passive = link.b.make_ep();
  must(active.connect(link.target(), port, patience));
  // The request was queued before the service point is closed, and can still be answered.
  auto request = link.at_b<dat::connection_request>();
  const auto request_came_to = link.psp.id();
  must(link.psp.close());
  CHECK(error_of(link.psp.close()) == dat::error(type::invalid_handle, subtype::handle_psp));
  CHECK(error_of(link.psp.query()) == dat::error(type::invalid_handle, subtype::handle_psp));
  auto late = link.a.make_ep();
  must(late.connect(link.target(), port, patience));
  CHECK(link.at_a<dat::non_peer_rejected>().reason() == this_device().no_listener);
  must(request.accept(passive));
  (void)link.at_a<dat::established>();
  (void)link.at_b<dat::established>();
  exchange(link.a.evd, active, link.b.evd, passive);

  for (int i = 0; i < 200; ++i) {
    auto psp = must(link.b.ia.create_psp(port, link.b.evd));
    CHECK(psp.id() != request_came_to); // another handle at the same qualifier
    if (i % 2 == 0) must(psp.close());
  }
}

TEST_CASE("one service point accepts several requests in turn", "[connection][PSP-016][PSP-025][EPS-028]"
                                                                "[MODEL-019]") {
  two_sides link;
  const auto second = must(link.b.ia.create_psp(next_port(), link.b.evd)); // takes its endpoints from the same pool
  std::vector<endpoint> pool;
  for (int i = 0; i < 3; ++i) pool.push_back(link.b.make_ep());
  std::vector<endpoint> clients;
  int connected = 0;
  int rejected = 0;
  for (int i = 0; i < 6; ++i) {
    clients.push_back(link.a.make_ep());
    const auto& to = i % 3 == 2 ? second : link.psp;
    must(clients.back().connect(link.target(), must(dat::conn_qual::make(to.port())), patience));
    auto request = link.at_b<dat::connection_request>();
    CHECK(request.service() == to.id());
    if (i == 3) pool.push_back(link.b.make_ep()); // created for the request that has arrived
    if (i < 4)
      must(request.accept(pool[static_cast<std::size_t>(i)]));
    else
      must(request.reject());
  }
  for (const auto& e : take(link.a.evd, 6)) {
    connected += std::holds_alternative<dat::established>(e) ? 1 : 0;
    rejected += std::holds_alternative<dat::peer_rejected>(e) ? 1 : 0;
  }
  CHECK(connected == 4);
  SHOWS("EPS-032"); // the requests connect endpoints of the consumer
  CHECK(rejected == 2);
  CHECK(count_of<dat::established>(take(link.b.evd, 4)) == 4);
  for (const auto& ep : pool) CHECK(ep.state() == state::connected);
}

namespace {

/// Whether this process can listen on a port.
int listen_role(channel& to, const std::vector<std::string>& args) {
  auto ia = must(dat::ia::open(must(dat::ia_address::parse(args.at(0)))));
  auto evd = must(ia.create_evd<dat::stream::connection_requests>(4));
  auto psp = ia.create_psp(must(dat::conn_qual::make(std::stoul(args.at(1)))), evd);
  to.say(psp ? "listening" : std::string(to_string(psp.assume_error().type())));
  return 0;
}
const role listen_registered("listen", &listen_role);

} // namespace
} // namespace device
