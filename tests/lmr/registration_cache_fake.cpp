// The cache of registrations in the fake world: which regions it finds, registers and evicts, and their ends.
// SPDX-License-Identifier: BSL-1.0
#include "allocations.hpp"
#include "cache_rig.hpp"

#include <dat/policies.hpp>
#include <dat/registration_cache.hpp>

#include <algorithm>
#include <random>
#include <sys/mman.h>
#include <thread>

using namespace unit;

TEST_CASE("a cache registers memory once, and finds the region for a part of the memory", "[memory][cache]") {
  cache_rig r;
  const mapped_pages memory(4);
  CHECK(r.cache.read().regions == 0);
  const cached first = r.take(memory.at(1, 2));
  CHECK(first.size() == 2 * page_bytes);
  CHECK(first.data() == memory.at(1).data());
  CHECK(fake::live().mrs == 1);
  const cached again = r.take(memory.at(1, 2));
  const cached part = r.take(memory.at(2).subspan(10, 20));
  CHECK(key_of(again) == key_of(first));
  CHECK(key_of(part) == key_of(first));
  CHECK(part.whole().data() == memory.at(2).data() + 10);
  CHECK(part.whole().size() == 20);
  CHECK(must(part.slice(5, 3)).data() == memory.at(2).data() + 15);
  is_error(part.slice(5, 16), dat::return_type::invalid_parameter);
  CHECK(fake::live().mrs == 1);
  // The region does not cover another page, nor a range that begins or ends outside.
  const cached other = r.take(memory.at(3));
  const cached wider = r.take(memory.at(0, 2));
  CHECK(key_of(other) != key_of(first));
  CHECK(key_of(wider) != key_of(first));
  CHECK(fake::live().mrs == 3);
  const auto n = r.cache.read();
  CHECK(n.hits == 2);
  CHECK(n.misses == 3);
  CHECK(n.regions == 3);
  CHECK(n.in_use == 3);
  CHECK(n.bytes == 5 * page_bytes);
}

TEST_CASE("regions without remote rights are whole pages, and those with one are exactly the elements",
          "[memory][cache]") {
  cache_rig r;
  const mapped_pages memory(2);
  const auto middle = memory.all.subspan(page_bytes - 10, 20); // on both pages
  const cached held = r.take(middle);
  CHECK(r.cache.read().bytes == 2 * page_bytes);
  CHECK(key_of(r.take(memory.all)) == key_of(held));

  auto shared = must(dat::registration_cache<all_rights.value>::create(r.pz, all_rights));
  const auto exact = must(shared.find_or_register(middle));
  CHECK(shared.read().bytes == 20);
  CHECK(exact.remote().size() == 20);
  CHECK(exact.remote().address() == reinterpret_cast<std::uintptr_t>(middle.data()));
  const auto beside = must(shared.find_or_register(memory.all.subspan(page_bytes + 10, 1)));
  CHECK(beside.remote().rkey() != exact.remote().rkey());
  CHECK(must(shared.find_or_register(middle.subspan(19))).remote().rkey() == exact.remote().rkey());
}

TEST_CASE("a cached registration moves data as a region does", "[memory][cache]") {
  const clean_world world;
  pair p;
  auto cache = must(dat::registration_cache<all_rights.value>::create(p.a.pz, all_rights));
  std::string text = "from cached memory";
  const auto memory = must(cache.find_or_register(text));
  must(p.b.ep.post(dat::recv{p.b.mem}.cookie(1)));
  must(p.a.ep.post(dat::send{memory.whole()}.cookie(2)));
  p.settle();
  CHECK(p.a.take() == events{"sent 2"});
  CHECK(p.b.take() == events{"received 1"});
  CHECK(std::string_view(p.b.memory.data(), text.size()) == text);
  must(p.b.ep.post(dat::rdma_write{p.b.at(0, 4), must(memory.remote().slice(0, 4))}.cookie(3)));
  CHECK(p.b.take() == events{"written 3"});
  // A segment of another zone is refused, as that of any region.
  dat::pz other = must(p.a.ia.create_pz());
  auto foreign = must(dat::registration_cache<all_rights.value>::create(other));
  const auto wrong = must(foreign.find_or_register(text));
  CHECK_FALSE(p.a.ep.post(dat::send{wrong.whole()}));
}

TEST_CASE("a wider region replaces those that it contains, as soon as they are not in use", "[memory][cache]") {
  cache_rig r;
  const mapped_pages memory(4);
  cached used = r.take(memory.at(1));
  const std::uint32_t old = key_of(used);
  r.take(memory.at(2)); // the region is not in use afterwards
  CHECK(fake::live().mrs == 2);
  const cached wide = r.take(memory.all);
  CHECK(fake::live().mrs == 2); // the unused region has ended, and the used one stays
  CHECK(key_of(r.take(memory.at(1))) == key_of(wide));
  CHECK(key_of(used) == old);
  used.release();
  CHECK(fake::live().mrs == 1);
  CHECK_FALSE(used);
  CHECK(used.size() == 0);
}

