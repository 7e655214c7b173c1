// Shared receive queues on a device under load: many endpoints, many threads, resizing, and an empty queue.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "pool_device.hpp"

#include <dat/ep_params.hpp>
#include <dat/srq.hpp>
#include <support/signal_handler.hpp>

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace device { namespace srq_tests {

TEST_CASE("one queue serves 64 endpoints under load: every message arrives once, at its endpoint, in its buffer",
          "[srq]") {
  constexpr std::size_t endpoints = slow ? 16 : 64;
  constexpr std::uint32_t each = slow ? 4 : 12;
  // Fewer buffers than outstanding messages, so that some messages wait if the device lets messages wait.
  const std::size_t buffers = this_device().waits_for_receives ? endpoints * 3 / 4 : endpoints * each;
  constexpr std::size_t length = 64;
  pool p(endpoints, {.max_recv_dtos = static_cast<std::uint32_t>(buffers), .max_recv_iov = 1}, {.max_request_dtos = 2},
         {.max_request_dtos = each, .max_recv_dtos = 2, .ack_timeout = 200ms});
  slots receive(p.b.pz, buffers, length);
  buffer send(p.a.pz, endpoints * each * length);
  std::unordered_map<dat::ep_ref, std::size_t> place_of;
  for (std::size_t i = 0; i < endpoints; ++i) place_of[p.to[i]] = i;
  for (std::size_t i = 0; i < buffers; ++i) receive.post(p.srq, i);

  const auto word = [](std::size_t from, std::uint32_t n) { return static_cast<std::uint32_t>(from * 1000 + n); };
  for (std::size_t i = 0; i < endpoints; ++i)
    for (std::uint32_t n = 0; n < each; ++n) fill(send.part((i * each + n) * length, length), word(i, n));
  background sender([&] {
    for (std::uint32_t n = 0; n < each; ++n) {
      for (std::size_t i = 0; i < endpoints; ++i)
        must(p.from[i].post(dat::send{send.slice((i * each + n) * length, length)}.cookie(n)));
      if (count_of<dat::send_done>(take(p.a.evd, endpoints)) != endpoints) return 1;
    }
    return 0;
  });
  std::vector<std::uint32_t> arrived(endpoints, 0);
  std::size_t wrong = 0;
  for (std::size_t left = endpoints * each; left > 0; --left) {
    const auto r = next<dat::recv_done>(p.b.evd);
    const auto at = place_of.find(r.ep());
    REQUIRE(at != place_of.end());
    SHOWS("SRQ-078", "COMP-068", "EP-022");
    // Messages arrive in the order of the peer's sends, in any buffers.
    if (r.bytes() != length || !has_pattern(receive.of(r), word(at->second, arrived[at->second]))) ++wrong;
    ++arrived[at->second];
    receive.post(p.srq, r.cookie().value());
  }
  CHECK(wrong == 0);
  SHOWS("SRQ-021", "SRQ-072", "SRQ-077", "SRQ-078", "DTO-023", "DTO-027", "REQ-116");
  CHECK(sender.get() == 0);
  SHOWS("SRQ-012");
  CHECK(std::all_of(arrived.begin(), arrived.end(), [](std::uint32_t n) { return n == each; }));
  SHOWS("SRQ-017", "REQ-114", "MODEL-025", "EP-004");
  CHECK(is_empty(p.a.evd));
  CHECK(is_empty(p.b.evd));
  CHECK(p.now().outstanding == buffers);
  CHECK(p.now().available == buffers);
  SHOWS("SRQ-082");
}

TEST_CASE("a shared queue is resized while its endpoints receive, and every message arrives once",
          "[srq][SRQ-065][SRQ-068][SRQ-071]") {
  constexpr std::uint32_t each = slow ? 40 : 200;
  constexpr std::uint32_t depth = 24;
  pool p(2, {.max_recv_dtos = 30}, {}, {.max_request_dtos = 2 * each});
  if (!this_device().resizes_queues) {
    CHECK(error_of(p.srq.resize(200)) == dat::error(type::insufficient_resources, subtype::resource_srq));
    SKIP("this device does not resize shared queues");
  }
  slots receive(p.b.pz, depth, 8);
  buffer out(p.a.pz, 2 * each * 8);
  for (std::uint32_t i = 0; i < depth; ++i) receive.post(p.srq, i);
  for (std::uint32_t i = 0; i < 2 * each; ++i) std::memcpy(&out.bytes[i * 8], &i, sizeof i);
  std::vector<unsigned> seen(2 * each, 0);
  background sender([&] {
    for (std::uint32_t i = 0; i < 2 * each; ++i)
      must(p.from[i % 2].post(dat::send{out.slice(i * 8, 8)}.suppress_completion()));
    return 0;
  });
  std::uint32_t size = 30;
  const auto segments = p.now().max_recv_iov;
  const auto room = p.b.evd.capacity();
  for (std::uint32_t n = 0; n < 2 * each; ++n) {
    const auto r = next<dat::recv_done>(p.b.evd);
    std::uint32_t which = 0;
    std::memcpy(&which, receive.of(r).data(), sizeof which);
    REQUIRE(which < seen.size());
    ++seen[which];
    receive.post(p.srq, r.cookie().value());
    if (n % 8 == 0) {
      size = size == 30 ? 200 : 30;
      must(p.srq.resize(size));
      CHECK(p.now().max_recv_dtos >= size);
    }
  }
  CHECK(sender.get() == 0);
  CHECK(std::all_of(seen.begin(), seen.end(), [](unsigned n) { return n == 1; }));
  SHOWS("SRQ-062", "DTO-035", "REQ-123");
  CHECK(p.now().outstanding == depth);
  CHECK(p.now().available == depth);
  SHOWS("SRQ-062");
  CHECK(p.b.evd.capacity() == room);
  SHOWS("SRQ-070");
  // The queue takes its new size, and cannot shrink below its watermark.
  const auto before = p.now();
  must(p.srq.resize(100));
  CHECK(p.now().max_recv_iov == segments);
  const auto after = p.now();
  CHECK((after.pz == before.pz && after.state == before.state && after.low_watermark == before.low_watermark));
  CHECK((after.available == before.available && after.outstanding == before.outstanding));
  SHOWS("SRQ-030");
  must(p.srq.set_low_watermark(90));
  const auto entries = p.now().max_recv_dtos;
  CHECK(error_of(p.srq.resize(80)).type() == type::invalid_state); // the outstanding buffers alone would fit
  CHECK(p.now().max_recv_dtos == entries);
  SHOWS("SRQ-064");
  must(p.srq.set_low_watermark(0));
  for (std::uint32_t i = depth; i < p.now().max_recv_dtos; ++i) receive.post(p.srq, 0);
  CHECK(error_of(p.srq.post(dat::recv{})).type() == type::insufficient_resources);
  SHOWS("SRQ-061");
}

TEST_CASE("when a shared queue is empty, a message waits or its sender gives up, as with any endpoint",
          "[srq][SRQ-012]") {
  if (!this_device().waits_for_receives) SKIP("this device ends a connection whose message finds no receive");
  pool p(2, {.max_recv_dtos = 4}, {}, {.rnr_retry_count = 2, .min_rnr_timer = 10us});
  buffer in(p.b.pz, 16);
  buffer out(p.a.pz, 16);
  const auto by_default = must(p.to[0].query()).attributes;
  CHECK((by_default.soft_high_watermark == dat::no_watermark && by_default.hard_high_watermark == dat::no_watermark));
  must(p.from[0].post(dat::send{out.slice(0, 8)}.cookie(3)));
  const auto f = next<dat::dto_failure>(p.a.evd);
  CHECK(f.status() == dat::dto_status::receiver_not_ready);
  (void)next<dat::connection_broken>(p.a.evd);
  SHOWS("EP-092"); // this endpoint has no watermarks
  must(p.srq.post(dat::recv{in.slice(0, 8)}.cookie(4)));
  must(p.from[1].post(dat::send{out.slice(0, 8)}));
  CHECK(must(p.b.evd.wait_for<dat::recv_done>(p.to[1], patience)).cookie() == dat::cookie(4));
  // An endpoint that retries indefinitely gets a buffer that is posted late.
  auto patient = p.a.make_ep();
  auto late = must(p.b.pz.create_ep<dat::rc>(p.b.evd, p.srq));
  (void)must(p.b.evd.wait_for<dat::disconnected>(p.to[0], patience));
  (void)next<dat::send_done>(p.a.evd);
  p.connect(patient, late);
  must(patient.post(dat::send{out.slice(0, 8)}));
  CHECK(support::in_handler([&] { return p.srq.post(dat::recv{in.slice(0, 8)}.cookie(5)).has_value(); }));
  CHECK(must(p.b.evd.wait_for<dat::recv_done>(late, patience)).cookie() == dat::cookie(5));
  SHOWS("DTO-099", "SRQ-081");
  (void)next<dat::send_done>(p.a.evd);
}

TEST_CASE("posts from several threads to one shared queue all arrive", "[srq][SRQ-044]") {
  constexpr int each = slow ? 50 : 300;
  pool p(2, {.max_recv_dtos = 16}, {}, {.max_request_dtos = 2 * each});
  buffer in(p.b.pz, 16);
  buffer out(p.a.pz, 16);
  std::atomic<std::uint64_t> receives{0};
  const auto poster = [&] {
    for (int i = 0; i < each;)
      if (p.srq.post(dat::recv{in.slice(0, 8)}.cookie(i)))
        ++i, ++receives;
      else
        std::this_thread::yield();
    return 0;
  };
  background one(poster);
  background two(poster);
  const auto make = [&] {
    for (int i = 0; i < 20; ++i) {
      must(must(p.b.pz.create_srq({.max_recv_dtos = 3})).close());
      must(must(p.b.pz.create_ep<dat::rc>(p.b.evd, p.srq)).close());
    }
    return 0;
  };
  background maker(make);
  background other_maker(make);
  background sender([&] {
    for (int i = 0; i < 2 * each;)
      if (may_send(static_cast<std::uint64_t>(i), receives))
        must(p.from[static_cast<std::size_t>(i++ % 2)].post(dat::send{out.slice(0, 8)}.suppress_completion()));
    return 0;
  });
  bool coherent = true;
  for (int i = 0; i < 2 * each; ++i) {
    (void)next<dat::recv_done>(p.b.evd);
    if (i % 16 != 0) continue;
    const auto n = p.now();
    coherent = coherent && n.available.value_or(0) <= n.outstanding && n.outstanding <= n.max_recv_dtos;
    must(p.srq.set_low_watermark(i % 32 == 0 ? 1 : 0));
  }
  CHECK(coherent);
  SHOWS("SRQ-060", "SAFE-024");
  CHECK(maker.get() == 0);
  CHECK(other_maker.get() == 0);
  SHOWS("SRQ-008", "SRQ-016", "EP-032");
  CHECK((one.get() == 0 && two.get() == 0 && sender.get() == 0));
  CHECK(p.now().outstanding == 0);
}

}} // namespace device::srq_tests
