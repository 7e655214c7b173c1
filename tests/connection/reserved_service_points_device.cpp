// Reserved service points, and endpoints that are configured late, on a device.
// SPDX-License-Identifier: BSL-1.0
#include "device_ends.hpp"
#include "device_table.hpp"

#include <dat/ep_params.hpp>
#include <dat/rsp.hpp>

#include <unistd.h>

namespace device {

TEST_CASE("a reserved service point brings one request to its endpoint", "[service_point]") {
  ends e;
  const auto port = next_port();
  buffer memory(e.b.pz, 64);
  auto passive = e.b.make_ep();
  must(passive.post(dat::recv{memory.slice(0, 32)}.cookie(1)));
  auto rsp = must(e.b.ia.create_rsp(port, passive, e.b.evd));
  CHECK(passive.state() == state::reserved);
  SHOWS("EPS-033");
  must(rsp.close()); // the endpoint is free again, with its receive
  CHECK(passive.state() == state::unconnected);
  SHOWS("RSP-023", "EPS-034");
  {
    auto nobody = e.ask(port.port());
    CHECK(next<dat::non_peer_rejected>(e.a.evd).reason() == this_device().no_listener);
    CHECK(nobody.state() == state::disconnected);
    SHOWS("RSP-021", "RSP-002");
  }
  rsp = must(e.b.ia.create_rsp(port, passive, e.b.evd));
  auto first = e.ask(port.port());
  {
    auto request = e.request();
    CHECK(request.local_ep() == passive);
    CHECK(request.service() == rsp.id());
    DEVIATES("EVENT-019");
    SHOWS("EPS-039");
    CHECK_FALSE(request.truncated());
    CHECK(passive.state() == state::passive_connection_pending);
    SHOWS("EPS-035");
    auto second = e.ask(port.port());
    (void)next<dat::non_peer_rejected>(e.a.evd);
    CHECK(second.state() == state::disconnected);
    SHOWS("RSP-001", "RSP-002", "EPS-039");
    must(request.reject());
  }
  (void)next<dat::peer_rejected>(e.a.evd);
  CHECK(passive.state() == state::unconnected);
  SHOWS("EPS-037", "CR-054", "RSP-018");
  CHECK(must(rsp.query()).ep == dat::ep_ref());
  SHOWS("RSP-003", "RSP-027", "EPS-039");
  CHECK(error_of(e.b.ia.create_psp(port, e.b.evd)) == dat::error(type::conn_qual_in_use));
  SHOWS("RSP-004", "PSP-001", "ERR-014", "REQ-052");
  must(rsp.close());
  SHOWS("RSP-003");

  rsp = must(e.b.ia.create_rsp(port, passive, e.b.evd));
  must(first.reset());
  must(first.connect(e.b.ia.address(), port, patience));
  CHECK(comes_true([&] { return passive.state() == state::passive_connection_pending; }));
  must(rsp.close()); // the event of the request is still queued
  CHECK(passive.state() == state::passive_connection_pending);
  auto queued = e.b.evd.wait_for<dat::connection_request>(0s); // the event was queued with the change of the state
  CHECK(queued);
  SHOWS("EPS-004", "EPS-035");
  auto request = must(std::move(queued));
  CHECK(request.local_ep() == passive);
  must(request.accept(bytes_of("reserved")));
  const auto begun = passive.state();
  CHECK((begun == state::completion_pending || begun == state::connected));
  CHECK(text_of(next<dat::established>(e.a.evd).private_data()) == "reserved");
  (void)next<dat::established>(e.b.evd);
  CHECK(passive.state() == state::connected);
  SHOWS("RSP-017", "RSP-024", "RSP-025", "EPS-036", "REQ-055", "MODEL-019");
  buffer out(e.a.pz, 32);
  must(first.post(dat::send{out.slice(0, 32)}));
  CHECK(next<dat::recv_done>(e.b.evd).cookie().value() == 1); // posted before the connection, and before the reject
  SHOWS("CONN-020", "RSP-018", "RSP-023", "CR-054", "EPS-034", "EPS-037");
}

TEST_CASE("closing a reserved service point while its request arrives loses nothing",
          "[service_point][RSP-022][RSP-025][EPS-038]") {
  ends e;
  const auto port = next_port();
  int delivered = 0;
  const int rounds = under_tsan ? 5 : 40;
  for (int i = 0; i < rounds; ++i) {
    auto passive = e.b.make_ep();
    auto rsp = must(e.b.ia.create_rsp(port, passive, e.b.evd));
    auto active = e.ask(port.port());
    for (int spin = 0; spin < i * 40; ++spin) (void)passive.state();
    must(rsp.close());
    CHECK(error_of(rsp.close()) == dat::error(type::invalid_handle, subtype::handle_rsp));
    CHECK(error_of(rsp.query()) == dat::error(type::invalid_handle, subtype::handle_rsp));
    SHOWS("RSP-026", "RSP-027", "PSP-012");
    // After close there are two outcomes: the request is queued and its endpoint waits for the answer, or there is no
    // request.
    if (passive.state() == state::passive_connection_pending) {
      ++delivered;
      auto request = e.b.evd.wait_for<dat::connection_request>(0s); // its event was queued with the change of the state
      CHECK(request);
      must(must(std::move(request)).reject());
      (void)next<dat::peer_rejected>(e.a.evd);
    } else {
      CHECK(passive.state() == state::unconnected);
      CHECK(is_empty(e.b.evd));
      (void)next<dat::non_peer_rejected>(e.a.evd);
    }
  }
  INFO(delivered << " of " << rounds << " requests came before the close");
}

TEST_CASE("an endpoint that is configured late works like any other", "[service_point]") {
  ends e;
  auto port = must(e.b.ia.create_psp_any(e.b.evd));
  auto active = must(e.a.ia.create_ep<dat::rc>({.connect = e.a.evd}));
  CHECK(active.state() == state::unconfigured_unconnected);
  CHECK(error_of(active.connect(e.b.ia.address(), must(dat::conn_qual::make(port.port())), patience)).subtype() ==
        subtype::ep_unconfigured);
  SHOWS("EPS-076", "EP-002");
  auto completions = must(e.a.ia.create_evd<dat::stream::dto>(16));
  must(active.modify({.pz = &e.a.pz, .recv = completions}));
  CHECK(active.state() == state::unconfigured_unconnected);
  SHOWS("EPS-083");
  const auto own_port = next_port();
  must(active.modify({.request = completions,
                      .local_address = e.a.ia.address().with_port(own_port.port()),
                      .max_recv_dtos = 5,
                      .max_message_size = 32,
                      .max_rdma_read_out = std::uint8_t{2}}));
  CHECK(active.state() == state::unconnected);
  SHOWS("EPS-080");
  must(active.modify({.recv = e.a.evd, .request = e.a.evd})); // a new queue pair
  must(completions.close());
  const auto before = must(active.query());
  must(active.connect(e.b.ia.address(), must(dat::conn_qual::make(port.port())), patience));
  auto request = e.request();
  CHECK(request.remote_address() == e.a.ia.address().with_port(own_port.port()));
  SHOWS("CONN-050", "EP-079");
  CHECK(must(active.query()).local_address == e.a.ia.address().with_port(own_port.port()));
  SHOWS("CONN-076", "EP-053", "EP-049");
  auto passive = e.b.make_ep();
  must(request.accept(passive));
  (void)next<dat::established>(e.a.evd);
  (void)next<dat::established>(e.b.evd);
  const auto up = must(active.query());
  CHECK(up.state == state::connected);
  CHECK(up.number == before.number);
  CHECK(up.attributes.max_recv_dtos == 5);
  CHECK(up.attributes.max_message_size == 32);
  SHOWS("EP-080");
  CHECK(up.attributes.max_rdma_read_out == 2);
  CHECK(up.attributes.max_rdma_read_in == before.attributes.max_rdma_read_in);
  SHOWS("CONN-009", "CONN-067", "EP-020", "REQ-059");
  exchange(e.a, active, e.b, passive);
  SHOWS("EP-075", "EVD-013");
  buffer memory(e.a.pz, 64);
  CHECK(error_of(active.post(dat::send{memory.slice(0, 33)})).type() == type::length_error);
  CHECK(error_of(active.modify({.max_recv_dtos = 6})).subtype() == subtype::ep_connected);
  SHOWS("EP-067");
}

} // namespace device
