// Memory windows on a device: allowed accesses and their time, how windows are closed, and the order in which objects
// may end.
//
// The tests leave out one operation that harms a device: a second invalidation of one window is a null pointer
// dereference in some kernels.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/ep_params.hpp>
#include <dat/rmr.hpp>
#include <dat/srq.hpp>

#include <atomic>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

namespace device {
namespace {

constexpr auto binds = dat::stream::dto | dat::stream::rmr_bind;
constexpr auto local = dat::local_read | dat::local_write;
constexpr auto both = dat::remote_read | dat::remote_write;
using inner = dat::lmr<std::byte, local.value>;
using open_window = dat::remote_segment<std::byte, both.value>;

/// A connected pair whose completions go to evds of their own with the stream rmr_bind.
struct linked : two_sides {
  dat::evd<binds> at_active = must(a.ia.create_evd<binds>(256));
  dat::evd<binds> at_passive = must(b.ia.create_evd<binds>(256));
  std::vector<std::byte> a_bytes = std::vector<std::byte>(4096);
  std::vector<std::byte> b_bytes = std::vector<std::byte>(4096);
  inner a_mem = must(a.pz.register_memory(a_bytes, local));
  inner b_mem = must(b.pz.register_memory(b_bytes, local)); // no remote right: only windows give access
  endpoint active;
  endpoint passive;

  linked() : active(new_active()), passive(new_passive()) { connect(active, passive); }
  /// Long ack_timeout: when a busy machine answers late and a request is repeated, Soft-RoCE ignores the answer; if the
  /// answer was a refusal, the peer may disconnect first, and the request is flushed. Soft-RoCE also repeats binds
  /// behind such a request, and the repeated bind fails.
  static constexpr dat::ep_attributes patient{.ack_timeout = 20s};
  endpoint new_active() { return must(a.pz.create_ep<dat::rc>(dat::ep_evds{at_active, at_active, a.evd}, patient)); }
  endpoint new_passive() { return must(b.pz.create_ep<dat::rc>(dat::ep_evds{at_passive, at_passive, b.evd}, patient)); }