TEST_CASE("a full cache deregisters the region that was unused for the longest time, and none that is in use",
          "[memory][cache]") {
  SECTION("by the number of regions") {
    cache_rig r({.bytes = 1 << 30, .regions = 3});
    const mapped_pages memory(8);
    const cached used = r.take(memory.at(0));
    r.take(memory.at(2));
    r.take(memory.at(4));
    r.take(memory.at(2)); // now 4 is the one that was not used for longest
    r.take(memory.at(6));
    CHECK(r.cache.read().evicted == 1);
    CHECK(r.cache.read().regions == 3);
    const auto misses = r.cache.read().misses;
    r.take(memory.at(2));
    r.take(memory.at(0));
    CHECK(r.cache.read().misses == misses);
    r.take(memory.at(4));
    CHECK(r.cache.read().misses == misses + 1);
  }
  SECTION("by bytes") {
    cache_rig r({.bytes = 4 * page_bytes, .regions = 100});
    const mapped_pages memory(8);
    r.take(memory.at(0, 2));
    r.take(memory.at(3));
    r.take(memory.at(5, 3)); // this range evicts the first one
    CHECK(r.cache.read().evicted == 1);
    CHECK(r.cache.read().bytes == 4 * page_bytes);
    is_error(r.cache.find_or_register(memory.at(0, 5)), dat::return_type::insufficient_resources,
             dat::return_subtype::resource_memory_region);
    CHECK(r.cache.read().regions == 2); // a range that can never fit costs no region
  }
  SECTION("when all are in use, the call fails and the cache stays usable") {
    cache_rig r({.bytes = 1 << 30, .regions = 2});
    const mapped_pages memory(8);
    cached one = r.take(memory.at(0));
    const cached two = r.take(memory.at(2));
    const auto refused = r.cache.find_or_register(memory.at(4));
    is_error(refused, dat::return_type::insufficient_resources, dat::return_subtype::resource_memory_region);
    CHECK(refused.error().message().find("in use") != std::string::npos);
    CHECK(fake::live().mrs == 2);
    one.release();
    const cached three = r.take(memory.at(4));
    CHECK(key_of(three) != key_of(two));
    CHECK(r.cache.read().evicted == 1);
  }
}

TEST_CASE("a cache deregisters unused regions when the device refuses another one", "[memory][cache]") {
  cache_rig r;
  const mapped_pages memory(8);
  cached used = r.take(memory.at(0));
  r.take(memory.at(2));
  r.take(memory.at(4));
  fail_registration(ENOMEM);
  const cached more = r.take(memory.at(6));
  CHECK(r.cache.read().evicted == 1);
  CHECK(fake::live().mrs == 3);
  fake::forget_faults();
  r.cache.trim();
  CHECK(fake::live().mrs == 2); // both regions are in use
  fail_registration(ENOMEM);
  is_error(r.cache.find_or_register(memory.at(2)), dat::return_type::insufficient_resources,
           dat::return_subtype::resource_memory_region);
  fake::forget_faults();
  CHECK(r.cache.read().regions == 2);
  CHECK(r.cache.read().bytes == 2 * page_bytes);
  // Another failure evicts nothing.
  used.release();
  fail_registration(EIO);
  CHECK_FALSE(r.cache.find_or_register(memory.at(2)));
  fake::forget_faults();
  CHECK(r.cache.read().regions == 2);
}

TEST_CASE("a cache accepts as many bytes as its limit, and counts whole pages", "[memory][cache]") {
  cache_rig r({.bytes = 4 * page_bytes, .regions = 100});
  const mapped_pages memory(4);
  r.take(memory.all);
  CHECK(r.cache.trim(4 * page_bytes) == 4 * page_bytes);
  CHECK(r.cache.read().evicted == 0);
  CHECK(r.cache.trim() == 0);
  r.take(memory.all.first(1));
  CHECK(r.cache.read().bytes == page_bytes);
}

