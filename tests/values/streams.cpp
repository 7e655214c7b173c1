// Streams: values, sets, and which evds are completions-only.
// SPDX-License-Identifier: BSL-1.0
#include <dat/streams.hpp>

#include <support/catch.hpp>

using dat::streams;

TEST_CASE("streams have the values of DAT_EVD_FLAGS", "[PSP-010][CONN-035][IBX-011]") {
  STATIC_REQUIRE(static_cast<unsigned>(dat::stream::connection_requests) == 0x010);
  STATIC_REQUIRE(static_cast<unsigned>(dat::stream::dto) == 0x020);
  STATIC_REQUIRE(static_cast<unsigned>(dat::stream::connection) == 0x040);
  STATIC_REQUIRE(static_cast<unsigned>(dat::stream::datagrams) == 0x200); // IB_EVD_EXTENSION_FLAG
}

TEST_CASE("sets of streams include their parts and nothing else") {
  constexpr auto two = dat::stream::dto | dat::stream::connection;
  STATIC_REQUIRE(includes(two, dat::stream::dto));
  STATIC_REQUIRE(includes(two, two));
  STATIC_REQUIRE(includes(two, streams{}));
  STATIC_REQUIRE_FALSE(includes(two, dat::stream::connection_requests));
  STATIC_REQUIRE_FALSE(includes(two, dat::stream::dto | dat::stream::connection_requests));
  STATIC_REQUIRE((two & dat::stream::connection) == dat::stream::connection);
  STATIC_REQUIRE((two & dat::stream::connection_requests) == streams{});
}

TEST_CASE("an evd with the stream dto alone is completions-only", "[EVD-010]") {
  STATIC_REQUIRE(is_completions_only(dat::stream::dto));
  STATIC_REQUIRE(is_completions_only(dat::stream::dto | dat::stream::datagrams));
  STATIC_REQUIRE_FALSE(is_completions_only(dat::stream::connection));
  STATIC_REQUIRE_FALSE(is_completions_only(dat::stream::datagrams));
  STATIC_REQUIRE_FALSE(is_completions_only(dat::stream::dto | dat::stream::connection));
  STATIC_REQUIRE_FALSE(is_completions_only(streams{}));
}
