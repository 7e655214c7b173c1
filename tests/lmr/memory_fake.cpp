// Kinds of registered memory in the fake world: their properties, their refusals, and their queries.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/memory.hpp>
#include <dat/rmr.hpp>

#include <support/signal_handler.hpp>

#include <fcntl.h>
#include <limits>
#include <sys/mman.h>
#include <unistd.h>
#include <unordered_set>

using namespace unit;

namespace {

const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

/// Two pages of memory, private or shared.
struct mapping {
  explicit mapping(bool shared)
      : bytes(static_cast<char*>(::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE,
                                        MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE), -1, 0)),
              2 * page) {
    REQUIRE(static_cast<void*>(bytes.data()) != MAP_FAILED);
  }
  mapping(const mapping&) = delete;
  mapping& operator=(const mapping&) = delete;
  ~mapping() { ::munmap(bytes.data(), bytes.size()); }
  std::span<char> bytes;
};

dat::shared_cookie cookie_ending_in(char last) {
  dat::shared_cookie c{};
  c[39] = static_cast<std::byte>(last); // the cookies differ behind zeros, so a cookie is not a string
  return c;
}

} // namespace

TEST_CASE("a query returns how a region was made", "[memory]") {
  const clean_world world;
  end e;
  const auto plain = must(dat::query(e.mem));
  CHECK(plain.ia == e.ia.identity());
  CHECK(plain.pz == e.pz.identity());
  SHOWS("PZ-010", "PZ-012", "LMR-044");
  CHECK(plain.type == dat::mem_type::virtual_memory);
  STATIC_REQUIRE(static_cast<int>(dat::mem_type::virtual_memory) == 0x00);
  STATIC_REQUIRE(static_cast<int>(dat::mem_type::lmr) == 0x01);
  STATIC_REQUIRE(static_cast<int>(dat::mem_type::shared_virtual) == 0x02);
  SHOWS("LMR-012", "LMR-005", "LMR-006", "LMR-007");
  CHECK_FALSE(plain.origin);
  CHECK_FALSE(plain.cookie);
  CHECK(plain.rights == all_rights.value);
  CHECK_FALSE(plain.zero_based);
  CHECK(plain.lmr_key == e.mem.native_handle()->lkey);
  CHECK(plain.remote_key == e.mem.native_handle()->rkey);
  CHECK(plain.registered_address == reinterpret_cast<std::uintptr_t>(e.memory.data()));
  CHECK(plain.registered_size == e.memory.size());
  SHOWS("LMR-041");
  const auto local = must(e.pz.register_memory(e.memory, dat::local_read));
  CHECK_FALSE(must(dat::query(local)).remote_key);
  SHOWS("LMR-018", "REQ-139");
  // Rights that verbs needs in addition are not reported.
  const auto writable = must(e.pz.register_memory(e.memory, dat::remote_write));
  CHECK(must(dat::query(writable)).rights == dat::mem_priv::remote_write);
  SHOWS("LMR-042", "LMR-015");
  const auto nothing = must(e.pz.register_memory(e.memory, dat::no_rights));
  CHECK(must(dat::query(nothing)).rights == dat::mem_priv::none);
  CHECK_FALSE(must(dat::query(nothing)).remote_key);
  SHOWS("LMR-016");
  is_error(dat::query(region()), dat::return_type::invalid_handle, dat::return_subtype::handle_lmr);
  SHOWS("LMR-043");
}

TEST_CASE("a region over another one has its own zone, rights and lifetime",
          "[memory][LMR-006][LMR-013][LMR-014][LMR-019][LMR-045]") {
  const clean_world world;
  end e;
  dat::pz other = must(e.ia.create_pz());
  auto again = must(dat::register_over(other, e.mem, dat::local_read));
  CHECK(again.data() == e.mem.data());
  CHECK(again.size() == e.mem.size());
  auto p = must(dat::query(again));
  CHECK(p.type == dat::mem_type::lmr);
  CHECK(p.origin == e.mem.identity());
  CHECK(p.pz == other.identity());
  CHECK(p.rights == dat::mem_priv::local_read);
  CHECK(p.lmr_key != e.mem.native_handle()->lkey);
  is_error(dat::register_on_demand(other, e.memory, dat::local_read), dat::return_type::model_not_supported);
  must(e.mem.close());
  p = must(dat::query(again));
  CHECK_FALSE(p.origin);
  CHECK(p.registered_size == 4096);
  is_error(dat::register_over(other, e.mem, dat::local_read), dat::return_type::invalid_handle,
           dat::return_subtype::handle_lmr);
  dat::pz none;
  is_error(dat::register_over(none, again, dat::local_read), dat::return_type::invalid_handle,
           dat::return_subtype::handle_pz);
  fail_registration(ENOMEM);
  is_error(dat::register_over(other, again, dat::local_read), dat::return_type::insufficient_resources,
           dat::return_subtype::resource_memory_region);
}

