// Memory windows on a device: allowed accesses and their time, rights and scope.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "linked_device.hpp"

#include <dat/ep_params.hpp>
#include <dat/rmr.hpp>

#include <sys/mman.h>
#include <unistd.h>

namespace device { namespace window_tests {

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
    SHOWS("RMR-017", "RMR-021", "REQ-147",
          "MODEL-023"); // `bind` has moved the window, and has taken the event of its completion
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
  // Before its bind has completed, a key that is sent to the peer by other means allows no access.
  if (!in_lab() || !this_device().waits_for_receives) return;
  must(t.passive.post(dat::send{must(t.b_mem.slice(0, 8))})); // the peer has posted no receive: the bind waits
  const open_window early = must(rmr.bind(t.passive, dat::bind{t.b_mem, 0, 64, both}.fence()));
  CHECK(must(rmr.query()).binding->key != early.rkey()); // `bind` returns the new key while the old one is valid
  SHOWS("RMR-017");
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
    CHECK(must(one.query()).binding->zero_based);
    SHOWS("RMR-014");
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
  { // The region under the window cannot end before the read has completed.
    std::vector<std::byte> sink(64);
    auto region = must(t.b.pz.register_memory(sink, local));
    dat::rmr over = t.make(true);
    must(over.bind(t.passive, dat::bind{region, 0, 64, both}));
    (void)next<dat::bind_done>(t.at_passive);
    must(t.passive.post(dat::rdma_read{must(over.read_target<std::byte>(t.passive, 0, 64)), source.remote(0, 64)}));
    must(over.unbind(t.passive));
    CHECK(error_of(region.close()) == dat::error(type::invalid_state, subtype::lmr_in_use));
    CHECK(next<dat::rdma_read_done>(t.at_passive).bytes() == 64);
    (void)next<dat::bind_done>(t.at_passive);
    CHECK(has_pattern(sink, 9));
    CHECK(region.close());
    SHOWS("DTO-146");
  }
  // A window over memory that the adapter may not write is no target.
  const auto only = must(t.b.pz.register_memory(t.b_bytes, dat::local_read));
  dat::rmr readable = t.make(false);
  (void)must(readable.bind(t.passive, dat::bind{only, dat::remote_read}));
  (void)next<dat::bind_done>(t.at_passive);
  CHECK(error_of(readable.read_target<std::byte>(t.passive, 0, 1)) ==
        dat::error(type::privileges_violation, subtype::privileges_write));
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

}} // namespace device::window_tests
