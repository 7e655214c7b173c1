// Binds of memory windows on a device: their order, their entries, refusals and failures.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "linked_device.hpp"

#include <dat/ep_params.hpp>
#include <dat/rmr.hpp>

#include <atomic>
#include <thread>

namespace device { namespace window_tests {
namespace {

/// Whether the query of an rmr takes a mask.
template <class R>
concept takes_a_mask = requires(const R& r) {
  r.query(0x80U);
};
/// Whether an rmr has a call that modifies it, as an endpoint has.
template <class R>
concept can_be_modified = requires(R& r) {
  r.modify(dat::remote_read);
};

} // namespace

TEST_CASE("rmr: a bind without notification triggers no cno", "[rmr][RMR-024][DTO-040]") {
  NEEDS_FEATURE(windows);
  const bool for_ep = GENERATE(false, true);
  CAPTURE(for_ep);
  linked t;
  constexpr auto streams = binds | dat::stream::software;
  auto evd = must(t.b.ia.create_evd<streams>(64));
  auto cno = must(t.b.ia.create_cno());
  must(evd.modify_cno(cno));
  auto near = must(t.b.pz.create_ep<dat::rc>(dat::ep_evds{evd, evd, t.b.evd},
                                             {.ack_timeout = 20s,
                                              .recv_completion = dat::completion_notification::selective,
                                              .request_completion = dat::completion_notification::selective}));
  auto far = t.new_active();
  t.connect(far, near);
  dat::rmr rmr = t.make(for_ep);
  // Polls: a wait would take part in the notification.
  const auto poll = [&] {
    auto e = evd.dequeue();
    for (; !e; e = evd.dequeue()) std::this_thread::yield();
    return std::get<dat::bind_done>(e.assume_value()).cookie();
  };
  const auto asleep = [&] { return error_of(cno.wait(0s)).type() == type::queue_empty; };
  (void)must(rmr.bind(near, dat::bind{t.b_mem, both}.cookie(1).suppress_notification()));
  CHECK(poll() == dat::cookie(1));
  CHECK(asleep());
  must(rmr.unbind(near, dat::unbind{}.cookie(2).suppress_notification()));
  CHECK(poll() == dat::cookie(2));
  CHECK(asleep());
  SHOWS("REQ-108", "MODEL-014", "REQ-163", "COMP-001", "COMP-019");
  (void)must(rmr.bind(near, dat::bind{t.b_mem, both}.cookie(3)));
  CHECK(must(cno.wait(patience)) == evd.id()); // notification is the default
  CHECK(poll() == dat::cookie(3));
  // Nor does a read into the window, or a message that closes a window of the peer.
  const auto polls = [&]<class E>(const E*) {
    auto e = evd.dequeue();
    for (; !e; e = evd.dequeue()) std::this_thread::yield();
    return std::get<E>(e.assume_value()).cookie();
  };
  buffer source(t.a.pz, 8);
  must(near.post(
      dat::rdma_read{must(rmr.read_target<std::byte>(near, 0, 8)), source.remote()}.cookie(5).suppress_notification()));
  CHECK(polls(static_cast<const dat::rdma_read_done*>(nullptr)) == dat::cookie(5));
  CHECK(asleep());
  dat::rmr theirs = must(t.a.pz.create_rmr_for_ep());
  const auto opened = must(theirs.bind(far, dat::bind{t.a_mem, both}));
  (void)next<dat::bind_done>(t.at_active);
  must(far.post(dat::recv{}));
  must(near.post(dat::send_with_invalidate{opened}.cookie(6).suppress_notification()));
  CHECK(polls(static_cast<const dat::send_done*>(nullptr)) == dat::cookie(6));
  CHECK(asleep());
  SHOWS("REQ-108");
  CHECK(next<dat::recv_done>(t.at_active).invalidated());
  dat::rmr other = t.make(for_ep); // a bind that is suppressed has no event
  (void)must(other.bind(near, dat::bind{t.b_mem, both}.cookie(7).suppress_completion()));
  must(rmr.unbind(near, dat::unbind{}.cookie(4).suppress_notification()));
  CHECK(poll() == dat::cookie(4));
  CHECK(asleep());
  SHOWS("COMP-016");
}

TEST_CASE("rmr: an invalid bind is refused and keeps the old binding",
          "[rmr][RMR-007][RMR-011][RMR-029][RMR-032][RMR-035][RMR-036]") {
  NEEDS_FEATURE(windows);
  const bool for_ep = GENERATE(false, true);
  CAPTURE(for_ep);
  linked t;
  dat::rmr rmr = t.make(for_ep);
  const open_window before = t.bind(rmr, 0, 64);
  const auto key = must(rmr.query()).binding->key;
  dat::rmr none;
  const inner no_region;
  CHECK(error_of(none.query()) == dat::error(type::invalid_handle, subtype::handle_rmr));
  STATIC_REQUIRE_FALSE(takes_a_mask<dat::rmr>);    // a query returns all members, so no mask can be wrong
  STATIC_REQUIRE_FALSE(can_be_modified<dat::rmr>); // only a bind modifies an rmr
  SHOWS("RMR-014", "RMR-016");
  CHECK(error_of(none.bind(t.passive, dat::bind{t.b_mem, both})) ==
        dat::error(type::invalid_handle, subtype::handle_rmr));
  CHECK(error_of(rmr.bind(t.passive, dat::bind{no_region, both})) ==
        dat::error(type::invalid_handle, subtype::handle_lmr));
  CHECK(error_of(rmr.bind({}, dat::bind{t.b_mem, both})) == dat::error(type::invalid_handle, subtype::handle_ep));
  SHOWS("RMR-037", "DTO-067");
  CHECK(error_of(dat::pz().create_rmr()) == dat::error(type::invalid_handle, subtype::handle_pz));
  CHECK(error_of(dat::pz().create_rmr_for_ep()) == dat::error(type::invalid_handle, subtype::handle_pz));
  for (const auto& [first, count] : {std::pair{1u, 4096u}, std::pair{4097u, 0u}, std::pair{3u, 0u}})
    CHECK(error_of(rmr.bind(t.passive, dat::bind{t.b_mem, first, count, both})).type() == type::invalid_parameter);
  SHOWS("LMR-022", "REQ-146", "REQ-147");
  auto zone = must(t.b.ia.create_pz());
  const auto foreign = must(zone.register_memory(t.b_bytes, local));
  auto elsewhere = must(zone.create_rmr());
  const auto violation = type::protection_violation;
  CHECK(error_of(rmr.bind(t.passive, dat::bind{foreign, both})).type() == violation);
  CHECK(error_of(elsewhere.bind(t.passive, dat::bind{foreign, both})).type() == violation);
  CHECK(error_of(elsewhere.bind(t.passive, dat::bind{t.b_mem, both})).type() == violation);
  SHOWS("RMR-037", "PZ-002", "EP-003", "MODEL-018");
  endpoint apart = t.new_passive();
  CHECK(error_of(rmr.bind(apart, dat::bind{t.b_mem, both})).type() == type::invalid_state);
  SHOWS("RMR-025", "RMR-037");
  must(apart.connect(t.target(), t.port(), patience));
  auto request = t.at_b<dat::connection_request>();
  CHECK(error_of(rmr.bind(apart, dat::bind{t.b_mem, both})) ==
        dat::error(type::invalid_state, subtype::ep_actconnpending));
  SHOWS("RMR-025");
  must(request.reject());
  (void)t.at_b<dat::peer_rejected>();
  CHECK(error_of(rmr.bind(t.passive, dat::bind{t.b_mem, both}.suppress_notification())).type() ==
        type::invalid_parameter);
  CHECK(error_of(rmr.unbind(t.passive, dat::unbind{}.suppress_notification())).type() == type::invalid_parameter);
  SHOWS("COMP-011", "COMP-025", "DTO-076", "RMR-024");
  if (!for_ep) {
    CHECK(error_of(rmr.bind(t.passive, dat::bind{t.b_mem, both}.zero_based())).type() == type::model_not_supported);
    SHOWS("RMR-037", "RMR-033");
  }
  { // The request evd of the endpoint lacks dat::stream::rmr_bind.
    auto plain = must(t.b.ia.create_evd<dat::stream::dto>(8));
    endpoint bare = must(t.b.pz.create_ep<dat::rc>(dat::ep_evds{plain, plain, t.b.evd}));
    endpoint far = t.new_active();
    t.connect(far, bare);
    dat::rmr another = t.make(for_ep);
    CHECK(error_of(another.bind(bare, dat::bind{t.b_mem, both})) == dat::error(type::invalid_parameter, subtype::arg6));
    SHOWS("EVENT-026");
    t.disconnect(far, bare);
  }
  CHECK(must(rmr.query()).binding->key == key);
  t.write(before, 1);
  // One bind at a time; the region of the old binding is in use until the completion of the new bind is taken.
  auto second = must(t.b.pz.register_memory(t.b_bytes, local));
  const open_window after = must(rmr.bind(t.passive, dat::bind{second, 0, 64, both}));
  CHECK(error_of(rmr.bind(t.passive, dat::bind{t.b_mem, both})).type() == type::invalid_state);
  SHOWS("REQ-147");
  CHECK(error_of(rmr.close()).type() == type::invalid_state);
  CHECK(error_of(t.b_mem.close()) == dat::error(type::invalid_state, subtype::lmr_in_use));
  CHECK(error_of(second.close()) == dat::error(type::invalid_state, subtype::lmr_in_use)); // so is the new region
  (void)next<dat::bind_done>(t.at_passive);
  must(t.b_mem.close());
  CHECK(error_of(second.close()) == dat::error(type::invalid_state, subtype::lmr_in_use));
  t.write(after, 2);
  // Another thread may post receives meanwhile.
  background receiver([&] {
    for (int i = 0; i < 50; ++i) {
      must(t.passive.post(dat::recv{}));
      if (i % 10 == 0) must(must(t.b.pz.create_rmr()).close());
      if (i % 10 == 5) must(must(t.b.pz.create_rmr_for_ep()).close());
    }
    return 0;
  });
  for (std::size_t i = 0; i < 50; ++i) {
    (void)must(rmr.bind(t.passive, dat::bind{second, i, 8, both}));
    (void)next<dat::bind_done>(t.at_passive);
    if (i % 10 == 3) must(must(t.b.pz.create_rmr()).close());
    if (i % 10 == 8) must(must(t.b.pz.create_rmr_for_ep()).close());
  }
  CHECK(receiver.get() == 0); // and both threads have freed unbound rmrs
  SHOWS("RMR-006", "RMR-009", "RMR-038");
  must(rmr.close());
  CHECK(error_of(rmr.close()) == dat::error(type::invalid_handle, subtype::handle_rmr));
  CHECK(error_of(rmr.query()) == dat::error(type::invalid_handle, subtype::handle_rmr));
  CHECK(error_of(rmr.bind(t.passive, dat::bind{second, 0, 8, both})) ==
        dat::error(type::invalid_handle, subtype::handle_rmr));
  must(second.close()); // the rmr that was bound to it is free
  SHOWS("RMR-009", "RMR-016");
}

TEST_CASE("rmr: a bind refused by the device fails, and later requests are flushed", "[rmr][COMP-045][COMP-057]") {
  NEEDS_FEATURE(windows);
  linked t;
  dat::rmr rmr = t.make(true);
  // The test binds the window without the library's knowledge: a window of this type must be free before a bind.
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  wr.opcode = IBV_WR_BIND_MW;
  wr.bind_mw.mw = rmr.native_handle();
  wr.bind_mw.rkey = ibv_inc_rkey(rmr.native_handle()->rkey);
  wr.bind_mw.bind_info = {t.b_mem.native_handle(), reinterpret_cast<std::uintptr_t>(t.b_bytes.data()), 8,
                          IBV_ACCESS_REMOTE_READ};
  REQUIRE(ibv_post_send(t.passive.native_handle(), &wr, &bad) == 0);
  auto fresh = must(t.b.pz.register_memory(t.b_bytes, local));
  (void)must(rmr.bind(t.passive, dat::bind{fresh, 0, 8, both}.cookie(1)));
  const auto failed = next<dat::dto_failure>(t.at_passive);
  CHECK(failed.cookie() == dat::cookie(1));
  CHECK(failed.operation() == dat::dto_operation::bind);
  dat::rmr other = t.make(false);
  CHECK((failed.is_of(rmr) && !failed.is_of(other) && !failed.is_of(dat::rmr())));
  SHOWS("RMR-019", "COMP-072");
  if (this_device().names_local_faults)
    CHECK(failed.status() == dat::dto_status::rmr_operation_failed);
  else
    CHECK(failed.status() == dat::dto_status::flushed);
  CHECK(t.at_b<dat::connection_broken>(t.passive).ep() == t.passive);
  CHECK(t.passive.state() == state::disconnected);
  SHOWS("RMR-026");
  CHECK_FALSE(must(rmr.query()).binding);
  CHECK(fresh.close()); // the bind that failed does not keep its region in use
  SHOWS("RMR-036");
  (void)must(other.bind(t.passive, dat::bind{t.b_mem, 0, 8, both}.cookie(2)));
  const auto flushed = std::get<dat::dto_failure>(must(t.at_passive.wait(patience)));
  CHECK(flushed.cookie() == dat::cookie(2));
  CHECK((flushed.is_of(other) && !flushed.is_of(rmr)));
  SHOWS("RMR-019", "COMP-072"); // a flushed bind is reported, too
  CHECK(flushed.status() == dat::dto_status::flushed);
  SHOWS("COMP-037", "COMP-056", "COMP-072"); // this is the status of a bind
  (void)t.at_a<dat::disconnected>(t.active);
}

TEST_CASE("rmr: one thread posts requests of every kind, another receives, to one endpoint",
          "[rmr][SAFE-027][SAFE-028][RMR-038][DTO-088][DTO-123][DTO-140]") {
  NEEDS_FEATURE(windows);
  const bool for_ep = GENERATE(false, true);
  linked t;
  dat::rmr rmr = t.make(for_ep);
  buffer far(t.a.pz, 16);
  dat::rmr of_peer = must(t.a.pz.create_rmr_for_ep());
  constexpr std::uint64_t rounds = 60;
  background receiver([&] {
    for (std::uint64_t i = 0; i < rounds;) {
      const auto posted = t.passive.post(dat::recv{}.cookie(i));
      if (posted)
        ++i;
      else if (posted.assume_error().type() != type::insufficient_resources)
        must(dat::expected<void>(posted.assume_error()));
      else
        std::this_thread::yield();
    }
  });
  for (std::uint64_t i = 0; i < rounds; ++i) {
    must(t.active.post(dat::recv{}, dat::recv{}, dat::recv{}));
    const auto opened = must(of_peer.bind(t.active, dat::bind{far.lmr, dat::remote_write}));
    (void)next<dat::bind_done>(t.at_active);
    (void)must(rmr.bind(t.passive, dat::bind{t.b_mem, i, 8, both}.cookie(i)));
    fill(std::span(t.b_bytes).subspan(1000, 8), static_cast<std::uint32_t>(i));
    must(t.passive.post(dat::rdma_write{must(t.b_mem.slice(1000, 8)), far.remote()}.cookie(i)));
    must(t.passive.post(dat::rdma_write{must(t.b_mem.slice(1000, 8)), far.remote(8, 8)}.immediate(7).cookie(i)));
    must(t.passive.post(dat::rdma_read{must(t.b_mem.slice(2000, 8)), far.remote(0, 8)}.cookie(i)));
    must(t.passive.post(dat::send_with_invalidate{opened}.cookie(i)));
    must(t.passive.post(dat::send{}.cookie(i)));
    must(t.active.post(dat::send{}));
    const auto at_passive = take(t.at_passive, 7);
    CHECK(count_of<dat::bind_done>(at_passive) == 1);
    CHECK(count_of<dat::rdma_write_done>(at_passive) == 1);
    CHECK(count_of<dat::ib::rdma_write_immediate_done>(at_passive) == 1);
    SHOWS("IBX-027");
    CHECK(count_of<dat::rdma_read_done>(at_passive) == 1);
    CHECK(count_of<dat::send_done>(at_passive) == 2);
    CHECK(has_pattern(std::span(t.b_bytes).subspan(2000, 8), static_cast<std::uint32_t>(i)));
    for (const auto& e : at_passive)
      if (const auto* r = std::get_if<dat::recv_done>(&e)) CHECK(r->cookie() == dat::cookie(i));
    CHECK(take(t.at_active, 4).size() == 4);
    const auto into_window = must(rmr.read_target<std::byte>(t.passive, 0, 8)); // the bind has completed
    must(t.passive.post(dat::rdma_read{into_window, far.remote(0, 8)}.cookie(i)));
    CHECK(next<dat::rdma_read_done>(t.at_passive).cookie() == dat::cookie(i));
    CHECK(has_pattern(std::span(t.b_bytes).subspan(i, 8), static_cast<std::uint32_t>(i)));
  }
  receiver.get();
}

TEST_CASE("rmr: binds are ordered behind earlier requests and use one entry, or two to move an endpoint's window",
          "[rmr][RMR-022][DTO-072]") {
  NEEDS_FEATURE(windows);
  const bool for_ep = GENERATE(false, true);
  CAPTURE(for_ep);
  linked t;
  buffer source(t.a.pz, 64 * 1024);
  buffer sink(t.b.pz, 64 * 1024);
  endpoint far = t.new_active();
  const dat::ep_attributes three{.max_request_dtos = 3, .ack_timeout = 20s};
  endpoint near = must(t.b.pz.create_ep<dat::rc>(dat::ep_evds{t.at_passive, t.at_passive, t.b.evd}, three));
  t.connect(far, near);
  dat::rmr rmr = t.make(for_ep);
  // The window is bound, moved, unbound, and unbound again. The last unbind is no request of the adapter.
  for (std::uint64_t i = 0; i < 8; ++i) {
    const bool moved = i % 4 == 1;
    const bool opened = i % 4 == 0;
    must(near.post(dat::rdma_read{sink.lmr, source.remote()}.cookie(i)));
    if (opened || moved)
      (void)must(rmr.bind(near, dat::bind{t.b_mem, i, 8, both}.cookie(10 + i)));
    else
      must(rmr.unbind(near, dat::unbind{}.cookie(10 + i)));
    const bool full = moved && for_ep;
    const bool written = i % 2 == 0; // the last entry is used by a write or by a read
    if (!full && written) must(near.post(dat::rdma_write{sink.slice(0, 0), source.remote()}.cookie(30)));
    if (!full && !written) must(near.post(dat::rdma_read{sink.slice(0, 0), source.remote()}.cookie(30)));
    CHECK(error_of(near.post(dat::send{})) == dat::error(type::insufficient_resources, subtype::resource_tep));
    must(near.post(dat::recv{})); // receives have a queue of their own
    SHOWS("MODEL-024", "IA-078", "EPATTR-010");
    if (full) DEVIATES("RMR-028");
    CHECK(next<dat::rdma_read_done>(t.at_passive).cookie() == dat::cookie(i));
    const auto done = next<dat::bind_done>(t.at_passive);
    CHECK(done.cookie() == dat::cookie(10 + i));
    CHECK((done.is_of(rmr) && done.ep() == near));
    SHOWS("REQ-147");
    CHECK(done.operation() == (opened || moved ? dat::dto_operation::bind : dat::dto_operation::unbind));
    CHECK(must(rmr.query()).binding.has_value() == (opened || moved));
    if (!full && written) CHECK(next<dat::rdma_write_done>(t.at_passive).cookie() == dat::cookie(30));
    if (!full && !written) CHECK(next<dat::rdma_read_done>(t.at_passive).cookie() == dat::cookie(30));
  }
  if (!for_ep) return;
  (void)must(rmr.bind(near, dat::bind{t.b_mem, both}));
  (void)next<dat::bind_done>(t.at_passive);
  const dat::rdma_read one{sink.slice(0, 8), source.remote()};
  must(near.post(one, one));
  const dat::error full = error_of(rmr.bind(near, dat::bind{t.b_mem, 0, 8, both}));
  CHECK(full == dat::error(type::insufficient_resources, subtype::resource_tep));
  SHOWS("RMR-037");
  CHECK_THAT(full.message(), support::contains_text("takes two places of max_request_dtos"));
  for (int i = 0; i < 2; ++i) (void)next<dat::rdma_read_done>(t.at_passive);
  CHECK(must(rmr.query()).binding->length == t.b_bytes.size());
  must(rmr.unbind(near));
  (void)next<dat::bind_done>(t.at_passive);
}

TEST_CASE("rmr: windows are opened, moved and closed while two connections write to their region",
          "[rmr][RMR-014][RMR-021][RMR-034][DTO-101]") {
  NEEDS_FEATURE(windows);
  const bool for_ep = GENERATE(false, true);
  CAPTURE(for_ep);
  linked t;
  auto done = must(t.a.ia.create_evd<dat::stream::dto>(16));
  endpoint far = must(t.a.pz.create_ep<dat::rc>(dat::ep_evds{done, done, t.a.evd}, linked::patient));
  endpoint near = t.new_passive();
  t.connect(far, near);
  dat::rmr standing = t.make(for_ep);
  const open_window always = must(standing.bind(near, dat::bind{t.b_mem, 2048, 1024, both}));
  (void)next<dat::bind_done>(t.at_passive);
  buffer out(t.a.pz, 1024);
  buffer back(t.a.pz, 1024);
  std::atomic<std::uint32_t> rounds{0};
  std::atomic<bool> stop{false};
  background traffic([&] {
    for (; !stop; ++rounds) {
      fill(out.bytes, rounds);
      must(far.post(dat::rdma_write{out.lmr, always}.suppress_completion(), dat::rdma_read{back.lmr, always}));
      (void)next<dat::rdma_read_done>(done);
      if (!has_pattern(back.bytes, rounds)) return false;
    }
    return true;
  });
  const struct stopper {
    std::atomic<bool>& flag;
    ~stopper() { flag = true; }
  } at_the_end{stop};
  dat::rmr rmr = t.make(for_ep);
  std::optional<open_window> last;
  for (std::uint32_t i = 0; i < 60 || rounds < 20; ++i) {
    const std::size_t first = i % 7 * 100;
    const open_window w = t.bind(rmr, first, 64 + i % 60);
    if (last) CHECK(w.rkey() != last->rkey());
    const auto here = must(t.a_mem.slice(0, w.size()));
    must(t.active.post(dat::rdma_write{here, w}.suppress_completion(), dat::rdma_write{here, w}.suppress_completion()));
    t.write(w, i); // this write follows outstanding writes
    if (!has_pattern(std::span(t.b_bytes).subspan(first, w.size()), i)) FAIL("round " << i);
    if (i % 3 == 1) { // the owner closes the window
      must(rmr.unbind(t.passive));
      (void)next<dat::bind_done>(t.at_passive);
    } else if (i % 3 == 2 && for_ep) { // the peer closes the window
      must(t.passive.post(dat::recv{}));
      must(t.active.post(dat::rdma_write{here, w}.suppress_completion(), dat::send_with_invalidate{w}));
      (void)next<dat::send_done>(t.at_active);
      CHECK(rmr.is(next<dat::recv_done>(t.at_passive).invalidated().value_or(0)));
    }
    CHECK(must(rmr.query()).binding.has_value() == (i % 3 == 0 || (i % 3 == 2 && !for_ep)));
    last = w;
  }
  if (must(rmr.query()).binding) {
    must(rmr.unbind(t.passive));
    (void)next<dat::bind_done>(t.at_passive);
  }
  CHECK(t.refused(*last, t.active) == dat::dto_status::remote_access);
  const std::uint32_t so_far = rounds;
  while (rounds == so_far && !traffic.done()) std::this_thread::yield(); // the other connection still works
  stop = true;
  CHECK(traffic.get());
  SHOWS("SAFE-011"); // binds run at the same time as posts of another endpoint to the same region
  CHECK(must(standing.query()).binding);
}

}} // namespace device::window_tests