  dat::rmr make(bool for_ep) { return for_ep ? must(b.pz.create_rmr_for_ep()) : must(b.pz.create_rmr()); }
  open_window bind(dat::rmr& rmr, std::size_t first, std::size_t count) {
    const auto w = must(rmr.bind(passive, dat::bind{b_mem, first, count, both}.cookie(1)));
    const auto done = next<dat::bind_done>(at_passive);
    if (!done.is_of(rmr) || done.cookie() != dat::cookie(1)) fail("the bind of another rmr", place::here());
    return w;
  }
  template <class W>
  void write(const W& to, std::uint32_t seed) {
    fill(std::span(a_bytes).first(to.size()), seed);
    must(active.post(dat::rdma_write{must(a_mem.slice(0, to.size())), to}));
    (void)next<dat::rdma_write_done>(at_active);
  }
  template <class W>
  dat::dto_status refused(const W& to, endpoint& by) {
    must(by.post(dat::rdma_write{must(a_mem.slice(0, to.size())), to}));
    return next<dat::dto_failure>(at_active).status();
  }
};

template <class W>
W moved(const W& from, std::uint64_t by) {
  auto raw = dat::detail::segment_access::raw(from);
  raw.address += by;
  return dat::detail::segment_access::make<W>(raw);
}

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

TEST_CASE("rmr: peers access the bound memory until the rmr is bound elsewhere or unbound", "[rmr]") {
  NEEDS_FEATURE(windows);
  const bool for_ep = GENERATE(false, true);
  CAPTURE(for_ep);
  linked t;
  dat::rmr rmr = t.make(for_ep);
  CHECK_FALSE(must(rmr.query()).binding);
  SHOWS("RMR-005", "RMR-015");
  const open_window first = t.bind(rmr, 64, 100);
  const auto bound = must(rmr.query());
  CHECK((bound.ia == t.b.ia.identity() && bound.pz == t.b.pz.identity()));
  CHECK(bound.scope == (for_ep ? dat::rmr_scope::ep : dat::rmr_scope::pz));
  REQUIRE(bound.binding);
  CHECK(bound.binding->address == reinterpret_cast<std::uintptr_t>(t.b_bytes.data() + 64));
  CHECK((bound.binding->length == 100 && bound.binding->rights == both.value));
  CHECK_FALSE(bound.binding->zero_based);
  CHECK(bound.binding->key == dat::detail::segment_access::raw(first).key);
  CHECK(bound.binding->lmr_key == t.b_mem.native_handle()->lkey);
  SHOWS("RMR-014", "RMR-033", "LMR-019");
  t.write(first, 1);
  CHECK(has_pattern(std::span(t.b_bytes).subspan(64, 100), 1));
  CHECK(t.b_bytes[63] == std::byte{});
  CHECK(t.b_bytes[164] == std::byte{});
  SHOWS("RMR-017", "COMP-046", "MODEL-020"); // the bind has completed
  must(t.active.post(dat::rdma_read{must(t.a_mem.slice(1000, 100)), first}));
  CHECK(next<dat::rdma_read_done>(t.at_active).bytes() == 100);
  CHECK(has_pattern(std::span(t.a_bytes).subspan(1000, 100), 1));
  SHOWS("DTO-136", "IA-132"); // the sink of the read has no remote rights

  dat::rmr other = t.make(for_ep); // a second window over the same region
  const open_window second = t.bind(other, 512, 8);
  t.write(second, 2);
  t.write(first, 3);
  CHECK(has_pattern(std::span(t.b_bytes).subspan(512, 8), 2));
  SHOWS("RMR-008", "MODEL-052", "REQ-148");
  { // a third window over the same bytes as the first
    dat::rmr same = t.make(for_ep);
    const open_window third = t.bind(same, 64, 100);
    t.write(third, 4);
    CHECK(has_pattern(std::span(t.b_bytes).subspan(64, 100), 4));
    t.write(first, 5);
    CHECK(has_pattern(std::span(t.b_bytes).subspan(64, 100), 5));
    SHOWS("MODEL-053");
    must(same.close());
  }

  std::uint32_t key = must(rmr.query()).binding->key;
  for (std::size_t i = 0; i < 300; ++i) { // the low byte of the key wraps around
    const open_window w = t.bind(rmr, i, 16);
    const std::uint32_t now = must(rmr.query()).binding->key;
    CHECK(now != key);
    SHOWS("RMR-021", "REQ-147", "MODEL-023"); // `bind` has moved the window, and has taken the event of its completion
    key = now;
    if (i % 50 == 0) t.write(w, 4);
  }
  (void)must(rmr.bind(t.passive, dat::bind{t.b_mem, 0, 8, both}.cookie(21)));
  (void)must(other.bind(t.passive, dat::bind{t.b_mem, 8, 8, both}.cookie(22)));
  CHECK(next<dat::bind_done>(t.at_passive).cookie() == dat::cookie(21));
  CHECK(next<dat::bind_done>(t.at_passive).cookie() == dat::cookie(22));
  SHOWS("EVENT-033");
  CHECK(error_of(t.b_mem.close()) == dat::error(type::invalid_state, subtype::lmr_in_use));
  SHOWS("LMR-033", "REQ-005", "ERR-034");
  must(rmr.unbind(t.passive, dat::unbind{}.cookie(5)));
  const auto unbound = next<dat::bind_done>(t.at_passive);
  CHECK(unbound.operation() == dat::dto_operation::unbind);
  SHOWS("RMR-034");
  CHECK((unbound.is_of(rmr) && unbound.cookie() == dat::cookie(5)));
  CHECK(unbound.ep() == t.passive);
  SHOWS("RMR-019", "RMR-034", "COMP-001", "COMP-010", "COMP-068", "COMP-072");
  must(rmr.unbind(t.passive)); // an unbind of an unbound window
  CHECK(next<dat::bind_done>(t.at_passive).operation() == dat::dto_operation::unbind);
  must(other.close());
  CHECK(t.refused(first, t.active) == dat::dto_status::remote_access);
  SHOWS("RMR-020", "RMR-034");
  must(t.b_mem.close());
}

TEST_CASE("rmr: a key may be sent at once over the connection that it was bound through",
          "[rmr][RMR-018][RMR-022][RMR-023][RMR-024]"
          "[REQ-147][SAFE-005]") {
  NEEDS_FEATURE(windows);
  linked t;
  dat::rmr rmr = t.make(true);
  using wire = open_window::wire;
  auto& slot = *reinterpret_cast<wire*>(t.b_bytes.data() + 2048);
  buffer inbox(t.a.pz, sizeof(wire));
  for (std::uint32_t i = 1; i <= 100; ++i) {
    must(t.active.post(dat::recv{inbox.lmr}));
    const std::size_t at = i % 7 * 64;
    slot = must(rmr.bind(t.passive, dat::bind{t.b_mem, at, 64, both}.suppress_completion().fence())).to_wire();
    const bool written = i % 2 == 0; // a write behind the bind may carry the key, too
    if (written)
      must(t.passive.post(dat::rdma_write{must(t.b_mem.slice(2048, sizeof(wire))), inbox.remote()}.immediate(i)));
    else
      must(t.passive.post(dat::send{must(t.b_mem.slice(2048, sizeof(wire)))}));
    if (written)
      CHECK(next<dat::ib::recv_write_immediate_done>(t.at_active).immediate() == i);
    else
      (void)next<dat::recv_done>(t.at_active);
    const auto opened = must(open_window::from_wire(inbox.bytes));
    t.write(opened, i);
    if (written) // the bind gives no event
      (void)next<dat::ib::rdma_write_immediate_done>(t.at_passive);
    else
      (void)next<dat::send_done>(t.at_passive);
    if (!has_pattern(std::span(t.b_bytes).subspan(at, 64), i)) FAIL("round " << i);
  }
  CHECK(must(rmr.query()).binding);
  SHOWS("RMR-035");
  // Binds are performed in order: if the key of the second one works, the key of the first one works, too.
  dat::rmr behind = t.make(true);
  const open_window ahead = must(rmr.bind(t.passive, dat::bind{t.b_mem, 0, 64, both}.suppress_completion()));
  (void)must(behind.bind(t.passive, dat::bind{t.b_mem, 64, 64, both}.cookie(2)));
  CHECK(next<dat::bind_done>(t.at_passive).is_of(behind));
  SHOWS("COMP-004", "COMP-014");
  t.write(ahead, 8);
  CHECK(has_pattern(std::span(t.b_bytes).first(64), 8));
  CHECK((must(rmr.query()).binding->address == reinterpret_cast<std::uintptr_t>(t.b_bytes.data())));
  SHOWS("RMR-022");
  // Nor does a read begin before a bind that was posted before it: the window is open when the read has completed.
  const open_window before_read = must(rmr.bind(t.passive, dat::bind{t.b_mem, 128, 64, both}.suppress_completion()));
  must(t.passive.post(dat::rdma_read{must(t.b_mem.slice(0, 8)), inbox.remote(0, 8)}.cookie(3)));
  CHECK(next<dat::rdma_read_done>(t.at_passive).cookie() == dat::cookie(3));
  t.write(before_read, 9);
  CHECK(has_pattern(std::span(t.b_bytes).subspan(128, 64), 9));
  // Binds complete in the order of their posting.
  (void)must(rmr.bind(t.passive, dat::bind{t.b_mem, 0, 64, both}.cookie(4)));
  (void)must(behind.bind(t.passive, dat::bind{t.b_mem, 64, 64, both}.cookie(5)));
  CHECK(next<dat::bind_done>(t.at_passive).cookie() == dat::cookie(4));
  CHECK(next<dat::bind_done>(t.at_passive).cookie() == dat::cookie(5));
  SHOWS("REQ-150");
  // A fenced bind waits for the read before it, and so does the write behind the bind: the write has the last bytes
  // that were read.
  constexpr std::size_t size = 256 * 1024;
  buffer source(t.a.pz, size);
  buffer sink(t.b.pz, size);
  for (std::uint32_t round = 1; round <= 4; ++round) {
    fill(source.bytes, round);
    must(t.passive.post(dat::rdma_read{sink.lmr, source.remote()}.suppress_completion()));
    (void)must(rmr.bind(t.passive, dat::bind{t.b_mem, 0, 64, both}.suppress_completion().fence()));
    must(t.passive.post(dat::rdma_write{sink.slice(size - 8, 8), inbox.remote(0, 8)}));
    (void)next<dat::rdma_write_done>(t.at_passive);
    CHECK(std::ranges::equal(inbox.part(0, 8), source.part(size - 8, 8)));
    SHOWS("RMR-023");
  }
  // Before its bind is done, a key that is given to the peer by other means gives no access.
  if (!in_lab() || !this_device().waits_for_receives) return;
  must(t.passive.post(dat::send{must(t.b_mem.slice(0, 8))})); // the peer has posted no receive: the bind waits
  const open_window early = must(rmr.bind(t.passive, dat::bind{t.b_mem, 0, 64, both}.fence()));
  CHECK(t.refused(early, t.active) == dat::dto_status::remote_access);
  SHOWS("RMR-022");
  for (int i = 0; i < 2; ++i) (void)next<dat::dto_failure>(t.at_passive); // the send, and the bind
}

TEST_CASE("rmr: scope and rights of a window are enforced", "[rmr]") {
  NEEDS_FEATURE(windows);
  linked t;
  CHECK(must(t.b.ia.query<dat::provider_attributes>()).rmr_scope_supported == dat::rmr_scope::any);
  STATIC_REQUIRE(static_cast<int>(dat::rmr_scope::ep) == 0);
  STATIC_REQUIRE(static_cast<int>(dat::rmr_scope::pz) == 1);
  STATIC_REQUIRE(static_cast<int>(dat::rmr_scope::any) == 2);
  SHOWS("RMR-003", "IA-134", "REQ-146");
  endpoint far = t.new_active();
  endpoint near = t.new_passive();
  t.connect(far, near);
  dat::rmr rmr = t.make(false);
  SECTION("an rmr for one endpoint gives access to the peer of that connection") {
    dat::rmr one = t.make(true);
    const open_window w = t.bind(one, 0, 64);
    t.write(w, 1);
    CHECK(t.refused(w, far) == dat::dto_status::remote_access);
    SHOWS("RMR-002", "RMR-027", "REQ-146");
  }
  SECTION("an rmr of the zone gives access to all peers") {
    const open_window w = t.bind(rmr, 0, 64);
    must(far.post(dat::rdma_write{must(t.a_mem.slice(0, 64)), w}));
    CHECK(next<dat::rdma_write_done>(t.at_active).ep() == far);
    t.write(w, 1);
    SHOWS("RMR-001", "MODEL-052", "REQ-148", "REQ-146");
  }
  SECTION("the key of an earlier binding gives no access, while the rmr is bound elsewhere") {
    endpoint reader = t.new_active();
    endpoint reads_from = t.new_passive();
    t.connect(reader, reads_from);
    dat::rmr one = t.make(true);
    const open_window of_zone = t.bind(rmr, 0, 64);
    const open_window of_ep = t.bind(one, 64, 64);
    t.write(t.bind(rmr, 128, 64), 1);
    t.write(t.bind(one, 192, 64), 2);
    CHECK(has_pattern(std::span(t.b_bytes).subspan(128, 64), 1));
    CHECK(has_pattern(std::span(t.b_bytes).subspan(192, 64), 2));
    CHECK(t.refused(of_zone, far) == dat::dto_status::remote_access);
    CHECK(t.refused(of_ep, t.active) == dat::dto_status::remote_access);
    CHECK(std::ranges::all_of(std::span(t.b_bytes).first(128), [](std::byte b) { return b == std::byte{}; }));
    must(reader.post(dat::rdma_read{must(t.a_mem.slice(0, 64)), of_zone}));
    CHECK(next<dat::dto_failure>(t.at_active).operation() == dat::dto_operation::rdma_read);
    SHOWS("MODEL-023", "RMR-020", "REQ-147", "REQ-148");
  }
  SECTION("an rmr of another zone than the endpoint's gives no access") {
    auto zone = must(t.b.ia.create_pz());
    std::vector<std::byte> bytes(64);
    const auto mem = must(zone.register_memory(bytes, local));
    endpoint binder = must(zone.create_ep<dat::rc>(dat::ep_evds{t.at_passive, t.at_passive, t.b.evd}));
    endpoint other = t.new_active();
    t.connect(other, binder);
    dat::rmr foreign = must(zone.create_rmr());
    const open_window w = must(foreign.bind(binder, dat::bind{mem, 0, 64, both}.cookie(1)));
    CHECK(next<dat::bind_done>(t.at_passive).is_of(foreign));
    CHECK(t.refused(w, t.active) == dat::dto_status::remote_access);
    SHOWS("REQ-148", "PZ-013", "MODEL-018", "MODEL-052", "EP-003");
  }
  SECTION("an rmr that was bound without rights gives no access") {
    const auto w = must(rmr.bind(t.passive, dat::bind{t.b_mem, dat::no_rights}));
    (void)next<dat::bind_done>(t.at_passive);
    const auto raw = dat::detail::segment_access::raw(w);
    CHECK(t.refused(must(dat::detail::segment_access::make<open_window>(raw).slice(0, 8)), t.active) ==
          dat::dto_status::remote_access);
    SHOWS("RMR-040");
  }
  SECTION("no rights are the default, and of all rights only the remote ones count") {
    constexpr auto all = local | both; // DAT_MEM_PRIV_ALL_FLAG
    STATIC_REQUIRE(static_cast<std::uint32_t>(all.value) == 0x33);
    const open_window w = must(rmr.bind(t.passive, dat::bind{t.b_mem, 0, 64, all}));
    (void)next<dat::bind_done>(t.at_passive);
    CHECK(must(rmr.query()).binding->rights == both.value);
    t.write(w, 7);
    CHECK(has_pattern(std::span(t.b_bytes).first(64), 7));
    must(t.active.post(dat::rdma_read{must(t.a_mem.slice(1000, 64)), w}));
    CHECK(next<dat::rdma_read_done>(t.at_active).bytes() == 64);
    const auto none = must(rmr.bind(t.passive, dat::bind{t.b_mem}));
    (void)next<dat::bind_done>(t.at_passive);
    CHECK(must(rmr.query()).binding->rights == dat::mem_priv::none);
    const auto raw = dat::detail::segment_access::raw(none);
    CHECK(t.refused(must(dat::detail::segment_access::make<open_window>(raw).slice(0, 8)), t.active) ==
          dat::dto_status::remote_access);
    SHOWS("RMR-031");
  }
  SECTION("an rmr that was bound for reads only takes no write") {
    fill(std::span(t.b_bytes).first(64), 6);
    const auto w = must(rmr.bind(t.passive, dat::bind{t.b_mem, 0, 64, dat::remote_read}));
    (void)next<dat::bind_done>(t.at_passive);
    must(t.active.post(dat::rdma_read{must(t.a_mem.slice(1000, 64)), w}));
    CHECK(next<dat::rdma_read_done>(t.at_active).bytes() == 64);
    CHECK(has_pattern(std::span(t.a_bytes).subspan(1000, 64), 6));
    const auto raw = dat::detail::segment_access::raw(w);
    CHECK(t.refused(dat::detail::segment_access::make<open_window>(raw), t.active) == dat::dto_status::remote_access);
    CHECK(has_pattern(std::span(t.b_bytes).first(64), 6));
    SHOWS("REQ-146", "RMR-040");
  }
  SECTION("an rmr that was bound for writes only gives no read") {
    const auto w = must(rmr.bind(t.passive, dat::bind{t.b_mem, 0, 64, dat::remote_write}));
    (void)next<dat::bind_done>(t.at_passive);
    t.write(w, 8);
    CHECK(has_pattern(std::span(t.b_bytes).first(64), 8));
    const auto raw = dat::detail::segment_access::raw(w);
    must(t.active.post(
        dat::rdma_read{must(t.a_mem.slice(1000, 64)), dat::detail::segment_access::make<open_window>(raw)}));
    CHECK(next<dat::dto_failure>(t.at_active).status() == dat::dto_status::remote_access);
    CHECK(std::ranges::all_of(std::span(t.a_bytes).subspan(1000, 64), [](std::byte b) { return b == std::byte{}; }));
    SHOWS("REQ-146", "RMR-040");
  }
  SECTION("a zero-based window is accessed from address 0") {
    dat::rmr one = t.make(true);
    const open_window w = must(one.bind(t.passive, dat::bind{t.b_mem, 128, 64, both}.zero_based()));
    (void)next<dat::bind_done>(t.at_passive);
    CHECK(must(one.query()).binding->address == 0);
    t.write(w, 5);
    CHECK(has_pattern(std::span(t.b_bytes).subspan(128, 64), 5));
    SHOWS("RMR-033", "MODEL-020");
    CHECK(error_of(rmr.bind(t.passive, dat::bind{t.b_mem, both}.zero_based())) ==
          dat::error(type::model_not_supported));
  }
}

TEST_CASE("rmr: an access outside the window fails, at the latest at the end of its region", "[rmr][MODEL-012]") {
  NEEDS_FEATURE(windows);
  linked t;
  dat::rmr rmr = t.make(true);
  // rxe checks the bounds of the region and not of the window, so the window is the last part of the region.
  const open_window w = t.bind(rmr, 4096 - 64, 64);
  t.write(w, 1);
  CHECK(t.refused(moved(w, 1), t.active) == dat::dto_status::remote_access);
}

TEST_CASE("rmr: rxe allows accesses outside a window but inside its region", "[rmr][rxe-deviation]") {
  NEEDS_FEATURE(windows);
  linked t;
  dat::rmr rmr = t.make(true);
  const open_window w = t.bind(rmr, 0, 64);
  const auto beside = moved(w, 64);
  must(t.active.post(dat::rdma_write{must(t.a_mem.slice(0, 64)), beside}));
  // An adapter that checks the bounds refuses the write; either way it completes.
  auto e = must(t.at_active.wait(patience));
  if (auto* f = std::get_if<dat::dto_failure>(&e)) {
    CHECK(f->status() == dat::dto_status::remote_access);
    SHOWS("RMR-039", "DTO-139");
  } else {
    CHECK(std::holds_alternative<dat::rdma_write_done>(e));
    DEVIATES("RMR-039", "DTO-139");
  }
}

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
  CHECK(next<dat::send_done>(t.at_active).cookie() == dat::cookie(8)); // the suppressed send gives no event
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
    (void)next<dat::bind_done>(t.at_passive);
    CHECK_FALSE(must(rmr.query()).binding);
    (void)next<dat::send_done>(t.at_passive);
    (void)next<dat::send_done>(t.at_active);
  }
  must(t.b_mem.close()); // nothing is bound to it
}

