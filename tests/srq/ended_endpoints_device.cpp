// The ends of endpoints with a shared receive queue on a device: the buffers and events that are left.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "netem.hpp"
#include "pool_device.hpp"

#include <dat/ep_params.hpp>
#include <dat/rmr.hpp>
#include <dat/srq.hpp>

#include <algorithm>

namespace device { namespace srq_tests {

TEST_CASE("an endpoint that breaks or ends leaves the shared buffers to the others", "[srq]") {
  pool p(2, {.max_recv_dtos = 30});
  slots receive(p.b.pz, 12, 16);
  buffer out(p.a.pz, 64);
  fill(out.bytes, 5);
  for (unsigned i = 0; i < 6; ++i) receive.post(p.srq, i);
  // The message is longer than its buffer.
  must(p.from[0].post(dat::send{out.slice(0, 17)}));
  const auto f = next<dat::dto_failure>(p.b.evd);
  CHECK(f.ep() == p.to[0]);
  CHECK(f.operation() == dat::dto_operation::recv);
  CHECK(f.status() == dat::dto_status::local_length);
  SHOWS("SRQ-019", "EP-064");
  // The sender detects the failure, too. On a busy machine the sender may be the first to end the connection.
  (void)must(p.b.evd.wait_for_any<dat::connection_broken, dat::disconnected>(p.to[0], patience));
  if (this_device().completes_at_peer) (void)must(p.a.evd.wait_for<dat::dto_failure>(p.from[0], patience));
  CHECK(p.to[1].state() == state::connected);
  CHECK(p.to[0].state() == state::disconnected);
  CHECK(p.now().outstanding == 5);
  SHOWS("EPS-059", "EPS-064", "SRQ-019");
  // The other endpoint still works, with several segments and with none.
  const auto message = [&](std::size_t which, std::size_t bytes, unsigned cookie) {
    must(p.from[which].post(dat::send{out.slice(0, bytes)}));
    const auto r = must(p.b.evd.wait_for<dat::recv_done>(p.to[which], patience));
    CHECK(r.bytes() == bytes);
    CHECK(r.cookie() == dat::cookie(cookie));
    (void)must(p.a.evd.wait_for<dat::send_done>(p.from[which], patience));
  };
  for (unsigned i = 1; i < 6; ++i) message(1, 16, i);
  auto elsewhere = must(p.b.ia.create_pz());
  const buffer foreign(elsewhere, 8);
  // The region of an empty segment does not matter: it belongs to another zone.
  const dat::iov parts{receive.memory.slice(1, 8), foreign.slice(7, 0), receive.memory.slice(65, 8),
                       receive.memory.slice(101, 8)};
  std::fill(receive.memory.bytes.begin(), receive.memory.bytes.end(), std::byte{0});
  must(p.srq.post(dat::recv{parts}.cookie(7), dat::recv{}.cookie(8)));
  message(1, 12, 7);
  CHECK(std::equal(out.bytes.begin(), out.bytes.begin() + 8, receive.memory.bytes.begin() + 1));
  CHECK(std::equal(out.bytes.begin() + 8, out.bytes.begin() + 12, receive.memory.bytes.begin() + 65));
  CHECK(receive.memory.bytes[69] == std::byte{0});
  CHECK(receive.memory.bytes[101] == std::byte{0});
  SHOWS("SRQ-075", "SRQ-076");
  message(1, 0, 8);
  SHOWS("SRQ-073");
  CHECK(error_of(p.to[1].post(dat::send{foreign.lmr})).type() == type::protection_violation);
  CHECK(error_of(p.to[1].post(dat::rdma_write{foreign.lmr, out.remote()})).type() == type::protection_violation);
  CHECK(error_of(p.to[1].post(dat::rdma_read{foreign.lmr, out.remote()})).type() == type::protection_violation);
  if (has(feature::windows)) {
    dat::rmr of_other = must(elsewhere.create_rmr());
    CHECK(error_of(of_other.bind(p.to[1], dat::bind{foreign.lmr, dat::remote_read})).type() ==
          type::protection_violation);
  }
  CHECK(p.to[1].state() == state::connected);
  SHOWS("EP-023"); // the endpoint's own zone governs its requests
  // A disconnect takes no buffer from the queue, and the next life uses it again.
  for (unsigned i = 0; i < 4; ++i) receive.post(p.srq, i);
  p.disconnect(p.from[1], p.to[1]);
  CHECK(is_empty(p.b.evd));
  CHECK((p.now().available == 4u && p.now().outstanding == 4));
  SHOWS("DISC-032", "SRQ-083", "REQ-114");
  CHECK(error_of(dat::ep_ref(p.to[1]).post(dat::recv{})) == dat::error(type::invalid_state, subtype::ep_disconnected));
  const dat::ep_ref over = p.to[1];
  CHECK(error_of(over.post(dat::recv{receive.memory.slice(0, 8)})) ==
        dat::error(type::invalid_state, subtype::ep_disconnected));
  SHOWS("DISC-029", "EPS-065");
  for (auto* ep : {&p.from[0], &p.from[1]}) {
    if (ep->state() != state::disconnected)
      (void)must(p.a.evd.wait_for_any<dat::connection_broken, dat::disconnected>(*ep, patience));
    must(ep->reset());
  }
  for (auto& ep : p.to) must(ep.reset());
  CHECK(p.now().available == 4u);
  CHECK(must(p.to[0].query()).srq == p.srq);
  SHOWS("EPS-073", "REQ-115");
  while (p.a.evd.dequeue()) {
  }
  p.connect(p.from[0], p.to[0]);
  p.connect(p.from[1], p.to[1]);
  message(1, 8, 0);
  message(0, 8, 1);
  SHOWS("DISC-052", "EPS-073");
  // An endpoint that is closed with completions on the evd returns their entries.
  must(p.from[0].post(dat::send{out.slice(0, 8)}));
  (void)next<dat::send_done>(p.a.evd);
  p.until_available(1);
  must(p.to[0].close());
  CHECK(p.now().outstanding == 1);
  SHOWS("SRQ-059");
  // After a disconnect the message that has arrived can still be taken. Messages take buffers while connected only.
  receive.post(p.srq, 3);
  must(p.from[1].post(dat::send{out.slice(0, 8)}));
  (void)must(p.a.evd.wait_for<dat::send_done>(p.from[1], patience)); // after the other connection's end
  p.until_available(1);
  must(p.to[1].disconnect());
  (void)must(p.a.evd.wait_for_any<dat::connection_broken, dat::disconnected>(p.from[1], patience));
  CHECK(must(p.b.evd.wait_for<dat::recv_done>(p.to[1], patience)).bytes() == 8);
  CHECK(p.now().available == 1u);
  SHOWS("SRQ-084");
  // A failed connection attempt takes no buffer either.
  (void)must(p.b.evd.wait_for<dat::disconnected>(p.to[1], patience));
  must(p.to[1].reset());
  must(p.to[1].connect(p.a.ia.address(), next_port(), patience));
  (void)must(p.b.evd.wait_for_any<dat::non_peer_rejected>(p.to[1], patience));
  CHECK(p.now().available == 1u);
  SHOWS("CONN-059", "EPS-044");
  // An endpoint that waits for its requests before it disconnects takes buffers like a connected one.
  if (!this_device().waits_for_receives) return;
  must(p.to[1].reset());
  must(p.from[1].reset());
  while (p.a.evd.dequeue()) {
  }
  p.connect(p.from[1], p.to[1]);
  must(p.to[1].post(dat::send{receive.memory.slice(0, 8)})); // the peer has no receive for the send
  must(p.to[1].disconnect(dat::close_mode::graceful));
  must(p.from[1].post(dat::send{out.slice(0, 8)}));
  CHECK(must(p.b.evd.wait_for<dat::recv_done>(p.to[1], patience)).bytes() == 8);
  CHECK(p.to[1].state() == state::disconnect_pending);
  CHECK(p.now().available == 0u);
  SHOWS("SRQ-084");
}

TEST_CASE("a shared buffer into which a message arrives when the connection ends is flushed, the others stay",
          "[srq][SRQ-083]") {
  if (!in_lab()) SKIP("slows the wire of the lab");
  if (!this_device().flushes_begun) SKIP(loses_begun);
  constexpr std::size_t size = 256 * 1024; // 11 seconds
  pool p(2, {.max_recv_dtos = 4}, {}, {.ack_timeout = 20s});
  slots receive(p.b.pz, 4, size);
  buffer out(p.a.pz, size);
  std::fill(out.bytes.begin(), out.bytes.end(), std::byte{1});
  for (unsigned i = 0; i < 4; ++i) receive.post(p.srq, i);
  {
    const netem wire("rate 200kbit");
    REQUIRE(wire);
    must(p.from[0].post(dat::send{out.lmr}));
    const auto& first = receive.memory.bytes.front();
    CHECK(comes_true([&] { return *static_cast<const volatile std::byte*>(&first) == std::byte{1}; }));
    must(p.to[0].disconnect());
    const auto f = must(p.b.evd.wait_for<dat::dto_failure>(p.to[0], patience));
    CHECK((f.operation() == dat::dto_operation::recv && f.status() == dat::dto_status::flushed));
    CHECK(f.cookie() == dat::cookie(0));
    CHECK((p.now().available == 3u && p.now().outstanding == 3));
  }
  must(p.from[1].post(dat::send{out.slice(0, 8)}));
  CHECK(must(p.b.evd.wait_for<dat::recv_done>(p.to[1], patience)).cookie() == dat::cookie(1));
}

TEST_CASE("queued events stay safe when endpoints and their shared queue are closed in any order",
          "[srq][SRQ-047][SRQ-049][SRQ-052]") {
  pool p(2, {.max_recv_dtos = 8}, {.soft_high_watermark = dat::no_watermark, .hard_high_watermark = dat::no_watermark});
  slots receive(p.b.pz, 8, 16);
  buffer out(p.a.pz, 16);
  const auto send = [&](std::size_t which) {
    must(p.from[which].post(dat::send{out.slice(0, 8)}));
    (void)must(p.a.evd.wait_for<dat::send_done>(p.from[which], patience));
  };
  for (unsigned i = 0; i < 6; ++i) receive.post(p.srq, i);
  send(0);
  send(1);
  SECTION("the queue's handle first: its endpoints keep the queue") {
    { const dat::srq gone = std::move(p.srq); }
    send(1);
    for (std::uint64_t i = 0; i < 3; ++i) CHECK(next<dat::recv_done>(p.b.evd).cookie() == dat::cookie(i));
    p.to.clear();
  }
  SECTION("the endpoints first, then the queue, with all events queued") {
    p.to.clear();
    CHECK(p.now().outstanding == 4);
    SHOWS("SRQ-059");
    must(p.srq.close());
    CHECK(is_empty(p.b.evd));
    SHOWS("EPS-075", "COMP-074");
  }
  SECTION("the endpoints and their evd, then the queue") {
    p.to.clear();
    must(p.psp.close());
    must(p.b.evd.close());
    CHECK(p.now().outstanding == 4);
    SHOWS("SRQ-059");
    must(p.srq.close());
  }
  SECTION("a reset, with a completion queued: its buffer is outstanding no longer") {
    must(p.to[0].disconnect());
    CHECK(p.now().outstanding == 6);
    must(p.to[0].reset());
    CHECK(p.now().outstanding == 5);
    SHOWS("SRQ-059");
    CHECK(must(p.b.evd.wait_for<dat::recv_done>(p.to[1], patience)).cookie() == dat::cookie(1));
  }
  SECTION("all objects, by an abrupt close") {
    must(p.b.ia.close(dat::close_mode::abrupt));
    CHECK(error_of(p.srq.query()).type() == type::invalid_handle);
    CHECK(error_of(p.srq.post(dat::recv{})).type() == type::invalid_handle);
  }
}

}} // namespace device::srq_tests
