// Segments: bounds of slices, and the wire form of remote ones.
// SPDX-License-Identifier: BSL-1.0
#include <dat/ib.hpp>
#include <dat/segment.hpp>

#include <support/catch.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

using dat::mem_priv;
using dat::return_type;

namespace {

constexpr auto read_write = mem_priv::remote_read | mem_priv::remote_write;

template <class T>
using local = dat::local_segment<T, mem_priv::local_read>;
template <class T, mem_priv P = read_write>
using remote = dat::remote_segment<T, P>;

template <class T>
local<T> local_at(std::uint64_t address, std::uint32_t length) {
  return dat::detail::segment_access::make<local<T>>(dat::detail::raw_segment{address, length, 0x77, {}});
}
template <class T, mem_priv P = read_write>
remote<T, P> remote_at(std::uint64_t address, std::uint64_t length, std::uint32_t key = 0x11223344) {
  return dat::detail::segment_access::make<remote<T, P>>(dat::detail::raw_remote{address, length, key});
}
template <class S>
const auto& raw(const S& s) {
  return dat::detail::segment_access::raw(s);
}

struct three_bytes {
  char c[3];
};

/// A wire form as numbers, of which a test changes one field at a time.
struct fields {
  std::uint64_t address = 0x0102030405060708;
  std::uint64_t length = 0x40;
  std::uint32_t key = 0xa1b2c3d4;
  std::uint16_t element = 4;
  std::uint8_t rights = 0x22;
  std::uint8_t version = 1;

  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> b;
    const auto put = [&](std::uint64_t v, int n) {
      while (n-- > 0) b.push_back(static_cast<std::byte>(v >> (8 * n)));
    };
    put(address, 8);
    put(length, 8);
    put(key, 4);
    put(element, 2);
    put(rights, 1);
    put(version, 1);
    return b;
  }
};

template <class S>
return_type refusal(const fields& f) {
  auto r = S::from_wire(f.bytes());
  return r ? return_type::success : r.error().type();
}

} // namespace

TEST_CASE("a segment is a small value", "[DTO-057][DTO-059][MODEL-011]") {
  STATIC_REQUIRE(sizeof(local<char>) == 24);
  STATIC_REQUIRE(std::is_trivially_copyable_v<local<char>>);
  STATIC_REQUIRE(std::is_trivially_copyable_v<remote<char>>);
  constexpr local<int> none;
  STATIC_REQUIRE(sizeof raw(none).address == 8);
  STATIC_REQUIRE(sizeof raw(none).length == 4);
  STATIC_REQUIRE(sizeof raw(none).key == 4);
  STATIC_REQUIRE(none.empty());
  STATIC_REQUIRE(none.size() == 0);
  CHECK(none.data() == nullptr);
  constexpr remote<int> nothing;
  STATIC_REQUIRE(nothing.empty());
  STATIC_REQUIRE(nothing.size_bytes() == 0);
  STATIC_REQUIRE(sizeof raw(nothing).address == 8);
  STATIC_REQUIRE(sizeof raw(nothing).key == 4);
  STATIC_REQUIRE(sizeof raw(nothing).length == 8);
  DEVIATES("DTO-056");
}

TEST_CASE("elements are trivially copyable types, and no others") {
  struct with_pointer_to_self {
    with_pointer_to_self(const with_pointer_to_self&) {}
  };
  STATIC_REQUIRE(dat::transferable<int>);
  STATIC_REQUIRE(dat::transferable<three_bytes>);
  STATIC_REQUIRE_FALSE(dat::transferable<std::vector<int>>);
  STATIC_REQUIRE_FALSE(dat::transferable<with_pointer_to_self>);
  STATIC_REQUIRE_FALSE(dat::transferable<int&>);
  STATIC_REQUIRE_FALSE(dat::transferable<volatile int>);
}

TEMPLATE_TEST_CASE("a slice counts in elements and stays inside", "[DTO-080]", char, std::uint32_t, three_bytes) {
  constexpr std::uint32_t n = 10;
  const auto s = local_at<TestType>(0x1000, n * sizeof(TestType));
  REQUIRE(s.size() == n);
  for (std::size_t first = 0; first <= n + 2; ++first)
    for (std::size_t count = 0; count <= n + 2; ++count) {
      const auto part = s.slice(first, count);
      const bool inside = first <= n && count <= n - first;
      INFO(first << " + " << count);
      REQUIRE(part.has_value() == inside);
      if (!inside) {
        CHECK(part.error().type() == return_type::invalid_parameter);
        CHECK(part.error().call() == "local_segment.slice");
        continue;
      }
      CHECK(raw(part.value()).address == 0x1000 + first * sizeof(TestType));
      CHECK(part.value().size_bytes() == count * sizeof(TestType));
      CHECK(raw(part.value()).key == 0x77);
    }
}

