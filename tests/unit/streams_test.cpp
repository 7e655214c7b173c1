// Streams: values, sets, and which evds are lean.
// SPDX-License-Identifier: BSL-1.0
#include <dat/streams.hpp>

#include <support/catch.hpp>

using dat::streams;

TEST_CASE("streams have the values of DAT_EVD_FLAGS", "[PSP-010][CONN-035][IBX-011]") {
  STATIC_REQUIRE(static_cast<unsigned>(dat::connection_requests) == 0x010);
  STATIC_REQUIRE(static_cast<unsigned>(dat::dto) == 0x020);
  STATIC_REQUIRE(static_cast<unsigned>(dat::connection) == 0x040);
  STATIC_REQUIRE(static_cast<unsigned>(dat::datagrams) == 0x200); // IB_EVD_EXTENSION_FLAG
}

TEST_CASE("sets of streams include their parts and nothing else") {
  constexpr auto two = dat::dto | dat::connection;
  STATIC_REQUIRE(includes(two, dat::dto));
  STATIC_REQUIRE(includes(two, two));
  STATIC_REQUIRE(includes(two, streams{}));
  STATIC_REQUIRE_FALSE(includes(two, dat::connection_requests));
  STATIC_REQUIRE_FALSE(includes(two, dat::dto | dat::connection_requests));
  STATIC_REQUIRE((two & dat::connection) == dat::connection);
  STATIC_REQUIRE((two & dat::connection_requests) == streams{});
}

TEST_CASE("only completions alone make an evd lean", "[EVD-010]") {
  STATIC_REQUIRE(is_lean(dat::dto));
  STATIC_REQUIRE(is_lean(dat::dto | dat::datagrams));
  STATIC_REQUIRE_FALSE(is_lean(dat::connection));
  STATIC_REQUIRE_FALSE(is_lean(dat::datagrams));
  STATIC_REQUIRE_FALSE(is_lean(dat::dto | dat::connection));
  STATIC_REQUIRE_FALSE(is_lean(streams{}));
}
