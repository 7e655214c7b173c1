// Connections: established, refused, timed out, ended and established again, with dat and with other programs as peer.
// SPDX-License-Identifier: BSL-1.0
#include "../support/worker.hpp"
#include "device_table.hpp"

#include <dat/ep_params.hpp>
#include <dat/rmr.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

namespace device {
namespace {

/// Expects `given`, then zeros up to the length that a connect request or its reply carries, unless the wire carries
/// the length of the data.
void check_private_data(std::span<const std::byte> seen, std::span<const std::byte> given) {
  REQUIRE(seen.size() == std::max(given.size(), this_device().padded));
  CHECK(std::equal(given.begin(), given.end(), seen.begin()));
  CHECK(std::all_of(seen.begin() + std::ssize(given), seen.end(), [](std::byte b) { return b == std::byte{0}; }));
}

/// Posts `n` receives, all of which must be flushed when the endpoint ends.
void post_receives(endpoint& ep, int n) {
  for (int i = 0; i < n; ++i) must(ep.post(dat::recv{}.cookie(1000 + i)));
}

/// Takes an end event E and the `flushed` receives around it, and checks that nothing follows.
template <class E>
E ends_with(queue& evd, std::size_t flushed, place where = place::here()) {
  auto events = take(evd, flushed + 1, where);
  INFO(sequence(events));
  std::optional<E> end;
  std::uint64_t cookie = 1000;
  for (auto& e : events) {
    if (auto* f = std::get_if<dat::dto_failure>(&e)) {
      CHECK(f->status() == dat::dto_status::flushed);
      CHECK(f->cookie() == dat::cookie(cookie++));
    } else if (auto* found = std::get_if<E>(&e)) {
      end.emplace(std::move(*found));
    }
  }
  CHECK(cookie == 1000 + flushed);
  CHECK(is_empty(evd));
  if (!end) fail("the event that ends it did not come: " + sequence(events), where);
  return std::move(*end);
}

/// Sends one message each way, which shows that the connection works.
void exchange(queue& evd_a, endpoint& a, queue& evd_b, endpoint& b) {
  must(a.post(dat::recv{}.cookie(1)));
  must(b.post(dat::recv{}.cookie(2)));
  must(a.post(dat::send{}.cookie(3)));
  must(b.post(dat::send{}.cookie(4)));
  for (queue* q : {&evd_a, &evd_b}) {
    const auto events = take(*q, 2);
    INFO(sequence(events));
    CHECK(count_of<dat::send_done>(events) == 1);
    CHECK(count_of<dat::recv_done>(events) == 1);
  }
}
void exchange(connected_pair& p) { exchange(p.a.evd, p.active, p.b.evd, p.passive); }

} // namespace

// --- creating connections ------------------------------------------------------------------------------------------

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
    if (size < 56) DEVIATES("CR-008");
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
  if (this_device().name != "siw") { // siw has no memory windows
    auto window_of_it = must(link.a.pz.create_rmr());
    CHECK(error_of(window_of_it.bind(active, dat::bind{memory.lmr, dat::remote_write})) ==
          invalid(subtype::ep_unconnected));
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

// --- refusals ------------------------------------------------------------------------------------------------------

TEST_CASE("a connect without a listener is refused and flushes the receives", "[connection][CONN-060][NAME-016]") {
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  two_sides link({.progress = how});
  auto ep = link.a.make_ep();
  post_receives(ep, 8);
  must(ep.connect(link.target(), next_port(), patience));
  const auto refused = ends_with<dat::non_peer_rejected>(link.a.evd, 8);
  DEVIATES("CONN-007", "REQ-093");
  CHECK(refused.reason() == this_device().no_listener);
  SHOWS("CONN-022", "CONN-023", "EPS-009", "EVENT-095", "REQ-057", "REQ-076");
  CHECK(refused.ep() == ep);
  CHECK(ep.state() == state::disconnected);
  SHOWS("CONN-059", "EPS-009", "EPS-044");

  // After a reset the same endpoint connects, with newly posted receives.
  must(ep.reset());
  must(ep.post(dat::recv{}.cookie(5)));
  auto passive = link.b.make_ep();
  link.connect(ep, passive);
  must(passive.post(dat::send{}));
  CHECK(link.at_a<dat::recv_done>().cookie() == dat::cookie(5));
}

TEST_CASE("a consumer's reject arrives with exactly its data", "[connection]") {
  two_sides link;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{55}, std::size_t{56}}) {
    auto ep = link.a.make_ep();
    post_receives(ep, 2);
    must(ep.connect(link.target(), link.port(), patience));
    auto request = link.at_b<dat::connection_request>();
    auto data = pattern(size, 3);
    if (size == 56) std::fill(data.begin() + 20, data.end(), std::byte{0}); // trailing zeros count, too
    must(request.reject(data));
    CHECK_FALSE(request);
    CHECK(error_of(request.reject()) == dat::error(type::invalid_handle, subtype::handle_cr));
    SHOWS("CR-061", "CR-056", "CR-015", "SAFE-032", "EVENT-015");
    const auto rejected = ends_with<dat::peer_rejected>(link.a.evd, 2);
    CHECK(std::equal(data.begin(), data.end(), rejected.private_data().begin(), rejected.private_data().end()));
    SHOWS("CR-052", "CR-057", "CR-059", "CR-064", "REQ-056", "EVENT-095", "EVENT-018");
    CHECK(ep.state() == state::disconnected);
    SHOWS("CONN-021", "EPS-008", "REQ-057", "REQ-075", "CONN-059");
  }
}