TEST_CASE("a slice whose end wraps around is refused", "[DTO-080]") {
  constexpr auto huge = std::numeric_limits<std::size_t>::max();
  const auto s = local_at<std::uint64_t>(0x1000, 800);
  CHECK_FALSE(s.slice(huge, 2));
  CHECK_FALSE(s.slice(1, huge));
  CHECK_FALSE(s.slice(50, huge - 49));     // first + count is 0 in 64 bits
  CHECK_FALSE(s.slice(0, (huge / 8) + 2)); // count * 8 is 8 in 64 bits
  const auto r = remote_at<std::uint64_t>(0x1000, 800);
  CHECK_FALSE(r.slice(huge, 2));
  CHECK_FALSE(r.slice(1, huge));
  CHECK_FALSE(r.slice(0, (huge / 8) + 2));
  CHECK(r.slice(100, 0));
  CHECK_FALSE(r.slice(101, 0));
}

TEST_CASE("slices of slices are slices of the whole") {
  const auto whole = remote_at<std::uint16_t>(0x2000, 0x100000000ull);
  const auto a = whole.slice(100, 1000).value().slice(10, 20).value();
  const auto b = whole.slice(110, 20).value();
  CHECK(raw(a).address == raw(b).address);
  CHECK(a.size_bytes() == b.size_bytes());
  CHECK(raw(a).key == raw(whole).key);
  CHECK(a.size_bytes() == 40);
}

TEST_CASE("a part of a segment can be named as elements of another type", "[DTO-080]") {
  struct row {
    std::uint64_t lock;
    char name[24];
  };
  const auto both = [](auto table, auto same) { // for local and remote segments
    const auto one = table.slice(3, 1).value();
    const auto lock = one.template as<std::uint64_t>(offsetof(row, lock), 1);
    REQUIRE(lock);
    CHECK(raw(lock.value()).address == 0x1000 + 3 * sizeof(row));
    CHECK(raw(lock.value()).key == raw(table).key);
    CHECK(lock.value().size() == 1);
    const auto name = one.template as<char>(offsetof(row, name), 24);
    REQUIRE(name);
    CHECK(raw(name.value()).address == 0x1000 + 3 * sizeof(row) + 8);
    CHECK(name.value().size_bytes() == 24);
    CHECK(one.template as<char>(32, 0).value().empty());
    const auto refused = [&](std::uint64_t offset, std::uint64_t count) {
      const auto r = one.template as<std::uint64_t>(offset, count);
      return !r && r.error().type() == return_type::invalid_parameter && r.error().hint().size() != 0;
    };
    CHECK(refused(0, 5)); // beyond the end
    CHECK(refused(32, 1));
    CHECK(refused(40, 0));
    CHECK(refused(4, 1)); // not aligned
    CHECK(refused(~std::uint64_t{7}, 1));
    CHECK(refused(8, ~std::uint64_t{0}));
    CHECK(refused(0, std::uint64_t{1} << 61));
    CHECK(std::is_same_v<std::remove_cvref_t<decltype(one.template as<row>(0, 1).value())>, decltype(same)>);
  };
  both(local_at<row>(0x1000, 8 * sizeof(row)), local<row>());
  both(remote_at<row>(0x1000, 8 * sizeof(row)), remote<row>());
}

TEST_CASE("the wire form has these 24 bytes", "[LMR-021][DTO-057]") {
  const auto s = remote_at<std::uint32_t>(0x0102030405060708, 0x40, 0xa1b2c3d4);
  constexpr std::array<unsigned char, 24> expected{0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,
                                                   0,    0,    0,    0,    0,    0,    0,    0x40,
                                                   0xa1, 0xb2, 0xc3, 0xd4, 0x00, 0x04, 0x22, 0x01};
  const auto w = s.to_wire();
  CHECK(std::memcmp(w.data(), expected.data(), expected.size()) == 0);
  CHECK(fields{}.bytes() == std::vector<std::byte>(w.begin(), w.end()));
  const auto back = remote<std::uint32_t>::from_wire(w).value();
  CHECK(raw(back).address == raw(s).address);
  CHECK(raw(back).length == raw(s).length);
  CHECK(raw(back).key == raw(s).key);
}

