// Registered memory: kinds of memory, the bounds of segments, the rights of a peer.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/credits.hpp>
#include <dat/ep_params.hpp>
#include <dat/memory.hpp>
#include <dat/policies.hpp>
#include <dat/pool.hpp>
#include <dat/rmr.hpp>
#include <support/signal_handler.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <grp.h>
#include <memory_resource>
#include <numeric>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace device { namespace memory_tests {
namespace {

struct sample {
  std::uint32_t number;
  std::uint16_t small[2];
};
/// Whether rights may be left out of a registration.
template <class Zone>
concept has_default_rights = requires(Zone& z, std::span<std::byte> memory) {
  z.register_memory(memory);
};
/// Whether a zone is created with an argument, which could be invalid.
template <class Adapter>
concept zones_take_arguments = requires(Adapter& a, void* anything) {
  a.create_pz(anything);
};
/// Whether the query of a region takes a mask.
template <class Region>
concept query_takes_a_mask = requires(const Region& r) {
  dat::query(r, 0x800U);
};
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

} // namespace

TEST_CASE("spans, vectors and arrays can be registered",
          "[memory][LMR-005][LMR-014][LMR-020][LMR-031][LMR-034][LMR-039][LMR-041][REQ-142]") {
  side a(0);
  std::vector<sample> numbers(100);
  std::array<std::uint64_t, 8> words{1, 2, 3};
  const std::string text = "only to be read";

  const auto v = must(a.pz.register_memory(numbers, all_rights));
  STATIC_REQUIRE(std::is_same_v<decltype(v)::element_type, sample>);
  CHECK(v.size() == 100);
  CHECK(v.size_bytes() == 800);
  CHECK(v.data() == numbers.data());
  const auto registered = must(dat::query(v));
  CHECK(registered.registered_size == 800);
  CHECK(registered.registered_address == reinterpret_cast<std::uintptr_t>(numbers.data()));
  CHECK(registered.type == dat::mem_type::virtual_memory);
  STATIC_REQUIRE(static_cast<int>(dat::mem_type::virtual_memory) == 0x00);
  // The object is neither in its handle nor in the memory that it registers.
  const auto outside_of = [at = reinterpret_cast<std::uintptr_t>(v.identity())](const void* p, std::size_t size) {
    const auto begin = reinterpret_cast<std::uintptr_t>(p);
    return at != 0 && (at < begin || at >= begin + size);
  };
  CHECK((outside_of(&v, sizeof v) && outside_of(numbers.data(), v.size_bytes())));
  const auto w = must(a.pz.register_memory(words, dat::local_read));
  CHECK(w.size() == 8);
  CHECK(w.elements()[2] == 3);
  auto t = must(a.pz.register_memory(text, dat::local_read | dat::remote_read));
  STATIC_REQUIRE(std::is_same_v<decltype(t)::element_type, const char>);
  CHECK(t.size() == text.size());
  const auto part = must(a.pz.register_memory(std::span(numbers).subspan(10, 20), dat::local_write));
  CHECK(part.data() == numbers.data() + 10);
  // Several regions over the same memory have different keys.
  const auto again = must(a.pz.register_memory(numbers, dat::local_read));
  CHECK(again.native_handle()->lkey != v.native_handle()->lkey);
  CHECK(again.data() == v.data());

  const auto piece = must(v.slice(99, 1));
  CHECK(piece.size_bytes() == 8);
  CHECK(piece.data() == numbers.data() + 99);
  CHECK(must(v.slice(100, 0)).empty());
  const auto outside = dat::error(type::invalid_parameter);
  CHECK(error_of(v.slice(100, 1)) == outside);
  CHECK(error_of(v.slice(0, 101)) == outside);
  CHECK(error_of(v.slice(1, SIZE_MAX)) == outside);
  CHECK(error_of(v.slice(SIZE_MAX, 1)) == outside);
  CHECK(error_of(piece.slice(0, 2)) == outside);
  CHECK(error_of(v.remote().slice(100, 1)) == outside);
  CHECK(error_of(v.remote(0, 101)) == outside);
  SHOWS("DTO-080", "DTO-124");

  // The wire form has each number with its most significant byte first; a query has them for any order.
  const auto form = v.remote().to_wire();
  CHECK(dat::detail::get_be<std::uint64_t>(&form[0]) == registered.registered_address);
  CHECK(dat::detail::get_be<std::uint64_t>(&form[8]) == registered.registered_size);
  CHECK(dat::detail::get_be<std::uint32_t>(&form[16]) == registered.remote_key);
  SHOWS("DTO-057");
  const auto most_first = [&](std::size_t at, auto number) {
    return std::memcmp(&form[at], &number, sizeof number) == 0;
  };
  CHECK(most_first(0, dat::to_msb(registered.registered_address)));
  CHECK(most_first(8, dat::to_msb(registered.registered_size)));
  CHECK(most_first(16, dat::to_msb(*registered.remote_key)));
  const auto reversed = [&](std::size_t at, auto number) {
    const auto bytes = std::bit_cast<std::array<std::byte, sizeof number>>(number);
    return std::equal(bytes.rbegin(), bytes.rend(), form.begin() + static_cast<std::ptrdiff_t>(at));
  };
  CHECK(reversed(0, dat::to_lsb(registered.registered_address)));
  CHECK(reversed(8, dat::to_lsb(registered.registered_size)));
  CHECK(reversed(16, dat::to_lsb(*registered.remote_key)));
  CHECK(dat::to_msb(dat::to_msb(registered.lmr_key)) == registered.lmr_key);
  CHECK(dat::to_lsb(dat::to_lsb(registered.lmr_key)) == registered.lmr_key);
  SHOWS("DTO-058");
  // The wire form carries the rights: no segment with more rights can be read from it.
  using writable = dat::remote_segment<char, dat::mem_priv::remote_write>;
  CHECK(error_of(writable::from_wire(t.remote().to_wire())) ==
        dat::error(type::privileges_violation, subtype::privileges_rdma_write));
  std::array<char, 8> sink{};
  const auto written = must(a.pz.register_memory(sink, dat::local_write | dat::remote_write));
  using readable = dat::remote_segment<char, dat::mem_priv::remote_read>;
  CHECK(error_of(readable::from_wire(written.remote().to_wire())) ==
        dat::error(type::privileges_violation, subtype::privileges_rdma_read));
  STATIC_REQUIRE(static_cast<std::uint32_t>(type::privileges_violation) == 0x000B0000);
  STATIC_REQUIRE(static_cast<std::uint32_t>(type::protection_violation) == 0x000C0000);
  SHOWS("ERR-023", "DTO-067", "ERR-036");

  must(t.close());
  CHECK(error_of(t.close()) == dat::error(type::invalid_handle, subtype::handle_lmr));
  CHECK(error_of(t.slice(0, 1)) == dat::error(type::invalid_handle, subtype::handle_lmr));
  SHOWS("LMR-040");
  CHECK(t.whole().empty());
  CHECK(text == "only to be read");
}

