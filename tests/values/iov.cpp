// Scatter/gather lists: their segments, the order, and the segments that are left out.
// SPDX-License-Identifier: BSL-1.0
#include <dat/iov.hpp>

#include <dat/detail/memory/pz_core.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <limits>
#include <type_traits>

using dat::mem_priv;
using dat::detail::sge_list_access;

namespace {

using dat::detail::pz_core;
auto zone(std::uintptr_t n) { return dat::detail::zone_tag(reinterpret_cast<const pz_core*>(n)); }

template <mem_priv P = mem_priv::local_read | mem_priv::local_write>
dat::local_segment<char, P> piece(std::uint64_t address, std::uint32_t length, std::uintptr_t of_zone = 64) {
  return dat::detail::segment_access::make<dat::local_segment<char, P>>(
      dat::detail::raw_segment{address, length, static_cast<std::uint32_t>(address / 16),
                               length != 0 ? zone(of_zone) : dat::detail::zone_tag::no_bytes()});
}

} // namespace

TEST_CASE("a list keeps its segments in the given order", "[DTO-001][DTO-002][DTO-015]") {
  const dat::iov list{piece(0x100, 10), piece(0x200, 20), piece(0x50, 30)};
  STATIC_REQUIRE(decltype(list)::capacity == 3);
  CHECK(list.size() == 3);
  CHECK(list.size_bytes() == 60);
  const auto& g = sge_list_access::of(list);
  CHECK(g.list()[0].addr == 0x100);
  CHECK(g.list()[1].addr == 0x200);
  CHECK(g.list()[1].length == 20);
  CHECK(g.list()[2].addr == 0x50);
  CHECK(g.list()[2].lkey == 0x5);
}

TEST_CASE("a list has the rights that all its segments share") {
  const dat::iov list{piece(1, 1), piece<mem_priv::local_read | mem_priv::remote_write>(2, 1)};
  STATIC_REQUIRE(decltype(list)::rights == mem_priv::local_read);
  dat::iov<1, mem_priv::none> anything;
  CHECK(anything.push_back(piece<mem_priv::none>(1, 1)));
}

TEST_CASE("empty segments transfer nothing and are left out", "[DTO-055]") {
  dat::iov<2, mem_priv::local_read> list;
  CHECK(list.empty());
  CHECK(list.push_back(piece(0xdead, 0, 99)));
  CHECK(list.push_back(dat::local_segment<char, mem_priv::local_read>()));
  CHECK(list.push_back(piece(0x100, 5)));
  CHECK(list.push_back(piece(0x0, 0, 77)));
  CHECK(list.push_back(piece(0x200, 6)));
  CHECK(list.size() == 2);
  CHECK(list.size_bytes() == 11);
  CHECK(sge_list_access::of(list).is_within(zone(64)));
}

TEST_CASE("a full list refuses a segment and is unchanged", "[DTO-081]") {
  dat::iov<2, mem_priv::local_read> list;
  CHECK(list.push_back(piece(0x100, 1)));
  CHECK(list.push_back(piece(0x200, 2)));
  CHECK_FALSE(list.push_back(piece(0x300, 4)));
  CHECK(list.size() == 2);
  CHECK(list.size_bytes() == 3);
  list.clear();
  CHECK(list.empty());
  CHECK(list.size_bytes() == 0);
  CHECK(list.push_back(piece(0x300, 4)));
}

TEST_CASE("a list may have more bytes than 32 bits can count", "[DTO-060]") {
  constexpr auto most = std::numeric_limits<std::uint32_t>::max();
  const dat::iov list{piece(0, most), piece(0, most), piece(0, most)};
  CHECK(list.size_bytes() == 3ull * most);
}

TEST_CASE("a list reports whether all its segments are of one zone", "[DTO-083]") {
  const auto same = sge_list_access::of(dat::iov{piece(1, 1, 64), piece(2, 1, 64)});
  CHECK(same.is_within(zone(64)));
  CHECK_FALSE(same.is_within(zone(128)));
  for (const auto& [a, b, c] :
       {std::array<std::uintptr_t, 3>{64, 128, 64}, {64, 64, 128}, {128, 64, 64}, {128, 64, 128}}) {
    const dat::iov list{piece(1, 1, a), piece(2, 1, b), piece(3, 1, c)};
    CHECK_FALSE(sge_list_access::of(list).is_within(zone(64)));
    CHECK_FALSE(sge_list_access::of(list).is_within(zone(128)));
  }
  CHECK(sge_list_access::of(dat::iov<1, mem_priv::none>()).is_within(zone(64))); // an empty list is of every zone
}

TEST_CASE("joined zones are a zone only if all are equal") {
  using dat::detail::zone_tag;
  const std::uintptr_t addresses[] = {
      0x10, 0x20, 0x30, 0x40, 0x7f0, 0x5555'5557'0010, 0x5555'5557'0020, 0x5555'5557'0030, 0x7fff'ffff'fff0};
  for (const std::uintptr_t a : addresses)
    for (const std::uintptr_t b : addresses) {
      const zone_tag joined = zone(a) | zone(b);
      CHECK((joined == zone(a)) == (a == b));
      CHECK((joined == zone(b)) == (a == b));
      for (const std::uintptr_t other : addresses) CHECK((joined == zone(other)) == (a == b && a == other));
      CHECK((joined | zone_tag::no_bytes()).unmarked() == joined);
      CHECK((joined | zone(b).with_offset_bit()).marked());
      CHECK_FALSE((joined | zone_tag::no_region()).unmarked() == joined);
      CHECK((joined | zone_tag::no_region()).has_no_region());
      CHECK_FALSE((joined | zone_tag::no_bytes()) == zone(a));
      CHECK_FALSE((joined | zone(b).with_offset_bit()) == zone(a));
      CHECK_FALSE((joined | zone_tag::unpostable()).unmarked() == zone(a));
      CHECK_FALSE(joined == zone_tag::none());
    }
}

TEST_CASE("lists are copyable values") {
  dat::iov<4, mem_priv::local_read> a;
  CHECK(a.push_back(piece(0x100, 1)));
  auto b = a;
  CHECK(b.push_back(piece(0x200, 2)));
  CHECK(a.size() == 1);
  CHECK(b.size() == 2);
  STATIC_REQUIRE(std::is_trivially_copyable_v<decltype(a)>);
}
