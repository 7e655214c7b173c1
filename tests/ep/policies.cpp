// Post policies, registered memory pools, and credits.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/credits.hpp>
#include <dat/policies.hpp>
#include <dat/pool.hpp>
#include <dat/srq.hpp>
#include <dat/ud.hpp>

#include <cerrno>
#include <memory_resource>
#include <random>
#include <sys/mman.h>
#include <unistd.h>

using namespace unit;

namespace {

std::uint32_t blamed_ep = 0;
void note(const dat::error& e) noexcept { blamed_ep = e.object_id(); }

constexpr auto pool_rights = dat::local_read | dat::local_write | dat::remote_write;
using byte_pool = dat::memory_pool<pool_rights.value>;

} // namespace

TEST_CASE("an unchecked post transfers data, and is refused without room or connection",
          "[policies][DTO-072][DTO-085]") {
  const clean_world world;
  pair p({.max_request_dtos = 3, .max_recv_dtos = 2});
  std::string_view("trust").copy(p.a.memory.data(), 5);
  must(p.b.ep.post<dat::unchecked>(dat::recv{p.b.at(0, 8)}.cookie(1), dat::recv{p.b.at(8, 8)}.cookie(2)));
  is_error(p.b.ep.post<dat::unchecked>(dat::recv{p.b.at(0, 8)}), dat::return_type::insufficient_resources,
           dat::return_subtype::resource_tep);
  must(p.a.ep.post<dat::unchecked>(dat::send{p.a.at(0, 5)}.cookie(3)));
  must(p.a.ep.post<dat::unchecked>(dat::send{p.a.at(0, 2)}.cookie(4),
                                   dat::rdma_write{p.a.at(0, 5), must(p.b.mem.remote(100, 5))}.cookie(5)));
  is_error(p.a.ep.post<dat::unchecked>(dat::send{p.a.at(0, 1)}), dat::return_type::insufficient_resources,
           dat::return_subtype::resource_tep);
  CHECK(p.a.take() == events{"sent 3", "sent 4", "written 5"});
  CHECK(p.b.take() == events{"received 1", "received 2"});
  CHECK(std::string_view(p.b.memory.data() + 100, 5) == "trust");
  // A list that is empty at run time has no segment, and the next post has one again.
  const dat::iov<1, dat::local_read.value> no_segment;
  must(p.b.ep.post<dat::unchecked>(dat::recv{p.b.at(0, 8)}.cookie(8), dat::recv{p.b.at(0, 8)}.cookie(9)));
  must(p.a.ep.post<dat::unchecked>(dat::send{no_segment}.cookie(10)));
  must(p.a.ep.post<dat::unchecked>(dat::send{p.a.at(3, 2)}.cookie(11)));
  CHECK(p.a.take() == events{"sent 10", "sent 11"});
  CHECK(p.b.take() == events{"received 8", "received 9"});
  CHECK(std::string_view(p.b.memory.data(), 2) == "st");
  must(p.b.ep.post<dat::unchecked>(dat::recv{p.b.at(0, 8)}.cookie(6)));
  // An operation that an ordinary post refuses reaches the device.
  auto stranger = must(p.a.ia.create_pz());
  auto foreign = must(stranger.register_memory(p.a.memory, all_rights));
  is_error(p.a.ep.post(dat::send{must(foreign.slice(0, 1))}), dat::return_type::protection_violation,
           dat::return_subtype::protection_read);
  must(p.a.ep.post<dat::unchecked>(dat::send{must(foreign.slice(0, 1))}.cookie(7)));
  CHECK(p.a.take().front().ends_with(" 7"));
  p.settle();
  (void)p.a.take();
  const dat::ep<dat::rc> none;
  is_error(none.post<dat::unchecked>(dat::send{p.a.at(0, 1)}), dat::return_type::invalid_handle,
           dat::return_subtype::handle_ep);
  const auto apart = must(p.a.pz.create_ep<dat::rc>(p.a.evd));
  is_error(apart.post<dat::unchecked>(dat::send{p.a.at(0, 1)}), dat::return_type::invalid_state,
           dat::return_subtype::ep_unconnected);
}

