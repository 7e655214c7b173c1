// Endpoints: parameters, when they may be modified, and status.
// SPDX-License-Identifier: BSL-1.0
#include "endpoint_in_state.hpp"
#include "sides.hpp"

#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>
#include <dat/srq.hpp>

namespace connections {

TEST_CASE("an endpoint can be configured at once, in steps, or not at all",
          "[EPS-076][EPS-080][EPS-083][EP-002][EP-009][EP-083][CONN-039]") {
  rig::world world;
  rig::end e(0);
  for (unsigned given = 0; given < 16; ++given) {
    dat::ep_evds evds;
    if (given & 1) evds.recv = e.evd;
    if (given & 2) evds.request = e.evd;
    if (given & 4) evds.connect = e.evd;
    auto ep = (given & 8) != 0 ? must(e.pz.create_ep<dat::rc>(evds)) : must(e.ia.create_ep<dat::rc>(evds));
    CHECK(ep.state() == (given == 15 ? ep_state::unconnected : ep_state::unconfigured_unconnected));
    CHECK((ep.native_handle() != nullptr) == (given == 15));
    if (given == 15) continue;
    refuses(ep.connect(e.ia.address(), rig::port(), patience), return_type::invalid_state,
            return_subtype::ep_unconfigured);
    // Supplies the missing parameters one by one: the endpoint can connect when the last one is set.
    for (unsigned bit = 1; bit < 16; bit *= 2) {
      if (given & bit) continue;
      CHECK(ep.state() == ep_state::unconfigured_unconnected);
      dat::ep_changes c;
      if (bit == 1) c.recv = e.evd;
      if (bit == 2) c.request = e.evd;
      if (bit == 4) c.connect = e.evd;
      if (bit == 8) c.pz = &e.pz;
      must(ep.modify(c));
    }
    CHECK(ep.state() == ep_state::unconnected);
    must(ep.post(dat::recv{e.at(0, 4)}));
  }
}

TEST_CASE("modify changes all named parameters or none", "") {
  sides s;
  s.needs_two_adapters_with_ipv6();
  auto& e = s.a;
  auto& other = s.b;
  auto ep = must(e.pz.create_ep<dat::rc>(e.evd, {.max_recv_dtos = 8}));
  const auto before = must(ep.query());
  CHECK(before.local_address == e.ia.address());
  SHOWS("EP-053");
  CHECK(before.comm == dat::communicator{});
  const auto unchanged = [&] {
    const auto now = must(ep.query());
    CHECK(now.number == before.number);
    CHECK(now.attributes.max_recv_dtos == before.attributes.max_recv_dtos);
    CHECK(now.attributes.max_request_iov == before.attributes.max_request_iov);
    CHECK(now.attributes.rnr_retry_count == before.attributes.rnr_retry_count);
    CHECK(now.recv == before.recv);
    CHECK(now.comm == before.comm);
    CHECK(now.local_address == before.local_address);
  };
  must(ep.modify({}));
  unchanged();
  SHOWS("EP-071", "EP-049");
  // One valid and one invalid value of each parameter.
  refuses(ep.modify({.max_recv_dtos = 16, .max_request_iov = 100'000}), return_type::invalid_parameter);
  unchanged();
  SHOWS("EP-067", "EP-072");
  refuses(ep.modify({.max_recv_dtos = 16, .rnr_retry_count = std::uint8_t{8}}), return_type::invalid_parameter);
  unchanged();
  refuses(ep.modify({.comm = dat::communicator{AF_UNIX, 1, 0}, .max_recv_dtos = 16}), return_type::invalid_parameter);
  unchanged();
  SHOWS("CONN-082");
  refuses(ep.modify({.recv = other.evd, .max_recv_dtos = 16}), return_type::invalid_handle,
          return_subtype::handle_evd_recv);
  refuses(ep.modify({.recv = decltype(e.evd)(), .max_recv_dtos = 16}), return_type::invalid_handle,
          return_subtype::handle_evd_recv);
  refuses(ep.modify({.pz = &other.pz, .max_recv_dtos = 16}), return_type::invalid_handle, return_subtype::handle_pz);
  const dat::pz no_zone;
  refuses(ep.modify({.pz = &no_zone}), return_type::invalid_handle, return_subtype::handle_pz);
  refuses(ep.modify({.request = decltype(e.evd)()}), return_type::invalid_handle, return_subtype::handle_evd_request);
  refuses(ep.modify({.connect = decltype(e.evd)()}), return_type::invalid_handle, return_subtype::handle_evd_conn);
  CHECK(ep.state() == ep_state::unconnected);
  SHOWS("EPS-081");
  for (const char* odd : {"192.0.2.1", "127.0.0.1", "224.0.0.1"})
    refuses(ep.modify({.local_address = must(dat::ia_address::parse(odd)), .max_recv_dtos = 16}),
            return_type::invalid_parameter);
  refuses(ep.modify({.local_address = other.ia.address()}), return_type::invalid_parameter);
  SHOWS("EP-079", "CONN-082", "ADDR-005");
  unchanged();

  // Changes that need a new queue pair.
  auto completions = must(e.ia.create_evd<dat::stream::dto>(16));
  auto zone = must(e.ia.create_pz());
  must(ep.modify({.pz = &zone, .recv = completions, .request = completions, .max_recv_dtos = 16}));
  const auto now = must(ep.query());
  CHECK(now.number != before.number);
  CHECK(now.attributes.max_recv_dtos == 16);
  CHECK(now.recv == completions.id());
  SHOWS("EP-075");
  CHECK(now.request == completions.id());
  CHECK(now.connect == e.evd.id());
  CHECK((now.state == ep_state::unconnected && now.has_pz && !now.remote_address && !now.srq));
  CHECK(ep.owner() == e.ia.identity());
  SHOWS("EP-049");
  refuses(completions.close(), return_type::invalid_state, return_subtype::evd_in_use);
  refuses(zone.close(), return_type::invalid_state, return_subtype::pz_in_use);
  // Changes that need no new queue pair.
  must(ep.modify({.max_message_size = 100,
                  .max_rdma_read_out = std::uint8_t{2},
                  .max_rdma_read_in = std::uint8_t{3},
                  .rnr_retry_count = std::uint8_t{2},
                  .qos = dat::qos::economy()}));
  CHECK(must(ep.query()).number == now.number);
  CHECK(must(ep.query()).attributes.max_message_size == 100);
  SHOWS("EP-072", "EP-080");
  CHECK(must(ep.query()).attributes.max_rdma_read_out == 2);
  CHECK(must(ep.query()).attributes.rnr_retry_count == 2);
  const auto changed = must(ep.query());
  CHECK((changed.attributes.max_rdma_read_in == 3 && changed.attributes.qos == dat::qos::economy()));
  // Parameters that the call did not name are unchanged.
  CHECK((changed.recv == now.recv && changed.request == now.request && changed.connect == now.connect));
  CHECK((changed.attributes.max_recv_dtos == 16 && changed.local_address == now.local_address));
  CHECK(changed.attributes.max_request_dtos == now.attributes.max_request_dtos);
  SHOWS("EP-067");
  must(ep.modify({.max_request_dtos = 9, .max_request_iov = 2, .max_recv_iov = 3}));
  const auto lists = must(ep.query()).attributes;
  CHECK(lists.max_request_dtos == 9);
  SHOWS("EP-072");
  CHECK((lists.max_request_iov == 2 && lists.max_recv_iov == 3));
  SHOWS("EP-080");
  // Sets the parameters that can be set only once.
  must(ep.modify({.comm = tcp}));
  CHECK(must(ep.query()).comm.domain == AF_INET);
  auto with = must(e.pz.create_ep<dat::rc>(e.evd, {.comm = tcp}));
  CHECK(must(with.query()).comm == must(ep.query()).comm);
  refuses(ep.modify({.comm = tcp}), return_type::invalid_parameter);
  refuses(with.modify({.comm = tcp}), return_type::invalid_parameter); // set by the creation of the endpoint
  SHOWS("EP-078", "ADDR-015");
  SHOWS("EP-068");
  // Restores the first zone and evds, so that the second zone and evds can be closed.
  must(ep.modify({.pz = &e.pz, .recv = e.evd, .request = e.evd}));
  must(completions.close());
  must(zone.close());
}

TEST_CASE("an endpoint may be modified while its request arrives", "[EP-084]") {
  sides s(rig::automatic);
  auto& a = s.a;
  auto& b = s.b;
  auto one = must(a.ia.create_evd<dat::stream::dto>(16));
  auto other = must(a.ia.create_evd<dat::stream::dto>(16));
  for (int i = 0; i < 20; ++i) {
    auto ep = must(a.pz.create_ep<dat::rc>(a.evd));
    auto rsp = must(a.ia.create_rsp(s.service, ep, a.evd));
    b.make_ep();
    must(b.ep.connect(a.ia.address(), s.service, patience));
    bool last = false;
    for (bool there = false; !there; last = !last) {
      there = ep.state() == ep_state::passive_connection_pending;
      must(ep.modify({.recv = last ? one : other}));
    }
    CHECK(ep.state() == ep_state::passive_connection_pending);
    must(ep.post(dat::recv{a.at(0, 8)}.cookie(5)));
    must(must(a.evd.wait_for<dat::connection_request>(patience)).accept());
    (void)must(b.evd.wait_for<dat::established>(patience));
    (void)must(a.evd.wait_for<dat::established>(patience));
    must(b.ep.post(dat::send{b.at(0, 8)}));
    const auto got = must((last ? other : one).wait(patience)); // the evd that the last modify has set
    CHECK(std::visit(support::describe{}, got) == "received 5");
    (void)must(b.evd.wait_for<dat::send_done>(patience));
    must(ep.close());
    (void)must(b.evd.wait_for<dat::disconnected>(patience));
  }
}

TEST_CASE("status counts an operation as outstanding until its completion is taken",
          "[EP-045][EP-046][EP-062][EP-086]") {
  sides p;
  auto psp = must(p.b.ia.create_psp(p.service, p.b.evd));
  p.a.ep = p.ask(p.service);
  p.b.make_ep();
  must(p.request().accept(p.b.ep));
  p.settle();
  CHECK(p.a.take(1) == events{"established"});
  CHECK(p.b.take(1) == events{"established"});
  const auto idle = [&] {
    const auto s = must(p.a.ep.status());
    return std::pair(s.recv_idle, s.request_idle);
  };
  CHECK(idle() == std::pair(true, true));
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}, dat::recv{p.b.at(8, 8)}));
  CHECK(must(p.b.ep.recv_query()).allocated == 2);
  CHECK(must(p.b.ep.recv_query()).span == 2);
  CHECK_FALSE(must(p.b.ep.status()).recv_idle);
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}.suppress_completion()));
  p.settle();
  CHECK(idle() == std::pair(true, false)); // no completion has retired the suppressed request yet
  must(p.a.ep.post(dat::send{p.a.at(0, 8)}));
  p.settle();
  CHECK(idle() == std::pair(true, false));
  CHECK(p.a.take(1).size() == 1);
  CHECK(idle() == std::pair(true, true));
  (void)must(p.b.evd.wait(patience));
  CHECK_FALSE(must(p.b.ep.status()).recv_idle); // the other message has arrived, too
  CHECK(p.b.take(1).size() == 1);
  CHECK(must(p.b.ep.recv_query()).allocated == 0);
  CHECK(must(p.b.ep.recv_query()).span == 0);
  SHOWS("EP-060");
  CHECK(must(p.b.ep.status()).recv_idle);
  must(p.b.ep.post(dat::recv{p.b.at(0, 8)}));
  for (const bool reads : {false, true}) {
    const auto there = must(p.b.mem.remote(0, 8));
    must(reads ? p.a.ep.post(dat::rdma_read{p.a.at(0, 8), there}) : p.a.ep.post(dat::rdma_write{p.a.at(0, 8), there}));
    CHECK(idle() == std::pair(true, false));
    p.settle();
    CHECK(p.a.take(1).size() == 1);
    CHECK(idle() == std::pair(true, true));
    CHECK((must(p.b.ep.recv_query()).allocated == 1 && must(p.b.ep.recv_query()).span == 1)); // they need no receive
  }
  for (const auto soft : {0u, 5u, dat::no_watermark})
    for (const auto hard : {0u, 5u, dat::no_watermark}) {
      must(p.a.ep.set_watermark(soft, hard));
      const auto now = must(p.a.ep.query()).attributes;
      CHECK((now.soft_high_watermark == soft && now.hard_high_watermark == hard));
    }
  CHECK(p.a.ep.state() == dat::ep_state::connected);
}