TEST_CASE("a request comes to one evd and wakes one cno, and so does the answer", "[connection]") {
  two_sides link;
  auto earlier = must(link.b.ia.create_cno());
  auto cno = must(link.b.ia.create_cno());
  auto mine = must(link.a.ia.create_cno());
  auto elsewhere = must(link.b.ia.create_evd<dat::stream::connection_requests>(4));
  must(elsewhere.modify_cno(earlier));
  must(link.b.evd.modify_cno(earlier));
  must(link.b.evd.modify_cno(cno)); // replaces the first cno
  must(link.a.evd.modify_cno(mine));
  auto ep = link.a.make_ep();
  must(ep.connect(link.target(), link.port(), patience));
  CHECK(must(cno.wait(patience)) == link.b.evd.id());
  CHECK(error_of(cno.wait(0s)).type() == type::queue_empty); // once
  CHECK(error_of(earlier.wait(0s)).type() == type::queue_empty);
  must(link.at_b<dat::connection_request>().reject());
  CHECK(is_empty(link.b.evd));
  CHECK(is_empty(elsewhere));
  SHOWS("REQ-053", "PSP-004");
  CHECK(must(mine.wait(patience)) == link.a.evd.id());
  (void)link.at_a<dat::peer_rejected>();
  SHOWS("REQ-041", "CONN-002");
  // Requests are taken in the order of their arrival.
  auto earlier_ep = link.a.make_ep();
  auto later_ep = link.a.make_ep();
  must(earlier_ep.connect(link.target(), link.port(), patience, bytes_of("earlier")));
  CHECK(must(cno.wait(patience)) == link.b.evd.id()); // the request has arrived
  must(link.b.evd.modify_cno({}));
  must(later_ep.connect(link.target(), link.port(), patience, bytes_of("later")));
  auto both = must(link.b.evd.wait(patience, 2));
  auto& first = std::get<dat::connection_request>(both.first);
  check_private_data(first.private_data(), bytes_of("earlier"));
  auto second = link.at_b<dat::connection_request>();
  check_private_data(second.private_data(), bytes_of("later"));
  SHOWS("REQ-150");
  must(first.reject());
  must(second.reject());
}

TEST_CASE("a request that the consumer drops is refused", "[connection][PSP-026][EVENT-015]") {
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  two_sides link({.progress = how});
  auto ep = link.a.make_ep();
  must(ep.connect(link.target(), link.port(), patience));
  { const auto dropped = link.at_b<dat::connection_request>(); }
  const auto refused = link.at_a<dat::non_peer_rejected>();
  CHECK(refused.reason() != 8);
}

TEST_CASE("connect refuses an impossible address",
          "[connection][CONN-054][CONN-057][EPS-012][ADDR-005][ADDR-006][ADDR-020]") {
  side a(0);
  auto ep = a.make_ep();
  must(ep.post(dat::recv{}.cookie(9)));
  const struct {
    const char* text;
    subtype why;
  } impossible[] = {{"224.0.0.1", subtype::address_unsupported}, {"255.255.255.255", subtype::address_unsupported},
                    {"ff02::1", subtype::address_unsupported},   {"0.0.0.0", subtype::address_malformed},
                    {"::", subtype::address_malformed},          {"fe80::1", subtype::address_malformed},
                    {"240.0.0.1", subtype::address_malformed},   {"4000::1", subtype::address_malformed}};
  for (const auto& [text, why] : impossible) {
    INFO(text);
    const auto e = error_of(ep.connect(must(dat::ia_address::parse(text)), next_port(), patience));
    CHECK(e == dat::error(type::invalid_address, why));
    SHOWS("ADDR-007", "ERR-038", "ERR-040", "EPS-020", "NAME-016");
    CHECK_THAT(e.message(), support::starts_with_text("ep.connect"));
    CHECK(ep.state() == state::unconnected);
  }
  const std::uint16_t none = 0;
  CHECK(error_of(ep.connect(a.ia.address(), none, patience)).type() == type::invalid_parameter);
  CHECK(ep.state() == state::unconnected);
  CHECK(is_empty(a.evd));
  SHOWS("CONN-056");
  // The next connection uses the receive, which is still posted.
  side b(1);
  const auto psp = must(b.ia.create_psp(next_port(), b.evd));
  auto passive = b.make_ep();
  must(ep.connect(b.ia.address(), must(dat::conn_qual::make(psp.port())), patience));
  must(must(b.evd.wait_for<dat::connection_request>(patience)).accept(passive));
  (void)next<dat::established>(a.evd);
  (void)next<dat::established>(b.evd);
  must(passive.post(dat::send{}));
  CHECK(next<dat::recv_done>(a.evd).cookie() == dat::cookie(9));
}