TEST_CASE("a tracked post finds regions closed before or after it and names the operation",
          "[policies][LMR-036][DTO-084]") {
  const clean_world world;
  pair p;
  std::array<char, 64> bytes{};
  auto mem = must(p.a.pz.register_memory(bytes, all_rights));
  const auto piece = must(mem.slice(0, 8));
  CHECK_FALSE(dat::tracked::last_offender(p.a.ia));
  must(dat::tracked::verify(p.a.ia));

  must(p.a.ep.post<dat::tracked>(dat::recv{piece}.cookie(77)));
  is_error(mem.close(), dat::return_type::invalid_state, dat::return_subtype::lmr_in_use);
  const auto last_offender = dat::tracked::last_offender(p.a.ia);
  REQUIRE(last_offender);
  CHECK(last_offender->cookie.value() == 77);
  CHECK(last_offender->operation == dat::dto_operation::recv);
  CHECK(last_offender->ep == p.a.ep.number());
  is_error(dat::tracked::unreferenced(p.a.ia, std::as_bytes(std::span(bytes).subspan(7, 1))),
           dat::return_type::invalid_state);
  must(dat::tracked::unreferenced(p.a.ia, std::as_bytes(std::span(bytes).subspan(8))));
  must(p.b.ep.post(dat::send{}));
  CHECK(p.a.take() == events{"received 77"});
  must(mem.close()); // no posted operation names the region now

  is_error(p.a.ep.post<dat::tracked>(dat::send{piece}.cookie(78)), dat::return_type::privileges_violation);
  CHECK(dat::tracked::last_offender(p.a.ia)->cookie.value() == 78);
  CHECK(p.a.ep.state() == dat::ep_state::connected);

  // A destructor cannot return an error, so it calls the function of on_misuse. `verify` reports the same operation.
  auto other = must(p.a.pz.register_memory(bytes, all_rights));
  must(p.b.ep.post(dat::recv{}, dat::recv{}));
  fake::hold(p.a.ep.native_handle());
  must(p.a.ep.post<dat::tracked>(dat::send{p.a.at(0, 0)}.cookie(79),
                                 dat::rdma_write{must(other.slice(0, 4)), must(p.b.mem.remote(0, 4))}.cookie(80)));
  must(dat::tracked::verify(p.a.ia));
  dat::tracked::on_misuse(&note);
  other = {};
  dat::tracked::on_misuse(nullptr);
  CHECK(blamed_ep == p.a.ep.number());
  is_error(dat::tracked::verify(p.a.ia), dat::return_type::invalid_state);
  CHECK(dat::tracked::last_offender(p.a.ia)->cookie.value() == 80);
  CHECK(dat::tracked::last_offender(p.a.ia)->operation == dat::dto_operation::rdma_write);
  must(p.a.ep.close()); // the records of posted operations end with the endpoint
  must(dat::tracked::verify(p.a.ia));
  dat::ia closed;
  is_error(dat::tracked::verify(closed), dat::return_type::invalid_handle, dat::return_subtype::handle_ia);
  is_error(dat::tracked::unreferenced(closed, {}), dat::return_type::invalid_handle, dat::return_subtype::handle_ia);
}

TEST_CASE("policies apply to posts on datagram endpoints and to requests of endpoints with a shared queue",
          "[policies]") {
  const clean_world world;
  end a;
  auto evd = must(a.ia.create_evd<all_streams | dat::stream::datagrams>(16));
  const auto ep = must(a.pz.create_ep<dat::ud>(evd));
  const auto self = must(ep.address_of(must(ep.address())));
  auto mem = must(a.pz.register_memory(a.memory, all_rights));
  const auto in = must(mem.slice(0, 48));
  const auto out = must(mem.slice(64, 8));
  const auto culprit_is = [&](dat::dto_operation what, std::uint64_t cookie) {
    const auto c = dat::tracked::last_offender(a.ia);
    REQUIRE(c);
    CHECK(c->operation == what);
    CHECK(c->cookie == dat::cookie(cookie));
    CHECK(c->ep == ep.number());
  };
  const auto received = [&] { return must(evd.wait_for<dat::ib::datagram_recv_done>(plenty)).cookie().value(); };
  must(ep.post<dat::unchecked>(dat::recv{in}.cookie(1)));
  must(ep.post<dat::unchecked>(dat::ib::send_to{out, self}.cookie(2)));
  CHECK(received() == 1);
  must(ep.post<dat::tracked>(dat::recv{in}.cookie(3)));
  is_error(mem.close(), dat::return_type::invalid_state, dat::return_subtype::lmr_in_use);
  culprit_is(dat::dto_operation::recv_ud, 3);
  must(ep.post<dat::tracked>(dat::ib::send_to{out, self}.cookie(4)));
  CHECK(received() == 3);
  for (std::uint64_t c : {2u, 4u}) CHECK(must(evd.wait_for<dat::ib::datagram_send_done>(plenty)).cookie().value() == c);
  must(mem.close());
  is_error(ep.post<dat::tracked>(dat::ib::send_to{out, self}.cookie(5)), dat::return_type::privileges_violation);
  culprit_is(dat::dto_operation::send_ud, 5);
  is_error(ep.post<dat::tracked>(dat::recv{in}.cookie(6)), dat::return_type::privileges_violation);
  culprit_is(dat::dto_operation::recv_ud, 6);
  const dat::ep<dat::ud> none;
  is_error(none.post<dat::tracked>(dat::recv{in}), dat::return_type::invalid_handle, dat::return_subtype::handle_ep);
  is_error(none.post<dat::tracked>(dat::ib::send_to{out, self}), dat::return_type::invalid_handle,
           dat::return_subtype::handle_ep);

  const auto srq = must(a.pz.create_srq());
  const auto drawing = must(a.pz.create_ep<dat::rc>(a.evd, srq));
  is_error(drawing.post<dat::tracked>(dat::send{a.at(0, 1)}), dat::return_type::invalid_state,
           dat::return_subtype::ep_unconnected);
  is_error(drawing.post<dat::unchecked>(dat::send{a.at(0, 1)}), dat::return_type::invalid_state,
           dat::return_subtype::ep_unconnected);
}

