// Registered memory on a device: what can be registered, the rights of a peer, the lifetime of a region.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/ep_params.hpp>
#include <dat/memory.hpp>
#include <dat/rmr.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <grp.h>
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

} // namespace

TEST_CASE("spans, vectors and arrays can be registered", "[memory]") {
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
  SHOWS("LMR-005", "LMR-020", "LMR-041");
  // The object is neither in its handle nor in the memory that it registers.
  const auto outside_of = [at = reinterpret_cast<std::uintptr_t>(v.identity())](const void* p, std::size_t size) {
    const auto begin = reinterpret_cast<std::uintptr_t>(p);
    return at != 0 && (at < begin || at >= begin + size);
  };
  CHECK((outside_of(&v, sizeof v) && outside_of(numbers.data(), v.size_bytes())));
  SHOWS("LMR-031");
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
  SHOWS("LMR-014", "REQ-142");

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
  SHOWS("LMR-039", "LMR-040");
  CHECK(t.whole().empty());
  CHECK(text == "only to be read");
  SHOWS("LMR-034");
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

TEST_CASE("the wire form lets another process read and write a region", "[memory]") {
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
  SHOWS("LMR-019", "REQ-085");
  fill(memory.bytes, 22);
  must(ep.post(dat::rdma_write{memory.slice(0, 40'000), must(there.slice(0, 40'000))}.suppress_completion(),
               dat::rdma_write{memory.slice(40'000, 25'536), must(there.slice(40'000, 25'536))}, dat::send{}));
  (void)next<dat::rdma_write_done>(a.evd);
  (void)next<dat::send_done>(a.evd);
  CHECK(peer.hear() == "as written");
  SHOWS("DTO-057", "DTO-150", "MODEL-040", "MODEL-046", "REG-006");
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
  CHECK(third.native_handle()->pd == elsewhere.native_handle());
  CHECK(error_of(link.passive.post(dat::send{third})).type() == type::protection_violation);
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
  STATIC_REQUIRE_FALSE(query_takes_a_mask<decltype(closed)>); // a query returns all members: no mask can be wrong
  SHOWS("LMR-043");
  CHECK(error_of(dat::ia().create_pz()) == dat::error(type::invalid_handle, subtype::handle_ia));
  auto ended = must(dat::ia::open(addresses()[0]));
  must(ended.close(dat::close_mode::abrupt));
  CHECK(error_of(ended.create_pz()) == dat::error(type::invalid_handle, subtype::handle_ia));
  STATIC_REQUIRE_FALSE(zones_take_arguments<dat::ia>); // without arguments, none can be invalid
  SHOWS("PZ-004", "DTO-067");
}

}} // namespace device::memory_tests