TEST_CASE("an unused address is unreachable within the time limit",
          "[connection][CONN-002][CONN-024][CONN-026][CONN-055][EPS-011][EVENT-096][REQ-041][REQ-081]") {
  if (!in_lab()) SKIP("only the lab's network is known to have no such host");
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  side a(0, how);
  auto ep = a.make_ep();
  post_receives(ep, 2);
  must(ep.connect(must(dat::ia_address::parse("10.78.1.99")), next_port(), 300ms));
  const auto end = ends_with<dat::connection_unreachable>(a.evd, 2);
  CHECK(end.reason() != 0);
  CHECK(ep.state() == state::disconnected);
  SHOWS("EPS-006", "EPS-007", "EPS-020", "EPS-044", "NAME-016", "CONN-059");
}

TEST_CASE("an unanswered connect times out, and a late answer has no effect", "[connection]") {
  if (!this_device().attempts_end_at_once)
    SKIP("this device ends an attempt only when the peer has answered, or after 10 s");
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  two_sides link({.progress = how});
  auto first = link.a.make_ep();
  const auto target = link.target();
  const bool four = target.family() == dat::address_family::ipv4;
  auto second = link.a.make_ep({.comm = {four ? AF_INET : AF_INET6, SOCK_STREAM, 0}});
  // Attributes that the device cannot provide are refused by create_ep, not by connect or accept.
  CHECK(error_of(link.b.pz.create_ep<dat::rc>(link.b.evd, {.max_rdma_read_in = std::uint8_t{255}})).type() ==
        type::invalid_parameter);
  post_receives(first, 1);
  must(first.connect(target, link.port(), unanswered_limit, bytes_of("first")));
  auto unanswered = link.at_b<dat::connection_request>();
  const auto end = ends_with<dat::connection_timed_out>(link.a.evd, 1);
  CHECK(end.ep() == first);
  CHECK(first.state() == state::disconnected);
  SHOWS("CONN-025", "CONN-026", "EPS-010", "EVENT-096", "REQ-049", "EPS-004", "REQ-048", "CONN-059");
  must(second.common_connect(target.with_port(link.psp.port()), unanswered_limit));
  auto another = link.at_b<dat::connection_request>();
  if (how == dat::progress::automatic) { // no call of this thread ends the attempt
    CHECK(comes_true([&] { return second.state() == state::disconnected; }));
    CHECK(must(second.query()).state == state::disconnected);
    const auto queued = link.a.evd.wait_for<dat::connection_timed_out>(0s); // queued with the change of the state
    CHECK(queued);
    CHECK(must(queued).ep() == second);
  } else {
    CHECK(link.at_a<dat::connection_timed_out>().ep() == second);
  }
  SHOWS("CONN-080", "REQ-080", "EPS-004");

  // Both requests are still queued. Accepting one of them succeeds and then gives an event; rejecting the other
  // succeeds.
  CHECK(is_empty(link.b.evd)); // this side is not notified
  check_private_data(unanswered.private_data(), bytes_of("first"));
  SHOWS("CR-013", "CONN-025");
  auto passive = link.b.make_ep();
  post_receives(passive, 3);
  must(unanswered.accept(passive));
  CHECK_FALSE(unanswered);
  SHOWS("CR-038", "EPS-026");
  const auto late = ends_with<dat::accept_completion_error>(link.b.evd, 3);
  CHECK(late.ep() == passive);
  CHECK(passive.state() == state::disconnected);
  SHOWS("REQ-080", "CR-037", "CR-038", "EPS-025", "EPS-026", "EVENT-097", "REQ-050", "REQ-077");
  must(another.reject());
  CHECK_FALSE(another);
  SHOWS("CR-063");
  CHECK(is_empty(link.a.evd));
  CHECK(is_empty(link.b.evd)); // a reject that comes too late is no event on either side
  SHOWS("REQ-050");

  // Both endpoints can connect again.
  must(first.reset());
  must(passive.reset());
  link.connect(first, passive);
}

TEST_CASE("a service point whose evd is full refuses the next request at once", "[connection]") {
  side a(0);
  side b(1);
  auto requests = must(b.ia.create_evd<dat::stream::connection_requests>(3));
  const auto one = must(b.ia.create_psp(next_port(), requests));
  const auto two = must(b.ia.create_psp(next_port(), requests));
  const auto to = [&](const dat::psp& p) { return must(dat::conn_qual::make(p.port())); };
  std::vector<endpoint> eps;
  const auto ask = [&](const dat::psp& p) {
    eps.push_back(a.make_ep());
    must(eps.back().connect(b.ia.address(), to(p), patience));
  };
  // Requests one connection more than the evd has room for, from both service points.
  for (int i = 0; i < 4; ++i) ask(i % 2 == 0 ? one : two);
  const auto refused = next<dat::non_peer_rejected>(a.evd);
  CHECK(refused.reason() == this_device().dropped);
  const auto is_over = [](const endpoint& ep) { return ep.state() == state::disconnected; };
  CHECK(std::ranges::count_if(eps, is_over) == 1);
  SHOWS("EPS-009");
  SHOWS("PSP-005", "PSP-007", "CONN-022", "EVENT-071", "MODEL-001", "REQ-051");
  // The evd holds three requests, and takes one more when one has been taken.
  std::vector<std::uint16_t> ports;
  auto first = next<dat::connection_request>(requests);
  ports.push_back(first.local_address().port());
  ask(two);
  ask(one);
  CHECK(next<dat::non_peer_rejected>(a.evd).reason() == this_device().dropped);
  SHOWS("PSP-006", "MODEL-001", "REQ-076");
  for (int i = 0; i < 3; ++i) {
    auto r = next<dat::connection_request>(requests);
    ports.push_back(r.local_address().port());
    must(r.reject());
    (void)next<dat::peer_rejected>(a.evd);
  }
  CHECK(is_empty(requests));
  SHOWS("PSP-004", "EVENT-075", "PSP-007");
  CHECK(error_of(b.ia.async_evd().wait_for<dat::evd_overflow>(0s)) == dat::error(type::timeout_expired));
  SHOWS("PSP-007", "PSP-008", "EVENT-071");
  CHECK(std::count(ports.begin(), ports.end(), one.port()) >= 1);
  CHECK(std::count(ports.begin(), ports.end(), two.port()) >= 1);
  SHOWS("PSP-003", "PSP-005", "REQ-053");
  auto passive = b.make_ep();
  must(first.accept(passive));
  (void)next<dat::established>(a.evd);
  (void)next<dat::established>(b.evd);
}