TEST_CASE("shared memory must be mapped as shared, and its cookie has 40 bytes",
          "[memory][LMR-007][LMR-008][LMR-009][LMR-010][LMR-011][LMR-028]") {
  const clean_world world;
  end e;
  mapping shared(true);
  mapping own(false);
  const auto mem =
      must(dat::register_shared(e.pz, shared.bytes, cookie_ending_in('a'), dat::local_read | dat::local_write));
  const auto p = must(dat::query(mem));
  CHECK(p.type == dat::mem_type::shared_virtual);
  CHECK(p.cookie == cookie_ending_in('a'));
  is_error(dat::register_shared(e.pz, own.bytes, cookie_ending_in('a'), dat::local_read),
           dat::return_type::invalid_state);
  const std::span partly(shared.bytes.first(page));
  is_error(dat::register_shared(e.pz, partly, cookie_ending_in('a'), dat::local_read),
           dat::return_type::invalid_parameter, dat::return_subtype::arg4);
  CHECK(dat::register_shared(e.pz, partly, cookie_ending_in('b'), dat::local_read));
  const auto free_descriptor = [] {
    const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(fd);
    return fd;
  };
  const int before = free_descriptor();
  CHECK(dat::register_shared(e.pz, shared.bytes, cookie_ending_in('a'), dat::local_read));
  CHECK(free_descriptor() == before);
  const std::span byte(own.bytes.first(1));
  is_error(dat::register_shared(e.pz, byte, cookie_ending_in('c'), dat::local_read), dat::return_type::invalid_state);
  REQUIRE(::mmap(shared.bytes.data() + page, page, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE | MAP_FIXED, -1,
                 0) != MAP_FAILED);
  is_error(dat::register_shared(e.pz, shared.bytes, cookie_ending_in('a'), dat::local_read),
           dat::return_type::invalid_state);
  dat::pz none;
  is_error(dat::register_shared(none, shared.bytes, cookie_ending_in('a'), dat::local_read),
           dat::return_type::invalid_handle, dat::return_subtype::handle_pz);
  const std::span<char> empty;
  is_error(dat::register_shared(e.pz, empty, cookie_ending_in('a'), dat::local_read),
           dat::return_type::invalid_parameter, dat::return_subtype::arg3);
}

TEST_CASE("a zero-based region is addressed from 0 by both sides, and cannot be inlined",
          "[memory][LMR-020][LMR-023][LMR-024][DTO-092]") {
  const clean_world world;
  pair p({.max_inline = 64});
  mapping out(false);
  mapping in(false);
  auto from = must(dat::register_zero_based(p.a.pz, out.bytes, all_rights));
  auto to = must(dat::register_zero_based(p.b.pz, in.bytes, all_rights));
  const auto q = must(dat::query(from));
  CHECK(q.zero_based);
  CHECK(q.registered_address == 0);
  CHECK(q.registered_size == 2 * page);
  CHECK(q.type == dat::mem_type::virtual_memory);
  CHECK(from.size() == 2 * page);
  CHECK(from.owner() == p.a.ia.identity());
  CHECK(std::unordered_set<std::size_t>{std::hash<decltype(from)>{}(from)}.size() == 1);
  const auto piece = must(from.slice(10, 5));
  CHECK(piece.iova() == 10);
  CHECK(piece.size() == 5);
  CHECK(must(from.slice(10, 0)).empty());
  CHECK(dat::detail::segment_access::raw(to.remote()).address == 0);

  std::string_view("hello").copy(out.bytes.data() + 10, 5);
  must(p.a.ep.post(dat::rdma_write{piece, must(to.remote(20, 5))}.cookie(1)));
  must(p.b.ep.post(dat::recv{must(to.slice(40, 5))}.cookie(2)));
  dat::batch<2> batch;
  REQUIRE(batch.push_back(dat::send{piece}.cookie(3)));
  must(p.a.ep.post(batch));
  CHECK(p.a.take() == events{"written 1", "sent 3"});
  CHECK(p.b.take() == events{"received 2"});
  CHECK(std::string_view(in.bytes.data() + 20, 5) == "hello");
  CHECK(std::string_view(in.bytes.data() + 40, 5) == "hello");

  is_error(p.a.ep.post(dat::send{piece}.inlined()), dat::return_type::invalid_parameter, dat::return_subtype::arg5);
  batch.clear();
  REQUIRE(batch.push_back(dat::send{piece}.inlined()));
  is_error(p.a.ep.post(batch), dat::return_type::invalid_parameter);
  is_error(p.a.ep.post(dat::send{dat::iov{p.a.at(0, 1), piece}}.inlined()), dat::return_type::invalid_parameter,
           dat::return_subtype::arg5);

  is_error(from.slice(2 * page, 1), dat::return_type::invalid_parameter);
  const std::span inner = out.bytes.subspan(1, 5);
  is_error(dat::register_zero_based(p.a.pz, inner, all_rights), dat::return_type::model_not_supported);
  const std::span byte = out.bytes.subspan(1, 1);
  is_error(dat::register_zero_based(p.a.pz, byte, all_rights), dat::return_type::model_not_supported);
  fake::fail(fake::call::ibv_reg_mr_iova, 1, EOPNOTSUPP);
  fake::fail(fake::call::ibv_reg_mr_iova2, 1, EOPNOTSUPP);
  is_error(dat::register_zero_based(p.a.pz, out.bytes, all_rights), dat::return_type::model_not_supported);
  fake::forget_faults();
  must(from.close());
  is_error(from.slice(0, 1), dat::return_type::invalid_handle, dat::return_subtype::handle_lmr);
  dat::pz none;
  is_error(dat::register_zero_based(none, out.bytes, all_rights), dat::return_type::invalid_handle,
           dat::return_subtype::handle_pz);
}

