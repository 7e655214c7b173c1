// The cache of registrations on a device: the data that is sent after memory was unmapped and mapped again.
// SPDX-License-Identifier: BSL-1.0
#include "support.hpp"

#include <dat/registration_cache.hpp>

#include <sys/mman.h>
#include <unistd.h>

namespace device {

TEST_CASE("a device sends remapped memory when the cache has forgotten it, and the old pages when it has not",
          "[memory][cache]") {
  connected_pair p;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  auto cache = must(dat::registration_cache<all_rights.value>::create(p.a.pz, all_rights));
  void* const at = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(at != MAP_FAILED);
  const std::span bytes(static_cast<std::byte*>(at), page);
  buffer in(p.b.pz, page);

  const auto map_again = [&] {
    REQUIRE(::munmap(at, page) == 0);
    REQUIRE(::mmap(at, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == at);
  };
  // Sends the page, and returns the seed of the pattern that has arrived.
  const auto arrives = [&](std::uint32_t seed) {
    fill(in.bytes, 99);
    must(p.passive.post(dat::recv{in.lmr}));
    {
      const auto memory = must(cache.find_or_register(bytes));
      must(p.active.post(dat::send{memory.whole()}));
      CHECK(p.at_a<dat::send_done>().bytes() == page);
    }
    CHECK(p.at_b<dat::recv_done>().bytes() == page);
    return has_pattern(in.bytes, seed);
  };

  fill(bytes, 1);
  CHECK(arrives(1));
  CHECK(arrives(1));
  CHECK(cache.read().hits == 1);
  CHECK(cache.read().misses == 1);

  CHECK(cache.forget(at, page) == 0);
  map_again();
  fill(bytes, 2);
  CHECK(arrives(2));
  CHECK(cache.read().misses == 2);

  CHECK(dat::memory_unmapped(at, page) == 0);
  map_again();
  fill(bytes, 3);
  CHECK(arrives(3));
  CHECK(cache.read().misses == 3);

  // Without the call, the region still names the pages of the previous mapping.
  map_again();
  fill(bytes, 4);
  CHECK(arrives(3));
  CHECK(cache.read().misses == 3);
  CHECK(cache.forget(at, page) == 0);
  CHECK(arrives(4));

  must(cache.close());
  ::munmap(at, page);
}

} // namespace device
