// Endpoints: the effect of each call in each state.
// SPDX-License-Identifier: BSL-1.0
#include "endpoint_in_state.hpp"
#include "sides.hpp"

#include <dat/ep_params.hpp>
#include <dat/rmr.hpp>
#include <dat/rsp.hpp>

#include <support/ep_states.hpp>

#include <functional>
#include <optional>

namespace connections {

TEST_CASE("every call on an endpoint follows the state table", "") {
  using enum ep_state;
  sides both;
  const in_state original(both, connected);
  for (const ep_state s : support::all_ep_states) {
    INFO(to_string(s));
    if (s == completion_pending && !rig::lost_handshake::possible) continue;
    const auto subtype = subtype_naming(s);
    const bool unconfigured = dat::detail::is_unconfigured(s);
    const bool pending = one_of(s, {reserved, passive_connection_pending, tentative_connection_pending});
    std::optional<in_state> there;
    const auto allowed = [&](const char* what, bool yes, const std::function<dat::expected<void>(in_state&)>& call) {
      INFO(what);
      if (!there) there.emplace(both, s);
      const auto r = call(*there);
      CAPTURE(r ? "success" : r.error().message());
      CHECK(static_cast<bool>(r) == yes);
      if (r) {
        if (!there->ep || there->ep.state() != s) there.reset();
      } else {
        CHECK(r.error().type() == return_type::invalid_state);
        CHECK(r.error().subtype() == subtype);
        CHECK(there->ep.state() == s);
      }
    };
    allowed("query and status", true, [&](in_state& t) {
      CHECK(must(t.ep.query()).state == s);
      CHECK(must(t.ep.status()).state == s);
      if (!one_of(s, {disconnect_pending, disconnected})) {
        CHECK(must(t.ep.status()).recv_idle);
        CHECK(must(t.ep.status()).request_idle);
      }
      CHECK(must(t.ep.recv_query()).allocated == 0);
      return t.ep.set_watermark(dat::no_watermark, dat::no_watermark);
    });
    SHOWS("EP-044", "EP-065", "EP-085");
    SHOWS("EP-048"); // no state is an error of status
    // Both addresses are known from the request or the connect until the end of the connection.
    const bool has_peer =
        !one_of(s, {unconnected, unconfigured_unconnected, reserved, unconfigured_reserved, disconnected});
    CHECK(must(there->ep.query()).remote_address.has_value() == has_peer);
    CHECK(there->ep.remote_address().has_value() == has_peer);
    SHOWS("ADDR-018", "EP-051");
    if (has_peer) {
      CHECK(must(there->ep.local_address()).port() != 0);
      SHOWS("EP-052", "ADDR-018");
    }
    allowed("modify the communicator", s == unconnected || s == unconfigured_unconnected,
            [](in_state& t) { return t.ep.modify({.comm = tcp}); });
    SHOWS("EP-068", "ADDR-015", "EP-078");
    allowed("modify the local address", s == unconnected || s == unconfigured_unconnected,
            [](in_state& t) { return t.ep.modify({.local_address = t.s.a.ia.address()}); });
    SHOWS("EP-079");
    allowed("common_connect", s == unconnected, [](in_state& t) {
      return t.ep.common_connect(t.s.b.ia.address().with_port(rig::port().port()), patience);
    });
    SHOWS("CONN-074", "CONN-079");
    allowed("connect", s == unconnected,
            [](in_state& t) { return t.ep.connect(t.s.b.ia.address(), rig::port(), patience); });
    SHOWS("CONN-038", "CONN-039", "EPS-001", "EPS-077", "ERR-019", "ERR-034", "ERR-035");
    allowed("dup_connect", s == unconnected, [&](in_state& t) { return t.ep.dup_connect(original.ep, patience); });
    allowed("dup_connect to it", s == connected, [](in_state& t) {
      auto another = must(t.s.a.pz.create_ep<dat::rc>(t.at_a));
      return another.dup_connect(t.ep, patience);
    });
    SHOWS("CONN-085");
    allowed("create_rsp", s == unconnected || s == unconfigured_unconnected, [](in_state& t) -> dat::expected<void> {
      auto r = t.s.a.ia.create_rsp(rig::port(), t.ep, t.at_a);
      if (!r) return r.error();
      t.rsp = std::move(r).value();
      return dat::success();
    });
    SHOWS("RSP-006");
    allowed("accept", s == unconnected, [](in_state& t) { return t.spare.accept(t.ep); });
    SHOWS("CR-022", "CR-023", "EPS-077");
    allowed("modify the zone",
            !pending || s == tentative_connection_pending
                ? one_of(s, {unconnected, tentative_connection_pending}) || unconfigured
                : false,
            [](in_state& t) { return t.ep.modify({.pz = &t.s.a.pz}); });
    SHOWS("EP-074");
    const bool before_setup = s == unconnected || pending || unconfigured;
    const dat::ep_changes sizes[] = {{.max_request_dtos = 9},
                                     {.max_recv_dtos = 70},
                                     {.max_request_iov = 2},
                                     {.max_recv_iov = 2},
                                     {.max_message_size = 4096},
                                     {.max_rdma_read_out = std::uint8_t{1}},
                                     {.max_rdma_read_in = std::uint8_t{1}},
                                     {.qos = dat::qos::economy()}};
    for (const auto& size : sizes)
      allowed("modify a size", before_setup, [&](in_state& t) { return t.ep.modify(size); });
    SHOWS("EP-070", "EP-080");
    allowed("modify the recv flags", before_setup,
            [](in_state& t) { return t.ep.modify({.recv_completion = dat::completion_notification::evd_threshold}); });
    SHOWS("EP-076");
    allowed("modify the request flags", before_setup, [](in_state& t) {
      return t.ep.modify({.request_completion = dat::completion_notification::evd_threshold});
    });
    SHOWS("EP-077");
    allowed("modify the recv evd", before_setup, [](in_state& t) { return t.ep.modify({.recv = t.requests}); });
    allowed("modify the request evd", before_setup, [](in_state& t) { return t.ep.modify({.request = t.receives}); });
    allowed("modify the connect evd", before_setup, [](in_state& t) { return t.ep.modify({.connect = t.at_a}); });
    SHOWS("EP-075");
    const dat::ep_changes of_provider[] = {{.max_inline = 8},
                                           {.retry_count = std::uint8_t{3}},
                                           {.rnr_retry_count = std::uint8_t{3}},
                                           {.ack_timeout = std::chrono::seconds(1)},
                                           {.min_rnr_timer = std::chrono::milliseconds(1)}};
    for (const auto& attribute : of_provider)
      allowed("modify a provider's attribute", s == unconnected || pending || unconfigured,
              [&](in_state& t) { return t.ep.modify(attribute); });
    SHOWS("EP-068", "EP-082");
    for (const auto how : {dat::close_mode::abrupt, dat::close_mode::graceful})
      allowed("disconnect",
              one_of(s, {active_connection_pending, completion_pending, connected, disconnect_pending, disconnected}),
              [&](in_state& t) { return t.ep.disconnect(how); });
    SHOWS("EPS-045", "DISC-003", "DISC-025", "DISC-004");
    allowed("reset", one_of(s, {unconnected, disconnected}), [](in_state& t) { return t.ep.reset(); });
    SHOWS("DISC-046");
    allowed("close", !pending && (!unconfigured || s == unconfigured_unconnected),
            [](in_state& t) { return t.ep.close(); });
    SHOWS("EP-034", "EPS-047", "EPS-078", "RSP-010", "EPS-068");
    allowed("post(recv)", true, [](in_state& t) { return t.ep.post(dat::recv{t.s.a.at(0, 8)}); });
    allowed("post(send)", s == connected || s == disconnected,
            [](in_state& t) { return t.ep.post(dat::send{t.s.a.at(0, 8)}); });
    SHOWS("DTO-069", "RSP-011", "DTO-120", "EPS-082");
    SHOWS("DTO-067");
    // The write has no bytes, so that the peer's rights do not matter.
    const dat::remote_segment<char, dat::mem_priv::remote_write> sink;
    allowed("post(rdma_write)", s == connected || s == disconnected, [&](in_state& t) {
      return t.ep.post(dat::rdma_write{t.s.a.at(0, 0), sink});
    });
    const dat::remote_segment<char, dat::mem_priv::remote_read> source;
    allowed("post(rdma_read)", s == connected || s == disconnected, [&](in_state& t) {
      return t.ep.post(dat::rdma_read{t.s.a.at(0, 0), source});
    });
    SHOWS("DTO-069", "EPS-001", "EP-068");
    if (s == connected || s == disconnected) continue; // the next calls need a receive or a window of the peer
    allowed("post(send_with_invalidate)", false,
            [&](in_state& t) { return t.ep.post(dat::send_with_invalidate{sink}); });
    SHOWS("DTO-069", "DTO-102");
    allowed("post(rdma_write with immediate data)", false, [&](in_state& t) {
      return t.ep.post(dat::rdma_write{t.s.a.at(0, 0), sink}.immediate(1));
    });
    SHOWS("IBX-027");
    if (auto rmr = both.a.pz.create_rmr()) { // some adapters have no windows
      allowed("bind", false, [&](in_state& t) -> dat::expected<void> {
        const auto bound = rmr.value().bind(t.ep, dat::bind{t.s.a.mem, dat::remote_read});
        if (!bound) return bound.error();
        return dat::success();
      });
      SHOWS("RMR-025");
    }
  }
}

} // namespace connections