TEST_CASE("the wire form is available at compile time") {
  constexpr auto w = remote<char>{}.to_wire();
  STATIC_REQUIRE(w[23] == std::byte{1});
  STATIC_REQUIRE(remote<char>::from_wire(w).has_value());
}

TEST_CASE("bytes behind the wire form are ignored, and too few bytes are refused") {
  auto b = fields{}.bytes();
  for (std::size_t n = 0; n < 24; ++n) {
    const auto r = remote<std::uint32_t>::from_wire(std::span(b).first(n));
    REQUIRE_FALSE(r);
    CHECK(r.error().type() == return_type::invalid_parameter);
  }
  CHECK(remote<std::uint32_t>::from_wire(b));
  b.resize(100);
  CHECK(remote<std::uint32_t>::from_wire(b));
}

TEST_CASE("an invalid wire form is refused, field by field") {
  using segment = remote<std::uint32_t>;
  REQUIRE(refusal<segment>({}) == return_type::success);
  CHECK(segment::from_wire({}).error().object_id() == 0); // bytes without a key
  CHECK(refusal<segment>({.version = 0}) == return_type::invalid_parameter);
  CHECK(refusal<segment>({.version = 2}) == return_type::invalid_parameter);
  CHECK(refusal<segment>({.element = 8}) == return_type::invalid_parameter);
  CHECK(refusal<segment>({.element = 0}) == return_type::invalid_parameter);
  CHECK(refusal<segment>({.element = 0x0400}) == return_type::invalid_parameter); // little-endian 4
  CHECK(refusal<segment>({.length = 0x41}) == return_type::invalid_parameter);    // not a multiple of 4
  CHECK(refusal<segment>({.length = 0}) == return_type::success);
  CHECK(refusal<segment>({.address = 0xffffffffffffffff, .length = 4}) == return_type::invalid_parameter);
  CHECK(refusal<segment>({.address = 0xffffffffffffff00, .length = 0x100}) == return_type::invalid_parameter);
  CHECK(refusal<segment>({.address = 0xffffffffffffff00, .length = 0xfc}) == return_type::success);
  CHECK(refusal<segment>({.length = 0xfffffffffffffffc}) == return_type::invalid_parameter);
  CHECK(refusal<remote<char>>({.address = 0, .length = 0xffffffffffffffff, .element = 1}) == return_type::success);
}

TEST_CASE("the owner may grant more rights than the type asks for, not fewer", "[LMR-018]") {
  using reads = remote<std::uint32_t, mem_priv::remote_read>;
  CHECK(refusal<reads>({.rights = 0x02}) == return_type::success);
  CHECK(refusal<reads>({.rights = 0x73}) == return_type::success);
  for (unsigned rights = 0; rights < 0x80; ++rights) {
    const bool enough = (rights & 0x22) == 0x22;
    CHECK(refusal<remote<std::uint32_t>>({.rights = static_cast<std::uint8_t>(rights)}) ==
          (enough ? return_type::success : return_type::privileges_violation));
  }
}

TEST_CASE("random bytes are refused, or give a segment with the same wire form") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  int taken = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::array<std::byte, 24> b;
    for (auto& x : b) x = static_cast<std::byte>(random());
    // Most of the bytes pass the first checks.
    if (round % 4 != 0) {
      b[20] = std::byte{0};
      b[21] = std::byte{3};
      b[23] = std::byte{1};
    }
    if (round % 2 != 0) b[22] = std::byte{0x22};
    const auto r = remote<three_bytes>::from_wire(b);
    if (!r) continue;
    ++taken;
    const auto& s = raw(r.value());
    if (s.length % 3 != 0 || s.address + s.length < s.address) FAIL("taken: " << s.address << " + " << s.length);
    auto again = r.value().to_wire();
    again[22] = b[22]; // rights beyond those of the type are dropped
    if (again != b) FAIL("another wire form came back");
  }
  CHECK(taken > 1000);
}

