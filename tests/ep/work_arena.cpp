// The memory of work entries where addresses or locked memory are limited.
// SPDX-License-Identifier: BSL-1.0
#include "lock_waits.hpp"

#include <dat/detail/work/work_arena.hpp>

#include <support/catch.hpp>
#include <support/limits.hpp>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace unit {
struct generation_of_arena {
  friend std::uint32_t dat::detail::work_arena::*member(generation_of_arena);
};
template struct opened_member<generation_of_arena, &dat::detail::work_arena::generation_>;
} // namespace unit

namespace arena_tests {

using namespace dat::detail;

namespace {

/// A line of /proc/self/status, in bytes.
std::uint64_t status_of(const char* name) {
  std::FILE* const f = std::fopen("/proc/self/status", "re");
  REQUIRE(f);
  char line[256];
  unsigned long long kb = 0;
  while (std::fgets(line, sizeof line, f))
    if (std::strncmp(line, name, std::strlen(name)) == 0) std::sscanf(line + std::strlen(name), ": %llu", &kb);
  std::fclose(f);
  return kb * 1024;
}

using support::few_addresses;

class locked_future {
public:
  locked_future() : ok(::mlockall(MCL_FUTURE) == 0) {}
  locked_future(const locked_future&) = delete;
  locked_future& operator=(const locked_future&) = delete;
  ~locked_future() { (void)::munlockall(); }
  const bool ok;
};

constexpr std::uint64_t mib = 1024 * 1024;

/// Maps addresses without memory, and limits the process to `more` bytes beyond them. An arena then first tries a power
/// of four of MiB, so that it comes to 1 MiB when it takes less.
class powers_of_four {
public:
  explicit powers_of_four(std::uint64_t more) {
    std::uint64_t all = 16 * mib;
    while (all < status_of("VmSize") + more) all *= 4;
    size_ = all + mib - status_of("VmSize") - more;
    size_ -= size_ % 4096;
    filler_ = ::mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(filler_ != MAP_FAILED);
    limit_.emplace(more);
  }
  powers_of_four(const powers_of_four&) = delete;
  powers_of_four& operator=(const powers_of_four&) = delete;
  ~powers_of_four() {
    limit_.reset();
    (void)::munmap(filler_, size_);
  }

private:
  void* filler_ = MAP_FAILED;
  std::uint64_t size_ = 0;
  std::optional<few_addresses> limit_;
};

bool maps_terabytes() { return status_of("VmSize") > mib * mib; } // sanitizers do so

/// Whatever a wr_id is, a search for it reads the arena's own memory only.
void check_strangers(const work_arena& a) {
  std::mt19937_64 random(1);
  bool found = false;
  for (int i = 0; i < 100'000; ++i) found = found || a.find(random()) != nullptr;
  CHECK_FALSE(found);
  for (const std::uint64_t id :
       {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{0xffffffff}, std::uint64_t{1} << 32})
    CHECK(a.find(id) == nullptr);
}

} // namespace

TEST_CASE("an arena ends with its addresses", "[work_arena]") {
  const std::byte* base = nullptr;
  {
    work_arena a;
    REQUIRE(a.reserve() == 0);
    base = a.base();
    REQUIRE(base);
    CHECK(::msync(const_cast<std::byte*>(base), 4096, MS_ASYNC) == 0);
  }
  CHECK(::msync(const_cast<std::byte*>(base), 4096, MS_ASYNC) != 0);
  CHECK(errno == ENOMEM);
}

TEST_CASE("an arena reserves less where addresses are limited, and finds its own entries only", "[work_arena]") {
  if (maps_terabytes()) return;
  if (!support::limits_addresses()) SKIP(support::no_limit_on_addresses);
  const few_addresses limit(512 * mib);
  work_arena a;
  REQUIRE(a.reserve() == 0);
  work_entry* const first = a.allocate(100);
  REQUIRE(first);
  (void)a.renew(first, 100);
  for (int i = 0; i < 100; ++i) CHECK(a.find(first[i].id()) == first + i);
  check_strangers(a);
  work_arena second; // the first arena leaves room for others
  CHECK(second.reserve() == 0);
}

TEST_CASE("an arena reserves at most a sixteenth of the addresses of a limited process", "[work_arena]") {
  if (maps_terabytes()) return;
  if (!support::limits_addresses()) SKIP(support::no_limit_on_addresses);
  const few_addresses limit(512 * mib);
  rlimit addresses{};
  REQUIRE(::getrlimit(RLIMIT_AS, &addresses) == 0);
  const std::uint64_t before = status_of("VmSize");
  work_arena a;
  REQUIRE(a.reserve() == 0);
  CHECK(status_of("VmSize") - before <= addresses.rlim_cur / 16 + mib);
}

TEST_CASE("where not even the least arena fits, none is reserved", "[work_arena]") {
  if (maps_terabytes()) return;
  if (!support::limits_addresses()) SKIP(support::no_limit_on_addresses);
  work_arena a;
  int err = 0;
  {
    const few_addresses limit(mib / 2);
    err = a.reserve();
  }
  CHECK(err == ENOMEM);
}

TEST_CASE("a full arena allocates no more entries", "[work_arena]") {
  if (maps_terabytes()) return;
  if (!support::limits_addresses()) SKIP(support::no_limit_on_addresses);
  const few_addresses limit(8 * mib);
  work_arena a;
  REQUIRE(a.reserve() == 0);
  std::uint32_t blocks = 0;
  while (blocks < 4096 && a.allocate(1000)) ++blocks;
  CHECK(blocks > 0);
  CHECK(blocks < 4096);
}

TEST_CASE("under mlockall an arena locks the memory it uses and not its reserve", "[work_arena]") {
  if (maps_terabytes()) return;
  const std::uint64_t before = status_of("VmLck");
  const locked_future locked;
  if (!locked.ok) return; // mlockall is not allowed here
  work_arena a;
  REQUIRE(a.reserve() == 0);
  REQUIRE(a.allocate(1000));
  const std::uint64_t used = status_of("VmLck") - before;
  CHECK(used > 0); // mlockall is used to prevent page faults during posts
  CHECK(used < 64 * mib);
}

TEST_CASE("without address limits an arena reserves all that a wr_id can name", "[work_arena]") {
  work_arena a;
  REQUIRE(a.reserve() == 0);
  work_entry* const big = a.allocate(max_ring);
  REQUIRE(big);
  (void)a.renew(big, max_ring);
  CHECK(a.find(big[max_ring - 1].id()) == big + (max_ring - 1));
  check_strangers(a);
}

TEST_CASE("an arena reserves a whole sixteenth of the addresses where that is a power of two", "[work_arena]") {
  if (maps_terabytes()) return;
  if (!support::limits_addresses()) SKIP(support::no_limit_on_addresses);
  const std::uint64_t before = status_of("VmSize");
  const std::uint64_t all = std::bit_ceil(2 * before);
  const few_addresses limit(all + mib / 16 - before);
  work_arena a;
  REQUIRE(a.reserve() == 0);
  CHECK(status_of("VmSize") - before >= all / 16);
}

TEST_CASE("an arena is at least 1 MiB large, or there is none", "[work_arena]") {
  if (maps_terabytes()) return;
  if (!support::limits_addresses()) SKIP(support::no_limit_on_addresses);
  work_arena a;
  int err = 0;
  {
    const powers_of_four limit(mib * 3 / 4);
    err = a.reserve();
  }
  CHECK(err == ENOMEM);
}

TEST_CASE("an arena allocates all of its memory, to the last entry", "[work_arena]") {
  if (maps_terabytes()) return;
  if (!support::limits_addresses()) SKIP(support::no_limit_on_addresses);
  // The least memory of a block, but for the first part of the arena, which holds no entry; and five times as much.
  const std::uint32_t bytes = GENERATE(128u, 640u);
  CAPTURE(bytes);
  const auto entries = static_cast<std::uint32_t>(bytes / sizeof(work_entry));
  work_arena a;
  int err = 0;
  std::uint64_t blocks = 0;
  bool apart = true;
  {
    const powers_of_four limit(mib * 3 / 2);
    err = a.reserve();
    const std::byte* end = a.base();
    while (const work_entry* const e = err == 0 ? a.allocate(entries) : nullptr) {
      apart = apart && reinterpret_cast<const std::byte*>(e) >= end;
      end = reinterpret_cast<const std::byte*>(e + entries);
      ++blocks;
    }
  }
  REQUIRE(err == 0);
  CHECK(apart);
  CHECK(blocks == (mib - 128) / bytes);
}

TEST_CASE("the wr_ids of each life differ from those of the one before, also when the numbers of lives begin anew",
          "[work_arena]") {
  work_arena a;
  REQUIRE(a.reserve() == 0);
  work_entry* const e = a.allocate(2);
  REQUIRE(e);
  std::uint64_t before = a.renew(e, 2);
  for (const std::uint32_t lives : {0x7fff'fffeu, 0x7fff'ffffu, 0xffff'fffeu, 0xffff'ffffu}) {
    CAPTURE(lives);
    a.*member(unit::generation_of_arena()) = lives;
    const std::uint64_t now = a.renew(e, 2);
    CHECK_FALSE(same_life(now, 0));
    CHECK_FALSE(same_life(now, before));
    CHECK(same_life(now, e[1].id()));
    CHECK(a.find(now) == e);
    CHECK(a.find(before) == nullptr);
    before = now;
  }
  work_arena::forget(e, 2);
  CHECK(e[0].id() == 0);
  CHECK(e[1].id() == 0);
}

} // namespace arena_tests