// --- service points ------------------------------------------------------------------------------------------------

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

// --- ending connections --------------------------------------------------------------------------------------------

TEST_CASE("either side ends a connection abruptly, and each side gets one event", "[connection]") {
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  const bool by_active = GENERATE(true, false);
  connected_pair link({.progress = how});
  post_receives(link.active, 16);
  post_receives(link.passive, 16);
  must((by_active ? link.active : link.passive).disconnect());
  CHECK((by_active ? link.active : link.passive).state() == state::disconnected);
  SHOWS("DISC-005");
  // The queue pair has ended the outstanding operations before either side is notified. (siw does not report its
  // state.)
  if (this_device().name == "rxe") {
    ibv_qp_attr now{};
    ibv_qp_init_attr init{};
    REQUIRE(ibv_query_qp((by_active ? link.active : link.passive).native_handle(), &now, IBV_QP_STATE, &init) == 0);
    CHECK(now.qp_state == IBV_QPS_ERR);
    SHOWS("DISC-007", "DISC-043");
  }
  for (const auto& events : {link.take_a(17), link.take_b(17)}) {
    INFO(sequence(events));
    CHECK(count_of<dat::dto_failure>(events) == 16);
    SHOWS("DISC-010", "EPS-064");
    CHECK(count_of<dat::disconnected>(events) == 1);
    SHOWS("CONN-028", "DISC-001", "DISC-018", "DISC-026", "EPS-055", "EPS-057", "EVENT-098", "REQ-070", "REQ-078",
          "MODEL-054", "DISC-007");
  }
  CHECK(link.active.state() == state::disconnected);
  CHECK(link.passive.state() == state::disconnected);
  CHECK(is_empty(link.a.evd));
  CHECK(is_empty(link.b.evd));
}

TEST_CASE("both sides may end a connection at the same time", "[connection][DISC-027][EVENT-098][DISC-007]") {
  connected_pair link;
  for (int round = 0; round < 30; ++round) {
    support::worker other([&](support::worker& w) { w.check(link.passive.disconnect().has_value()); });
    must(link.active.disconnect());
    other.join();
    (void)next<dat::disconnected>(link.a.evd);
    (void)next<dat::disconnected>(link.b.evd);
    must(link.active.reset());
    must(link.passive.reset());
    link.connect(link.active, link.passive);
    CHECK(is_empty(link.a.evd));
    CHECK(is_empty(link.b.evd));
  }
}

TEST_CASE("a graceful disconnect completes all requests first",
          "[connection][DISC-008][DISC-009][EPS-049][EPS-051][EPS-052][REQ-072][DISC-019]") {
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  const bool suppressed = GENERATE(false, true);
  const bool by_active = GENERATE(true, false);
  connected_pair link({.progress = how});
  side& from = by_active ? link.a : link.b;
  side& to = by_active ? link.b : link.a;
  endpoint& ep = by_active ? link.active : link.passive;
  constexpr std::size_t count = 64;
  constexpr std::size_t size = 16 * 1024;
  buffer out(from.pz, count * size);
  buffer in(to.pz, count * size);
  fill(out.bytes, 11);
  for (std::size_t i = 0; i < count; ++i) {
    dat::rdma_write write(out.slice(i * size, size), in.remote(i * size, size));
    if (suppressed) write.suppress_completion();
    must(ep.post(write.cookie(i)));
  }
  must(ep.disconnect(dat::close_mode::graceful));
  if (by_active)
    (void)link.at_b<dat::disconnected>();
  else
    (void)link.at_a<dat::disconnected>();
  CHECK(has_pattern(in.bytes, 11));
  const auto events = take(from.evd, (suppressed ? 0 : count) + 1);
  INFO(sequence(events));
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    const auto* done = std::get_if<dat::rdma_write_done>(&events[i]);
    REQUIRE(done);
    CHECK(done->cookie() == dat::cookie(i));
  }
  CHECK(std::holds_alternative<dat::disconnected>(events.back()));
  SHOWS("EPS-058");
  CHECK(ep.state() == state::disconnected);
}