TEST_CASE("a word of a segment is at its index, and there is none outside", "[IBX-037][IBX-038][IBX-039]") {
  using local_words = dat::local_segment<std::uint64_t, mem_priv::local_write>;
  using remote_words = dat::remote_segment<std::uint64_t, mem_priv::remote_atomic>;
  using dat::detail::segment_access;
  const dat::detail::zone_tag of_zone = dat::detail::zone_tag(reinterpret_cast<const void*>(64));
  const auto mine = segment_access::make<local_words>(dat::detail::raw_segment{0x1000, 24, 5, of_zone});
  const auto word = segment_access::raw(mine.word(2).value());
  CHECK(word.address == 0x1010);
  CHECK(word.length == 8);
  CHECK(word.key == 5);
  CHECK(word.zone == of_zone);
  CHECK(mine.word(3).error().type() == dat::return_type::invalid_parameter);
  CHECK(local_words().word().error().type() == dat::return_type::invalid_parameter);

  const auto there = segment_access::make<remote_words>(dat::detail::raw_remote{0x2000, 24, 6});
  const auto place = segment_access::place(there.word(1).value());
  CHECK(place.address == 0x2008);
  CHECK(place.length == 8);
  CHECK(place.key == 6);
  CHECK(there.word(3).error().type() == dat::return_type::invalid_parameter);
  CHECK(there.word(~std::uint64_t{0}).error().type() == dat::return_type::invalid_parameter);
  CHECK(remote_words().word().error().type() == dat::return_type::invalid_parameter);
  const auto odd = segment_access::make<remote_words>(dat::detail::raw_remote{0x2004, 24, 6});
  CHECK(odd.word().error().type() == dat::return_type::invalid_parameter);
  CHECK_FALSE(std::is_default_constructible_v<dat::ib::local_word>);
  CHECK_FALSE(std::is_default_constructible_v<dat::ib::remote_word>);
}

TEST_CASE("a remote segment is made of an address, a count and a key that a peer sent in its own protocol",
          "[segment]") {
  const auto s = remote<std::uint32_t>::make(0x1000, 3, 0xa1b2c3d4).value();
  CHECK(s.address() == 0x1000);
  CHECK(s.rkey() == 0xa1b2c3d4);
  CHECK(s.size() == 3);
  CHECK(s.size_bytes() == 12);
  CHECK(raw(s).address == 0x1000);
  CHECK(raw(s).length == 12);
  CHECK(raw(s).key == 0xa1b2c3d4);
}

TEST_CASE("numbers of a segment convert to each order of bytes and back", "[segment]") {
  using bytes = std::array<unsigned char, 4>;
  STATIC_REQUIRE(std::bit_cast<bytes>(dat::to_lsb(0xa1b2c3d4U)) == bytes{0xd4, 0xc3, 0xb2, 0xa1});
  STATIC_REQUIRE(std::bit_cast<bytes>(dat::to_msb(0xa1b2c3d4U)) == bytes{0xa1, 0xb2, 0xc3, 0xd4});
  constexpr std::uint64_t address = 0x0102030405060708;
  STATIC_REQUIRE(dat::to_lsb(dat::to_lsb(address)) == address);
  STATIC_REQUIRE(dat::to_msb(dat::to_msb(address)) == address);
  STATIC_REQUIRE(dat::to_lsb(address) != dat::to_msb(address));
  const auto s = remote_at<std::uint32_t>(address, 0x40, 0xa1b2c3d4);
  const std::uint64_t first = dat::to_msb(s.address());
  CHECK(std::memcmp(s.to_wire().data(), &first, sizeof first) == 0); // the wire form is in the same order
}

TEST_CASE("a remote segment ends within the address space", "[segment]") {
  constexpr std::uint64_t last = std::numeric_limits<std::uint64_t>::max();
  CHECK(remote<std::uint32_t>::make(last - 12, 3, 7));
  CHECK(remote<std::uint32_t>::make(last, 0, 7));
  for (const auto& bad : {remote<std::uint32_t>::make(last - 11, 3, 7), remote<std::uint32_t>::make(8, last / 4, 7),
                          remote<std::uint32_t>::make(0, last, 7)}) {
    REQUIRE_FALSE(bad);
    CHECK(bad.error().type() == return_type::invalid_parameter);
    CHECK(bad.error().call() == "remote_segment.make");
    CHECK(bad.error().object_id() == 7);
  }
}

TEST_CASE("a remote segment converts to one with fewer rights, and to no other", "[segment]") {
  using both = remote<int>;
  using reads = remote<int, mem_priv::remote_read>;
  using writes = remote<int, mem_priv::remote_write>;
  const reads fewer = remote_at<int>(0x1000, 8, 9);
  CHECK(fewer.address() == 0x1000);
  CHECK(fewer.size() == 2);
  CHECK(fewer.rkey() == 9);
  static_assert(std::is_convertible_v<both, reads> && std::is_convertible_v<both, writes>);
  static_assert(!std::is_convertible_v<reads, both> && !std::is_convertible_v<reads, writes>);
  static_assert(!std::is_convertible_v<remote<char>, reads>);
  static_assert(std::is_trivially_copyable_v<reads>);
}