TEST_CASE("dat::tracked finds posted memory that is no longer mapped", "[policies][LMR-036]") {
  const clean_world world;
  pair p;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* map = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(map != MAP_FAILED);
  const auto mem = must(p.a.pz.register_memory(std::span(static_cast<char*>(map), page), all_rights));
  must(p.a.ep.post<dat::tracked>(dat::recv{mem}.cookie(5)));
  errno = ENOMEM; // the errno of an earlier call does not concern this memory
  must(dat::tracked::verify(p.a.ia));
  ::munmap(map, page);
  is_error(dat::tracked::verify(p.a.ia), dat::return_type::invalid_state);
  CHECK(dat::tracked::last_offender(p.a.ia)->cookie.value() == 5);
}

TEST_CASE("dat::tracked records operations that are posted, and no others", "[policies]") {
  const clean_world world;
  pair p({.max_request_dtos = 5, .max_recv_dtos = 5});
  for (std::uint64_t i = 0; i < 40; ++i) {
    must(p.b.ep.post<dat::tracked>(dat::recv{p.b.at(i, 1)}.cookie(i)));
    must(p.a.ep.post<dat::tracked>(dat::send{p.a.at(i, 1)}.cookie(i)));
    is_error(dat::tracked::unreferenced(p.a.ia, std::as_bytes(std::span(p.a.memory).subspan(i, 1))),
             dat::return_type::invalid_state);
    if (i != 0) must(dat::tracked::unreferenced(p.a.ia, std::as_bytes(std::span(p.a.memory).subspan(i - 1, 1))));
    (void)p.a.take();
    (void)p.b.take();
  }
  must(p.a.mem.close());
}

