// A cache of registrations in the fake world, and mapped memory that it registers.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

#include <dat/registration_cache.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <sys/mman.h>
#include <unistd.h>

namespace unit {

inline const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
inline constexpr auto cache_rights = dat::local_read | dat::local_write;
using cache = dat::registration_cache<cache_rights.value>;
using cached = dat::cached_registration<char, cache_rights.value>;

/// Mapped memory as pages of page_bytes.
struct mapped_pages {
  explicit mapped_pages(std::size_t n)
      : all(static_cast<char*>(
                ::mmap(nullptr, n * page_bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0)),
            n * page_bytes) {
    REQUIRE(static_cast<void*>(all.data()) != MAP_FAILED);
  }
  mapped_pages(const mapped_pages&) = delete;
  mapped_pages& operator=(const mapped_pages&) = delete;
  ~mapped_pages() { ::munmap(all.data(), all.size()); }
  [[nodiscard]] std::span<char> at(std::size_t first, std::size_t n = 1) const {
    return all.subspan(first * page_bytes, n * page_bytes);
  }
  std::span<char> all;
};

struct cache_rig {
  explicit cache_rig(const dat::registration_cache_limits& limits = {})
      : ia(must(dat::ia::open("fk1", manual))),
        pz(must(ia.create_pz())),
        cache(must(unit::cache::create(pz, limits))) {}
  cached take(std::span<char> memory) { return must(cache.find_or_register(memory)); }
  clean_world world;
  dat::ia ia;
  dat::pz pz;
  unit::cache cache;
};

inline std::uint32_t key_of(const cached& c) { return dat::detail::segment_access::raw(c.whole()).key; }

} // namespace unit