TEST_CASE("a graceful disconnect delayed by the peer refuses requests and can be made abrupt", "[connection]") {
  if (!this_device().waits_for_receives) SKIP("this device ends a connection whose message finds no receive");
  connected_pair link({.active = {.max_request_dtos = 1}});
  buffer memory(link.a.pz, 64);
  must(link.active.post(dat::send{memory.slice(0, 64)}.cookie(1))); // the peer has posted no receive
  CHECK(error_of(link.active.post(dat::send{})).type() == type::insufficient_resources); // and the queue is full
  must(link.active.disconnect(dat::close_mode::graceful));
  CHECK(link.active.state() == state::disconnect_pending);
  SHOWS("DISC-001", "DISC-030", "DISC-033");
  const auto pending = dat::error(type::invalid_state, subtype::ep_discpending);
  SHOWS("DISC-033", "EPS-049");
  CHECK(error_of(link.active.post(dat::send{})) == pending);
  CHECK(error_of(link.active.post(dat::rdma_write{memory.slice(0, 1), memory.remote()})) == pending);
  CHECK(error_of(link.active.post(dat::rdma_read{memory.slice(0, 1), memory.remote()})) == pending);
  CHECK(error_of(link.active.post(dat::send_with_invalidate{memory.remote()})) == pending);
  CHECK(error_of(link.active.post(dat::rdma_write{memory.slice(0, 1), memory.remote()}.immediate(1))) == pending);
  CHECK(error_of(link.active.post(dat::send{}.immediate(1))) == pending);
  SHOWS("DISC-011", "EPS-001", "REQ-072");
  const dat::local_segment<std::uint64_t, dat::mem_priv::local_write> old_value;
  const dat::remote_segment<std::uint64_t, dat::mem_priv::remote_atomic> word;
  CHECK(error_of(link.active.post(dat::ib::fetch_and_add{old_value, word, 1})) == pending);
  CHECK(error_of(link.active.post(dat::ib::compare_and_swap{old_value, word, 1, 2})) == pending);
  CHECK(error_of(link.active.connect(link.target(), link.port(), patience)) == pending);
  CHECK(error_of(link.active.reset()) == pending);
  must(link.active.post(dat::recv{}.cookie(2)));
  CHECK(must(link.active.recv_query()).allocated == 1);
  SHOWS("EPS-050");
  must(link.active.disconnect(dat::close_mode::graceful)); // no effect
  CHECK(link.active.state() == state::disconnect_pending);
  SHOWS("DISC-012");
  CHECK(is_empty(link.a.evd));
  SHOWS("DISC-014");

  SECTION("an abrupt disconnect ends the graceful disconnect") {
    STATIC_REQUIRE((dat::close_mode{0} == dat::close_mode::abrupt && dat::close_mode{1} == dat::close_mode::graceful));
    must(link.active.disconnect()); // abrupt is the default
    CHECK(link.active.state() == state::disconnected);
    SHOWS("DISC-002", "DISC-013", "EPS-053", "EPS-054");
    const auto events = take(link.a.evd, 3);
    INFO(sequence(events));
    CHECK(count_of<dat::dto_failure>(events) == 2);
    CHECK(count_of<dat::disconnected>(events) == 1);
    CHECK(next<dat::disconnected>(link.b.evd).ep() == link.passive);
    SHOWS("EPS-055");
  }
  SECTION("a disconnect of the peer, of either kind, ends the graceful disconnect") {
    must(link.passive.disconnect(GENERATE(dat::close_mode::abrupt, dat::close_mode::graceful)));
    const auto events = take(link.a.evd, 3);
    INFO(sequence(events));
    CHECK(count_of<dat::dto_failure>(events) == 2);
    CHECK(count_of<dat::disconnected>(events) == 1);
    SHOWS("DISC-016");
    (void)next<dat::disconnected>(link.b.evd);
  }
  SECTION("a failed request breaks the connection and ends the graceful disconnect") {
    buffer room(link.b.pz, 8);
    must(link.passive.post(dat::recv{room.lmr})); // shorter than the message
    const auto events = take(link.a.evd, 3);
    INFO(sequence(events));
    CHECK(count_of<dat::dto_failure>(events) == 2);
    // The peer detects the failure, too. On a busy machine the peer may be the first to end the connection.
    CHECK(count_of<dat::connection_broken>(events) + count_of<dat::disconnected>(events) == 1);
    CHECK(link.active.state() == state::disconnected);
    CHECK(count_of<dat::dto_failure>(take(link.b.evd, 2)) == 1);
    SHOWS("DISC-015");
  }
  SECTION("a receive at the peer completes the graceful disconnect") {
    buffer room(link.b.pz, 64);
    must(link.passive.post(dat::recv{room.slice(0, 64)}));
    CHECK(next<dat::recv_done>(link.b.evd).bytes() == 64);
    (void)next<dat::disconnected>(link.b.evd);
    (void)next<dat::send_done>(link.a.evd);
    const auto events = take(link.a.evd, 2);
    INFO(sequence(events));
    CHECK(count_of<dat::disconnected>(events) == 1);
    CHECK(count_of<dat::dto_failure>(events) == 1); // the receive
  }
  CHECK(is_empty(link.a.evd));
}

TEST_CASE("a graceful disconnect does not wait for the requests of the peer", "[connection][DISC-017]") {
  if (!this_device().waits_for_receives) SKIP("this device ends a connection whose message finds no receive");
  connected_pair link;
  must(link.passive.post(dat::send{}.cookie(1000))); // the peer never posts a receive for it
  must(link.active.disconnect(dat::close_mode::graceful));
  (void)next<dat::disconnected>(link.a.evd);
  (void)ends_with<dat::disconnected>(link.b.evd, 1);
  CHECK(link.passive.state() == state::disconnected);
}