TEST_CASE("recv_query counts the receives that have not completed", "") {
  sides p;
  auto psp = must(p.b.ia.create_psp(p.service, p.b.evd));
  p.a.ep = p.ask(p.service);
  p.b.make_ep();
  const auto counts = [&] {
    const auto n = must(p.b.ep.recv_query());
    return std::pair(n.allocated, n.span);
  };
  const auto are = [](std::uint32_t n) { return std::pair(std::optional(n), std::optional(n)); };
  must(p.b.ep.post(dat::recv{}, dat::recv{}, dat::recv{}, dat::recv{}, dat::recv{}));
  CHECK(counts() == are(5));
  must(p.request().accept(p.b.ep));
  p.settle();
  CHECK(p.a.take(1) == events{"established"});
  CHECK(p.b.take(1) == events{"established"});
  CHECK(counts() == are(5));
  must(p.a.ep.post(dat::send{}, dat::send{}));
  must(p.a.ep.post(dat::rdma_read{p.a.at(0, 8), must(p.b.mem.remote(0, 8))}));
  p.settle();
  CHECK(p.a.take(3).size() == 3); // the read has returned, so both messages have arrived
  CHECK(counts() == are(3));      // and no completion was taken
  SHOWS("EP-058", "EP-059");
  (void)must(p.b.evd.wait(patience));
  CHECK(counts() == are(3));
  must(p.b.ep.post(dat::recv{}));
  CHECK(counts() == are(4));
  CHECK(p.b.take(1).size() == 1);
  CHECK(counts() == are(4));
  must(p.b.ep.disconnect());
  p.settle();
  CHECK(p.b.take(5).size() == 5);
  CHECK(counts() == are(0));
}

