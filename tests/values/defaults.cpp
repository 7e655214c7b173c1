// What values and handles return that have no content, and the numbers of DAT for sets.
// SPDX-License-Identifier: BSL-1.0
#include <dat/dat.hpp>
#include <dat/pool.hpp>
#include <dat/rmr.hpp>
#include <dat/segment.hpp>
#include <dat/srq.hpp>

#include <support/catch.hpp>

#include <bit>
#include <cstring>

namespace defaults_tests {

namespace {

constexpr auto rights = dat::mem_priv::local_read | dat::mem_priv::local_write;

/// A value that the compiler does not know.
template <class T>
[[gnu::noinline]] T now(T value) {
  asm volatile("" : : : "memory");
  return value;
}

} // namespace

TEST_CASE("a list of adapters is empty until it has one") {
  dat::adapter_list all;
  CHECK(all.empty());
  CHECK(all.size() == 0);
  CHECK(all.begin() == all.end());
  CHECK(all.push_back({}));
  CHECK_FALSE(all.empty());
  CHECK(all.size() == 1);
  CHECK(all.end() - all.begin() == 1);
}

TEST_CASE("the watermarks and counts of shared queues have the bits of DAT, one by one and together") {
  for (const bool a : {false, true})
    for (const bool b : {false, true}) {
      CAPTURE(a, b);
      CHECK(now(dat::srq_counts{a, b}).dat_code() == (a ? 0x01u : 0u) + (b ? 0x10u : 0u));
      for (const bool c : {false, true})
        CHECK(now(dat::srq_watermarks{a, b, c}).dat_code() == (a ? 0x1u : 0u) + (b ? 0x10u : 0u) + (c ? 0x100u : 0u));
    }
}

TEST_CASE("an empty pool has no memory, and frees and allocates nothing", "[pool]") {
  dat::memory_pool<rights> none;
  CHECK_FALSE(none);
  CHECK(none.size_bytes() == 0);
  CHECK(none.used_bytes() == 0);
  CHECK_FALSE(none.is_huge());
  CHECK_FALSE(none.region());
  CHECK(none.try_allocate(1) == nullptr);
  char one = 0;
  none.deallocate(&one, 1);
  const std::array<char, 1> elements{};
  CHECK(none.segment(elements).error().type() == dat::return_type::invalid_handle);
  CHECK(none.close().error().type() == dat::return_type::invalid_handle);
}

TEST_CASE("numbers in each order of bytes have their bytes in that order in memory", "[segment]") {
  const auto bytes = [](auto number) {
    std::array<unsigned char, sizeof number> all{};
    std::memcpy(all.data(), &number, sizeof number);
    return all;
  };
  CHECK(bytes(dat::to_lsb(now(std::uint32_t{0x01020304}))) == std::array<unsigned char, 4>{4, 3, 2, 1});
  CHECK(bytes(dat::to_msb(now(std::uint32_t{0x01020304}))) == std::array<unsigned char, 4>{1, 2, 3, 4});
  CHECK(bytes(dat::to_lsb(now(std::uint64_t{0x0102030405060708}))) ==
        std::array<unsigned char, 8>{8, 7, 6, 5, 4, 3, 2, 1});
  CHECK(bytes(dat::to_msb(now(std::uint16_t{0x0102}))) == std::array<unsigned char, 2>{1, 2});
}

} // namespace defaults_tests