TEST_CASE("rmr: an RDMA read into a window", "[rmr][DTO-017][DTO-142][DTO-143][DTO-144][DTO-145][DTO-146][DTO-147]"
                                             "[REQ-104]") {
  NEEDS_FEATURE(windows);
  linked t;
  buffer source(t.a.pz, 2000);
  fill(source.bytes, 9);
  dat::rmr rmr = t.make(false);
  CHECK(error_of(rmr.read_target<std::byte>(t.passive, 0, 1)).type() == type::privileges_violation);
  (void)t.bind(rmr, 1500, 2500);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{1023}, std::size_t{1025}, std::size_t{2000}}) {
    std::fill(t.b_bytes.begin(), t.b_bytes.end(), std::byte{});
    must(t.passive.post(
        dat::rdma_read{must(rmr.read_target<std::byte>(t.passive, 100, size)), source.remote()}.cookie(size)));
    const auto done = next<dat::rdma_read_done>(t.at_passive);
    CHECK((done.bytes() == size && done.cookie() == dat::cookie(size)));
    SHOWS("COMP-069", "MODEL-008", "REQ-099", "REQ-133", "DTO-036", "DTO-046", "DTO-049", "COMP-010");
    CHECK(has_pattern(std::span(t.b_bytes).subspan(1600, size), 9));
    CHECK((t.b_bytes[1599] == std::byte{} && t.b_bytes[1600 + size] == std::byte{}));
  }
  CHECK(error_of(rmr.read_target<std::byte>(t.passive, 0, 2501)).type() == type::invalid_parameter);
  // A read by another endpoint cannot use the window of this one. A window that is closed early does not affect the
  // read.
  const endpoint other = t.new_passive();
  dat::rmr own = t.make(true);
  (void)t.bind(own, 1024, 64);
  CHECK(error_of(own.read_target<std::byte>(other, 0, 1)).type() == type::protection_violation);
  auto zone = must(t.b.ia.create_pz());
  const auto elsewhere = must(zone.create_ep<dat::rc>(dat::ep_evds{t.at_passive, t.at_passive, t.b.evd}));
  CHECK(error_of(rmr.read_target<std::byte>(elsewhere, 0, 1)).type() == type::protection_violation);
  must(t.passive.post(dat::rdma_read{must(own.read_target<std::byte>(t.passive, 0, 64)), source.remote(0, 64)}));
  must(own.unbind(t.passive));
  CHECK(next<dat::rdma_read_done>(t.at_passive).bytes() == 64);
  (void)next<dat::bind_done>(t.at_passive);
  CHECK(has_pattern(std::span(t.b_bytes).subspan(1024, 64), 9));
  // A window over memory that the adapter may not write is no target.
  const auto only = must(t.b.pz.register_memory(t.b_bytes, dat::local_read));
  dat::rmr readable = t.make(false);
  (void)must(readable.bind(t.passive, dat::bind{only, dat::remote_read}));
  (void)next<dat::bind_done>(t.at_passive);
  CHECK(error_of(readable.read_target<std::byte>(t.passive, 0, 1)) ==
        dat::error(type::privileges_violation, subtype::privileges_write));
}

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
  must(rmr.unbind(near, dat::unbind{}.cookie(4).suppress_notification()));
  CHECK(poll() == dat::cookie(4));
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

