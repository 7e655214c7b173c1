// Shared receive queues: many endpoints draw from one pool.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/ep_params.hpp>
#include <dat/rmr.hpp>
#include <dat/srq.hpp>
#include <support/signal_handler.hpp>

#include <algorithm>
#include <cstring>
#include <malloc.h>
#include <unordered_map>

namespace device {
namespace {

constexpr bool slow = dat::detail::thread_sanitizer;
using shared_ep = dat::ep<dat::with_srq<dat::rc>>;

/// Plain endpoints at a, connected to endpoints at b with one shared queue.
struct pool : two_sides {
  explicit pool(std::size_t n, const dat::srq_attributes& size, const dat::ep_attributes& passive = {},
                const dat::ep_attributes& active = {})
      : two_sides({.qlen = 8192}), srq(must(b.pz.create_srq(size))) {
    for (std::size_t i = 0; i < n; ++i) {
      from.push_back(a.make_ep(active));
      to.push_back(must(b.pz.create_ep<dat::rc>(b.evd, srq, passive)));
    }
    for (std::size_t i = 0; i < n; ++i) connect(from[i], to[i]);
  }
  dat::srq srq;
  std::vector<endpoint> from;
  std::vector<shared_ep> to;

  [[nodiscard]] dat::srq_params now(place where = place::here()) const { return must(srq.query(), where); }
  /// Waits until the reactor and the device have left `n` buffers available.
  void until_available(std::uint32_t n, place where = place::here()) const {
    if (!comes_true([&] { return now(where).available == n; })) fail("the queue never had " + std::to_string(n), where);
  }
};

/// Buffers in one region, numbered; their cookies are the numbers.
struct slots {
  slots(dat::pz& pz, std::size_t count, std::size_t each) : size(each), memory(pz, count * each) {}
  std::size_t size;
  buffer memory;
  void post(const dat::srq& to, std::uint64_t which, place where = place::here()) const {
    must(to.post(dat::recv{memory.slice(which * size, size)}.cookie(which)), where);
  }
  [[nodiscard]] std::span<std::byte> of(const dat::completion& c) {
    return memory.part(c.cookie().as<std::size_t>() * size, size);
  }
};

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
  SHOWS("SRQ-021", "SRQ-072", "SRQ-077", "SRQ-078", "DTO-023", "DTO-027");
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

TEST_CASE("counts of a shared queue follow the specification's example on a device", "[srq]") {
  pool p(1, {.max_recv_dtos = 10, .max_recv_iov = 3});
  slots receive(p.b.pz, 16, 16);
  buffer out(p.a.pz, 16);
  const std::uint32_t size = p.now().max_recv_dtos;
  CHECK(size >= 10);
  SHOWS("SRQ-007");
  CHECK(p.now().max_recv_iov >= 3);
  SHOWS("SRQ-010");
  CHECK(p.now().available == 0u);
  SHOWS("SRQ-008");
  const auto in_use = ::mallinfo2().uordblks; // allocations of this thread, or of threads that share its heap
  for (unsigned i = 0; i < 3; ++i) receive.post(p.srq, i);
  CHECK(::mallinfo2().uordblks == in_use);
  SHOWS("SRQ-081");
  CHECK((p.now().available == 3u && p.now().outstanding == 3));
  SHOWS("SRQ-055", "SRQ-056", "SRQ-058", "SAFE-043");
  must(p.from[0].post(dat::send{out.slice(0, 8)}));
  (void)next<dat::send_done>(p.a.evd); // the peer's adapter has the message
  p.until_available(2);
  CHECK(p.now().outstanding == 3);
  SHOWS("SRQ-029");
  (void)next<dat::recv_done>(p.b.evd);
  CHECK((p.now().available == 2u && p.now().outstanding == 2));
  SHOWS("SRQ-057", "SRQ-055");
  // The queue is full when that many buffers are outstanding, posted or completed.
  for (std::uint32_t i = 2; i < size; ++i) receive.post(p.srq, 3);
  must(p.from[0].post(dat::send{out.slice(0, 8)}));
  (void)next<dat::send_done>(p.a.evd);
  p.until_available(size - 1);
  CHECK(p.now().outstanding == size);
  CHECK(error_of(p.srq.post(dat::recv{})) == dat::error(type::insufficient_resources, subtype::resource_srq));
  SHOWS("ERR-031", "SRQ-086", "SRQ-010", "SRQ-029", "SRQ-056");
  CHECK(error_of(p.srq.resize(9)).type() == type::invalid_state);
  CHECK(error_of(p.srq.resize(size - 1)) == dat::error(type::invalid_state, subtype::srq_in_use)); // one is not taken
  CHECK(p.now().max_recv_dtos == size);
  SHOWS("SRQ-063");
  (void)next<dat::recv_done>(p.b.evd);
  must(p.srq.post(dat::recv{}));
  const auto limit = must(p.b.ia.query()).max_recv_per_srq;
  CHECK(error_of(p.srq.resize(limit + 1)).type() == type::invalid_parameter);
  CHECK(error_of(p.srq.resize(0)).type() == type::invalid_parameter);
  SHOWS("SRQ-066");
  CHECK(error_of(p.b.pz.create_srq({.max_recv_dtos = limit + 1})).type() == type::invalid_parameter);
  CHECK(error_of(p.b.pz.create_srq({.max_recv_iov = 100'000})).type() == type::invalid_parameter);
  CHECK(error_of(p.b.pz.create_srq({.max_recv_dtos = 0})).type() == type::invalid_parameter);
  CHECK(error_of(p.b.pz.create_srq({.max_recv_iov = 0})).type() == type::invalid_parameter);
  CHECK(error_of(p.b.pz.create_srq({.max_recv_dtos = limit + 1})).verb().empty()); // dat does not call the device
  SHOWS("SRQ-003", "SRQ-014", "IA-108");
  CHECK(error_of(p.srq.set_low_watermark(size + 1)).type() == type::invalid_parameter);
  must(p.srq.set_low_watermark(size));
  CHECK(p.now().low_watermark == size);
  SHOWS("SRQ-041");
}

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
  // With fewer buffers posted already, the event has come when the call returns, though the device reports none.
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
  for (std::uint32_t i = depth; i < p.now().max_recv_dtos; ++i) receive.post(p.srq, 0);
  CHECK(error_of(p.srq.post(dat::recv{})).type() == type::insufficient_resources);
  SHOWS("SRQ-061");
  must(p.srq.set_low_watermark(90));
  const auto entries = p.now().max_recv_dtos;
  CHECK(error_of(p.srq.resize(80)).type() == type::invalid_state);
  CHECK(p.now().max_recv_dtos == entries);
  SHOWS("SRQ-064");
}

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

TEST_CASE("queries and refusals of shared queues on this device", "[srq]") {
  side b(1);
  const auto offered = must(b.ia.query<dat::provider_attributes>());
  REQUIRE(offered.srq_supported);
  SHOWS("IA-125", "REQ-113");
  CHECK(offered.srq_watermarks_supported.dat_code() == 0x111);
  STATIC_REQUIRE(dat::srq_watermarks().dat_code() == 0);
  STATIC_REQUIRE(dat::srq_watermarks{.low = true}.dat_code() == 0x001);
  STATIC_REQUIRE(dat::srq_watermarks{.soft_high = true}.dat_code() == 0x010);
  STATIC_REQUIRE(dat::srq_watermarks{.hard_high = true}.dat_code() == 0x100);
  SHOWS("IA-126", "DTO-022", "SRQ-042", "EP-086");
  CHECK(offered.srq_info_supported.dat_code() == 0x11);
  STATIC_REQUIRE(dat::srq_counts{.available = true}.dat_code() == 0x01);
  STATIC_REQUIRE(dat::srq_counts{.outstanding = true}.dat_code() == 0x10);
  SHOWS("IA-128", "SRQ-058");
  CHECK_FALSE(offered.srq_ep_pz_difference_supported);
  SHOWS("IA-127", "DTO-022");
  CHECK_FALSE(offered.ep_recv_info_supported);
  SHOWS("IA-129", "SRQ-002", "REQ-113", "DTO-022");
  const auto limits = must(b.ia.query());
  ibv_device_attr device{};
  REQUIRE(::ibv_query_device(b.ia.native_handle(), &device) == 0);
  CHECK(limits.max_srqs == static_cast<std::uint32_t>(device.max_srq));
  SHOWS("IA-092", "DTO-021");
  CHECK(limits.max_recv_per_srq == static_cast<std::uint32_t>(device.max_srq_wr));
  SHOWS("IA-094");
  CHECK(limits.max_ep_per_srq == limits.max_eps); // verbs has no limit of its own
  SHOWS("IA-093", "SRQ-003");
  auto srq = must(b.pz.create_srq({.max_recv_iov = 2}));
  const auto fresh = must(srq.query());
  CHECK((fresh.state == dat::srq_state::operational && fresh.available == 0u && fresh.outstanding == 0));
  SHOWS("SRQ-008");
  auto zone = must(b.ia.create_pz());
  CHECK(error_of(zone.create_ep<dat::rc>(b.evd, srq)).type() == type::invalid_parameter);
  SHOWS("SRQ-018", "DTO-033", "EP-030", "REQ-121");
  buffer foreign(zone, 16);
  buffer mine(b.pz, 64);
  CHECK(error_of(srq.post(dat::recv{foreign.lmr})).type() == type::protection_violation);
  SHOWS("SRQ-088", "SRQ-009", "DTO-032", "EP-023", "REQ-121");
  const auto most = must(srq.query()).max_recv_iov;
  dat::iov<40, mine.lmr.rights> many;
  for (std::uint32_t i = 0; i < most; ++i) REQUIRE(many.push_back(mine.slice(i, 1)));
  must(srq.post(dat::recv{many}));
  REQUIRE(many.push_back(mine.slice(most, 1)));
  CHECK(error_of(srq.post(dat::recv{many})).type() == type::invalid_parameter);
  CHECK(must(srq.query()).outstanding == 1);
  SHOWS("SRQ-074", "SRQ-010");
  side elsewhere(0);
  const auto no_queue = dat::error(type::invalid_handle, subtype::handle_srq);
  CHECK(error_of(elsewhere.pz.create_ep<dat::rc>(elsewhere.evd, srq)) == no_queue);
  CHECK(error_of(b.pz.create_ep<dat::rc>(b.evd, dat::srq())) == no_queue);
  CHECK(error_of(dat::pz().create_ep<dat::rc>(b.evd, srq)) == dat::error(type::invalid_handle, subtype::handle_pz));
  const auto refused_with = [&](const dat::ep_evds& evds) {
    return error_of(b.pz.create_ep<dat::rc>(evds, srq)).subtype();
  };
  CHECK(refused_with({.recv = elsewhere.evd, .request = b.evd, .connect = b.evd}) == subtype::handle_evd_recv);
  CHECK(refused_with({.recv = b.evd, .request = elsewhere.evd, .connect = b.evd}) == subtype::handle_evd_request);
  CHECK(refused_with({.recv = b.evd, .request = b.evd, .connect = elsewhere.evd}) == subtype::handle_evd_conn);
  CHECK(error_of(b.pz.create_ep<dat::rc>(b.evd, srq, {.max_request_iov = 255})).type() == type::invalid_parameter);
  const auto completions_only = must(b.ia.create_evd<dat::stream::dto>(8));
  CHECK(error_of(b.pz.create_ep<dat::rc>({.recv = completions_only, .request = b.evd, .connect = b.evd}, srq)).type() ==
        type::model_not_supported);
  SHOWS("EP-014", "EP-030");
  auto ep = must(
      b.pz.create_ep<dat::rc>(b.evd, srq, {.max_recv_iov = 999, .soft_high_watermark = 7, .hard_high_watermark = 9}));
  CHECK(ep.state() == state::unconnected);
  SHOWS("EP-022");
  // The queue stays in use in each state of the endpoint: unconfigured, unconnected, connecting, disconnected.
  const auto in_use = dat::error(type::invalid_state, subtype::srq_in_use);
  {
    auto other = must(b.pz.create_srq());
    auto early = must(b.ia.create_ep<dat::rc>({.recv = b.evd, .request = b.evd, .connect = b.evd}, other));
    CHECK(early.state() == state::unconfigured_unconnected);
    auto without_evds = must(b.pz.create_ep<dat::rc>({.connect = b.evd}, other));
    CHECK(without_evds.state() == state::unconfigured_unconnected);
    SHOWS("EP-022");
    must(without_evds.close());
    CHECK(error_of(other.close()) == in_use);
    must(early.close());
    must(other.close());
  }
  CHECK(error_of(srq.close()) == in_use);
  must(ep.connect(b.ia.address(), next_port(), patience));
  CHECK(error_of(srq.close()) == in_use);
  (void)next<dat::non_peer_rejected>(b.evd);
  CHECK(error_of(srq.close()) == in_use);
  SHOWS("SRQ-046", "EP-032", "REQ-115", "REQ-005", "ERR-034");
  must(ep.reset());
  const auto params = must(ep.query());
  CHECK(params.srq == srq);
  SHOWS("EP-026", "REQ-124");
  CHECK(params.attributes.max_recv_iov == 0);
  CHECK(error_of(ep.modify({.max_recv_dtos = 7})).type() == type::invalid_parameter);
  SHOWS("EP-068");
  must(ep.modify({.max_recv_iov = 999}));
  CHECK(must(ep.query()).attributes.max_recv_iov == 0);
  SHOWS("EP-028", "EPATTR-011");
  SHOWS("EP-068");
  CHECK(params.attributes.hard_high_watermark == 9);
  CHECK(params.attributes.soft_high_watermark == 7);
  CHECK(params.attributes.max_recv_dtos == 9); // in DAT this attribute is the hard watermark
  SHOWS("EP-055", "EP-097");
  CHECK(params.attributes.max_request_dtos >= dat::ep_attributes().max_request_dtos);
  CHECK(params.attributes.max_request_iov >= dat::ep_attributes().max_request_iov);
  SHOWS("EP-027", "DTO-035");
  CHECK_FALSE(must(b.make_ep().query()).srq);
  SHOWS("EP-054");
  const dat::ep_ref ref = ep;
  CHECK(error_of(ref.post(dat::recv{mine.lmr})).type() == type::invalid_state);
  SHOWS("EP-025", "DTO-027", "DTO-122", "DTO-124", "REQ-116");
  CHECK_FALSE(must(ep.recv_query()).allocated);
  CHECK_FALSE(must(ep.recv_query()).span);
  SHOWS("EP-061", "REQ-120", "DTO-031", "SRQ-034"); // DAT has the value -2 instead
  CHECK(error_of(srq.close()) == dat::error(type::invalid_state, subtype::srq_in_use));
  // No segment can exceed its region, and buffers may differ.
  CHECK(error_of(mine.lmr.slice(60, 5)).type() == type::invalid_parameter);
  CHECK(error_of(mine.lmr.slice(SIZE_MAX, 2)).type() == type::invalid_parameter);
  SHOWS("SRQ-087", "DTO-080");
  must(srq.post(dat::recv{mine.slice(0, 1)}, dat::recv{mine.lmr}));
  const auto told = must(srq.query());
  CHECK(told.pz == b.pz.identity());
  CHECK(told.outstanding == 3);
  SHOWS("SRQ-004", "SRQ-009", "REQ-114");
  CHECK(told.low_watermark == 0);
  CHECK((told.state == dat::srq_state::operational && told.available == 3u && told.max_recv_iov == most));
  CHECK(told.max_recv_dtos == fresh.max_recv_dtos);
  CHECK(srq.owner() == b.ia.identity());
  SHOWS("SRQ-053", "SRQ-034");
  // An endpoint without a shared queue is not affected.
  const auto plain = b.make_ep();
  CHECK(plain.attributes().soft_high_watermark == dat::no_watermark);
  CHECK(plain.attributes().hard_high_watermark == dat::no_watermark);
  CHECK(plain.attributes().max_recv_dtos == dat::ep_attributes().max_recv_dtos);
  CHECK(plain.attributes().max_recv_iov == dat::ep_attributes().max_recv_iov);
  CHECK(plain.attributes().recv_completion == dat::ep_attributes().recv_completion);
  SHOWS("SRQ-006", "DTO-035", "EP-054", "SRQ-034", "REQ-124");
  must(ep.close());
  must(srq.close()); // the end of its endpoint has released the queue
  SHOWS("DTO-025", "EP-026", "EP-038");
  const dat::error empty(type::invalid_handle, subtype::handle_srq);
  auto taken = must(b.pz.create_srq());
  const auto holds = std::move(taken);
  for (dat::srq* nothing : {&srq, &taken}) {
    CHECK(error_of(nothing->post(dat::recv{mine.lmr})) == empty);
    SHOWS("SRQ-090");
    CHECK(error_of(nothing->set_low_watermark(1)) == empty);
    CHECK(error_of(nothing->resize(1)) == empty);
    CHECK(error_of(nothing->query()) == empty);
    SHOWS("SRQ-054");
    CHECK(error_of(nothing->close()) == empty);
    SHOWS("SRQ-050");
  }
  CHECK(error_of(dat::pz().create_srq()) == dat::error(type::invalid_handle, subtype::handle_pz));
  auto ended = must(b.ia.create_pz());
  must(ended.close());
  CHECK(error_of(ended.create_srq()) == dat::error(type::invalid_handle, subtype::handle_pz));
  SHOWS("SRQ-013");
  side stranger(0);
  CHECK_FALSE(stranger.pz.create_ep<dat::rc>(stranger.evd, holds));
  // An abrupt close of the adapter ends a queue and the endpoints that use it.
  auto last = must(b.pz.create_srq());
  const auto user = must(b.pz.create_ep<dat::rc>(b.evd, last));
  must(b.ia.close(dat::close_mode::abrupt));
  CHECK(error_of(last.query()).type() == type::invalid_handle);
  CHECK(error_of(user.query()).type() == type::invalid_handle);
  SHOWS("REQ-115", "DTO-026", "SRQ-052");
  CHECK(error_of(b.pz.create_srq()).type() == type::invalid_handle);
  SHOWS("SRQ-013");
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
    SHOWS("EPS-075");
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

TEST_CASE("the endpoint that takes a shared buffer decides whether its completion notifies",
          "[srq][SRQ-079][SRQ-080][SRQ-092][COMP-028][EPATTR-005]") {
  NEEDS_FEATURE(solicited_waits);
  two_sides t;
  auto srq = must(t.b.pz.create_srq({.max_recv_dtos = 8}));
  buffer in(t.b.pz, 64);
  buffer out(t.a.pz, 8);
  fill(out.bytes, 3);
  dat::iov<2, all_rights.value> parts{in.slice(1, 3), in.slice(5, 13)}; // any alignment
  for (std::uint64_t i = 0; i < 6; ++i) must(srq.post(dat::recv{parts}.cookie(i)));
  parts.clear(); // a post copies the list
  for (const auto how : {dat::completion_notification::evd_threshold, dat::completion_notification::selective,
                         dat::completion_notification::solicited_wait}) {
    INFO(to_string(how));
    auto evd = must(t.b.ia.create_evd<dat::stream::dto | dat::stream::software>(16));
    auto cno = must(t.b.ia.create_cno());
    auto own = must(t.b.ia.create_evd<dat::stream::dto>(16));
    auto from = t.a.make_ep();
    auto to = must(
        t.b.pz.create_ep<dat::rc>({.recv = evd, .request = own, .connect = t.b.evd}, srq, {.recv_completion = how}));
    must(evd.modify_cno(cno));
    t.connect(from, to);
    const auto woken = [&](bool expected) {
      const auto r = cno.wait(expected ? patience : dat::timeout(0s));
      return r ? r.assume_value() == evd.id() : false;
    };
    const auto arrived = [&] {
      for (;;)
        if (auto e = evd.dequeue()) {
          CHECK(std::get<dat::recv_done>(e.assume_value()).bytes() == 8);
          CHECK(std::equal(out.bytes.begin(), out.bytes.begin() + 3, in.bytes.begin() + 1));
          CHECK(std::equal(out.bytes.begin() + 3, out.bytes.end(), in.bytes.begin() + 5));
          return;
        }
    };
    const bool choosy = how == dat::completion_notification::solicited_wait;
    must(from.post(dat::send{out.lmr}));
    (void)next<dat::send_done>(t.a.evd);
    if (choosy) CHECK_FALSE(woken(false));
    if (choosy) SHOWS("CNO-013");
    if (!choosy) CHECK(woken(true)); // a buffer has no flag against notification
    arrived();
    must(from.post(dat::send{out.lmr}.solicited()));
    CHECK(woken(true));
    arrived();
    (void)next<dat::send_done>(t.a.evd);
    t.disconnect(from, to);
  }
}

TEST_CASE("the endpoint that takes a message from a shared queue decides whether it notifies",
          "[srq][SRQ-079][COMP-028][EPATTR-005][REQ-124]") {
  NEEDS_FEATURE(solicited_waits);
  two_sides link({.progress = dat::progress::manual});
  auto plain = link.b.make_ep();
  CHECK_FALSE(must(plain.query()).srq); // by default there is no watermark
  auto srq = must(link.b.pz.create_srq());
  for (int i = 0; i < 8; ++i) must(i < 3 ? srq.post(dat::recv{}.cookie(7)) : srq.post(dat::recv{}));
  struct listener {
    dat::evd<dat::stream::dto | dat::stream::software> evd;
    dat::cno cno;
    endpoint from;
    shared_ep to;
  };
  std::vector<listener> all;
  for (const auto how : {dat::completion_notification::evd_threshold, dat::completion_notification::selective,
                         dat::completion_notification::solicited_wait}) {
    auto evd = must(link.b.ia.create_evd<dat::stream::dto | dat::stream::software>(16));
    auto to = must(link.b.pz.create_ep<dat::rc>({.recv = evd, .request = link.b.evd, .connect = link.b.evd}, srq,
                                                {.recv_completion = how}));
    CHECK(must(to.query()).srq == srq);
    all.push_back({std::move(evd), must(link.b.ia.create_cno()), link.a.make_ep(), std::move(to)});
    must(all.back().evd.modify_cno(all.back().cno));
    link.connect(all.back().from, all.back().to);
    (void)all.back().cno.wait(0s);
  }
  for (const bool solicited : {false, true})
    for (auto& l : all) {
      INFO("endpoint " << &l - all.data() << ", " << (solicited ? "solicited" : "not solicited"));
      auto message = dat::send{};
      if (solicited) message.solicited();
      must(l.from.post(message));
      (void)link.at_a<dat::send_done>(); // the message has arrived
      if (solicited || &l != &all[2])
        CHECK(must(l.cno.wait(patience)) == l.evd.id()); // the second buffer has no flag against notification
      else
        CHECK(error_of(l.cno.wait(0s)).type() == type::queue_empty);
      // Each buffer counts towards a threshold.
      if (&l != all.data()) continue;
      const auto two = l.evd.wait(solicited ? patience : dat::timeout(0s), 2);
      CHECK(two.has_value() == solicited);
    }
  SHOWS("SRQ-079");
  CHECK(count_of<dat::recv_done>(take(all[0].evd, 1)) == 1); // the wait returned the other event
  for (std::size_t i : {1u, 2u}) {
    const auto arrived = take(all[i].evd, 2);
    CHECK(count_of<dat::recv_done>(arrived) == 2);
    SHOWS("SRQ-017", "SRQ-078"); // each endpoint has an evd of its own
    // Several buffers have one cookie, and others none.
    CHECK(std::get<dat::recv_done>(arrived[0]).cookie() == dat::cookie(7));
    CHECK(std::get<dat::recv_done>(arrived[1]).cookie() == dat::cookie());
    SHOWS("SRQ-077");
  }
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
  SHOWS("SRQ-091", "DTO-099", "SRQ-081");
  (void)next<dat::send_done>(p.a.evd);
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

TEST_CASE("posts from several threads to one shared queue all arrive", "[srq][SRQ-091][SRQ-044]") {
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

} // namespace device
