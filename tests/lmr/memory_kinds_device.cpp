// Kinds of registered memory on a device: shared, zero-based, relaxed ordering, paged on demand, large; and sync.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/ep_params.hpp>
#include <dat/memory.hpp>
#include <support/signal_handler.hpp>

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace device { namespace memory_tests {
namespace {

/// Whether a kind of memory is given by a value, which could name none.
template <class Zone>
concept takes_a_kind = requires(Zone& z, std::span<std::byte> memory, dat::mem_type kind) {
  z.register_memory(memory, dat::local_read, kind);
}
|| requires(Zone& z, std::span<std::byte> memory, dat::mem_type kind) {
  z.register_memory(kind, memory, dat::local_read);
};
/// Whether a region has a call that modifies it, as an endpoint has.
template <class Region>
concept can_be_modified = requires(Region& r) {
  r.modify(dat::local_read);
};

constexpr std::size_t shared_size = 16 * 1024;
static_assert(sizeof(dat::shared_cookie) == 40);
dat::shared_cookie the_cookie() {
  dat::shared_cookie c{};
  c.back() = std::byte{7};
  return c;
}
std::span<std::byte> map_shared(int fd) {
  void* m = ::mmap(nullptr, shared_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (m == MAP_FAILED) fail("mmap", place::here());
  return {static_cast<std::byte*>(m), shared_size};
}

/// Registers the shared memory of its parent, and receives a message into it.
int sharing_role(channel& to, const std::vector<std::string>& args) {
  const int fd = ::open(args.at(0).c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) fail("open " + args.at(0), place::here());
  const auto memory = map_shared(fd);
  ::close(fd);
  side b(1);
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  auto mem = must(dat::register_shared(b.pz, memory, the_cookie(), all_rights));
  to.say(std::to_string(port.port()));
  auto request = must(b.evd.wait_for<dat::connection_request>(patience));
  auto ep = b.make_ep();
  must(ep.post(dat::recv{mem}));
  must(request.accept(ep));
  must(b.evd.wait_for<dat::recv_done>(patience));
  to.say("received");
  (void)to.closed();
  return 0;
}
const role sharing_registered("sharing", &sharing_role);

} // namespace

TEST_CASE("memory: two processes register one piece of shared memory", "[memory]") {
  side a(0);
  const int fd = ::memfd_create("dat-test", MFD_CLOEXEC);
  REQUIRE(fd >= 0);
  REQUIRE(::ftruncate(fd, shared_size) == 0);
  const auto memory = map_shared(fd);
  const auto mem = must(dat::register_shared(a.pz, memory, the_cookie(), dat::local_read));
  CHECK(must(dat::query(mem)).type == dat::mem_type::shared_virtual);
  STATIC_REQUIRE(static_cast<int>(dat::mem_type::shared_virtual) == 0x02);
  SHOWS("IA-114", "LMR-012");
  const auto registered = must(dat::query(mem));
  CHECK(registered.cookie == the_cookie());
  STATIC_REQUIRE(sizeof(dat::shared_cookie) == 40);
  // A cookie belongs to one size. These cookies differ behind zeros, where a text would end.
  const auto part = memory.first(shared_size / 2);
  auto another = the_cookie();
  another.back() = std::byte{8};
  CHECK(error_of(dat::register_shared(a.pz, part, the_cookie(), dat::local_read)).type() == type::invalid_parameter);
  SHOWS("LMR-009");
  CHECK(dat::register_shared(a.pz, part, another, dat::local_read));
  for (std::size_t i = 0; i != the_cookie().size(); ++i) { // each byte makes another cookie
    auto of_one_byte = the_cookie();
    of_one_byte[i] ^= std::byte{0x80};
    CHECK(dat::register_shared(a.pz, part, of_one_byte, dat::local_read));
  }
  SHOWS("LMR-008");
  std::vector<std::byte> own(shared_size);
  CHECK(error_of(dat::register_shared(a.pz, own, the_cookie(), dat::local_read)).type() == type::invalid_state);
  SHOWS("LMR-010", "LMR-028");
  { // The same memory at another address, in another zone.
    const auto elsewhere = map_shared(fd);
    auto zone = must(a.ia.create_pz());
    const auto twin = must(dat::register_shared(zone, elsewhere, the_cookie(), dat::local_read));
    CHECK((twin.data() != mem.data() && must(dat::query(twin)).pz != registered.pz));
    ::munmap(elsewhere.data(), elsewhere.size());
  }
  // No registration of the same memory, and no call, modifies the region.
  STATIC_REQUIRE_FALSE(can_be_modified<std::decay_t<decltype(mem)>>);
  SHOWS("LMR-029"); // so only a close withdraws a right of a peer
  const auto now = must(dat::query(mem));
  CHECK((now.cookie == registered.cookie && now.rights == registered.rights && now.lmr_key == registered.lmr_key));
  CHECK((now.registered_address == registered.registered_address && now.registered_size == shared_size));

  peer_process peer("sharing", {"/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd)});
  auto ep = a.make_ep();
  must(ep.connect(addresses()[1], must(dat::conn_qual::make(std::stoul(peer.hear()))), patience));
  (void)must(a.evd.wait_for<dat::established>(patience));
  fill(own, 31);
  const auto out = must(a.pz.register_memory(own, dat::local_read));
  must(ep.post(dat::send{out}));
  CHECK(peer.hear() == "received");
  CHECK(has_pattern(memory, 31)); // the data that the peer received is in this process, too
  SHOWS("LMR-007", "LMR-011");
  // No region is special: a region that was created later outlives an earlier one, and others can join it.
  auto early = must(dat::register_shared(a.pz, memory, another, dat::local_read));
  const auto later = must(dat::register_shared(a.pz, memory, another, dat::local_read));
  must(early.close());
  CHECK(must(dat::query(later)).cookie == another);
  SHOWS("REQ-143");
  CHECK(dat::register_shared(a.pz, memory, another, dat::local_read));
  ::munmap(memory.data(), memory.size());
  ::close(fd);
}

TEST_CASE("memory: a zero-based region is addressed from 0 by both sides", "[memory][LMR-023][LMR-024][DTO-092]"
                                                                           "[REQ-141][IA-101]") {
  NEEDS_FEATURE(zero_based);
  connected_pair link({.active = {.max_inline = 64}});
  CHECK(must(link.a.ia.query<dat::provider_attributes>()).zb_supported);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  auto* map =
      static_cast<std::byte*>(::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(map != MAP_FAILED);
  const std::span all(map, page + 100);
  {
    auto zero = must(dat::register_zero_based(link.b.pz, all, all_rights));
    auto from = must(dat::register_zero_based(link.a.pz, all, all_rights));
    buffer mine(link.a.pz, 100);
    fill(mine.bytes, 3);
    // Other regions have the addresses of their memory in this process.
    CHECK_FALSE(must(dat::query(mine.lmr)).zero_based);
    CHECK(dat::detail::segment_access::raw(mine.remote()).address ==
          reinterpret_cast<std::uintptr_t>(mine.bytes.data()));
    CHECK(dat::detail::segment_access::raw(zero.remote()).address == 0);
    must(link.active.post(dat::rdma_write{mine.lmr, must(zero.remote(page, 100))}));
    (void)next<dat::rdma_write_done>(link.a.evd);
    CHECK(has_pattern(all.last(100), 3));
    must(link.passive.post(dat::recv{must(zero.slice(0, 100))}));
    must(link.active.post(dat::send{must(from.slice(page, 100))}));
    (void)next<dat::send_done>(link.a.evd);
    (void)next<dat::recv_done>(link.b.evd);
    CHECK(has_pattern(all.first(100), 3));
    CHECK(error_of(link.active.post(dat::send{must(from.slice(0, 8))}.inlined())).type() == type::invalid_parameter);
    const auto inner = all.subspan(1);
    CHECK(error_of(dat::register_zero_based(link.b.pz, inner, all_rights)).type() == type::model_not_supported);
    SHOWS("LMR-028");
    CHECK((must(dat::query(zero)).zero_based && must(dat::query(zero)).registered_address == 0));
    SHOWS("LMR-041");
    must(dat::sync_rdma_read(link.a.ia, must(from.slice(page, 100))));
    // An access beyond the end of the region fails.
    auto wire = zero.remote().to_wire();
    dat::detail::put_be(wire.data(), std::uint64_t{page + 99});
    must(link.active.post(dat::rdma_write{mine.slice(0, 2), must(window::from_wire(wire))}));
    CHECK(next<dat::dto_failure>(link.a.evd).status() == dat::dto_status::remote_access);
    // This adapter allows access to no more than the requested range: the byte behind the region is in a page of the
    // region.
    CHECK(map[page + 100] == std::byte{});
    CHECK(must(dat::query(zero)).registered_size == page + 100);
    SHOWS("MODEL-012", "REQ-149");
  }
  ::munmap(map, 2 * page);
}

TEST_CASE(
    "memory: a region of relaxed ordering takes part in all operations, with the data in memory at the completion",
    "[memory]") {
  NEEDS_FEATURE(immediate_data);
  connected_pair link;
  std::vector<std::byte> there(4096);
  auto relaxed = must(dat::register_relaxed_ordering(
      link.b.pz, there, dat::local_read | dat::local_write | dat::remote_read | dat::remote_write));
  buffer mine(link.a.pz, 4096);
  for (int round = 1; round <= 16; ++round) {
    std::ranges::fill(mine.bytes, std::byte(round));
    must(link.passive.post(dat::recv{}));
    must(link.active.post(dat::rdma_write{mine.lmr, relaxed.remote()}.immediate(1)));
    (void)next<dat::ib::rdma_write_immediate_done>(link.a.evd);
    (void)next<dat::ib::recv_write_immediate_done>(link.b.evd);
    CHECK(std::ranges::all_of(there, [&](std::byte b) { return b == std::byte(round); }));
  }
}

TEST_CASE("memory: on-demand paging and dmabuf are used where the adapter has them, else refused", "[memory]") {
  side a(0);
  std::vector<std::byte> bytes(4096);
  ibv_device_attr_ex device{};
  REQUIRE(ibv_query_device_ex(a.ia.native_handle(), nullptr, &device) == 0);
  const bool on_demand = (device.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0;
  const auto lmr = dat::register_on_demand(a.pz, bytes, dat::local_read | dat::local_write);
  CHECK(lmr.has_value() == on_demand);
  if (!lmr) CHECK(error_of(lmr).type() == type::model_not_supported);
  const int fd = ::memfd_create("dat-test", MFD_CLOEXEC); // this is no dmabuf
  REQUIRE(fd >= 0);
  const auto wrong = error_of(dat::register_dmabuf<std::byte>(a.pz, fd, 0, 4096, dat::local_read)).type();
  CHECK((wrong == type::model_not_supported || wrong == type::invalid_parameter));
  // The call chooses the kind of memory: no value can name a kind that does not exist.
  STATIC_REQUIRE_FALSE(takes_a_kind<dat::pz>);
  SHOWS("LMR-013");
  ::close(fd);
}

TEST_CASE("memory: a region of more than 4 GiB is registered whole and used in slices", "[memory][DTO-059]") {
  connected_pair link;
  // One piece of memory is mapped many times: the region is larger than the memory.
  constexpr std::size_t piece = std::size_t{2} << 20;
  constexpr std::size_t size = (std::size_t{4} << 30) + piece;
  const int file = ::memfd_create("dat", 0);
  REQUIRE(file >= 0);
  REQUIRE(::ftruncate(file, static_cast<off_t>(piece)) == 0);
  auto* const map = static_cast<std::byte*>(::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(map != MAP_FAILED);
  for (std::size_t at = 0; at < size; at += piece)
    REQUIRE(::mmap(map + at, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == map + at);
  if (!this_device().large_regions) {
    CHECK(error_of(link.a.pz.register_memory(std::span(map, size), all_rights)) ==
          dat::error(type::insufficient_resources, subtype::resource_memory_region));
  } else {
    const auto huge = must(link.a.pz.register_memory(std::span(map, size), all_rights));
    CHECK(must(dat::query(huge)).registered_size == size);
    CHECK(huge.size() == size);
    STATIC_REQUIRE(sizeof(dat::ia_attributes().max_lmr_block_size) == 8);
    CHECK(must(link.a.ia.query()).max_lmr_block_size >= size);
    DEVIATES("LMR-026");
    buffer in(link.b.pz, 64);
    fill(std::span(map + size - 64, 64), 7);
    CHECK(error_of(huge.slice(0, size)).type() == type::length_error);
    must(link.active.post(dat::rdma_write{must(huge.slice(size - 64, 64)), in.remote()}));
    (void)next<dat::rdma_write_done>(link.a.evd);
    CHECK(has_pattern(in.bytes, 7));
    fill(in.bytes, 8);
    must(link.passive.post(dat::rdma_write{in.lmr, must(huge.remote(size - 64, 64))}));
    (void)next<dat::rdma_write_done>(link.b.evd);
    CHECK(has_pattern(std::span(map + size - 64, 64), 8));
  }
  ::munmap(map, size);
  ::close(file);
}

TEST_CASE("memory: a peer reads data that was written before a sync", "[memory]") {
  connected_pair link;
  buffer here(link.a.pz, 256);
  buffer there(link.b.pz, 256);
  for (std::uint32_t i = 0; i < 20; ++i) {
    fill(there.bytes, i);
    must(dat::sync_rdma_read(link.b.ia, there.lmr));
    must(link.active.post(dat::rdma_read{here.lmr, there.remote()}));
    (void)next<dat::rdma_read_done>(link.a.evd);
    CHECK(has_pattern(here.bytes, i));
    SHOWS("SYNC-003");
    must(dat::sync_rdma_write(link.a.ia, here.lmr));
    // In the other direction, data that a peer has written is visible after a sync.
    fill(here.bytes, i + 100);
    must(link.active.post(dat::rdma_write{here.lmr, there.remote()}));
    (void)next<dat::rdma_write_done>(link.a.evd);
    must(dat::sync_rdma_write(link.b.ia, there.lmr));
    CHECK(has_pattern(there.bytes, i + 100));
    SHOWS("LMR-003", "SYNC-001", "SYNC-005");
  }
  const auto outside = dat::error(type::invalid_parameter, subtype::arg2);
  CHECK(error_of(dat::sync_rdma_read(link.a.ia, there.lmr)) == outside);
  CHECK(error_of(dat::sync_rdma_write(link.a.ia, there.lmr)) == outside);
  using segment = dat::local_segment<std::byte, all_rights.value>;
  auto beyond = dat::detail::segment_access::raw(here.slice(192, 64));
  beyond.address += 1; // one byte beyond the end of its region
  CHECK(error_of(dat::sync_rdma_read(link.a.ia, dat::detail::segment_access::make<segment>(beyond))) == outside);
  CHECK(error_of(dat::sync_rdma_write(link.a.ia, dat::detail::segment_access::make<segment>(beyond))) == outside);
  SHOWS("SYNC-008");
  // Syncs several ranges of several zones, no range and an empty range, from several threads.
  auto zone = must(link.a.ia.create_pz());
  auto elsewhere = std::make_optional<buffer>(zone, 64);
  const auto piece = elsewhere->slice(8, 8);
  const dat::local_segment<std::byte, all_rights.value> nothing;
  STATIC_REQUIRE(sizeof(dat::iov<2, all_rights.value>().size()) == 8); // the number of ranges
  const auto good = [&] {
    return dat::sync_rdma_read(link.a.ia) && dat::sync_rdma_read(link.a.ia, here.lmr, piece, nothing) &&
           dat::sync_rdma_write(link.a.ia, piece, nothing, here.slice(1, 1));
  };
  background other([&] {
    for (int i = 0; i < 1000; ++i)
      if (!good()) return false;
    return true;
  });
  for (int i = 0; i < 1000; ++i) REQUIRE(good());
  SHOWS("SYNC-004", "SYNC-010", "SYNC-011");
  CHECK((dat::sync_rdma_read(link.a.ia) && dat::sync_rdma_write(link.a.ia))); // both calls work without a range
  SHOWS("SYNC-010");
  const auto of_other_ia = there.slice(8, 0); // an empty range: its region does not matter
  CHECK(dat::sync_rdma_read(link.a.ia, of_other_ia));
  CHECK(dat::sync_rdma_write(link.a.ia, of_other_ia));
  SHOWS("SYNC-011");
  CHECK(other.get());
  SHOWS("SYNC-007");
  // A signal handler may call both.
  CHECK(support::in_handler(good));
  SHOWS("SYNC-007");
  elsewhere.reset();
  CHECK(error_of(dat::sync_rdma_read(link.a.ia, here.lmr, piece)) == outside);
  CHECK(error_of(dat::sync_rdma_write(link.a.ia, here.lmr, piece)) == outside);
  SHOWS("SYNC-008");
  CHECK(error_of(dat::sync_rdma_read(dat::ia(), here.lmr)).type() == type::invalid_handle);
  CHECK(error_of(dat::sync_rdma_write(dat::ia(), here.lmr)).type() == type::invalid_handle);
  SHOWS("SYNC-009");
  CHECK_FALSE(must(link.a.ia.query<dat::provider_attributes>()).lmr_sync_req); // memory is coherent on this host
  SHOWS("SYNC-002", "REQ-144");
}

}} // namespace device::memory_tests