TEST_CASE("if a range is registered twice at the same time, the cache keeps one region", "[memory][cache]") {
  cache_rig r;
  const mapped_pages memory(1);
  cached other;
  const auto another = [&] {
    for (const auto c : {fake::call::ibv_reg_mr, fake::call::ibv_reg_mr_iova2}) fake::intercept(c, {});
    other = r.take(memory.all);
  };
  for (const auto c : {fake::call::ibv_reg_mr, fake::call::ibv_reg_mr_iova2}) fake::intercept(c, another);
  const cached one = r.take(memory.all);
  REQUIRE(other);
  CHECK(key_of(one) == key_of(other));
  CHECK(fake::live().mrs == 1);
  CHECK(r.cache.read().regions == 1);
  CHECK(r.cache.read().in_use == 1);
  CHECK(r.cache.read().misses == 2);
}

TEST_CASE("a region that a tracked post names is not evicted", "[memory][cache]") {
  const clean_world world;
  pair p;
  auto cache = must(dat::registration_cache<all_rights.value>::create(p.a.pz, {.bytes = 1 << 20, .regions = 1}));
  std::string one = "one";
  std::string two = "two";
  fake::hold(fake::qp_by_num(p.a.ep.number()));
  {
    const auto memory = must(cache.find_or_register(one)); // released too early
    must(p.a.ep.post<dat::tracked>(dat::send{memory.whole()}.cookie(1)));
  }
  is_error(cache.find_or_register(two), dat::return_type::insufficient_resources,
           dat::return_subtype::resource_memory_region);
  CHECK(cache.trim() == one.size());
  must(p.b.ep.post(dat::recv{p.b.mem}));
  fake::hold(fake::qp_by_num(p.a.ep.number()), false);
  CHECK(p.a.take() == events{"sent 1"});
  CHECK(must(cache.find_or_register(two)));
}

TEST_CASE("a cache and its regions end in any order", "[memory][cache]") {
  cache_rig r;
  const mapped_pages memory(4);
  SECTION("close is refused while a region is in use") {
    cached used = r.take(memory.at(0));
    r.take(memory.at(2));
    is_error(r.cache.close(), dat::return_type::invalid_state, dat::return_subtype::lmr_in_use);
    CHECK(r.cache.read().regions == 2);
    used.release();
    must(r.cache.close());
    CHECK(fake::live().mrs == 0);
    CHECK_FALSE(r.cache);
    is_error(r.cache.close(), dat::return_type::invalid_handle, dat::return_subtype::handle_lmr);
    is_error(r.cache.find_or_register(memory.at(0)), dat::return_type::invalid_handle, dat::return_subtype::handle_lmr);
    CHECK(r.cache.forget(memory.at(0).data(), page_bytes) == 0);
    CHECK(r.cache.trim() == 0);
    CHECK(r.cache.read().misses == 0);
    must(r.pz.close());
  }
  SECTION("regions in use outlive the cache") {
    cached one = r.take(memory.at(0));
    cached two = r.take(memory.at(2));
    r.take(memory.at(3));
    r.cache = {};
    CHECK(fake::live().mrs == 2);
    CHECK(one.whole().size() == page_bytes);
    one = std::move(two);
    CHECK(fake::live().mrs == 1);
    CHECK(one.data() == memory.at(2).data());
    CHECK_FALSE(two);
    CHECK(dat::memory_unmapped(memory.at(2).data(), page_bytes) == 0); // the cache is not among those of the process
  }
  SECTION("a zone is in use while a cache has regions") {
    r.take(memory.at(0));
    is_error(r.pz.close(), dat::return_type::invalid_state, dat::return_subtype::pz_in_use);
    CHECK(r.cache.trim() == 0);
    must(r.pz.close());
    is_error(r.cache.find_or_register(memory.at(0)), dat::return_type::invalid_handle, dat::return_subtype::handle_pz);
  }
  SECTION("an abrupt close of the ia ends the regions") {
    const cached used = r.take(memory.at(0));
    r.take(memory.at(2));
    must(r.ia.close(dat::close_mode::abrupt));
    CHECK(fake::live().mrs == 0);
    CHECK(dat::detail::segment_access::raw(used.whole()).zone.has_no_region());
    is_error(used.slice(0, 1), dat::return_type::invalid_handle, dat::return_subtype::handle_lmr);
    CHECK_FALSE(r.cache.find_or_register(memory.at(0)));
    CHECK_FALSE(r.cache.find_or_register(memory.at(2)));
  }
  SECTION("a moved cache") {
    r.take(memory.at(0));
    cache other = std::move(r.cache);
    CHECK_FALSE(r.cache);
    CHECK(must(other.find_or_register(memory.at(0))));
    CHECK(other.read().hits == 1);
    r.cache = std::move(other);
    CHECK(r.cache.read().regions == 1);
  }
}