TEST_CASE("an rmr can be bound to a zero-based region", "[memory][rmr][RMR-033]") {
  const clean_world world;
  constexpr auto streams = all_streams | dat::stream::rmr_bind;
  pair p;
  auto evd = must(p.b.ia.create_evd<streams>(16));
  p.a.make_ep();
  p.b.ep = must(p.b.pz.create_ep<dat::rc>(evd));
  must(p.a.ep.connect(p.b.ia.address(), service, plenty));
  p.settle();
  must(request_on(p.b.evd).accept(p.b.ep));
  p.settle();
  mapping in(false);
  auto to = must(dat::register_zero_based(p.b.pz, in.bytes, dat::local_write));
  dat::rmr rmr = must(p.b.pz.create_rmr());
  const auto w = must(rmr.bind(p.b.ep, dat::bind{to.as_lmr(), 100, 8, dat::remote_write}));
  CHECK(dat::detail::segment_access::raw(w).address == 100);
  (void)take(evd);
  p.a.memory.fill('q');
  (void)p.a.take();
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), w}.cookie(1)));
  CHECK(p.a.take() == events{"written 1"});
  CHECK(in.bytes[100] == 'q');
  CHECK(in.bytes[108] == 0);
}

namespace {
// The kind of memory is chosen by the call, so that there is no value for a kind that does not exist.
template <class T>
concept takes_a_kind = requires(T& pz, std::span<char> memory, dat::mem_type kind) {
  pz.register_memory(memory, dat::local_read, kind);
}
|| requires(T& pz, std::span<char> memory, dat::mem_type kind) { pz.register_memory(kind, memory, dat::local_read); };
} // namespace

TEST_CASE("a kind of memory that the adapter lacks gives model_not_supported", "[memory][LMR-003][LMR-013]"
                                                                               "[ERR-021]") {
  const clean_world world;
  end e;
  is_error(dat::register_on_demand(e.pz, e.memory, dat::local_read), dat::return_type::model_not_supported);
  is_error(dat::register_dmabuf<char>(e.pz, 0, 0, 100, dat::local_read), dat::return_type::model_not_supported);
  fake::fail(fake::call::ibv_reg_dmabuf_mr, 1, EINVAL);
  is_error(dat::register_dmabuf<char>(e.pz, 0, 0, 100, dat::local_read), dat::return_type::invalid_parameter);
  is_error(dat::register_dmabuf<char>(e.pz, 0, 0, 0, dat::local_read), dat::return_type::invalid_parameter,
           dat::return_subtype::arg3);
  STATIC_REQUIRE_FALSE(takes_a_kind<dat::pz>);
  CHECK((dat::detail::verbs_access(all_rights.value) & IBV_ACCESS_ON_DEMAND) == 0); // other memory is pinned
  dat::pz none;
  is_error(dat::register_on_demand(none, e.memory, dat::local_read), dat::return_type::invalid_handle,
           dat::return_subtype::handle_pz);
  is_error(dat::register_dmabuf<char>(none, 0, 0, 1, dat::local_read), dat::return_type::invalid_handle,
           dat::return_subtype::handle_pz);
}