TEST_CASE("one endpoint connects a hundred times",
          "[connection][DISC-044][DISC-049][DISC-055][EPS-002][EPS-003][EPS-069][EPS-070][EPS-074][REQ-182]") {
  connected_pair link;
  exchange(link);
  for (int round = 0; round < 100; ++round) {
    const auto old_number = link.active.number();
    const bool by_active = round % 2 == 0;
    must((by_active ? link.active : link.passive).disconnect());
    (void)next<dat::disconnected>(link.a.evd);
    (void)next<dat::disconnected>(link.b.evd);
    must(link.active.reset());
    must(link.passive.reset());
    CHECK(link.active.number() != old_number);
    link.connect(link.active, link.passive);
    if (round % 10 == 0) exchange(link);
  }
  exchange(link);
}

TEST_CASE("completions that were not taken before a reset do not appear in the next connection",
          "[connection][DISC-047]") {
  two_sides link;
  auto completions_only = must(link.a.ia.create_evd<dat::stream::dto>(16));
  auto ep = must(
      link.a.pz.create_ep<dat::rc>({.recv = completions_only, .request = completions_only, .connect = link.a.evd}));
  auto other = link.b.make_ep();
  for (int round = 0; round < 10; ++round) {
    link.connect(ep, other);
    CHECK(is_empty(completions_only));
    must(ep.post(dat::recv{}.cookie(1)));
    if (round % 2 != 0) {
      must(other.post(dat::send{}));
      CHECK(next<dat::recv_done>(completions_only).cookie() == dat::cookie(1));
      (void)next<dat::send_done>(link.b.evd);
    }
    link.disconnect(ep, other);
    must(ep.reset());
    must(other.reset());
  }
}

TEST_CASE("closing a connected endpoint gives an event at the peer only",
          "[connection][EP-039][EP-035][EP-036][EP-037][EP-038][EP-034][DISC-037][EPS-075][COMP-074]") {
  const auto how = GENERATE(dat::progress::automatic, dat::progress::manual);
  connected_pair link({.progress = how});
  auto memory = std::make_unique<buffer>(link.a.pz, 4096);
  const auto closing = GENERATE(true, false);
  for (int i = 0; i < 8; ++i) must(link.active.post(dat::recv{memory->slice(0, 4096)}.cookie(i)));
  must(link.active.post(dat::send{memory->slice(0, 64)})); // the peer has no receive, so the send stays outstanding
  if (closing)
    must(link.active.close());
  else
    link.active = {};
  CHECK_FALSE(link.active);
  memory.reset(); // the adapter has stopped using the memory
  (void)next<dat::disconnected>(link.b.evd);

  // The endpoint gives neither events nor completions, and the evd serves another endpoint.
  CHECK(is_empty(link.a.evd));
  SHOWS("EPS-085", "REQ-045"); // this thread takes the events of both sides
  auto another = link.a.make_ep();
  auto passive = link.b.make_ep();
  link.connect(another, passive);
  exchange(link.a.evd, another, link.b.evd, passive);
  must(another.close());
  must(passive.close());
  must(link.passive.close());
  must(link.psp.close());
  for (side* s : {&link.a, &link.b}) {
    must(s->evd.close());
    must(s->pz.close());
    must(s->ia.close(dat::close_mode::graceful));
  }
}

TEST_CASE("a connection attempt can be cancelled",
          "[connection][DISC-021][EPS-006][EPS-016][CONN-005][REQ-046][EPS-046][DISC-004]") {
  if (!this_device().attempts_end_at_once)
    SKIP("this device ends an attempt only when the peer has answered, or after 10 s");
  two_sides link;
  const auto flags = GENERATE(dat::close_mode::abrupt, dat::close_mode::graceful);
  auto ep = link.a.make_ep();
  post_receives(ep, 2);
  must(ep.connect(link.target(), link.port(), patience));
  auto request = link.at_b<dat::connection_request>();
  SECTION("disconnect cancels the attempt, with an event") {
    must(ep.disconnect(flags));
    CHECK(ep.state() == state::disconnected);
    (void)ends_with<dat::disconnected>(link.a.evd, 2);
  }
  SECTION("close cancels the attempt, without an event") {
    must(ep.close());
    CHECK(is_empty(link.a.evd));
  }
  auto passive = link.b.make_ep();
  post_receives(passive, 1);
  must(request.accept(passive));
  (void)ends_with<dat::accept_completion_error>(link.b.evd, 1); // the reply is refused, because it comes too late
  CHECK(passive.state() == state::disconnected);
  CHECK(is_empty(link.a.evd));
  SHOWS("DISC-041", "EP-035", "DISC-037");
}

namespace {
/// The number of armed timers of this process. The kernel shows timers with their descriptors.
int armed_timers() {
  int armed = 0;
  for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone; // a descriptor may be closed meanwhile
    if (std::filesystem::read_symlink(fd.path(), gone).string() != "anon_inode:[timerfd]") continue;
    std::ifstream info("/proc/self/fdinfo/" + fd.path().filename().string());
    for (std::string line; std::getline(info, line);)
      if (line.starts_with("it_value:")) armed += line != "it_value: (0, 0)";
  }
  return armed;
}
} // namespace

