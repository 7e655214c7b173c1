// How memory windows on a device are closed: by messages, by disconnects, and with the objects that they need.
//
// The tests leave out one operation that harms a device: a second invalidation of one window is a null pointer
// dereference in some kernels.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "linked_device.hpp"

#include <dat/ep_params.hpp>
#include <dat/rmr.hpp>
#include <dat/srq.hpp>

namespace device { namespace window_tests {

TEST_CASE("rmr: either side can close a window of its peer by a send", "[rmr][DTO-100][DTO-101][DTO-106][DTO-116]") {
  NEEDS_FEATURE(windows);
  linked t;
  dat::rmr rmr = t.make(true);
  std::vector<std::byte> apart(64);
  const auto of_other = must(t.b.pz.register_memory(apart, local));
  dat::rmr other = t.make(true);
  (void)must(other.bind(t.passive, dat::bind{of_other, both}));
  (void)next<dat::bind_done>(t.at_passive);
  for (std::uint64_t round = 0; round < 20; ++round) {
    const open_window w = t.bind(rmr, 0, 64);
    t.write(w, 1);
    if (round < 2) { // a message that names no window closes none
      must(t.passive.post(dat::recv{}));
      must(t.active.post(dat::send{}));
      (void)next<dat::send_done>(t.at_active);
      CHECK_FALSE(next<dat::recv_done>(t.at_passive).invalidated());
      t.write(w, 2);
    }
    constexpr std::size_t sizes[] = {1, 8, 1023, 1024, 1025, 2000};
    const std::size_t size = round % 2 == 0 ? 0 : sizes[round / 2 % std::size(sizes)];
    const auto here = [&](std::size_t first, std::size_t count) { return must(t.a_mem.slice(1000 + first, count)); };
    fill(std::span(t.a_bytes).subspan(1000, size), static_cast<std::uint32_t>(round));
    must(t.passive.post(dat::recv{must(t.b_mem.slice(100, size))}.cookie(round), dat::recv{}.cookie(99)));
    if (round % 2 == 0)
      must(t.active.post(dat::send_with_invalidate{w}.cookie(7), dat::send{}));
    else
      must(t.active.post(
          dat::send_with_invalidate{dat::iov{here(0, size / 3), here(size / 3, size - size / 3)}, w}.solicited().cookie(
              7),
          dat::send{}));
    const auto sent = next<dat::send_done>(t.at_active);
    CHECK((sent.cookie() == dat::cookie(7) && sent.bytes() == size));
    SHOWS("COMP-069", "DTO-102", "DTO-107", "DTO-036", "MODEL-008", "REQ-099", "REQ-133", "COMP-010");
    (void)next<dat::send_done>(t.at_active);
    // Until the receive is taken, the window counts as open.
    if (round == 3) CHECK(error_of(t.b_mem.close()) == dat::error(type::invalid_state, subtype::lmr_in_use));
    const auto closing = next<dat::recv_done>(t.at_passive);
    CHECK(closing.cookie().value() == round);
    CHECK(closing.bytes() == size);
    SHOWS("DTO-036", "DTO-049");
    SHOWS("COMP-069");
    CHECK(has_pattern(std::span(t.b_bytes).subspan(100, size), static_cast<std::uint32_t>(round)));
    SHOWS("DTO-102");
    REQUIRE(closing.invalidated());
    CHECK(rmr.is(*closing.invalidated()));
    CHECK_FALSE(other.is(*closing.invalidated()));
    SHOWS("DTO-115", "DTO-117", "COMP-070");
    CHECK_FALSE(must(rmr.query()).binding);
    CHECK(must(other.query()).binding);
    CHECK_FALSE(next<dat::recv_done>(t.at_passive).invalidated()); // a plain send
    SHOWS("DTO-115");
    SHOWS("DTO-046");
  }
  // In the other direction: the passive side closes a window that the active side has bound.
  dat::rmr mine = must(t.a.pz.create_rmr_for_ep());
  const auto w = must(mine.bind(t.active, dat::bind{t.a_mem, both}));
  (void)next<dat::bind_done>(t.at_active);
  must(t.active.post(dat::recv{}));
  must(t.passive.post(dat::send_with_invalidate{w}));
  CHECK(next<dat::recv_done>(t.at_active).invalidated());
  (void)next<dat::send_done>(t.at_passive);
  must(t.a_mem.close());
  t.a_mem = must(t.a.pz.register_memory(t.a_bytes, local));

  const open_window last = t.bind(rmr, 0, 64);
  must(t.passive.post(dat::recv{}, dat::recv{}));
  must(t.active.post(dat::send_with_invalidate{last}.suppress_completion().fence(), dat::send{}.cookie(8)));
  CHECK(next<dat::send_done>(t.at_active).cookie() == dat::cookie(8)); // the suppressed send has no event
  SHOWS("DTO-102");
  for (int i = 0; i < 2; ++i) (void)next<dat::recv_done>(t.at_passive);
  must(t.b_mem.close()); // the window is closed
  CHECK(t.refused(last, t.active) == dat::dto_status::remote_access);
  SHOWS("DTO-105", "RMR-020");
}

TEST_CASE("rmr: a message that closes a window takes a buffer of a shared queue as others do", "[rmr][srq]") {
  NEEDS_FEATURE(windows);
  linked t;
  const auto srq = must(t.b.pz.create_srq());
  auto from = t.new_active();
  auto to = must(t.b.pz.create_ep<dat::rc>(dat::ep_evds{t.b.evd, t.at_passive, t.b.evd}, srq));
  t.connect(from, to);
  dat::rmr rmr = t.make(true);
  const auto w = must(rmr.bind(to, dat::bind{t.b_mem, 0, 64, both}));
  (void)next<dat::bind_done>(t.at_passive);
  must(srq.post(dat::recv{must(t.b_mem.slice(100, 16))}.cookie(5)));
  must(from.post(dat::send_with_invalidate{must(t.a_mem.slice(0, 8)), w}));
  const auto closing = next<dat::recv_done>(t.b.evd);
  CHECK((closing.ep() == to && closing.cookie() == dat::cookie(5) && closing.bytes() == 8));
  REQUIRE(closing.invalidated());
  CHECK(rmr.is(*closing.invalidated()));
  SHOWS("SRQ-078");
  (void)next<dat::send_done>(t.at_active);
}

TEST_CASE("rmr: a message closes a window before the completion of its bind is taken", "[rmr][DTO-105][RMR-020]") {
  NEEDS_FEATURE(windows);
  linked t;
  auto received = must(t.b.ia.create_evd<dat::stream::dto>(64));
  auto near = t.new_active();
  auto far = must(t.b.pz.create_ep<dat::rc>(dat::ep_evds{received, t.at_passive, t.b.evd}, linked::patient));
  t.connect(near, far);
  dat::rmr rmr = t.make(true);
  for (std::uint64_t round = 0; round < 3; ++round) {
    must(far.post(dat::recv{}));
    const auto w = must(rmr.bind(far, dat::bind{t.b_mem, both}));
    must(far.post(dat::send{})); // this message is behind the bind: when it has arrived, the window is open
    must(near.post(dat::recv{}));
    (void)next<dat::recv_done>(t.at_active);
    must(near.post(dat::send_with_invalidate{w}));
    const auto closing = next<dat::recv_done>(received);
    REQUIRE(closing.invalidated());
    CHECK(rmr.is(*closing.invalidated()));
    CHECK(next<dat::bind_done>(t.at_passive).is_of(rmr)); // at the evd of requests, which is not that of receives
    SHOWS("RMR-019");
    CHECK_FALSE(must(rmr.query()).binding);
    (void)next<dat::send_done>(t.at_passive);
    (void)next<dat::send_done>(t.at_active);
  }
  must(t.b_mem.close()); // nothing is bound to it
}

TEST_CASE("rmr: endpoints, regions and rmrs end in every order, without stalling the device", "[rmr]") {
  NEEDS_FEATURE(windows);
  const bool for_ep = GENERATE(false, true);
  CAPTURE(for_ep);
  const auto start = std::chrono::steady_clock::now();
  {
    linked t;
    {
      auto zone = must(t.b.ia.create_pz());
      const dat::rmr alone = for_ep ? must(zone.create_rmr_for_ep()) : must(zone.create_rmr());
      CHECK(error_of(zone.close()) == dat::error(type::invalid_state, subtype::pz_in_use)); // only the rmr uses it
      SHOWS("PZ-005");
    }
    dat::rmr rmr = t.make(for_ep);
    const open_window w = must(rmr.bind(t.passive, dat::bind{t.b_mem, both}.cookie(7)));
    CHECK(error_of(t.b.pz.close()) == dat::error(type::invalid_state, subtype::pz_in_use));
    CHECK(error_of(t.b_mem.close()) == dat::error(type::invalid_state, subtype::lmr_in_use));
    SHOWS("DTO-067", "LMR-033", "LMR-039");
    SECTION("the rmr ends at once after its bind") {
      rmr = {};
      CHECK(next<dat::bind_done>(t.at_passive).cookie().value() == 7);
      SHOWS("RMR-012");
      // The region is still registered, so only the end of the rmr withdraws the access.
      CHECK(t.refused(must(w.slice(0, 8)), t.active) == dat::dto_status::remote_access);
      SHOWS("REQ-148");
      (void)must(t.a.evd.wait_for_any<dat::connection_broken, dat::disconnected>(t.active, patience));
      CHECK(t.active.state() == state::disconnected);
      SHOWS("RMR-010", "RMR-020");
      must(t.b_mem.close());
      CHECK_FALSE(t.b_mem);
      SHOWS("RMR-009");
    }
    SECTION("the region") {
      (void)next<dat::bind_done>(t.at_passive);
      t.b_mem = {};
      CHECK_FALSE(must(rmr.query()).binding);
      CHECK(error_of(rmr.read_target<std::byte>(t.passive, 0, 1)).type() == type::privileges_violation);
      SHOWS("DTO-145");
      t.b_mem = must(t.b.pz.register_memory(t.b_bytes, local));
      t.write(t.bind(rmr, 0, 64), 3);
    }
    SECTION("the endpoint ends, and the rmr is bound through another one") {
      (void)next<dat::bind_done>(t.at_passive);
      must(t.passive.close());
      CHECK(must(rmr.query()).binding.has_value() != for_ep);
      SHOWS("EP-040", "RMR-013");
      (void)t.at_a<dat::disconnected>();
      t.passive = t.new_passive();
      t.active = t.new_active();
      t.connect(t.active, t.passive);
      t.write(t.bind(rmr, 0, 64), 3);
    }
    SECTION("the connection ends: binds are flushed, and the endpoint can be used again") {
      (void)next<dat::bind_done>(t.at_passive);
      const auto into_window = must(rmr.read_target<std::byte>(t.passive, 0, 8));
      buffer source(t.a.pz, 8);
      t.disconnect(t.active, t.passive);
      must(t.passive.post(dat::rdma_read{into_window, source.remote()}.cookie(6)));
      const auto read = next<dat::dto_failure>(t.at_passive);
      CHECK((read.cookie() == dat::cookie(6) && read.status() == dat::dto_status::flushed));
      must(rmr.unbind(t.passive, dat::unbind{}.cookie(7)));
      const auto unbound = next<dat::dto_failure>(t.at_passive);
      CHECK((unbound.cookie() == dat::cookie(7) && unbound.status() == dat::dto_status::flushed));
      SHOWS("COMP-037");
      must(rmr.bind(t.passive, dat::bind{t.b_mem, 0, 8, both}.cookie(8)));
      const auto flushed = next<dat::dto_failure>(t.at_passive);
      CHECK(flushed.cookie().value() == 8);
      CHECK(flushed.status() == dat::dto_status::flushed);
      CHECK(flushed.operation() == dat::dto_operation::bind);
      SHOWS("DISC-029", "EPS-065", "RMR-025");
      CHECK(must(rmr.query()).binding->length == 4096);
      CHECK(error_of(t.b_mem.close()) == dat::error(type::invalid_state, subtype::lmr_in_use)); // by the old binding
      SHOWS("RMR-036");
      must(t.active.reset());
      must(t.passive.reset());
      CHECK(must(rmr.query()).binding.has_value() != for_ep);
      t.connect(t.active, t.passive);
      t.write(t.bind(rmr, 0, 64), 3);
    }
    SECTION("all objects end at once") {
      must(t.b.ia.close(dat::close_mode::abrupt));
      CHECK(error_of(rmr.query()).type() == type::invalid_handle);
    }
    SECTION("in any order") { CHECK(must(rmr.query()).pz == t.b.pz.identity()); }
  }
  // Destroying a queue pair before its window blocks some kernels for 50 s.
  CHECK(std::chrono::steady_clock::now() - start < patience);
}

TEST_CASE("rmr: no window is bound or unbound while a graceful disconnect is pending", "[rmr]") {
  if (!this_device().waits_for_receives) SKIP("this device ends a connection whose message finds no receive");
  const bool for_ep = GENERATE(false, true);
  CAPTURE(for_ep);
  linked t;
  dat::rmr rmr = t.make(for_ep);
  (void)t.bind(rmr, 0, 64);
  const auto key = must(rmr.query()).binding->key;
  dat::rmr behind = t.make(for_ep);
  buffer source(t.a.pz, 8);
  const auto into_window = must(rmr.read_target<std::byte>(t.passive, 0, 8));
  dat::rmr theirs = must(t.a.pz.create_rmr_for_ep());
  const auto open = must(theirs.bind(t.active, dat::bind{t.a_mem, both}));
  (void)next<dat::bind_done>(t.at_active);
  const bool bind_waits = !this_device().repeats_binds;
  must(t.passive.post(dat::send{must(t.b_mem.slice(0, 8))})); // the peer has posted no receive
  if (bind_waits) (void)must(behind.bind(t.passive, dat::bind{t.b_mem, both}));
  must(t.passive.post(dat::rdma_read{into_window, source.remote()}));
  must(t.passive.post(dat::send_with_invalidate{open}));
  must(t.passive.post(dat::rdma_write{must(t.b_mem.slice(0, 8)), source.remote()}));
  CHECK(is_empty(t.at_passive)); // all requests wait behind the send, and their posts have returned
  CHECK_FALSE(must(behind.query()).binding);
  if (bind_waits) SHOWS("DTO-050", "RMR-018", "REQ-147");
  must(t.passive.disconnect(dat::close_mode::graceful));
  CHECK(t.passive.state() == state::disconnect_pending);
  const auto pending = dat::error(type::invalid_state, subtype::ep_discpending);
  CHECK(error_of(rmr.bind(t.passive, dat::bind{t.b_mem, both})) == pending);
  CHECK(error_of(rmr.unbind(t.passive)) == pending);
  CHECK(must(rmr.query()).binding->key == key);
  SHOWS("DISC-011", "EPS-050", "RMR-025", "REQ-072", "EPS-001");
  must(t.passive.disconnect());
  CHECK(t.passive.state() == state::disconnected);
  CHECK(next<dat::dto_failure>(t.at_passive).operation() == dat::dto_operation::send);
  if (bind_waits) {
    const auto unbound = next<dat::dto_failure>(t.at_passive);
    CHECK((unbound.operation() == dat::dto_operation::bind && unbound.status() == dat::dto_status::flushed));
  }
  for (int i = 0; i < 3; ++i) // the read, the send that closes a window, and the write
    CHECK(next<dat::dto_failure>(t.at_passive).status() == dat::dto_status::flushed);
  SHOWS("DISC-005", "EPS-064");
}

TEST_CASE("rmr: a graceful disconnect completes the binds that are outstanding", "[rmr]") {
  NEEDS_FEATURE(windows);
  const bool for_ep = GENERATE(false, true);
  CAPTURE(for_ep);
  linked t;
  dat::rmr rmr = t.make(for_ep);
  must(rmr.bind(t.passive, dat::bind{t.b_mem, 0, 64, both}));
  CHECK_FALSE(must(t.passive.status()).request_idle);
  (void)next<dat::bind_done>(t.at_passive);
  CHECK(must(t.passive.status()).request_idle);
  SHOWS("EP-046");
  buffer far(t.a.pz, 4096);
  for (int i = 0; i < 31; ++i) must(t.passive.post(dat::rdma_write{t.b_mem, far.remote()}));
  must(t.passive.post(dat::rdma_read{t.b_mem, far.remote()}));
  must(rmr.bind(t.passive, dat::bind{t.b_mem, both})); // this request is behind the writes and the read
  must(t.passive.disconnect(dat::close_mode::graceful));
  CHECK(t.passive.state() == state::disconnect_pending);
  CHECK(is_empty(t.b.evd));
  for (int i = 0; i < 31; ++i) (void)next<dat::rdma_write_done>(t.at_passive);
  CHECK(next<dat::rdma_read_done>(t.at_passive).bytes() == 4096);
  CHECK(next<dat::bind_done>(t.at_passive).is_of(rmr));
  // The end comes with the completions of an evd that has no connection events.
  CHECK(comes_true([&] { return is_empty(t.at_passive) && t.passive.state() == state::disconnected; }));
  (void)next<dat::disconnected>(t.b.evd);
  SHOWS("DISC-008", "EPS-049", "REQ-072");
}

}} // namespace device::window_tests