TEST_CASE("memory of another device is addressed by the iova of the call, on both sides", "[memory]") {
  const clean_world world;
  pair p;
  mapping gpu(false); // two pages
  constexpr int descriptor = 77;
  fake::offer_dmabuf(descriptor, std::as_writable_bytes(std::span(gpu.bytes)));
  const std::uint64_t offset = page + 16;
  const auto iova = GENERATE_COPY(std::uint64_t{16}, std::uint64_t{0x7f00'0000'0010}, ~std::uint64_t{0} - page + 17);
  auto region = must(dat::register_dmabuf<char>(p.b.pz, descriptor, offset, 64, all_rights, iova));
  CHECK(region.iova() == iova);
  CHECK(must(region.slice(8, 4)).iova() == iova + 8);
  CHECK(dat::detail::segment_access::raw(must(region.remote(8, 4))).address == iova + 8);
  const auto params = must(dat::query(region));
  CHECK(params.registered_address == iova);
  CHECK_FALSE(params.zero_based);
  CHECK((fake::mr_access(region.native_handle()) & IBV_ACCESS_MW_BIND) == 0);

  p.a.memory.fill('g');
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 4), must(region.remote(8, 4))}.cookie(1)));
  CHECK(p.a.take() == events{"written 1"});
  CHECK(std::string_view(gpu.bytes.data() + offset + 7, 6) == std::string_view("\0gggg\0", 6));
  must(p.a.ep.post(dat::recv{p.a.at(100, 8)}.cookie(2)));
  must(p.b.ep.post(dat::send{must(region.slice(8, 4))}.cookie(3)));
  CHECK(p.b.take() == events{"sent 3"});
  CHECK(p.a.take() == events{"received 2"});
  CHECK(std::string_view(p.a.memory.data() + 100, 4) == "gggg");
  // The program has no pointer to the memory.
  is_error(p.b.ep.post(dat::send{must(region.slice(8, 4))}.inlined()), dat::return_type::invalid_parameter,
           dat::return_subtype::arg5);
  auto window = must(p.b.pz.create_rmr());
  CHECK_FALSE(window.bind(p.b.ep, dat::bind{region.as_lmr(), 0, 8, dat::remote_write}));
  is_error(dat::register_over(p.b.pz, region.as_lmr(), dat::local_read), dat::return_type::model_not_supported);
}

TEST_CASE("without an iova, memory of another device begins at the address 0", "[memory]") {
  const clean_world world;
  end e;
  mapping gpu(false);
  fake::offer_dmabuf(77, std::as_writable_bytes(std::span(gpu.bytes)));
  const auto region = must(dat::register_dmabuf<std::uint32_t>(e.pz, 77, page, 4, dat::local_read));
  CHECK(region.iova() == 0);
  CHECK(must(region.slice(1, 1)).iova() == 4);
  CHECK(must(dat::query(region)).zero_based);
  CHECK(dat::iova_lmr<char, all_rights.value>().iova() == 0);
}

TEST_CASE("an iova that no adapter can use is refused before the device", "[memory]") {
  const clean_world world;
  end e;
  mapping gpu(false);
  fake::offer_dmabuf(77, std::as_writable_bytes(std::span(gpu.bytes)));
  const auto calls = fake::count(fake::call::ibv_reg_dmabuf_mr);
  const auto refused = [&](std::uint64_t offset, std::size_t count, std::uint64_t iova, const char* text) {
    const auto made = dat::register_dmabuf<char>(e.pz, 77, offset, count, dat::local_read, iova);
    is_error(made, dat::return_type::invalid_parameter, dat::return_subtype::arg6);
    CHECK(made.error().message().find(text) != std::string::npos);
  };
  refused(16, 64, 0, "`iova` and `offset`");
  refused(0, 64, 0x1001, "`iova` and `offset`");
  refused(0, 2 * page, ~std::uint64_t{0} - page + 1, "2^64");
  CHECK(fake::count(fake::call::ibv_reg_dmabuf_mr) == calls);
  CHECK(dat::register_dmabuf<char>(e.pz, 77, 0, page - 1, dat::local_read, ~std::uint64_t{0} - page + 1));
  // Errors that only the device can detect.
  is_error(dat::register_dmabuf<char>(e.pz, 78, 0, 64, dat::local_read), dat::return_type::invalid_parameter);
  is_error(dat::register_dmabuf<char>(e.pz, 77, page, page + 1, dat::local_read), dat::return_type::invalid_parameter);
}