TEST_CASE("a request waits without a timer for as long as its consumer leaves it", "[connection]") {
  two_sides link({.progress = dat::progress::manual});
  auto active = link.a.make_ep();
  must(active.connect(link.target(), link.port(), dat::infinite));
  auto request = link.at_b<dat::connection_request>();
  link.a.ia.run();
  link.b.ia.run();
  CHECK(armed_timers() == 0);
  CHECK(active.state() == state::active_connection_pending);
  STATIC_REQUIRE(std::is_same_v<dat::timeout::period, std::micro>);
  STATIC_REQUIRE(dat::infinite == dat::timeout::max());
  SHOWS("CR-014", "CONN-040");
  auto limited = link.a.make_ep();
  must(limited.connect(link.target(), link.port(), patience));
  CHECK(armed_timers() == 1); // the time limit of that attempt
  must(link.at_b<dat::connection_request>().reject());
  (void)link.at_a<dat::peer_rejected>();
  auto passive = link.b.make_ep();
  must(request.accept(passive)); // the request is still valid
  (void)link.at_a<dat::established>();
  (void)link.at_b<dat::established>();
}

TEST_CASE("cancelling an attempt may overlap the reply, and the events stay consistent",
          "[connection][DISC-022][DISC-023][EPS-017][CR-048][CONN-016][CONN-027]") {
  two_sides link;
  std::mt19937 random(random_seed());
  INFO("DAT_TEST_SEED=" << random_seed());
  for (int round = 0; round < 40; ++round) {
    auto active = link.a.make_ep();
    auto passive = link.b.make_ep();
    must(active.connect(link.target(), link.port(), patience));
    auto request = link.at_b<dat::connection_request>();
    const bool by_active = random() % 2 == 0;
    const auto delay = std::uniform_int_distribution<int>(0, 3'000)(random);
    must(request.accept(passive));
    for (int spin = 0; spin < delay; ++spin) (void)active.state(); // a delay of random length
    must((by_active ? active : passive).disconnect());
    for (auto* s : {&link.a, &link.b}) {
      auto first = take(s->evd, 1);
      if (std::holds_alternative<dat::established>(first.front())) {
        INFO("round " << round << ", called off by " << (by_active ? "active" : "passive") << ", waiting at "
                      << (s == &link.a ? "active, " : "passive, ") << to_string(active.state()) << ", "
                      << to_string(passive.state()));
        const auto second = take(s->evd, 1);
        CHECK(std::holds_alternative<dat::disconnected>(second.front()));
      } else {
        // The side that disconnects gets disconnected, and the other side gets the failure of the attempt.
        const bool here = by_active == (s == &link.a);
        INFO(sequence(first) << (here ? ", called off here" : ", called off there"));
        CHECK((here        ? std::holds_alternative<dat::disconnected>(first.front())
               : by_active ? std::holds_alternative<dat::accept_completion_error>(first.front())
                           : std::holds_alternative<dat::non_peer_rejected>(first.front())));
      }
    }
    CHECK(active.state() == state::disconnected);
    CHECK(passive.state() == state::disconnected);
    CHECK(is_empty(link.a.evd));
    CHECK(is_empty(link.b.evd));
  }
  // Close ends an accept, too.
  auto active = link.a.make_ep();
  auto passive = link.b.make_ep();
  must(active.connect(link.target(), link.port(), patience));
  must(link.at_b<dat::connection_request>().accept(passive));
  must(passive.close());
  auto ends = take(link.a.evd, 1);
  if (std::holds_alternative<dat::established>(ends.front())) ends = take(link.a.evd, 1);
  INFO(sequence(ends));
  CHECK((std::holds_alternative<dat::disconnected>(ends.front()) ||
         std::holds_alternative<dat::non_peer_rejected>(ends.front())));
  CHECK(active.state() == state::disconnected);
  SHOWS("EPS-046");
}

TEST_CASE("the timeout of connect may overlap the reply, and one of the two decides the attempt",
          "[connection][CONN-043][CONN-016]") {
  if (!this_device().attempts_end_at_once)
    SKIP("this device ends an attempt only when the peer has answered, or after 10 s");
  two_sides link;
  int up = 0;
  for (int round = 0; round < 40; ++round) {
    auto active = link.a.make_ep();
    auto passive = link.b.make_ep();
    must(active.connect(link.target(), link.port(), std::chrono::microseconds(1 + 270 * round)));
    std::optional<event> end;
    while (!end) {
      if (auto e = link.b.evd.dequeue())
        if (auto* request = std::get_if<dat::connection_request>(&e.assume_value())) {
          const auto from = active.local_address(); // the request may belong to the previous round
          if (from && request->remote_address() == from.assume_value()) must(request->accept(passive));
        }
      if (auto e = link.a.evd.dequeue()) end.emplace(std::move(e.assume_value()));
    }
    INFO("round " << round << ": " << describe(*end));
    if (std::holds_alternative<dat::established>(*end)) {
      ++up;
      CHECK(active.state() == state::connected);
      must(active.disconnect());
      (void)next<dat::disconnected>(link.a.evd);
    } else {
      CHECK((std::holds_alternative<dat::connection_timed_out>(*end) ||
             std::holds_alternative<dat::connection_unreachable>(*end)));
      CHECK(active.state() == state::disconnected);
    }
    must(passive.close());
    must(active.close());
    CHECK(is_empty(link.a.evd));
  }
  INFO(up << " came up in time");
}

TEST_CASE("closing an adapter abruptly ends all its connections",
          "[connection][DISC-038][IA-047][EVENT-007][MODEL-051][REQ-182]") {
  two_sides link;
  std::vector<endpoint> actives;
  std::vector<endpoint> passives;
  for (int i = 0; i < 10; ++i) {
    actives.push_back(link.a.make_ep());
    passives.push_back(link.b.make_ep());
    link.connect(actives.back(), passives.back());
  }
  // Another connection goes to another instance of the same adapter.
  side c(0);
  const auto port = next_port();
  const auto psp = must(c.ia.create_psp(port, c.evd));
  auto active = link.a.make_ep();
  auto passive = c.make_ep();
  must(active.connect(c.ia.address(), port, patience));
  must(next<dat::connection_request>(c.evd).accept(passive));
  (void)link.at_a<dat::established>(active);
  (void)next<dat::established>(c.evd);
  exchange(link.a.evd, actives.front(), link.b.evd, passives.front());
  exchange(link.a.evd, active, c.evd, passive);
  must(link.a.ia.close());
  CHECK(count_of<dat::disconnected>(take(link.b.evd, 10)) == 10);
  CHECK(next<dat::disconnected>(c.evd).ep() == passive);
}

// --- other processes -----------------------------------------------------------------------------------------------

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

/// Accepts one connection, and runs until its parent closes the channel.
int serve_role(channel& to, const std::vector<std::string>&) {
  side b(1);
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  to.say(std::to_string(port.port()));
  auto request = must(b.evd.wait_for<dat::connection_request>(patience));
  buffer memory(b.pz, 4096);
  auto ep = b.make_ep();
  for (int i = 0; i < 4; ++i) must(ep.post(dat::recv{memory.slice(0, 4096)}));
  must(request.accept(ep, memory.lmr.remote().to_wire()));
  must(b.evd.wait_for<dat::established>(patience));
  to.say("connected");
  (void)to.closed();
  return 0;
}
const role serve_registered("serve", &serve_role);

} // namespace