TEST_CASE("a cache refuses limits of 0, empty ranges, and a closed zone", "[memory][cache]") {
  cache_rig r;
  is_error(cache::create(r.pz, {.bytes = 0, .regions = 1}), dat::return_type::invalid_parameter,
           dat::return_subtype::arg3);
  is_error(cache::create(r.pz, {.bytes = 1, .regions = 0}), dat::return_type::invalid_parameter,
           dat::return_subtype::arg3);
  dat::pz none;
  is_error(cache::create(none), dat::return_type::invalid_handle, dat::return_subtype::handle_pz);
  const mapped_pages memory(1);
  const cached used = r.take(memory.at(0));
  is_error(r.cache.find_or_register(memory.all.first(0)), dat::return_type::invalid_parameter,
           dat::return_subtype::arg3);
  CHECK(dat::detail::segment_access::raw(cached().whole()).zone.has_no_region());
  ::munmap(memory.all.data(), page_bytes);
  CHECK(r.cache.forget(memory.all.data(), page_bytes) == 1);
  is_error(r.cache.find_or_register(memory.all), dat::return_type::invalid_parameter); // nothing is mapped there
}

TEST_CASE("a cache without memory for its tables is not created", "[memory][cache][no_memory]") {
  if (!refuses_allocations) SKIP("this build cannot refuse memory");
  cache_rig r;
  int n = 0;
  for (bool failed = true; failed; ++n) {
    const out_of_memory from(n);
    const auto made = cache::create(r.pz);
    failed = out_of_memory::failed();
    CHECK(made.has_value() == !failed);
  }
  CHECK(n == 4); // for the cache, its index and its entries
}

TEST_CASE("a cache finds exactly what a simple list of ranges finds", "[memory][cache]") {
  struct range {
    std::size_t first, last;
    bool operator==(const range&) const = default;
  };
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    cache_rig r({.bytes = 20 * page_bytes, .regions = 6});
    const mapped_pages memory(16);
    std::vector<range> known; // the least recently used one first
    std::uint64_t misses = 0;
    std::uint64_t evicted = 0;
    for (int step = 0; step < 300; ++step) {
      const std::size_t first = random() % 16;
      const std::size_t n = 1 + random() % std::min<std::size_t>(4, 16 - first);
      const range wanted{first, first + n};
      if (random() % 5 == 0) {
        r.cache.forget(memory.at(first).data(), n * page_bytes);
        std::erase_if(known, [&](const range& k) { return k.first < wanted.last && wanted.first < k.last; });
        continue;
      }
      // Of several ranges that cover the address, the cache finds the one that begins last.
      auto best = known.end();
      for (auto k = known.begin(); k != known.end(); ++k)
        if (k->first <= wanted.first && wanted.last <= k->last && (best == known.end() || k->first > best->first))
          best = k;
      if (best != known.end()) {
        std::rotate(best, best + 1, known.end());
      } else {
        ++misses;
        const auto bytes = [&] {
          std::size_t all = n;
          for (const range& k : known) all += k.last - k.first;
          return all;
        };
        for (; known.size() == 6 || bytes() > 20; ++evicted) known.erase(known.begin());
        std::erase_if(known, [&](const range& k) { return wanted.first <= k.first && k.last <= wanted.last; });
        known.push_back(wanted);
      }
      const cached held = r.take(memory.at(first, n));
      INFO("seed " << seed << ", step " << step);
      REQUIRE(r.cache.read().misses == misses);
      REQUIRE(r.cache.read().evicted == evicted);
      REQUIRE(r.cache.read().regions == known.size());
      REQUIRE(fake::live().mrs == known.size());
    }
  }
}

TEST_CASE("several threads share a cache", "[memory][cache][threads]") {
  cache_rig r({.bytes = 64 * page_bytes, .regions = 8});
  const mapped_pages memory(32);
  constexpr int rounds = 500;
  std::atomic<std::uint64_t> found{0};
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        std::mt19937 random(t);
        for (int i = 0; i < rounds; ++i) {
          const std::size_t first = random() % 31;
          const auto held = r.cache.find_or_register(memory.at(first, 1 + random() % 2));
          if (!held) continue; // never happens, because at most four regions are in use
          ++found;
          if (held.value().whole().data() != memory.at(first).data()) found = 0;
          if (random() % 8 == 0) r.cache.forget(memory.at(random() % 32).data(), page_bytes);
          if (random() % 16 == 0) dat::memory_unmapped(memory.at(random() % 32).data(), page_bytes);
          if (random() % 32 == 0) r.cache.trim(4 * page_bytes);
        }
      });
  }
  CHECK(found == 4 * rounds);
  const auto n = r.cache.read();
  CHECK(n.hits + n.misses == 4 * rounds);
  CHECK(n.in_use == 0);
  CHECK(r.cache.trim() == 0);
  CHECK(fake::live().mrs == 0);
}