TEST_CASE("recv_query knows no count on an evd of completions alone while receives may have completed", "") {
  sides p;
  auto psp = must(p.b.ia.create_psp(p.service, p.b.evd));
  p.a.ep = p.ask(p.service);
  auto receives = must(p.b.ia.create_evd<dat::stream::dto>(16));
  p.b.ep = must(p.b.pz.create_ep<dat::rc>({.recv = receives, .request = p.b.evd, .connect = p.b.evd}));
  const auto unknown = [&] {
    const auto n = must(p.b.ep.recv_query());
    return !n.allocated && !n.span;
  };
  must(p.b.ep.post(dat::recv{}));
  CHECK(must(p.b.ep.recv_query()).allocated == 1); // there is no connection yet
  must(p.request().accept(p.b.ep));
  p.settle();
  CHECK(p.a.take(1) == events{"established"});
  CHECK(p.b.take(1) == events{"established"});
  CHECK(unknown());
  must(p.a.ep.post(dat::send{}));
  p.settle();
  CHECK(p.a.take(1).size() == 1);
  CHECK(unknown());
  CHECK(receives.drain([](const auto&) {}) == 1);
  CHECK(must(p.b.ep.recv_query()).allocated == 0);
  CHECK(must(p.b.ep.recv_query()).span == 0);
}