TEST_CASE("a killed peer process is reported as disconnected", "[connection][CONN-030][DISC-039][EPS-061][EPS-063]") {
  const bool busy = GENERATE(false, true);
  side a(0);
  peer_process peer("serve");
  const auto port = must(dat::conn_qual::make(std::stoul(peer.hear())));
  auto ep = a.make_ep();
  must(ep.post(dat::recv{}));
  must(ep.connect(addresses()[1], port, patience));
  const auto up = must(a.evd.wait_for<dat::established>(patience));
  const auto there = must(window::from_wire(up.private_data()));
  CHECK(peer.hear() == "connected");
  buffer memory(a.pz, 4096);
  if (busy)
    for (int i = 0; i < 32; ++i) must(ep.post(dat::rdma_write{memory.slice(0, 4096), must(there.slice(0, 4096))}));
  peer.kill();
  // The state changes although no thread takes events.
  CHECK(comes_true([&] { return ep.state() == state::disconnected; }));
  // There is exactly one end event; the receive and the writes that did not arrive are flushed or fail.
  int ended = 0;
  int completed = 0;
  while (ended == 0 || completed < (busy ? 33 : 1)) {
    auto e = must(a.evd.wait(patience));
    if (std::holds_alternative<dat::disconnected>(e) || (busy && std::holds_alternative<dat::connection_broken>(e)))
      ++ended;
    else if (std::holds_alternative<dat::dto_failure>(e) || std::holds_alternative<dat::rdma_write_done>(e))
      ++completed;
    else
      FAIL(describe(e));
  }
  CHECK(ended == 1);
  if (!busy) DEVIATES("REQ-079", "CONN-029"); // in this round, connection_broken would fail the test
  CHECK(ep.state() == state::disconnected);
  CHECK(is_empty(a.evd));
  CHECK(is_empty(a.ia.async_evd())); // nor is there an event about paths
  SHOWS("HA-016");
}

TEST_CASE("a peer process that is killed before it answers is reported as a refusal", "[connection][REQ-057]") {
  side a(0);
  peer_process peer("hold request");
  const auto port = must(dat::conn_qual::make(std::stoul(peer.hear())));
  auto ep = a.make_ep();
  must(ep.connect(addresses()[1], port, patience));
  CHECK(peer.hear() == "request");
  CHECK(ep.state() == state::active_connection_pending);
  peer.kill();
  CHECK(next<dat::non_peer_rejected>(a.evd).reason() == this_device().peer_killed);
  SHOWS("CR-013", "CR-064", "REQ-076");
}

namespace {
int hold_request_role(channel& to, const std::vector<std::string>&) {
  side b(1);
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  to.say(std::to_string(port.port()));
  const auto request = must(b.evd.wait_for<dat::connection_request>(patience));
  to.say("request");
  (void)to.closed();
  return 0;
}
const role hold_request_registered("hold request", &hold_request_role);
} // namespace

} // namespace device
