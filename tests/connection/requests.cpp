// The contents of requests, simultaneous connections, and queries and calls of many threads.
// SPDX-License-Identifier: BSL-1.0
#include "sides.hpp"

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>

#include <support/worker.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <vector>

namespace connections {
namespace {

/// Two sides; the passive one listens.
struct two : sides {
  dat::psp psp = must(b.ia.create_psp(service, b.evd));
  using sides::sides;

  /// Connects an endpoint of `a`.
  dat::cr ask_with(std::string_view data = {}) {
    if (!a.ep) a.make_ep();
    must(a.ep.connect(b.ia.address(), service, patience, bytes_of(data)));
    settle();
    return request();
  }
};

} // namespace

TEST_CASE("closed objects and objects of another ia are refused with an error that names them",
          "[PSP-010][PSP-018][CONN-062][EVENT-006][DISC-034]") {
  sides s;
  constexpr auto handle = return_type::invalid_handle;
  using enum return_subtype;
  const auto make = [&](const dat::ep_evds& evds) { return s.b.pz.create_ep<dat::rc>(evds); };
  refuses(s.b.ia.create_psp(s.service, s.a.evd), handle, handle_evd_cr);
  refuses(s.b.ia.create_psp(s.service, decltype(s.b.evd)()), handle, handle_evd_cr);
  refuses(dat::ia().create_psp(s.service, s.b.evd), handle, handle_ia);
  refuses(make({.recv = s.a.evd, .request = s.b.evd, .connect = s.b.evd}), handle, handle_evd_recv);
  refuses(make({.recv = s.b.evd, .request = s.a.evd, .connect = s.b.evd}), handle, handle_evd_request);
  refuses(make({.recv = s.b.evd, .request = s.b.evd, .connect = s.a.evd}), handle, handle_evd_conn);
  const decltype(s.b.evd) nothing;
  refuses(make({.recv = s.b.evd, .request = nothing, .connect = s.b.evd}), handle, handle_evd_request);
  refuses(dat::pz().create_ep<dat::rc>(s.b.evd), handle, handle_pz);
  refuses(dat::ia().create_ep<dat::rc>({.recv = s.b.evd, .request = s.b.evd, .connect = s.b.evd}), handle, handle_ia);
  SHOWS("EP-014");
  auto ended = must(s.b.ia.create_evd<rig::end::streams>(4));
  must(ended.close());
  refuses(s.b.ia.create_psp(s.service, ended), handle, handle_evd_cr);
  rig::end over(1);
  must(over.ia.close());
  refuses(over.ia.create_psp(s.service, s.b.evd), handle, handle_ia);
  const auto psp = must(s.b.ia.create_psp(s.service, s.b.evd)); // no refused call has taken the port
  const auto active = s.ask(s.service);
  auto request = s.request();
  auto foreign = must(s.a.pz.create_ep<dat::rc>(s.a.evd));
  refuses(request.accept(foreign), handle);
  endpoint empty;
  refuses(request.accept(empty), handle, handle_ep);
  s.b.make_ep();
  must(request.accept(s.b.ep));
  refuses(request.accept(s.b.ep), handle, handle_cr);
  refuses(request.reject(), handle, handle_cr);
  refuses(empty.connect(s.b.ia.address(), s.service, patience), handle, handle_ep);
  refuses(empty.disconnect(), handle, handle_ep);
  refuses(empty.reset(), handle, handle_ep);
  refuses(empty.close(), handle, handle_ep);
  auto closed = s.make();
  must(closed.close());
  refuses(closed.connect(s.a.ia.address(), s.service, patience), handle, handle_ep);
  refuses(closed.disconnect(), handle, handle_ep);
  refuses(closed.reset(), handle, handle_ep);
  SHOWS("ERR-017", "ERR-032", "REG-016", "DISC-054");
  refuses(s.b.ia.create_psp_any(s.a.evd), handle, handle_evd_cr);
  refuses(dat::ia().create_psp_any(s.b.evd), handle, handle_ia);
  refuses(s.b.ia.create_psp_any(ended), handle, handle_evd_cr);
  refuses(over.ia.create_psp_any(s.b.evd), handle, handle_ia);
  SHOWS("PSP-033");
  refuses(s.b.ia.create_csp(tcp, ended), handle, handle_evd_cr);
  refuses(s.b.ia.create_csp(tcp, decltype(s.b.evd)()), handle, handle_evd_cr);
  refuses(dat::ia().create_csp(tcp, s.b.evd), handle, handle_ia);
  SHOWS("CSP-011");
  refuses(dat::ia().create_rsp(s.other, s.b.evd), handle, handle_ia);
  refuses(s.b.ia.create_rsp(s.other, ended), handle, handle_evd_cr);
  SHOWS("RSP-012");
}

TEST_CASE("native addresses, IPv4-mapped addresses and service ids reach their service points",
          "[ADDR-001][ADDR-002][ADDR-008][ADDR-010][ADDR-012][ADDR-013]") {
  sides s;
  if (s.b.ia.address().family() != dat::address_family::ipv4) SKIP("the adapters have no IPv4 address");
  const auto psp = must(s.b.ia.create_psp(s.service, s.b.evd));
  // Created by its service id, it has its port as qualifier.
  const auto neighbour = must(s.b.ia.create_psp(must(dat::conn_qual::make(0x01060000U + s.other.port())), s.b.evd));
  CHECK(must(neighbour.query()).id.port() == s.other.port());
  SHOWS("PSP-042");
  ::sockaddr_in v4{};
  std::memcpy(&v4, s.b.ia.address().native_handle(), sizeof v4);
  v4.sin_port = htons(s.service.port());
  ::sockaddr_in6 mapped{};
  mapped.sin6_family = AF_INET6;
  mapped.sin6_port = v4.sin_port;
  mapped.sin6_addr.s6_addr[10] = mapped.sin6_addr.s6_addr[11] = 0xff;
  std::memcpy(&mapped.sin6_addr.s6_addr[12], &v4.sin_addr, 4);
  const auto arrives = [&](const dat::psp& at) {
    s.settle();
    auto request = s.request();
    CHECK(request.service() == at.id());
    const auto local = request.local_address();
    must(request.reject());
    s.settle();
    CHECK(s.a.take(1) == events{"peer_rejected"});
    return local;
  };
  for (const auto& to : {dat::ia_address(v4), dat::ia_address(mapped)}) {
    auto ep = must(s.a.pz.create_ep<dat::rc>(s.a.evd, {.comm = tcp}));
    must(ep.common_connect(to, patience));
    const auto local = arrives(psp);
    REQUIRE(local.native_size() == sizeof v4);
    CHECK(std::memcmp(local.native_handle(), &v4, sizeof v4) == 0);
  }
  for (const auto* at : {&psp, &neighbour}) {
    const auto port = std::uint64_t{at->port()};
    const auto by_port = s.ask(must(dat::conn_qual::make(port)));
    (void)arrives(*at);
    const auto by_service_id = s.ask(must(dat::conn_qual::make(0x01060000 + port)));
    (void)arrives(*at);
    for (const std::uint64_t other : {0x10000 + port, 0x01110000 + port, 0x1'0106'0000 + port})
      CHECK(dat::conn_qual::make(other).error().type() == return_type::invalid_parameter);
  }
  SHOWS("CONN-056", "PSP-019", "MODEL-005", "RSP-012", "CR-069");
}

TEST_CASE("connect copies its private data and attributes", "[ADDR-009][CONN-045]") {
  two t;
  t.a.make_ep();
  auto address = std::make_unique<dat::ia_address>(t.b.ia.address());
  auto data = std::make_unique<std::string>("mine");
  must(t.a.ep.connect(*address, t.service, patience, bytes_of(*data)));
  *address = dat::ia_address();
  *data = "gone";
  address.reset();
  data.reset();
  t.settle();
  auto request = t.request();
  CHECK(unpadded(request.private_data()) == "mine");
  CHECK(request.local_address() == t.b.ia.address().with_port(t.service.port()));
}

TEST_CASE("a request keeps the peer's private data after the peer has ended",
          "[CR-003][CR-010][CR-013][CR-027][CR-033][EPS-020]") {
  two t;
  auto request = t.ask_with("remember me");
  const auto from = must(t.a.ep.local_address());
  {
    support::worker reader([&](support::worker& w) {
      for (int i = 0; i < 100; ++i)
        w.check(request.remote_address() == from && unpadded(request.private_data()) == "remember me" &&
                request.query().has_value());
    });
    must(t.a.ep.close());
    t.settle();
    reader.join();
  }
  CHECK(unpadded(request.private_data()) == "remember me");
  SHOWS("CR-007");
  CHECK(request.remote_address() == from);
  CHECK(request.service() == t.psp.id());
  const auto all = must(request.query());
  CHECK((all.remote_address == from && all.local_address == request.local_address() && !all.local_ep));
  CHECK((all.service == t.psp.id() && unpadded(all.private_data) == "remember me"));
  // An endpoint of another adapter is refused, and the request is unchanged.
  auto foreign = must(t.a.pz.create_ep<dat::rc>(t.a.evd));
  CHECK(request.accept(foreign).error().type() == return_type::invalid_handle);
  CHECK(foreign.state() == ep_state::unconnected);
  rig::end again(1); // another ia of the request's adapter
  auto neighbour = must(again.pz.create_ep<dat::rc>(again.evd));
  CHECK(request.accept(neighbour).error() == dat::error(return_type::invalid_handle, return_subtype::handle_ep));
  CHECK(neighbour.state() == ep_state::unconnected);
  CHECK(unpadded(request.private_data()) == "remember me");
  t.b.make_ep();
  must(request.accept(t.b.ep));
  CHECK(request.private_data().empty());
  CHECK_FALSE(request.service());
  CHECK(request.remote_address() == dat::ia_address());
  CHECK(request.reject().error().subtype() == return_subtype::handle_cr);
  CHECK(request.query().error() == dat::error(return_type::invalid_handle, return_subtype::handle_cr));
  SHOWS("CR-006");
  t.settle();
  CHECK(t.b.take(1).at(0).starts_with("accept_completion_error")); // the peer's endpoint had ended before
  auto other = must(t.a.pz.create_ep<dat::rc>(t.a.evd));
  must(other.connect(t.b.ia.address(), t.service, patience, bytes_of("and me")));
  t.settle();
  auto unwanted = t.request();
  CHECK(unpadded(unwanted.private_data()) == "and me");
  must(unwanted.reject());
  CHECK(unwanted.private_data().empty());
  CHECK(dat::conn_qual::make(0x10000).error().type() == return_type::invalid_parameter);
  SHOWS("MODEL-005");
}

TEST_CASE("the private data of an accept stays readable after the connection has ended",
          "[CONN-019][EPS-014][EPS-022][DISC-043][EP-056][EVENT-016]") {
  two t;
  auto request = t.ask_with();
  t.b.make_ep();
  must(request.accept(t.b.ep, bytes_of("welcome")));
  const auto state = t.b.ep.state(); // a device may already have established the connection
  CHECK((state == ep_state::completion_pending || state == ep_state::connected));
  t.settle();
  const auto up = must(t.a.evd.wait_for<dat::established>(patience));
  CHECK(t.a.ep.state() == ep_state::connected);
  CHECK(unpadded(up.private_data()) == "welcome");
  t.settle();
  CHECK(t.b.take(1) == events{"established"});
  const auto params = must(t.a.ep.query());
  const auto from = must(t.a.ep.local_address());
  const auto recv_dtos = must(t.a.ep.query()).attributes.max_recv_dtos;
  CHECK((from.port() != 0 && recv_dtos != 0));
  must(t.a.ep.post(dat::send{t.a.at(0, 4)}.cookie(1))); // without a receive, so a graceful disconnect waits
  must(t.a.ep.disconnect(dat::close_mode::graceful));
  CHECK(t.a.ep.state() == ep_state::disconnect_pending);
  CHECK(unpadded(up.private_data()) == "welcome");
  must(t.a.ep.disconnect());
  CHECK(t.a.ep.state() == ep_state::disconnected);
  CHECK(unpadded(up.private_data()) == "welcome");
  for (const auto how : {dat::close_mode::abrupt, dat::close_mode::graceful}) must(t.a.ep.disconnect(how));
  t.settle();
  auto seen = t.a.take(2);
  std::sort(seen.begin(), seen.end());
  CHECK(seen == events{"disconnected", "flushed 1"});
  must(t.a.ep.disconnect());
  must(t.a.ep.close());
  CHECK(t.a.take(0).empty());
  CHECK(unpadded(up.private_data()) == "welcome");
  // A copy: the endpoint has ended.
  CHECK(params.remote_address == t.b.ia.address().with_port(t.service.port()));
  CHECK(params.local_address == t.a.ia.address().with_port(from.port()));
  CHECK(params.attributes.max_recv_dtos == recv_dtos);
}

TEST_CASE("queries return the same attributes before, during and after a connection",
          "[CONN-009][CONN-067][CR-045][EP-020]"
          "[EPS-074][DISC-051]"
          "[REQ-059]") {
  two t;
  t.a.make_ep({.max_request_dtos = 7, .max_rdma_read_out = std::uint8_t{16}, .comm = tcp});
  t.b.make_ep({.max_message_size = 4096,
               .max_rdma_read_out = std::uint8_t{1},
               .max_rdma_read_in = std::uint8_t{2},
               .retry_count = 5,
               .rnr_retry_count = 6,
               .ack_timeout = std::chrono::milliseconds(300),
               .min_rnr_timer = std::chrono::microseconds(320),
               .accept_timeout = std::chrono::seconds(40)});
  const auto same = [](const dat::ep_attributes& x, const dat::ep_attributes& y) {
    return x.max_request_dtos == y.max_request_dtos && x.max_recv_dtos == y.max_recv_dtos &&
           x.max_request_iov == y.max_request_iov && x.max_recv_iov == y.max_recv_iov &&
           x.max_message_size == y.max_message_size && x.max_rdma_read_in == y.max_rdma_read_in &&
           x.max_rdma_read_out == y.max_rdma_read_out && x.max_inline == y.max_inline &&
           x.retry_count == y.retry_count && x.rnr_retry_count == y.rnr_retry_count && x.ack_timeout == y.ack_timeout &&
           x.min_rnr_timer == y.min_rnr_timer && x.accept_timeout == y.accept_timeout && x.keep_alive == y.keep_alive &&
           x.recv_completion == y.recv_completion && x.request_completion == y.request_completion && x.qos == y.qos &&
           x.comm == y.comm && x.soft_high_watermark == y.soft_high_watermark &&
           x.hard_high_watermark == y.hard_high_watermark;
  };
  must(t.a.ep.set_watermark(5, 9));
  const auto before = must(t.a.ep.query());
  const auto a = before.attributes;
  const auto b = must(t.b.ep.query()).attributes;
  CHECK((a.soft_high_watermark == 5 && a.hard_high_watermark == 9));
  CHECK(a.max_recv_dtos > 0); // the defaults are filled in
  CHECK(a.max_message_size > 0);
  CHECK(b.max_request_dtos > 0);
  SHOWS("EP-010");
  must(t.ask_with().accept(t.b.ep));
  t.settle();
  CHECK(t.a.take(1) == events{"established"});
  CHECK(t.b.take(1) == events{"established"});
  CHECK(same(must(t.a.ep.query()).attributes, a));
  CHECK(same(must(t.b.ep.query()).attributes, b));
  // The default attributes suffice for messages.
  must(t.a.ep.post(dat::recv{t.a.at(0, 8)}.cookie(1)));
  must(t.b.ep.post(dat::send{t.b.at(0, 4)}.cookie(2)));
  t.settle();
  CHECK(t.a.take(1) == events{"received 1"});
  CHECK(t.b.take(1) == events{"sent 2"});
  SHOWS("EPATTR-022");
  must(t.a.ep.disconnect());
  t.settle();
  CHECK(t.a.take(1) == events{"disconnected"});
  CHECK(t.b.take(1) == events{"disconnected"});
  for (auto* ep : {&t.a.ep, &t.b.ep}) {
    must(ep->reset());
    // The ports belonged to the connection that has ended.
    refuses(ep->local_address(), return_type::invalid_state, return_subtype::ep_unconnected);
    refuses(ep->remote_address(), return_type::invalid_state, return_subtype::ep_unconnected);
    CHECK(must(ep->query()).local_address.port() == 0);
  }
  const auto after = must(t.a.ep.query());
  CHECK((after.recv == before.recv && after.request == before.request && after.connect == before.connect));
  CHECK(after.connect == t.a.evd.id());
  CHECK(after.has_pz);
  CHECK(same(must(t.a.ep.query()).attributes, a));
  CHECK(same(must(t.b.ep.query()).attributes, b));
  // The communicator that the first service point gave to the endpoint does not prevent a second one.
  auto another = must(t.b.ia.create_csp(tcp, t.b.evd));
  must(t.a.ep.common_connect(must(another.query()).address, patience));
  t.settle();
  must(t.request().accept(t.b.ep));
  t.settle();
  CHECK(t.a.take(1) == events{"established"});
  CHECK(t.b.take(1) == events{"established"});
  CHECK(must(t.b.ep.query()).local_address == must(another.query()).address);
}

TEST_CASE("an endpoint without read attributes can read and reports its depth",
          "[CONN-066][CR-043][EPATTR-013][EPATTR-014][EPATTR-015]") {
  two t;
  t.a.make_ep();
  t.b.make_ep();
  must(t.ask_with().accept(t.b.ep));
  t.settle();
  CHECK(t.a.take(1) == events{"established"});
  CHECK(t.b.take(1) == events{"established"});
  for (auto* e : {&t.a, &t.b}) {
    CHECK(must(e->ep.query()).attributes.max_rdma_read_in > 0);
    CHECK(must(e->ep.query()).attributes.max_rdma_read_out > 0);
  }
  t.b.memory[5] = 'x';
  must(t.a.ep.post(dat::rdma_read{t.a.at(8, 8), must(t.b.mem.remote(0, 8))}));
  t.settle();
  CHECK(t.a.take(1) == events{"read 0"});
  CHECK(t.a.memory[8 + 5] == 'x');
}

TEST_CASE("two sides that connect to each other at the same time get two connections", "[CONN-071]") {
  two t;
  auto at_a = must(t.a.pz.create_ep<dat::rc>(t.a.evd));
  auto at_b = must(t.b.pz.create_ep<dat::rc>(t.b.evd));
  auto rsp_a = must(t.a.ia.create_rsp(t.other, at_a, t.a.evd));
  auto rsp_b = must(t.b.ia.create_rsp(t.other, at_b, t.b.evd));
  t.a.make_ep();
  t.b.make_ep();
  must(t.a.ep.connect(t.b.ia.address(), t.other, patience));
  must(t.b.ep.connect(t.a.ia.address(), t.other, patience));
  t.settle();
  auto to_a = request_on(t.a.evd);
  auto to_b = t.request();
  must(to_a.accept());
  must(to_b.accept());
  t.settle();
  CHECK(t.a.take(2) == events{"established", "established"});
  CHECK(t.b.take(2) == events{"established", "established"});
  for (const auto* ep : {&at_a, &at_b, &t.a.ep, &t.b.ep}) CHECK(ep->state() == ep_state::connected);
  SHOWS("EPS-033");
}

TEST_CASE("a reserved service point without an endpoint creates one for its only request",
          "[RSP-008][RSP-001][CR-053]") {
  sides s;
  auto rsp = must(s.b.ia.create_rsp(s.service, s.b.evd));
  CHECK_FALSE(must(rsp.query()).ep);
  auto first = s.ask(s.service);
  auto request = s.request();
  auto second = s.ask(s.service);
  CHECK(s.a.take(1) == events{"non_peer_rejected 35"});
  CHECK(request.service() == rsp.id());
  REQUIRE(request.ep());
  CHECK(request.ep().state() == ep_state::unconfigured_tentative);
  const bool accepts = GENERATE(true, false);
  if (accepts) {
    must(request.ep().modify({.pz = &s.b.pz, .recv = s.b.evd, .request = s.b.evd, .connect = s.b.evd}));
    must(request.accept());
    s.settle();
    CHECK(s.b.take(1) == events{"established"});
    CHECK(request.ep().state() == ep_state::connected);
  } else {
    const auto kept = std::move(request.ep());
    must(request.reject());
    CHECK(gone(kept));
  }
}

TEST_CASE("requests have room of their own in an evd that also takes connection events",
          "[evd][PSP-011][CSP-002][PSP-006]") {
  sides s;
  auto small =
      must(s.b.ia.create_evd<dat::stream::connection | dat::stream::connection_requests | dat::stream::dto>(2));
  auto csp = must(s.b.ia.create_csp(tcp, s.b.ia.address().with_port(s.service.port()), small));
  auto psp = must(s.b.ia.create_psp(s.other, small));
  // A connection event takes no place of a request.
  auto ep = must(s.b.pz.create_ep<dat::rc>({.recv = small, .request = small, .connect = small}));
  must(ep.connect(s.a.ia.address(), s.third, patience));
  while (ep.state() != ep_state::disconnected) s.settle();
  // The first two of three requests take both places, in whichever order they arrive.
  const std::array first{s.ask(s.service), s.ask(s.other), s.ask(s.other)};
  CHECK(s.a.take(1) == events{"non_peer_rejected 35"});
  const auto beyond = s.ask(s.service);
  CHECK((s.a.take(1) == events{"non_peer_rejected 35"} && beyond.state() == ep_state::disconnected));
  CHECK(s.b.ia.async_evd().dequeue().error().type() == return_type::queue_empty); // no overflow
  CHECK(rig::take(small, 3) == events{"non_peer_rejected 8", "request", "request"});
  s.settle();
  CHECK(s.a.take(2) == events{"non_peer_rejected 35", "non_peer_rejected 35"}); // dropped without an answer
  const std::array then{s.ask(s.service), s.ask(s.other)};
  CHECK(rig::take(small, 2) == events{"request", "request"});
  SHOWS("CSP-001"); // by the evd that it was created with, and no other
}

TEST_CASE("a queued request survives a resize of its evd and is rejected when the evd closes",
          "[EVENT-015][EVD-036][PSP-035][PSP-009]") {
  sides s;
  auto evd = must(s.b.ia.create_evd<dat::stream::connection_requests>(3));
  const bool common = GENERATE(false, true);
  dat::psp psp;
  dat::csp csp;
  if (common)
    csp = must(s.b.ia.create_csp(tcp, s.b.ia.address().with_port(s.service.port()), evd));
  else
    psp = must(s.b.ia.create_psp(s.service, evd));
  const std::array asking{s.ask(s.service, "first"), s.ask(s.service, "second")};
  while (evd.wait(std::chrono::milliseconds(1), 3).error().index() < 2) s.settle();
  must(evd.resize(16));
  // The evd cannot be closed while a service point feeds it.
  refuses(evd.close(), return_type::invalid_state, return_subtype::evd_in_use);
  must(common ? csp.close() : psp.close()); // with both events in the evd
  s.settle();
  CHECK(s.a.take(0).empty());
  auto request = request_on(evd);
  const bool first = unpadded(request.private_data()) == "first"; // either of the two may be faster
  s.b.make_ep();
  must(request.accept(s.b.ep));
  s.settle();
  CHECK(s.a.take(1) == events{"established"});
  CHECK(asking[first ? 0 : 1].state() == ep_state::connected);
  if (common) SHOWS("CSP-019");
  must(evd.close()); // the accepted request is that of the other endpoint
  s.settle();
  CHECK(s.a.take(1) == events{"non_peer_rejected 35"});
  CHECK(asking[first ? 1 : 0].state() == ep_state::disconnected);
  if (common) SHOWS("CSP-002");
}

TEST_CASE("closing a common service point keeps its delivered requests", "[CSP-018][CSP-019][CSP-020][CSP-021]") {
  sides s;
  const auto at = s.b.ia.address().with_port(s.service.port());
  auto csp = must(s.b.ia.create_csp(tcp, at, s.b.evd));
  CHECK(must(csp.query()).address == at);
  SHOWS("CSP-005", "CSP-012");
  s.a.make_ep({.comm = tcp});
  must(s.a.ep.common_connect(at, patience));
  s.settle();
  auto request = s.request();
  must(csp.close());
  refuses(csp.query(), return_type::invalid_handle, return_subtype::handle_csp);
  refuses(csp.close(), return_type::invalid_handle, return_subtype::handle_csp);
  CHECK(csp.port() == 0);
  auto again = must(s.b.ia.create_csp(tcp, at, s.b.evd)); // the port is free at once
  CHECK(request.service().port() == at.port());
  CHECK(request.service() != again.id());
  s.b.make_ep();
  must(request.accept(s.b.ep));
  s.settle();
  CHECK(s.a.take(1) == events{"established"});
  must(s.b.ia.close());
  CHECK(again.query().error().subtype() == return_subtype::handle_csp);
  SHOWS("PSP-012");
}

TEST_CASE("one of many threads reserves an endpoint, and each service point gets its own port",
          "[RSP-013][CSP-012][PSP-013][PSP-033][EP-015]") {
  rig::world world;
  rig::end e(0, rig::automatic);
  e.make_ep();
  const std::array qualifiers{rig::port(), rig::port(), rig::port(), rig::port()};
  std::atomic<int> reserved{0};
  std::array<std::uint16_t, 8> ports{};
  std::array<dat::rsp, 4> rsps;
  std::array<dat::psp, 4> psps;
  std::array<dat::csp, 4> csps;
  {
    std::vector<std::unique_ptr<support::worker>> workers;
    for (std::size_t i = 0; i < 4; ++i)
      workers.push_back(std::make_unique<support::worker>([&, i](support::worker& w) {
        auto r = e.ia.create_rsp(qualifiers[i], e.ep, e.evd);
        if (r) {
          ++reserved;
          rsps[i] = std::move(r).value();
        } else {
          w.check(r.error().subtype() == return_subtype::ep_reserved);
        }
        auto c = e.ia.create_csp(tcp, e.evd);
        auto p = e.ia.create_psp_any(e.evd);
        w.check(c && p);
        const auto ep = e.pz.create_ep<dat::rc>(e.evd);
        w.check(ep && ep.value().state() == ep_state::unconnected);
        if (c && p) {
          ports[i] = c.value().port();
          ports[4 + i] = p.value().port();
          csps[i] = std::move(c).value();
          psps[i] = std::move(p).value();
        }
      }));
    for (auto& w : workers) w->join();
  }
  CHECK(reserved == 1);
  CHECK(e.ep.state() == ep_state::reserved);
  std::sort(ports.begin(), ports.end());
  CHECK(std::adjacent_find(ports.begin(), ports.end()) == ports.end());
}

namespace {
dat::ep<dat::rc>* watched = nullptr;
std::atomic<int> statuses{0};
void look_at_status(int) {
  const int saved = errno;
  if (watched->status()) statuses.fetch_add(1, std::memory_order_relaxed);
  errno = saved;
}
} // namespace

TEST_CASE("queries return in other threads and in signal handlers while connections begin and end",
          "[PSP-043][CSP-021][RSP-027][EP-047][EP-048][EP-057][EP-066]"
          "[SAFE-022][SAFE-024]") {
  sides s(rig::automatic);
  auto& a = s.a;
  auto& b = s.b;
  auto psp = must(b.ia.create_psp(s.service, b.evd));
  auto csp = must(b.ia.create_csp(tcp, b.evd));
  auto reserved = must(b.pz.create_ep<dat::rc>(b.evd));
  auto rsp = must(b.ia.create_rsp(s.other, reserved, b.evd));
  a.make_ep();
  b.make_ep();
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  support::worker asks([&](support::worker& w) {
    while (!stop) {
      w.check(psp.query().has_value() && csp.query().has_value() && rsp.query().has_value());
      const auto at = psp.query();
      w.check(at && at.value().id == psp.id() && at.value().requests == b.evd.id());
      for (auto* ep : {&a.ep, &b.ep, &reserved}) {
        const auto q = ep->query();
        w.check(q.has_value());
        // A query is a snapshot: a connection has both addresses or none.
        if (q && q.value().state == ep_state::connected) w.check(q.value().remote_address.has_value());
        const auto r = ep->recv_query();
        w.check(r && r.value().span >= r.value().allocated);
        w.check(ep->status().has_value());
      }
      ++rounds;
    }
  });
  const struct at_end {
    std::atomic<bool>& stop;
    ~at_end() { stop = true; } // Stops the threads also when the test fails.
  } at_end{stop};
  watched = &a.ep;
  std::signal(SIGUSR1, &look_at_status);
  for (int i = 0; i < 10 || rounds < 10; ++i) {
    must(a.ep.connect(b.ia.address(), s.service, patience));
    std::raise(SIGUSR1);
    auto request = must(b.evd.wait_for<dat::connection_request>(patience));
    must(b.ep.post(dat::recv{b.at(0, 8)}));
    must(request.accept(b.ep));
    (void)must(a.evd.wait_for<dat::established>(patience));
    (void)must(b.evd.wait_for<dat::established>(patience));
    must(a.ep.disconnect());
    (void)must(a.evd.wait_for<dat::disconnected>(patience));
    CHECK(b.take(2).size() == 2); // this includes the flushed receive
    std::raise(SIGUSR1);
    must(a.ep.reset());
    must(b.ep.reset());
  }
  std::signal(SIGUSR1, SIG_DFL);
  stop = true;
  asks.join(); // the thread has checked that each query is one consistent snapshot
  CHECK(statuses >= 20);
  SHOWS("EP-060");
}

TEST_CASE("manual progress advances connections even when every wait finds an event at once", "[progress]") {
  sides s(rig::manual);
  std::array soft{must(s.a.ia.create_evd<dat::stream::software>(1)), must(s.b.ia.create_evd<dat::stream::software>(1))};
  auto active = must(s.a.pz.create_ep<dat::rc>(s.a.evd));
  auto passive = s.make();
  const auto rsp = must(s.b.ia.create_rsp(s.service, passive, s.b.evd));
  // Only the waits make progress, and they never sleep.
  const auto in_time = [&](const auto& reached) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!reached() && std::chrono::steady_clock::now() < end)
      for (auto& evd : soft) {
        must(evd.post(1));
        (void)must(evd.wait(patience));
      }
    return reached();
  };
  must(active.connect(s.b.ia.address(), s.service, patience));
  CHECK(in_time([&] { return passive.state() == ep_state::passive_connection_pending; }));
  auto request = s.request();
  must(request.accept());
  CHECK(in_time([&] { return active.state() == ep_state::connected && passive.state() == ep_state::connected; }));
  must(active.disconnect());
  CHECK(in_time([&] { return passive.state() == ep_state::disconnected; }));
}

} // namespace connections
