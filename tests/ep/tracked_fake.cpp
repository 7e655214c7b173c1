// The records of dat::tracked: their locks, what they name, and when an entry is used again.
// SPDX-License-Identifier: BSL-1.0
#include "lock_waits.hpp"
#include "world.hpp"

#include <dat/memory.hpp>
#include <dat/policies.hpp>
#include <dat/rmr.hpp>

#include <dat/detail/posting/tracked_posts.hpp>

#include <span>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace unit {
struct lock_of_records {
  friend dat::detail::control_mutex dat::detail::tracked_posts::*member(lock_of_records);
};
template struct opened_member<lock_of_records, &dat::detail::tracked_posts::mutex_>;
} // namespace unit

namespace tracked_tests {

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

std::string call_of_misuse;
void note(const dat::error& e) noexcept { call_of_misuse = e.call(); }

/// A mapped page, until the end or until `unmap`.
class page {
public:
  page()
      : size_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))),
        at_(::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(at_ != MAP_FAILED);
  }
  page(const page&) = delete;
  page& operator=(const page&) = delete;
  ~page() { unmap(); }
  [[nodiscard]] std::span<char> bytes() const { return {static_cast<char*>(at_), size_}; }
  void unmap() {
    if (at_ != MAP_FAILED) ::munmap(std::exchange(at_, MAP_FAILED), size_);
  }

private:
  std::size_t size_;
  void* at_;
};

} // namespace

TEST_CASE("calls of dat::tracked and the end of a region wait for one that reads the records", "[policies][locks]") {
  const clean_world world;
  pair p;
  std::array<char, 8> bytes{};
  auto mem = must(p.a.pz.register_memory(bytes, all_rights));
  must(p.a.ep.post<dat::tracked>(dat::recv{p.a.at(0, 8)}));
  auto& ia = *dat::detail::core_access::of(p.a.ia);
  auto& lock = static_cast<dat::detail::tracked_posts&>(*ia.posts_observed_by).*member(lock_of_records());
  CHECK(locked_out(lock, [&] { (void)dat::tracked::verify(p.a.ia); }));
  CHECK(locked_out(lock, [&] { (void)dat::tracked::unreferenced(p.a.ia, {}); }));
  CHECK(locked_out(lock, [&] { (void)dat::tracked::last_offender(p.a.ia); }));
  CHECK(locked_out(lock, [&] { (void)mem.close(); }));
  CHECK(locked_out(lock, [&] { (void)p.a.ep.post<dat::tracked>(dat::recv{p.a.at(8, 8)}); }));
}

TEST_CASE("the error of a region that a posted operation names says which call ended it", "[policies]") {
  const clean_world world;
  pair p;
  std::array<char, 8> bytes{};
  auto mem = must(p.a.pz.register_memory(bytes, all_rights));
  must(p.a.ep.post<dat::tracked>(dat::recv{mem}.cookie(5)));
  const auto refused = mem.close();
  is_error(refused, return_type::invalid_state, return_subtype::lmr_in_use);
  CHECK(refused.error().call() == "lmr.close");
  dat::tracked::on_misuse(&note);
  mem = {};
  dat::tracked::on_misuse(nullptr);
  CHECK(call_of_misuse == "lmr.~lmr");
}

TEST_CASE("an operation on a work entry replaces the earlier one that had the entry and the same cookie",
          "[policies]") {
  const clean_world world;
  pair p({.max_request_dtos = 1});
  std::array<char, 8> bytes{};
  auto early = must(p.a.pz.register_memory(bytes, all_rights));
  const auto target = p.b.mem.remote();
  const auto& ring = dat::detail::core_access::of(p.a.ep)->requests();
  const auto* const first = ring.next();
  must(p.a.ep.post<dat::tracked>(dat::rdma_write{early, target}.cookie(7)));
  CHECK(p.a.take() == events{"written 7"});
  while (ring.next() != first) {
    must(p.a.ep.post(dat::rdma_write{p.a.at(0, 1), target}));
    CHECK(p.a.take() == events{"written 0"});
  }
  fake::hold(p.a.ep.native_handle());
  must(p.a.ep.post<dat::tracked>(dat::rdma_write{p.a.at(0, 8), target}.cookie(7)));
  is_error(p.a.mem.close(), return_type::invalid_state, return_subtype::lmr_in_use);
  must(early.close());
  fake::hold(p.a.ep.native_handle(), false);
  CHECK(p.a.take() == events{"written 7"});
}

TEST_CASE("a bind on a work entry replaces the tracked operation that had the entry and the same cookie",
          "[policies][rmr]") {
  const clean_world world;
  end a;
  end b("fk2");
  auto psp = must(b.ia.create_psp(service, b.evd));
  auto evd = must(a.ia.create_evd<all_streams | dat::stream::rmr_bind>(64));
  a.ep = must(a.pz.create_ep<dat::rc>(evd, {.max_request_dtos = 1}));
  b.make_ep();
  must(a.ep.connect(b.ia.address(), service, plenty));
  settle(a, b);
  must(request_on(b.evd).accept(b.ep));
  settle(a, b);
  CHECK(take(evd) == events{"established"});
  std::array<char, 8> bytes{};
  auto early = must(a.pz.register_memory(bytes, all_rights));
  auto rmr = must(a.pz.create_rmr());
  const auto& ring = dat::detail::core_access::of(a.ep)->requests();
  const auto* const first = ring.next();
  must(a.ep.post<dat::tracked>(dat::rdma_write{early, b.mem.remote()}));
  CHECK(take(evd) == events{"written 0"});
  while (ring.next() != first) {
    must(rmr.unbind(a.ep));
    CHECK(take(evd).size() == 1);
  }
  fake::hold(a.ep.native_handle());
  must(rmr.bind(a.ep, dat::bind{a.mem, dat::remote_read}));
  must(early.close());
  fake::hold(a.ep.native_handle(), false);
  CHECK(take(evd).size() == 1);
}