TEST_CASE("memory without the needed access cannot be registered", "[memory][LMR-025][LMR-028][REQ-140]") {
  side a(0);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  auto* map = static_cast<std::byte*>(::mmap(nullptr, 3 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(map != MAP_FAILED);
  REQUIRE(::munmap(map + page, page) == 0);

  const std::span hole(map, 3 * page);
  const auto unmapped = error_of(a.pz.register_memory(hole, dat::local_read));
  CHECK(unmapped.type() == type::invalid_parameter);
  CHECK(unmapped.sys_errno() == EFAULT);
  CHECK(unmapped.verb() == "ibv_reg_mr");
  CHECK_THAT(unmapped.message(), support::starts_with_text("pz.register_memory"));
  const std::span read_only(map, page);
  CHECK(error_of(a.pz.register_memory(read_only, dat::local_write)).type() == type::invalid_parameter);
  CHECK(error_of(a.pz.register_memory(read_only, dat::remote_write)).type() == type::invalid_parameter);
  CHECK(error_of(a.pz.register_memory(std::span(map, 0), dat::local_read)) ==
        dat::error(type::invalid_parameter, subtype::arg3));
  REQUIRE(::mprotect(map + 2 * page, page, PROT_NONE) == 0);
  const auto unreadable = a.pz.register_memory(std::span(map + 2 * page, page), dat::local_read);
  CHECK(unreadable.has_value() == this_device().pins_unreadable);
  DEVIATES("LMR-004");
  CHECK(must(a.pz.register_memory(read_only, dat::local_read)).size() == page); // an allowed operation works
  ::munmap(map, page);
  ::munmap(map + 2 * page, page);

  dat::pz none;
  CHECK(error_of(none.register_memory(read_only, dat::local_read)) ==
        dat::error(type::invalid_handle, subtype::handle_pz));
}

TEST_CASE("a zone cannot be closed while a region or an endpoint uses it",
          "[memory][PZ-005][PZ-006][PZ-008][PZ-009][REQ-005]") {
  side a(0);
  std::array<std::byte, 16> bytes{};
  const auto in_use = dat::error(type::invalid_state, subtype::pz_in_use);
  auto pz = must(a.ia.create_pz());
  const auto another = must(a.ia.create_pz());
  CHECK(another.native_handle() != pz.native_handle());
  SHOWS("PZ-001", "IA-122");
  {
    const auto lmr = must(pz.register_memory(bytes, dat::local_read));
    CHECK(error_of(pz.close()) == in_use);
  }
  {
    const auto ep = must(pz.create_ep<dat::rc>(a.evd)); // the endpoint is usable after the refusal
    CHECK(error_of(pz.close()) == in_use);
  }
  must(pz.close());
  CHECK(error_of(pz.close()) == dat::error(type::invalid_handle, subtype::handle_pz));
  CHECK(error_of(pz.create_ep<dat::rc>(a.evd)) == dat::error(type::invalid_handle, subtype::handle_pz));
}

// --- the rights of a peer ------------------------------------------------------------------------------------------

namespace {

/// Registers memory with a pattern, sends its wire form, and reports the contents on request.
int window_role(channel& to, const std::vector<std::string>&) {
  side b(1);
  const auto port = next_port();
  const auto psp = must(b.ia.create_psp(port, b.evd));
  buffer memory(b.pz, 64 * 1024);
  fill(memory.bytes, 21);
  to.say(std::to_string(port.port()));
  auto request = must(b.evd.wait_for<dat::connection_request>(patience));
  auto ep = b.make_ep();
  must(ep.post(dat::recv{}));
  must(request.accept(ep, memory.lmr.remote().to_wire()));
  must(b.evd.wait_for<dat::established>(patience));
  must(b.evd.wait_for<dat::recv_done>(patience)); // the peer's writes before this send are in place
  to.say(has_pattern(memory.bytes, 22) ? "as written" : "not as written");
  (void)to.closed();
  return 0;
}
const role window_registered("window", &window_role);

} // namespace

TEST_CASE("the wire form lets another process read and write a region",
          "[memory][DTO-057][LMR-019][LMR-021][MODEL-040][MODEL-046][DTO-150][DTO-135][REQ-085]"
          "[REG-006]") {
  side a(0);
  peer_process peer("window");
  const auto port = must(dat::conn_qual::make(std::stoul(peer.hear())));
  auto ep = a.make_ep();
  must(ep.connect(addresses()[1], port, patience));
  const auto up = must(a.evd.wait_for<dat::established>(patience));
  const auto there = must(window::from_wire(up.private_data()));
  REQUIRE(there.size() == 64 * 1024);

  buffer memory(a.pz, 64 * 1024);
  must(ep.post(dat::rdma_read{memory.lmr, there}));
  CHECK(next<dat::rdma_read_done>(a.evd).bytes() == 64 * 1024);
  CHECK(has_pattern(memory.bytes, 21));
  fill(memory.bytes, 22);
  must(ep.post(dat::rdma_write{memory.slice(0, 40'000), must(there.slice(0, 40'000))}.suppress_completion(),
               dat::rdma_write{memory.slice(40'000, 25'536), must(there.slice(40'000, 25'536))}, dat::send{}));
  (void)next<dat::rdma_write_done>(a.evd);
  (void)next<dat::send_done>(a.evd);
  CHECK(peer.hear() == "as written");
}

TEST_CASE("a region keeps the memory that was mapped at registration", "[memory][LMR-003][LMR-030]") {
  connected_pair link;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto map = [&](void* where) {
    void* m = ::mmap(where, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (where ? MAP_FIXED : 0), -1, 0);
    if (m == MAP_FAILED) fail("mmap", place::here());
    return std::span(static_cast<std::byte*>(m), page);
  };
  const auto bytes = map(nullptr);
  fill(bytes, 1);
  const auto first = must(link.a.pz.register_memory(bytes, dat::local_read));
  (void)map(bytes.data());
  fill(bytes, 2);
  const auto second = must(link.a.pz.register_memory(bytes, dat::local_read));
  (void)map(bytes.data());
  fill(bytes, 3);
  const auto third = must(link.a.pz.register_memory(bytes, dat::local_read));
  ::munmap(bytes.data(), page); // now nothing is mapped there
  buffer in(link.b.pz, 3 * page);
  must(link.active.post(dat::rdma_write{first, in.remote(0, page)}, dat::rdma_write{second, in.remote(page, page)},
                        dat::rdma_write{third, in.remote(2 * page, page)}));
  for (int i = 0; i < 3; ++i) (void)next<dat::rdma_write_done>(link.a.evd);
  CHECK(has_pattern(in.part(0, page), 1));
  CHECK(has_pattern(in.part(page, page), 2));
  CHECK(has_pattern(in.part(2 * page, page), 3));
}

// --- limits --------------------------------------------------------------------------------------------------------

namespace {

/// Runs as an ordinary user with a low limit of locked memory: reports the error of a registration beyond it.
int ordinary_user_role(channel& to, const std::vector<std::string>& args) {
  const rlimit little{64 * 1024, 64 * 1024};
  if (::setrlimit(RLIMIT_MEMLOCK, &little) != 0) fail("setrlimit", place::here());
  if (::geteuid() == 0 && (::setgroups(0, nullptr) != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0))
    fail("setuid", place::here());
  auto ia = must(dat::ia::open(must(dat::ia_address::parse(args.at(0)))));
  auto pz = must(ia.create_pz());
  std::vector<std::byte> small(4096);
  std::vector<std::byte> large(1024 * 1024);
  must(pz.register_memory(small, dat::local_read));
  const auto e = error_of(pz.register_memory(large, dat::local_read));
  to.say(std::string(to_string(e.type())) + ' ' + std::string(to_string(e.subtype())) + ' ' +
         ::strerrorname_np(e.sys_errno()));
  to.say(e.message());
  must(pz.register_memory(small, dat::local_read)); // the failed call left the zone usable

  auto evd = must(ia.create_evd<dat::stream::connection_requests>(4));
  const auto low = ia.create_psp(700, evd);
  to.say(low ? "allowed" : std::string(to_string(low.assume_error().type())));
  auto own = must(ia.create_evd<dat::stream::dto | dat::stream::connection>(8));
  auto ep = must(pz.create_ep<dat::rc>(own, {.max_request_dtos = 1, .max_recv_dtos = 1}));
  must(ep.modify({.local_address = ia.address().with_port(700)})); // the port is taken when the endpoint connects
  const auto from_low = ep.connect(ia.address(), 7999, patience);
  to.say(from_low ? "allowed" : std::string(to_string(from_low.assume_error().type())));
  return 0;
}
const role ordinary_user_registered("ordinary user", &ordinary_user_role);

} // namespace

TEST_CASE("registration errors name the limits of an ordinary user", "[memory][LMR-028]") {
  peer_process peer("ordinary user", {addresses()[0].to_string()});
  CHECK(peer.hear() == "insufficient_resources resource_memory_region ENOMEM");
  SHOWS("ERR-031", "DTO-067");
  const auto message = peer.hear();
  CHECK_THAT(message, support::contains_text("RLIMIT_MEMLOCK"));
  CHECK_THAT(message, support::contains_text("ibv_reg_mr"));
  const auto low_port = peer.hear();
  if (in_lab()) CHECK(low_port == "privileges_violation"); // elsewhere net.ipv4.ip_unprivileged_port_start may allow it
  const auto from_low = peer.hear();
  CHECK((from_low == "privileges_violation" || !in_lab()));
  SHOWS("EP-079");
  CHECK(peer.wait() == 0);
}

// --- other kinds of memory -----------------------------------------------------------------------------------------

namespace {

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

TEST_CASE("memory: two processes register one piece of shared memory",
          "[memory][LMR-007][LMR-008][LMR-009][LMR-010][LMR-011][LMR-012]"
          "[REQ-143][IA-114]") {
  side a(0);
  const int fd = ::memfd_create("dat-test", MFD_CLOEXEC);
  REQUIRE(fd >= 0);
  REQUIRE(::ftruncate(fd, shared_size) == 0);
  const auto memory = map_shared(fd);
  const auto mem = must(dat::register_shared(a.pz, memory, the_cookie(), dat::local_read));
  CHECK(must(dat::query(mem)).type == dat::mem_type::shared_virtual);
  STATIC_REQUIRE(static_cast<int>(dat::mem_type::shared_virtual) == 0x02);
  const auto registered = must(dat::query(mem));
  CHECK(registered.cookie == the_cookie());
  STATIC_REQUIRE(sizeof(dat::shared_cookie) == 40);
  // A cookie belongs to one size. These cookies differ behind zeros, where a text would end.
  const auto part = memory.first(shared_size / 2);
  auto another = the_cookie();
  another.back() = std::byte{8};
  CHECK(error_of(dat::register_shared(a.pz, part, the_cookie(), dat::local_read)).type() == type::invalid_parameter);
  CHECK(dat::register_shared(a.pz, part, another, dat::local_read));
  for (std::size_t i = 0; i != the_cookie().size(); ++i) { // each byte makes another cookie
    auto of_one_byte = the_cookie();
    of_one_byte[i] ^= std::byte{0x80};
    CHECK(dat::register_shared(a.pz, part, of_one_byte, dat::local_read));
  }
  std::vector<std::byte> own(shared_size);
  CHECK(error_of(dat::register_shared(a.pz, own, the_cookie(), dat::local_read)).type() == type::invalid_state);
  SHOWS("LMR-028");
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
  // No region is special: a region that was created later outlives an earlier one, and others can join it.
  auto early = must(dat::register_shared(a.pz, memory, another, dat::local_read));
  const auto later = must(dat::register_shared(a.pz, memory, another, dat::local_read));
  must(early.close());
  CHECK(must(dat::query(later)).cookie == another);
  CHECK(dat::register_shared(a.pz, memory, another, dat::local_read));
  ::munmap(memory.data(), memory.size());
  ::close(fd);
}

TEST_CASE("memory: a region over another one has its own rights and its own lifetime", "[memory]") {
  connected_pair link;
  buffer out(link.a.pz, 64);
  fill(out.bytes, 8);
  std::vector<std::byte> bytes(64);
  auto closed = must(link.b.pz.register_memory(bytes, dat::local_read));
  const auto open = must(dat::register_over(link.b.pz, closed, dat::local_write | dat::remote_write));
  CHECK(must(dat::query(open)).origin == closed.identity());
  CHECK((open.data() == closed.data() && open.size() == closed.size()));
  SHOWS("LMR-006");
  { // One list has segments of both regions.
    const auto twin = must(dat::register_over(link.b.pz, closed, dat::local_read));
    fill(bytes, 9);
    must(link.active.post(dat::recv{out.lmr}));
    must(link.passive.post(dat::send{dat::iov{must(closed.slice(0, 8)), must(twin.slice(8, 56))}}));
    CHECK(next<dat::recv_done>(link.a.evd).bytes() == 64);
    CHECK(has_pattern(out.bytes, 9));
    SHOWS("LMR-014");
    SHOWS("DTO-001");
    (void)next<dat::send_done>(link.b.evd);
    fill(out.bytes, 8);
  }
  must(closed.close());
  must(link.active.post(dat::rdma_write{out.lmr, open.remote()}));
  (void)next<dat::rdma_write_done>(link.a.evd);
  CHECK(has_pattern(bytes, 8));
  SHOWS("LMR-012", "LMR-014", "REQ-142");
  // A query returns the requested rights, not those that the adapter needed.
  const auto again = must(dat::query(open));
  CHECK_FALSE(again.origin); // the original region has ended
  SHOWS("LMR-045");
  CHECK(again.type == dat::mem_type::lmr);
  STATIC_REQUIRE(static_cast<int>(dat::mem_type::lmr) == 0x01);
  SHOWS("IA-114", "LMR-006", "LMR-041");
  CHECK(again.ia == link.b.ia.identity());
  CHECK(again.pz == link.b.pz.identity());
  SHOWS("LMR-044", "REQ-139");
  CHECK(link.b.pz.owner() == link.b.ia.identity());
  SHOWS("PZ-010", "PZ-012");
  CHECK(again.rights == (dat::local_write | dat::remote_write).value);
  SHOWS("LMR-042");
  CHECK(again.lmr_key == open.native_handle()->lkey);
  CHECK(again.remote_key == open.native_handle()->rkey);
  CHECK(again.registered_size == 64);
  CHECK(again.registered_address == reinterpret_cast<std::uintptr_t>(bytes.data()));
  CHECK_FALSE(again.zero_based);
  SHOWS("LMR-041", "LMR-020", "REQ-141", "LMR-018");
  auto elsewhere = must(link.b.ia.create_pz()); // a region over another one may have its own zone
  const auto third = must(dat::register_over(elsewhere, open, dat::local_read));
  CHECK(must(dat::query(third)).pz == elsewhere.identity());
  CHECK(must(dat::query(third)).origin == open.identity());
  CHECK_FALSE(must(dat::query(third)).remote_key); // this region has a local right only
  SHOWS("LMR-006", "LMR-019", "LMR-018");
  CHECK(error_of(dat::register_over(elsewhere, closed, dat::local_read)) ==
        dat::error(type::invalid_handle, subtype::handle_lmr));
  SHOWS("LMR-028", "DTO-067");
  // Each right is independent of the others.
  const auto each = [&]<std::size_t... Bits>(std::index_sequence<Bits...>) {
    const auto kept = [&]<dat::mem_priv P>(dat::privileges<P> rights) {
      return must(dat::query(must(link.b.pz.register_memory(bytes, rights)))).rights == P;
    };
    return (... && kept(dat::privileges<dat::mem_priv((Bits & 3U) | (Bits & 12U) << 2U)>{}));
  };
  CHECK(each(std::make_index_sequence<16>()));
  STATIC_REQUIRE_FALSE(has_default_rights<dat::pz>); // no right is given unless it is requested
  SHOWS("LMR-015", "REQ-139");
  CHECK(must(dat::query(must(link.b.pz.register_memory(bytes, dat::remote_write)))).rights ==
        dat::mem_priv::remote_write);
  const auto nothing = must(link.b.pz.register_memory(bytes, dat::no_rights));
  CHECK(must(dat::query(nothing)).rights == dat::mem_priv::none);
  CHECK_FALSE(must(dat::query(nothing)).remote_key);
  SHOWS("LMR-016", "LMR-018");
  CHECK(error_of(dat::query(closed)) == dat::error(type::invalid_handle, subtype::handle_lmr));
  STATIC_REQUIRE_FALSE(query_takes_a_mask<decltype(closed)>); // a query gives all: no mask can be wrong
  SHOWS("LMR-043");
  CHECK(error_of(dat::ia().create_pz()) == dat::error(type::invalid_handle, subtype::handle_ia));
  auto ended = must(dat::ia::open(addresses()[0]));
  must(ended.close(dat::close_mode::abrupt));
  CHECK(error_of(ended.create_pz()) == dat::error(type::invalid_handle, subtype::handle_ia));
  STATIC_REQUIRE_FALSE(zones_take_arguments<dat::ia>); // without arguments, none can be invalid
  SHOWS("PZ-004", "DTO-067");
}

TEST_CASE("memory: a zero-based region is addressed from 0 by both sides", "[memory][LMR-023][LMR-024][DTO-092]"
                                                                           "[REQ-141][MODEL-020][IA-101]") {
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
    // This adapter gives access to no more than the requested range: the byte behind the region is in a page of the
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
  if (const auto lmr = dat::register_on_demand(a.pz, bytes, dat::local_read | dat::local_write); !lmr) {
    CHECK(error_of(lmr).type() == type::model_not_supported);
    SHOWS("LMR-013");
  }
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

// --- helpers for consumers -------------------------------------------------------------------------------------------

namespace {
std::uint32_t blamed = 0;
void blame(const dat::error& e) noexcept { blamed = e.object_id(); }
} // namespace

TEST_CASE("memory: a tracked post names the operation whose region or memory was removed",
          "[memory][policies][LMR-036]") {
  connected_pair link;
  const auto culprit_is = [&](dat::dto_operation what, std::uint64_t cookie) {
    const auto c = dat::tracked::last_offender(link.a.ia);
    REQUIRE(c);
    CHECK(c->operation == what);
    CHECK(c->cookie == dat::cookie(cookie));
    CHECK(c->ep == link.active.number());
  };
  std::vector<std::byte> bytes(64);
  auto mem = must(link.a.pz.register_memory(bytes, all_rights));
  const auto piece = must(mem.slice(0, 8));
  must(link.active.post<dat::tracked>(dat::recv{piece}.cookie(77)));
  const auto refused = error_of(mem.close());
  CHECK(refused == dat::error(type::invalid_state, subtype::lmr_in_use));
  culprit_is(dat::dto_operation::recv, 77);
  CHECK(error_of(dat::tracked::unreferenced(link.a.ia, bytes)).type() == type::invalid_state);
  must(link.passive.post(dat::send{}));
  CHECK(next<dat::recv_done>(link.a.evd).cookie() == dat::cookie(77));
  must(dat::tracked::unreferenced(link.a.ia, bytes));
  must(mem.close()); // no posted operation names the region now
  CHECK(error_of(link.active.post<dat::tracked>(dat::send{piece}.cookie(78))).type() == type::privileges_violation);
  culprit_is(dat::dto_operation::send, 78);
  CHECK(link.active.state() == state::connected);

  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* map = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(map != MAP_FAILED);
  const auto mapped = must(link.a.pz.register_memory(std::span(static_cast<std::byte*>(map), page), all_rights));
  must(link.active.post<dat::tracked>(dat::recv{mapped}.cookie(79)));
  must(dat::tracked::verify(link.a.ia));
  ::munmap(map, page);
  CHECK(error_of(dat::tracked::verify(link.a.ia)).type() == type::invalid_state);
  culprit_is(dat::dto_operation::recv, 79);
  must(link.passive.post(dat::send{})); // an empty message changes nothing
  CHECK(next<dat::recv_done>(link.a.evd).cookie() == dat::cookie(79));
  must(dat::tracked::verify(link.a.ia));

  // A destructor cannot return an error, so it calls the function of on_misuse, before the device reports the
  // operation.
  auto other = must(link.a.pz.register_memory(bytes, all_rights));
  buffer out(link.b.pz, 8);
  must(link.active.post<dat::tracked>(dat::recv{must(other.slice(0, 8))}.cookie(80)));
  dat::tracked::on_misuse(&blame);
  other = {};
  dat::tracked::on_misuse(nullptr);
  CHECK(blamed == link.active.number());
  culprit_is(dat::dto_operation::recv, 80);
  for (int i = 0; i < 2; ++i) (void)next<dat::send_done>(link.b.evd);
  must(link.passive.post(dat::send{out.lmr}));
  CHECK(next<dat::dto_failure>(link.a.evd).cookie() == dat::cookie(80));
}

TEST_CASE("memory: containers in a pool are sent and written as they are, on huge pages, too",
          "[memory][policies][pool]") {
  connected_pair link;
  using pool = dat::memory_pool<all_rights.value>;
  const auto huge_pages = [](int n) { std::ofstream("/proc/sys/vm/nr_hugepages") << n << std::flush; };
  for (const auto kind : {dat::pages::normal, dat::pages::huge}) {
    if (kind == dat::pages::huge && !in_lab()) continue;
    CAPTURE(to_string(kind));
    if (kind == dat::pages::huge) huge_pages(8);
    auto from = must(pool::create(link.a.pz, 4 * 1024 * 1024, kind));
    auto to = must(pool::create(link.b.pz, 4 * 1024 * 1024, kind));
    CHECK(from.is_huge() == (kind == dat::pages::huge));
    std::optional<resources> before;
    if (kind == dat::pages::normal) before = resources::now();
    {
      std::pmr::vector<std::uint32_t> numbers(100'000, &from.resource());
      std::pmr::vector<std::uint32_t> inbox(100'000, &to.resource());
      std::iota(numbers.begin(), numbers.end(), 7u);
      must(link.passive.post(dat::recv{must(to.segment(inbox))}));
      must(link.active.post(dat::send{must(from.segment(numbers))}));
      (void)next<dat::send_done>(link.a.evd);
      CHECK(next<dat::recv_done>(link.b.evd).bytes() == 400'000);
      CHECK(numbers == inbox);
    }
    for (std::uint32_t i = 1; i < 100; ++i) { // these posts need no registration
      std::pmr::vector<std::uint32_t> numbers(i, i, &from.resource());
      std::pmr::vector<std::uint32_t> inbox(i, &to.resource());
      must(link.active.post(dat::rdma_write{must(from.segment(numbers)), must(to.remote(inbox))}));
      (void)next<dat::rdma_write_done>(link.a.evd);
      if (!arrives([&] { return numbers == inbox; })) FAIL("vector " << i);
    }
    if (before) CHECK(resources::now().count == before->count);
    CHECK((from.used_bytes() == 0 && to.used_bytes() == 0));
    if (kind == dat::pages::huge) {
      std::ifstream maps("/proc/self/smaps");
      const auto start = reinterpret_cast<std::uintptr_t>(from.region().data());
      bool inside = false;
      std::string of_it;
      for (std::string line; std::getline(maps, line);) {
        char* end = nullptr;
        const auto first = std::strtoull(line.c_str(), &end, 16);
        if (*end == '-') // a mapping: first-last
          inside = first == start;
        else if (inside && line.starts_with("KernelPageSize:"))
          of_it = line;
      }
      CHECK_THAT(of_it, support::contains_text("2048 kB"));
    }
    must(from.close());
    must(to.close());
    if (kind == dat::pages::huge) {
      huge_pages(0);
      CHECK(error_of(pool::create(link.a.pz, 4 * 1024 * 1024, kind)).type() == type::insufficient_resources);
      CHECK_FALSE(must(pool::create(link.a.pz, 4 * 1024 * 1024, dat::pages::huge_or_normal)).is_huge());
    }
  }
}

TEST_CASE("memory: credits prevent messages to a peer without receives", "[memory][policies][credits]") {
  NEEDS_FEATURE(immediate_data);
  connected_pair link({.active = {.rnr_retry_count = 0}}); // a message without a receive would break the connection
  constexpr std::uint32_t receives = 5;
  dat::send_credits there(receives);
  dat::recv_credits here(receives);
  const auto receive = [&] { must(link.passive.post(dat::recv{})); };
  for (std::uint32_t i = 0; i < receives; ++i) receive();
  for (std::uint32_t sent = 0; sent < 200;) {
    must(link.active.post(dat::recv{}));
    const auto first = sent;
    for (;; ++sent)
      if (const auto r = there.post(link.active, dat::send{}.cookie(sent)); !r) {
        CHECK(r.assume_error() == dat::error(type::insufficient_resources, subtype::resource_credits));
        SHOWS("ERR-031", "DTO-067");
        break;
      }
    CHECK(there.left() == 0);
    std::uint32_t owed = 0;
    for (auto i = first; i < sent; ++i) {
      (void)next<dat::recv_done>(link.b.evd);
      receive();
      here.reposted();
      owed += here.take(i + 1 == sent);
    }
    CHECK(owed == sent - first);
    must(link.passive.post(dat::send{}.immediate(owed)));
    (void)next<dat::send_done>(link.b.evd);
    // A device may complete the receive before the last send that the peer has answered.
    auto done = first;
    bool given = false;
    while (done != sent || !given)
      link.a.evd.drain(dat::overloaded{[&](const dat::send_done& e) { CHECK(e.cookie() == dat::cookie(done++)); },
                                       [&](const dat::ib::recv_immediate_done& e) {
                                         there.give(e.immediate());
                                         given = true;
                                       },
                                       [](const auto&) { FAIL("another event"); }});
  }
  CHECK(link.active.state() == state::connected);
}

}} // namespace device::memory_tests
