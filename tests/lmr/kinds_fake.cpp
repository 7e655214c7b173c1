// Regions of other kinds that the fake's devices lack by default, sizes at their limits, and the memory of pools.
// SPDX-License-Identifier: BSL-1.0
#include "reserved_addresses.hpp"

#include <unit/lock_waits.hpp>
#include <unit/world.hpp>

#include <dat/dynamic.hpp>
#include <dat/memory.hpp>
#include <dat/pool.hpp>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <string_view>
#include <vector>

namespace unit {

struct lock_of_pool {
  friend std::mutex dat::detail::shared_out::*member(lock_of_pool);
};
template struct opened_member<lock_of_pool, &dat::detail::shared_out::mutex_>;

} // namespace unit

using namespace unit;
using dat::return_subtype;
using dat::return_type;

namespace {

int on_demand_refused = 0; ///< the errno of the query, or 0

/// Makes the device report on-demand paging, as adapters of mlx5 do.
void give_on_demand_paging(ibv_context* context) {
  verbs_context* const all = verbs_get_ctx(context);
  REQUIRE(all);
  all->query_device_ex = [](ibv_context* of, const ibv_query_device_ex_input*, ibv_device_attr_ex* to,
                            std::size_t) -> int {
    *to = {};
    to->odp_caps.general_caps = IBV_ODP_SUPPORT;
    return on_demand_refused != 0 ? on_demand_refused : ibv_query_device(of, &to->orig_attr);
  };
}

} // namespace

TEST_CASE("a region with on-demand paging is for verbs to refuse where the device has it, and else not supported",
          "[memory]") {
  const clean_world world;
  end e;
  give_on_demand_paging(fake::contexts().front());
  on_demand_refused = EIO;
  is_error(dat::register_on_demand(e.pz, e.memory, dat::local_read), return_type::model_not_supported);
  on_demand_refused = 0;
  const auto asked = dat::register_on_demand(e.pz, e.memory, dat::local_read);
  is_error(asked, return_type::invalid_parameter); // of the fake's ibv_reg_mr
  CHECK(asked.error().verb() == "ibv_reg_mr");
  dat::ia other = must(dat::ia::open("fk1", manual));
  dat::pz zone = must(other.create_pz());
  must(other.close());
  is_error(dat::register_on_demand(zone, e.memory, dat::local_read), return_type::invalid_handle,
           return_subtype::handle_pz);
}

TEST_CASE("a segment of 4 GiB is refused for its length, also where it is the whole region", "[dynamic][memory]") {
  const clean_world world(with_large_regions());
  end e;
  constexpr std::size_t most = std::size_t{1} << 32;
  const reserved_addresses memory(most);
  auto lmr = must(dat::dynamic::register_memory(e.pz, memory.all, dat::mem_priv::local_read));
  is_error(lmr.slice(0, most, dat::local_read), return_type::length_error);
  is_error(lmr.slice(1, most, dat::local_read), return_type::invalid_parameter);
  CHECK(must(lmr.slice(1, most - 1, dat::local_read)).size_bytes() == most - 1);
}

TEST_CASE("a pool of 0 bytes, or of more than 128 GiB, is refused", "[memory][pool]") {
  const clean_world world;
  end e;
  using pool = dat::memory_pool<all_rights.value>;
  for (const std::size_t bytes : {std::size_t{0}, (std::size_t{128} << 30) + 1, ~std::size_t{0}})
    is_error(pool::create(e.pz, bytes), return_type::invalid_parameter, return_subtype::arg2);
  CHECK(must(pool::create(e.pz, 1)).size_bytes() == 4096);
}

TEST_CASE("a pool names the cause where the system does not map its memory", "[memory][pool]") {
  using dat::detail::shared_out;
  const auto is_failure = [](int reason, bool only_huge, const dat::error& expected, std::string_view hint) {
    CAPTURE(reason, only_huge);
    const dat::error e = shared_out::not_mapped(reason, only_huge);
    CHECK(e == expected);
    CHECK(e.verb() == "mmap");
    CHECK(e.sys_errno() == reason);
    CHECK(e.hint().find(hint) != std::string_view::npos);
    CHECK(e.hint().empty() == hint.empty());
  };
  const dat::error no_memory(return_type::insufficient_resources, return_subtype::resource_memory);
  is_failure(ENOENT, true, no_memory, "no huge pages");
  is_failure(ENOENT, false, dat::error(return_type::internal_error), "");
  is_failure(ENOMEM, true, no_memory, "vm.nr_hugepages");
  is_failure(ENOMEM, false, no_memory, "");
  is_failure(EPERM, true, dat::error(return_type::privileges_violation), "vm.nr_hugepages");
  is_failure(EPERM, false, dat::error(return_type::privileges_violation), "");
}

TEST_CASE("a pool gives and takes memory one call at a time", "[memory][pool][locks]") {
  dat::detail::shared_out pool;
  must(pool.map(4096, false, false));
  void* const kept = pool.allocate(64, 64);
  REQUIRE(kept);
  std::mutex& lock = pool.*member(lock_of_pool());
  std::size_t used = 0;
  const auto read = [&] { used = pool.used(); };
  SECTION("an allocation") {
    CHECK(locked_out(lock, [&] { (void)pool.allocate(64, 64); }));
    read();
    CHECK(used == 128);
  }
  SECTION("a deallocation") {
    CHECK(locked_out(lock, [&] { pool.deallocate(kept, 64, 64); }));
    read();
    CHECK(used == 0);
  }
  SECTION("a look at its use") {
    CHECK(locked_out(lock, read));
    CHECK(used == 64);
  }
}

TEST_CASE("a pool aligns memory to a page at most", "[memory][pool]") {
  dat::detail::shared_out pool;
  must(pool.map(4 * 4096, false, false));
  REQUIRE(pool.allocate(64, 64));
  void* const page = pool.allocate(64, 4096);
  REQUIRE(page);
  CHECK(reinterpret_cast<std::uintptr_t>(page) % 4096 == 0);
  CHECK(pool.used() == 64 + 4096);
  CHECK(pool.allocate(64, 8192) == nullptr);
  pool.deallocate(page, 64, 4096);
  CHECK(pool.used() == 64);
}

TEST_CASE("a number of blocks that is no power of two is given out whole, each block once", "[memory][pool]") {
  dat::detail::buddy blocks;
  REQUIRE(blocks.reserve(7));
  std::vector<std::uint32_t> given;
  for (std::uint32_t b = blocks.allocate(0); b != dat::detail::buddy::none; b = blocks.allocate(0)) given.push_back(b);
  std::sort(given.begin(), given.end());
  CHECK(given == std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6});
  for (const std::uint32_t b : given) blocks.free(b, 0);
  CHECK(blocks.allocate(3) == dat::detail::buddy::none);
  CHECK(blocks.allocate(2) == 0);
  CHECK(blocks.allocate(1) == 4);
  CHECK(blocks.allocate(0) == 6);
  CHECK(blocks.allocate(0) == dat::detail::buddy::none);
}
