// Memory rights: their values, their combinations, and the corresponding flags of verbs.
// SPDX-License-Identifier: BSL-1.0
#include <dat/privileges.hpp>

#include <dat/detail/memory/registration.hpp>

#include <support/catch.hpp>

#include <type_traits>

using dat::mem_priv;

// DAT_MEM_PRIV_FLAGS
static_assert(static_cast<unsigned>(mem_priv::none) == 0x00);
static_assert(static_cast<unsigned>(mem_priv::local_read) == 0x01);
static_assert(static_cast<unsigned>(mem_priv::remote_read) == 0x02);
static_assert(static_cast<unsigned>(mem_priv::local_write) == 0x10);
static_assert(static_cast<unsigned>(mem_priv::remote_write) == 0x20);
static_assert(static_cast<unsigned>(mem_priv::remote_atomic) == 0x40);
static_assert(static_cast<unsigned>(mem_priv::flush_global) == 0x04); // dat's own
static_assert(static_cast<unsigned>(mem_priv::flush_persistent) == 0x08);

TEST_CASE("rights have the values of DAT_MEM_PRIV_FLAGS", "[DTO-061][IBX-012]") {
  constexpr auto all = dat::local_read | dat::local_write | dat::remote_read | dat::remote_write;
  STATIC_REQUIRE(static_cast<unsigned>(all.value) == 0x33);
  STATIC_REQUIRE(static_cast<unsigned>(mem_priv::none) == 0x00);
  STATIC_REQUIRE(static_cast<unsigned>(dat::local_read.value) == 0x01);
  STATIC_REQUIRE(static_cast<unsigned>(dat::remote_read.value) == 0x02);
  STATIC_REQUIRE(static_cast<unsigned>(dat::local_write.value) == 0x10);
  STATIC_REQUIRE(static_cast<unsigned>(dat::remote_write.value) == 0x20);
  STATIC_REQUIRE(static_cast<unsigned>(dat::remote_atomic.value) == 0x40);
  STATIC_REQUIRE(
      std::is_same_v<decltype(dat::local_read | dat::remote_write), decltype(dat::remote_write | dat::local_read)>);
  STATIC_REQUIRE(
      std::is_same_v<decltype(dat::local_read | dat::local_read), std::remove_const_t<decltype(dat::local_read)>>);
}

TEST_CASE("a set of rights is included only if every bit is") {
  constexpr auto some = mem_priv::local_read | mem_priv::remote_write;
  STATIC_REQUIRE(includes(some, mem_priv::local_read));
  STATIC_REQUIRE(includes(some, mem_priv::none));
  STATIC_REQUIRE(includes(some, some));
  STATIC_REQUIRE_FALSE(includes(some, mem_priv::local_write));
  STATIC_REQUIRE_FALSE(includes(some, mem_priv::local_read | mem_priv::local_write));
  STATIC_REQUIRE_FALSE(includes(mem_priv::none, mem_priv::local_read));
}

TEST_CASE("rights are named one by one") {
  CHECK(to_string(mem_priv::none) == "none");
  CHECK(to_string(mem_priv::local_read) == "local_read");
  CHECK(to_string(mem_priv::remote_write | mem_priv::local_read) == "local_read|remote_write");
  CHECK(to_string(static_cast<mem_priv>(0x73)) == "local_read|remote_read|local_write|remote_write|remote_atomic");
  CHECK(to_string(mem_priv::local_write | mem_priv::flush_global | mem_priv::flush_persistent) ==
        "local_write|flush_global|flush_persistent");
}

TEST_CASE("the device gets no remote right that was not given", "[LMR-015][LMR-018]") {
  using dat::detail::verbs_access;
  for (unsigned bits = 0; bits < 0x80; ++bits) {
    const auto p = static_cast<mem_priv>(bits);
    const int access = verbs_access(p);
    INFO(to_string(p));
    CHECK(((access & IBV_ACCESS_REMOTE_READ) != 0) == includes(p, mem_priv::remote_read));
    CHECK(((access & IBV_ACCESS_REMOTE_WRITE) != 0) == includes(p, mem_priv::remote_write));
    CHECK(((access & IBV_ACCESS_REMOTE_ATOMIC) != 0) == includes(p, mem_priv::remote_atomic));
    CHECK(((access & dat::detail::access_flush_global) != 0) == includes(p, mem_priv::flush_global));
    CHECK(((access & dat::detail::access_flush_persistent) != 0) == includes(p, mem_priv::flush_persistent));
    // Verbs refuses a remote right to write without the local one; no other right adds it.
    const bool someone_writes = (bits & 0x70) != 0;
    CHECK(((access & IBV_ACCESS_LOCAL_WRITE) != 0) == someone_writes);
    CHECK((access &
           ~(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
             dat::detail::access_flush_global | dat::detail::access_flush_persistent)) == 0);
  }
}