TEST_CASE("parameter calls on a closed endpoint return invalid_handle", "[EP-041][EP-057]") {
  rig::world world;
  rig::end e(0);
  endpoint none;
  e.make_ep();
  auto first = must(e.pz.create_ep<dat::rc>(e.evd));
  must(first.close());
  const auto second = must(e.pz.create_ep<dat::rc>(e.evd)); // the closed handle does not name the new endpoint
  refuses(first.query(), return_type::invalid_handle, return_subtype::handle_ep);
  CHECK(second.state() == ep_state::unconnected);
  must(e.ia.close());
  for (auto* ep : {&none, &first, &e.ep}) {
    refuses(ep->query(), return_type::invalid_handle, return_subtype::handle_ep);
    refuses(ep->status(), return_type::invalid_handle, return_subtype::handle_ep);
    SHOWS("EP-048");
    refuses(ep->recv_query(), return_type::invalid_handle, return_subtype::handle_ep);
    refuses(ep->set_watermark(1, 2), return_type::invalid_handle, return_subtype::handle_ep);
    SHOWS("EP-096");
    refuses(ep->modify({.max_recv_dtos = 5}), return_type::invalid_handle);
    refuses(ep->dup_connect(none, patience), return_type::invalid_handle, return_subtype::handle_ep);
  }
}

} // namespace connections
