// Memory that a cache of registrations forgets, and the hook for allocators.
// SPDX-License-Identifier: BSL-1.0
#include "allocations.hpp"
#include "cache_rig.hpp"

#include <dat/registration_cache.hpp>

#include <sys/mman.h>

using namespace unit;

TEST_CASE("forgotten memory is registered again, and its neighbours stay", "[memory][cache]") {
  cache_rig r;
  const mapped_pages memory(8);
  r.take(memory.at(0));
  r.take(memory.at(1, 3)); // the region overlaps a part of the range
  r.take(memory.at(4));
  r.take(memory.at(5));
  CHECK(r.cache.forget(memory.at(3).data(), 2 * page_bytes) == 0);
  CHECK(r.cache.read().forgotten == 2);
  CHECK(fake::live().mrs == 2);
  auto misses = r.cache.read().misses;
  r.take(memory.at(0));
  r.take(memory.at(5));
  CHECK(r.cache.read().misses == misses);
  // Other memory at the same address.
  REQUIRE(::mmap(memory.at(3).data(), 2 * page_bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE | MAP_FIXED,
                 -1, 0) == memory.at(3).data());
  r.take(memory.at(4));
  r.take(memory.at(3));
  CHECK(r.cache.read().misses == misses + 2);
  // No region is forgotten beside the range, by an empty range, or at the end of the address space.
  misses = r.cache.read().misses;
  CHECK(r.cache.forget(memory.at(4).data() + page_bytes, 0) == 0);
  CHECK(r.cache.forget(memory.at(6).data(), 2 * page_bytes) == 0);
  CHECK(r.cache.forget(memory.at(6).data(), ~std::size_t{0}) == 0);
  r.take(memory.at(4));
  r.take(memory.at(5));
  CHECK(r.cache.read().misses == misses);
}

TEST_CASE("a forgotten region in use is reported, never found again, and ends with its use", "[memory][cache]") {
  cache_rig r;
  const mapped_pages memory(2);
  cached used = r.take(memory.all);
  const cached twice = r.take(memory.all);
  CHECK(r.cache.forget(memory.at(1).data(), page_bytes) == 1);
  CHECK(r.cache.forget(memory.at(1).data(), page_bytes) == 0); // it is reported once
  CHECK(fake::live().mrs == 1);
  cached fresh = r.take(memory.all);
  CHECK(key_of(fresh) != key_of(used));
  used.release();
  CHECK(fake::live().mrs == 2);
  CHECK(twice.whole().size() == 2 * page_bytes);
  used = r.take(memory.at(0));
  CHECK(key_of(used) == key_of(fresh));
}

TEST_CASE("the hook for allocators reaches all caches, and neither allocates nor frees", "[memory][cache]") {
  cache_rig r;
  const mapped_pages memory(4);
  auto shared = must(dat::registration_cache<all_rights.value>::create(r.pz, all_rights));
  r.take(memory.at(0));
  r.take(memory.at(2));
  const auto held = must(shared.find_or_register(memory.at(0)));
  const auto before = fake::count(fake::call::ibv_dereg_mr);
  const auto requests = allocations();
  const auto used = dat::memory_unmapped(memory.at(0).data(), page_bytes);
  CHECK(allocations() == requests);
  CHECK(used == 1);
  CHECK(fake::count(fake::call::ibv_dereg_mr) == before); // deregistration frees memory, so it comes later
  CHECK(fake::live().mrs == 3);
  r.take(memory.at(2)).release(); // this is a hit, and the end of its use deregisters
  CHECK(fake::live().mrs == 2);
  CHECK(r.cache.read().forgotten == 1);
  CHECK(shared.read().forgotten == 1);
  CHECK(dat::memory_unmapped(memory.at(0).data(), page_bytes) == 0);
}

TEST_CASE("memory that the hook forgot is deregistered by the next trim, registration or end of a use",
          "[memory][cache]") {
  cache_rig r({.bytes = 1 << 30, .regions = 2});
  const mapped_pages memory(8);
  const auto forget = [&](std::size_t page) { return dat::memory_unmapped(memory.at(page).data(), page_bytes); };
  r.take(memory.at(0));
  CHECK(forget(0) == 0);
  CHECK(fake::live().mrs == 1);
  CHECK(r.cache.trim(page_bytes) == 0);
  CHECK(fake::live().mrs == 0);
  r.take(memory.at(0));
  r.take(memory.at(2));
  CHECK(forget(0) == 0);
  CHECK(forget(2) == 0);
  cached used = r.take(memory.at(4)); // there is room again
  CHECK(fake::live().mrs == 1);
  r.take(memory.at(6));
  CHECK(forget(6) == 0);
  CHECK(forget(4) == 1);
  CHECK(fake::live().mrs == 2);
  used.release();
  CHECK(fake::live().mrs == 0);
}