TEST_CASE("a pool allocates registered memory and recognises its own addresses", "[policies][pool]") {
  const clean_world world;
  pair p;
  auto from = must(byte_pool::create(p.a.pz, 10'000));
  auto to = must(byte_pool::create(p.b.pz, 10'000, pool_rights));
  CHECK(from.size_bytes() == 16'384);
  CHECK(from.used_bytes() == 0);
  {
    std::pmr::vector<int> numbers({1, 2, 3}, &from.resource());
    std::pmr::vector<int> inbox(3, &to.resource());
    must(p.b.ep.post(dat::recv{must(to.segment(inbox))}));
    must(p.a.ep.post(dat::send{must(from.segment(numbers))}));
    CHECK(p.b.take() == events{"received 0"});
    CHECK(std::equal(numbers.begin(), numbers.end(), inbox.begin()));
    numbers[0] = 9;
    must(p.a.ep.post(
        dat::rdma_write{must(from.segment(std::span(numbers).first(1))), must(to.remote(std::span(inbox).last(1)))}));
    (void)p.a.take();
    CHECK(inbox[2] == 9);
    CHECK(from.used_bytes() == 64);
    std::vector<int> elsewhere(3);
    is_error(from.segment(elsewhere), dat::return_type::invalid_parameter, dat::return_subtype::arg1);
    CHECK(must(from.segment(std::span<int>())).empty());
    CHECK(from.resource().is_equal(from.resource()));
    CHECK_FALSE(from.resource().is_equal(to.resource()));
  }
  CHECK(from.used_bytes() == 0);
  must(from.close());
  is_error(from.close(), dat::return_type::invalid_handle, dat::return_subtype::handle_lmr);
  CHECK_FALSE(from.try_allocate(1));
  CHECK(from.size_bytes() == 0);
  CHECK(from.region().size_bytes() == 0);
  is_error(byte_pool::create(p.a.pz, 0), dat::return_type::invalid_parameter, dat::return_subtype::arg2);
  dat::pz none;
  is_error(byte_pool::create(none, 100), dat::return_type::invalid_handle, dat::return_subtype::handle_pz);
  fail_registration(ENOMEM);
  is_error(byte_pool::create(p.a.pz, 100), dat::return_type::insufficient_resources,
           dat::return_subtype::resource_memory_region);
  // More huge pages than a machine has reserved for tests.
  is_error(byte_pool::create(p.a.pz, std::size_t{64} << 30, dat::pages::huge), dat::return_type::insufficient_resources,
           dat::return_subtype::resource_memory);
  SHOWS("ERR-031");
  CHECK(must(byte_pool::create(p.a.pz, 100, dat::pages::huge_or_normal)).size_bytes() >= 4096);
}

TEST_CASE("allocations of a pool never overlap, are aligned, and can all be freed", "[policies][pool]") {
  const clean_world world;
  end e;
  auto shares = must(byte_pool::create(e.pz, 64 * 1024));
  struct piece {
    std::byte* at;
    std::size_t size, alignment;
  };
  std::vector<piece> held;
  std::mt19937 random(7);
  const auto upto = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n)(random); };
  std::size_t refused = 0;
  for (int i = 0; i < 3000; ++i) {
    if (!held.empty() && upto(9) < 4) {
      std::swap(held[upto(held.size() - 1)], held.back());
      const piece p = held.back();
      held.pop_back();
      // The contents are unchanged.
      CHECK(std::all_of(p.at, p.at + p.size, [&](std::byte b) { return b == std::byte(p.size & 0xff); }));
      shares.deallocate(p.at, p.size, p.alignment);
      continue;
    }
    const std::size_t size = upto(3) == 0 ? upto(6000) + 1 : upto(200) + 1;
    const std::size_t alignment = std::size_t{1} << upto(12);
    auto* at = static_cast<std::byte*>(shares.try_allocate(size, alignment));
    if (!at) {
      ++refused;
      continue;
    }
    CHECK(reinterpret_cast<std::uintptr_t>(at) % alignment == 0);
    std::fill_n(at, size, std::byte(size & 0xff));
    held.push_back({at, size, alignment});
  }
  CHECK(refused != 0);
  for (const piece& p : held) shares.deallocate(p.at, p.size, p.alignment);
  CHECK(shares.used_bytes() == 0);
  void* const all = shares.try_allocate(64 * 1024); // the whole pool in one piece
  CHECK(all);
  CHECK_FALSE(shares.try_allocate(1));
  CHECK_THROWS_AS(shares.resource().allocate(1), std::bad_alloc);
  shares.deallocate(all, 64 * 1024);
  CHECK_FALSE(shares.try_allocate(8, 8192));
}

TEST_CASE("credits limit messages to the receives of the peer", "[policies][credits]") {
  const clean_world world;
  pair p;
  dat::send_credits credits(2);
  dat::recv_credits owed(8);
  must(p.b.ep.post(dat::recv{}.cookie(1), dat::recv{}.cookie(2)));
  must(credits.post(p.a.ep, dat::send{}.cookie(1)));
  is_error(credits.post(p.a.ep, dat::send{}, dat::send{}), dat::return_type::insufficient_resources,
           dat::return_subtype::resource_credits);
  CHECK(credits.left() == 1);
  must(credits.post(p.a.ep, dat::send{}.cookie(2)));
  is_error(credits.post(p.a.ep, dat::send{}), dat::return_type::insufficient_resources,
           dat::return_subtype::resource_credits);
  CHECK(p.b.take() == events{"received 1", "received 2"});
  owed.reposted();
  CHECK(owed.take() == 0);
  CHECK(owed.take(true) == 1);
  CHECK(owed.take(true) == 0);
  owed.reposted(2);
  CHECK(owed.take() == 2);
  credits.give(2);
  // A refused post costs no credit.
  fake::fail(fake::call::ibv_post_send, 1, ENOMEM);
  is_error(credits.post(p.a.ep, dat::send{}), dat::return_type::insufficient_resources,
           dat::return_subtype::resource_tep);
  CHECK(credits.left() == 2);
}