TEST_CASE("elements of memory of another device that exceed the address space are refused before the device",
          "[memory]") {
  const clean_world world;
  end e;
  mapping gpu(false);
  fake::offer_dmabuf(77, std::as_writable_bytes(std::span(gpu.bytes)));
  constexpr auto most = std::numeric_limits<std::size_t>::max() / sizeof(std::uint64_t);
  const auto calls = fake::count(fake::call::ibv_reg_dmabuf_mr);
  // In bytes, the number wraps around to 8.
  is_error(dat::register_dmabuf<std::uint64_t>(e.pz, 77, 0, most + 2, dat::local_read),
           dat::return_type::invalid_parameter, dat::return_subtype::arg3);
  CHECK(fake::count(fake::call::ibv_reg_dmabuf_mr) == calls);
  CHECK(must(dat::register_dmabuf<std::uint64_t>(e.pz, 77, 0, 1, dat::local_read)).size() == 1);
}

TEST_CASE("a region of relaxed ordering is like any other, and registered with that flag", "[memory]") {
  const clean_world world;
  pair p;
  mapping in(false);
  const auto plain = must(p.b.pz.register_memory(in.bytes, all_rights));
  CHECK((fake::mr_access(plain.native_handle()) & IBV_ACCESS_RELAXED_ORDERING) == 0);
  auto relaxed = must(dat::register_relaxed_ordering(p.b.pz, in.bytes, all_rights));
  STATIC_REQUIRE(std::is_same_v<decltype(plain), const decltype(relaxed)>);
  CHECK((fake::mr_access(relaxed.native_handle()) & IBV_ACCESS_RELAXED_ORDERING) != 0);
  p.a.memory.fill('r');
  must(p.a.ep.post(dat::rdma_write{p.a.at(0, 8), must(relaxed.remote(8, 8))}.cookie(1)));
  CHECK(p.a.take() == events{"written 1"});
  CHECK(in.bytes[8] == 'r');
  CHECK(in.bytes[16] == 0);
  must(relaxed.close());
  is_error(relaxed.close(), dat::return_type::invalid_handle, dat::return_subtype::handle_lmr);

  fail_registration(ENOMEM);
  is_error(dat::register_relaxed_ordering(p.b.pz, in.bytes, all_rights), dat::return_type::insufficient_resources,
           dat::return_subtype::resource_memory_region);
  dat::pz none;
  is_error(dat::register_relaxed_ordering(none, in.bytes, all_rights), dat::return_type::invalid_handle,
           dat::return_subtype::handle_pz);
}

TEST_CASE("sync calls check their segments and change nothing", "[memory]") {
  const clean_world world;
  end e;
  end stranger;
  dat::pz other = must(e.ia.create_pz());
  auto second = must(other.register_memory(e.memory, dat::local_read | dat::local_write));
  const auto piece = must(second.slice(10, 20));
  const dat::local_segment<char, all_rights.value> nothing;
  const bool writes = GENERATE(false, true);
  const auto sync = [&](const auto&... s) {
    return writes ? dat::sync_rdma_write(e.ia, s...) : dat::sync_rdma_read(e.ia, s...);
  };
  CHECK(sync().has_value());
  SHOWS("SYNC-010");
  CHECK(sync(e.mem, piece, nothing).has_value());
  SHOWS("SYNC-002", "SYNC-004", "SYNC-011");
  dat::iov<3, dat::mem_priv::local_read> list;
  must(sync(list));
  REQUIRE(list.push_back(e.mem));
  REQUIRE(list.push_back(piece));
  must(sync(list));
  CHECK(support::in_handler([&] { return sync(e.mem).has_value(); }));
  SHOWS("SYNC-007");
  auto beyond = dat::detail::segment_access::raw(e.at(4096 - 8, 8));
  beyond.address += 1;
  using segment = dat::local_segment<char, all_rights.value>;
  is_error(sync(dat::detail::segment_access::make<segment>(beyond)), dat::return_type::invalid_parameter,
           dat::return_subtype::arg2);
  is_error(sync(stranger.mem), dat::return_type::invalid_parameter, dat::return_subtype::arg2);
  must(second.close());
  is_error(sync(piece), dat::return_type::invalid_parameter, dat::return_subtype::arg2);
  is_error(sync(list), dat::return_type::invalid_parameter, dat::return_subtype::arg2);
  SHOWS("SYNC-008");
  dat::ia closed;
  is_error(dat::sync_rdma_read(closed, e.mem), dat::return_type::invalid_handle, dat::return_subtype::handle_ia);
  is_error(dat::sync_rdma_write(closed, list), dat::return_type::invalid_handle, dat::return_subtype::handle_ia);
  SHOWS("SYNC-009");
}