TEST_CASE("rmr: endpoints, regions and rmrs end in every order, without stalling the device",
          "[rmr][RMR-009][RMR-010][RMR-012][RMR-013][RMR-025][LMR-033][PZ-005][EP-040]") {
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
    }
    dat::rmr rmr = t.make(for_ep);
    const open_window w = must(rmr.bind(t.passive, dat::bind{t.b_mem, both}.cookie(7)));
    CHECK(error_of(t.b.pz.close()) == dat::error(type::invalid_state, subtype::pz_in_use));
    CHECK(error_of(t.b_mem.close()) == dat::error(type::invalid_state, subtype::lmr_in_use));
    SHOWS("DTO-067", "LMR-039");
    SECTION("the rmr ends at once after its bind") {
      rmr = {};
      CHECK(next<dat::bind_done>(t.at_passive).cookie().value() == 7);
      // The region is still registered, so only the end of the rmr withdraws the access.
      CHECK(t.refused(must(w.slice(0, 8)), t.active) == dat::dto_status::remote_access);
      SHOWS("REQ-148");
      (void)must(t.a.evd.wait_for_any<dat::connection_broken, dat::disconnected>(t.active, patience));
      CHECK(t.active.state() == state::disconnected);
      SHOWS("RMR-020");
      must(t.b_mem.close());
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
      SHOWS("DISC-029", "EPS-065");
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
  // The peer has posted no receive. When the send is repeated, rxe of Linux 6.12 performs a bind behind it again and
  // fails, so the next steps are quick.
  must(t.passive.post(dat::send{must(t.b_mem.slice(0, 8))}));
  (void)must(behind.bind(t.passive, dat::bind{t.b_mem, both}));
  must(t.passive.post(dat::rdma_read{into_window, source.remote()}));
  must(t.passive.post(dat::send_with_invalidate{open}));
  must(t.passive.post(dat::rdma_write{must(t.b_mem.slice(0, 8)), source.remote()}));
  CHECK(is_empty(t.at_passive)); // all requests wait behind the send, and their posts have returned
  CHECK_FALSE(must(behind.query()).binding);
  SHOWS("DTO-050", "RMR-018", "REQ-147", "SAFE-043");
  SHOWS("DTO-074");
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
  const auto unbound = next<dat::dto_failure>(t.at_passive);
  CHECK((unbound.operation() == dat::dto_operation::bind && unbound.status() == dat::dto_status::flushed));
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

TEST_CASE("rmr: read-only memory can be registered and not bound", "[rmr]") {
  NEEDS_FEATURE(windows);
  linked t;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  auto* map = static_cast<std::byte*>(::mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(map != MAP_FAILED);
  const auto only = must(t.b.pz.register_memory(std::span(map, page), dat::local_read));
  dat::rmr rmr = t.make(false);
  auto bound = rmr.bind(t.passive, dat::bind{only, dat::remote_read});
  if (bound) {
    CHECK(next<dat::bind_done>(t.at_passive).is_of(rmr)); // some kernels permit the bind
  } else {
    CHECK(error_of(bound).type() == type::privileges_violation);
    SHOWS("RMR-030", "RMR-037");
  }
  rmr = {};
  ::munmap(map, page);
}

} // namespace device