TEST_CASE("memory that is no longer mapped is found at any address, and none is missed at an address from 0",
          "[policies]") {
  const clean_world world;
  pair p;
  page gone;
  const page kept;
  const auto mem = must(p.a.pz.register_memory(gone.bytes(), all_rights));
  const auto from_zero = must(dat::register_zero_based(p.a.pz, kept.bytes(), all_rights));
  must(p.a.ep.post<dat::tracked>(dat::recv{must(from_zero.slice(0, 8))}.cookie(4)));
  must(p.a.ep.post<dat::tracked>(dat::recv{must(mem.slice(1, 8))}.cookie(5)));
  must(dat::tracked::verify(p.a.ia));
  gone.unmap();
  is_error(dat::tracked::verify(p.a.ia), return_type::invalid_state);
  CHECK(dat::tracked::last_offender(p.a.ia)->cookie.value() == 5);
}

TEST_CASE("dat::tracked knows the memory of a region that is addressed from 0", "[policies]") {
  const clean_world world;
  pair p;
  const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  auto* const at =
      static_cast<char*>(::mmap(nullptr, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(static_cast<void*>(at) != MAP_FAILED);
  const std::span<char> bytes(at, 2 * size);
  {
    const auto region = must(dat::register_zero_based(p.a.pz, bytes, all_rights));
    must(p.a.ep.post<dat::tracked>(dat::recv{must(region.slice(size, 8))}.cookie(6))); // not in the first page
    must(dat::tracked::verify(p.a.ia));
    is_error(dat::tracked::unreferenced(p.a.ia, std::as_bytes(bytes.subspan(size + 7, 1))), return_type::invalid_state);
    must(dat::tracked::unreferenced(p.a.ia, std::as_bytes(bytes.first(size))));
    must(dat::tracked::unreferenced(p.a.ia, std::as_bytes(bytes.subspan(size + 8))));
    ::munmap(at + size, size);
    is_error(dat::tracked::verify(p.a.ia), return_type::invalid_state);
    CHECK(dat::tracked::last_offender(p.a.ia)->cookie.value() == 6);
  }
  ::munmap(at, size);
}

TEST_CASE("dat::tracked does not look for memory of another device in the process", "[policies]") {
  const clean_world world;
  pair p;
  const page gpu;
  fake::offer_dmabuf(77, std::as_writable_bytes(gpu.bytes()));
  const auto size = gpu.bytes().size();
  const auto region = must(dat::register_dmabuf<char>(p.a.pz, 77, 0, size, all_rights, 16 * size));
  must(p.a.ep.post<dat::tracked>(dat::recv{must(region.slice(8, 8))}));
  must(dat::tracked::verify(p.a.ia));
}

TEST_CASE("dat::tracked knows the first eight segments of an operation", "[policies]") {
  const clean_world world;
  pair p({.max_request_iov = 9});
  std::array<char, 8> bytes{};
  auto ninth = must(p.a.pz.register_memory(bytes, all_rights));
  dat::iov<9, all_rights.value> list;
  for (std::size_t i = 0; i < 8; ++i) CHECK(list.push_back(p.a.at(i, 1)));
  CHECK(list.push_back(must(ninth.slice(0, 1))));
  fake::hold(p.a.ep.native_handle());
  must(p.a.ep.post<dat::tracked>(dat::rdma_write{list, must(p.b.mem.remote(0, 9))}.cookie(1)));
  is_error(dat::tracked::unreferenced(p.a.ia, std::as_bytes(std::span(p.a.memory).subspan(7, 1))),
           return_type::invalid_state);
  must(dat::tracked::unreferenced(p.a.ia, std::as_bytes(std::span(bytes))));
  fake::hold(p.a.ep.native_handle(), false);
  CHECK(p.a.take() == events{"written 1"});
}

TEST_CASE("a piece of one byte of a region that is addressed from 0 has no address that the adapter could copy from",
          "[lmr]") {
  const clean_world world;
  pair p;
  const page memory;
  const auto from_zero = must(dat::register_zero_based(p.a.pz, memory.bytes(), all_rights));
  is_error(p.a.ep.post(dat::send{must(from_zero.slice(0, 1))}.inlined()), return_type::invalid_parameter,
           return_subtype::arg5);
  must(p.b.ep.post(dat::recv{}));
  must(p.a.ep.post(dat::send{must(from_zero.slice(8, 0))}.inlined().cookie(2)));
  CHECK(p.a.take() == events{"sent 2"});
}

} // namespace tracked_tests
