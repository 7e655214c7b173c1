// Watermarks of shared receive queues on a device.
// SPDX-License-Identifier: BSL-1.0
#include "pool_device.hpp"

#include <dat/ep_params.hpp>
#include <dat/srq.hpp>

namespace device { namespace srq_tests {
namespace {

/// The next asynchronous event, which must be an E.
template <class E>
E next_async(dat::ia& ia, place where = place::here()) {
  return must(ia.async_evd().wait_for<E>(patience), where);
}
template <class E>
bool no_async(dat::ia& ia) {
  const auto r = ia.async_evd().wait_for<E>(0s);
  return !r && r.assume_error().type() == type::timeout_expired;
}

} // namespace

TEST_CASE("the low watermark of a shared queue is reported once when fewer buffers are left", "[srq]") {
  pool p(2, {.max_recv_dtos = 20});
  slots receive(p.b.pz, 20, 16);
  buffer out(p.a.pz, 16);
  const auto post = [&](unsigned n) {
    for (unsigned i = 0; i < n; ++i) receive.post(p.srq, i);
  };
  const auto message = [&](std::size_t which) {
    must(p.from[which].post(dat::send{out.slice(0, 8)}));
    (void)next<dat::send_done>(p.a.evd);
    (void)next<dat::recv_done>(p.b.evd);
  };
  post(5);
  must(p.srq.set_low_watermark(3));
  message(0);
  message(1);
  CHECK(no_async<dat::srq_low_watermark>(p.b.ia));
  message(0);
  auto e = next_async<dat::srq_low_watermark>(p.b.ia); // no thread polls for the event
  CHECK(e.srq() == p.srq);
  SHOWS("SRQ-031", "SRQ-035", "SRQ-037", "SRQ-038", "EVENT-083", "SRQ-042", "REQ-117", "REQ-165");
  CHECK(p.now().low_watermark == 3);
  CHECK(p.now().state == dat::srq_state::operational); // the event is a notice, and no error
  SHOWS("SRQ-035", "SRQ-038");
  post(4);
  for (int i = 0; i < 5; ++i) message(1);
  CHECK(no_async<dat::srq_low_watermark>(p.b.ia));
  SHOWS("SRQ-032", "SRQ-039", "SRQ-035", "DTO-028", "REQ-117");
  // With fewer buffers posted already, the event has arrived when the call returns, though the device reports none.
  must(p.srq.set_low_watermark(2));
  CHECK(must(p.b.ia.async_evd().wait_for<dat::srq_low_watermark>(0s)).srq() == p.srq);
  SHOWS("SRQ-036", "SRQ-031", "SRQ-040", "SRQ-039");
  post(4);
  must(p.srq.set_low_watermark(0));
  for (int i = 0; i < 5; ++i) message(0);
  CHECK(no_async<dat::srq_low_watermark>(p.b.ia));
  SHOWS("SRQ-033", "SRQ-034", "DTO-028");
  // The watermark is set again: the last value counts.
  post(6);
  must(p.srq.set_low_watermark(2));
  must(p.srq.set_low_watermark(5));
  message(0);
  CHECK(no_async<dat::srq_low_watermark>(p.b.ia));
  message(0);
  CHECK(next_async<dat::srq_low_watermark>(p.b.ia).srq() == p.srq);
  SHOWS("SRQ-040");
  for (int i = 0; i < 4; ++i) message(0);
  CHECK(no_async<dat::srq_low_watermark>(p.b.ia));
  // An event that is queued outlives the queue, whose close does not wait for it.
  must(p.srq.set_low_watermark(15));
  p.to.clear();
  must(p.srq.close());
  const auto last = next_async<dat::srq_low_watermark>(p.b.ia);
  CHECK(error_of(last.srq().post(dat::recv{})).type() == type::invalid_handle);
  CHECK(error_of(e.srq().post(dat::recv{})).type() == type::invalid_handle);
  SHOWS("SRQ-048", "EPS-085");
}

TEST_CASE("high watermarks report and disconnect the endpoint that drains a shared queue", "[srq]") {
  pool p(2, {.max_recv_dtos = 60}, {.soft_high_watermark = 3, .hard_high_watermark = 9});
  buffer in(p.b.pz, 16);
  buffer out(p.a.pz, 16);
  for (int i = 0; i < 40; ++i) must(p.srq.post(dat::recv{in.slice(0, 8)}));
  const auto send = [&](std::size_t which, int n) {
    for (int i = 0; i < n; ++i) must(p.from[which].post(dat::send{out.slice(0, 8)}));
    CHECK(count_of<dat::send_done>(take(p.a.evd, static_cast<std::size_t>(n))) == static_cast<std::size_t>(n));
  };
  // No thread takes events: the reactor checks the watermark.
  send(0, 3);
  p.until_available(37);
  CHECK(no_async<dat::ep_soft_high_watermark>(p.b.ia)); // the value itself is not exceeded
  send(0, 1);
  CHECK(next_async<dat::ep_soft_high_watermark>(p.b.ia).ep() == p.to[0]);
  SHOWS("EP-087", "REQ-118", "EVENT-014");
  send(0, 5);
  p.until_available(31);
  CHECK(no_async<dat::ep_soft_high_watermark>(p.b.ia));
  CHECK(p.to[0].state() == state::connected);
  SHOWS("EP-088", "EP-089", "EP-091", "EP-093", "DTO-029", "EPATTR-009", "EPATTR-016", "REQ-118");
  must(p.from[0].post(dat::send{out.slice(0, 8)}));
  (void)must(p.b.evd.wait_for<dat::connection_broken>(p.to[0], patience));
  CHECK(p.to[0].state() == state::disconnected);
  CHECK(p.to[1].state() == state::connected);
  SHOWS("EP-089", "EPATTR-009", "DTO-030", "REQ-119");
  CHECK(count_of<dat::recv_done>(take(p.b.evd, 10)) == 10);
  (void)must(p.a.evd.wait_for_any<dat::disconnected, dat::connection_broken>(p.from[0], patience));
  while (p.a.evd.dequeue()) {
  }
  // Without watermarks there is neither an event nor an end, however many messages are not taken.
  STATIC_REQUIRE(dat::no_watermark == std::uint32_t(-1));
  must(p.to[1].set_watermark(dat::no_watermark, dat::no_watermark));
  CHECK(error_of(p.to[1].set_watermark(std::uint32_t(-2), 9)) == dat::error(type::invalid_parameter, subtype::arg2));
  CHECK(error_of(p.to[1].set_watermark(3, 1u << 31)) == dat::error(type::invalid_parameter, subtype::arg3));
  CHECK(must(p.to[1].query()).attributes.soft_high_watermark == dat::no_watermark);
  SHOWS("EP-096", "SRQ-034");
  send(1, 12);
  p.until_available(18);
  CHECK(no_async<dat::ep_soft_high_watermark>(p.b.ia));
  CHECK(p.to[1].state() == state::connected);
  SHOWS("EP-092", "SRQ-034", "REQ-118", "REQ-119");
  CHECK(count_of<dat::recv_done>(take(p.b.evd, 12)) == 12);
  must(p.to[1].set_watermark(3, 9));
  // An endpoint whose messages are taken in time is not disconnected.
  for (int i = 0; i < 12; ++i) {
    send(1, 1);
    (void)next<dat::recv_done>(p.b.evd);
  }
  CHECK(no_async<dat::ep_soft_high_watermark>(p.b.ia));
  SHOWS("EP-094");
  // A watermark below the present count takes effect at once.
  send(1, 2);
  p.until_available(4);
  must(p.to[1].set_watermark(1, 2));
  CHECK(next_async<dat::ep_soft_high_watermark>(p.b.ia).ep() == p.to[1]);
  CHECK(p.to[1].state() == state::connected);
  SHOWS("EP-085");
  must(p.to[1].set_watermark(1, 2)); // set again: another event
  CHECK(next_async<dat::ep_soft_high_watermark>(p.b.ia).ep() == p.to[1]);
  SHOWS("EP-088");
  must(p.to[1].set_watermark(9, 5)); // a soft one above the hard one is no error
  CHECK(no_async<dat::ep_soft_high_watermark>(p.b.ia));
  CHECK(p.to[1].state() == state::connected);
  SHOWS("EP-093");
  must(p.to[1].set_watermark(2, 9)); // not exceeded, and armed, though the one before was reported
  CHECK(no_async<dat::ep_soft_high_watermark>(p.b.ia));
  const auto set = must(p.to[1].query()).attributes;
  CHECK((set.soft_high_watermark == 2 && set.hard_high_watermark == 9 && set.max_recv_dtos == 9));
  SHOWS("EP-097");
  send(1, 1);
  p.until_available(3);
  CHECK(next_async<dat::ep_soft_high_watermark>(p.b.ia).ep() == p.to[1]);
  CHECK(p.to[1].state() == state::connected);
  must(p.to[1].set_watermark(dat::no_watermark, 1));
  CHECK(p.to[1].state() == state::disconnected);
  SHOWS("EP-099", "EP-090");
}

}} // namespace device::srq_tests
