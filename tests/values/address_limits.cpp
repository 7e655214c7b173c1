// Limits of addresses, of their texts, and of connection qualifiers: the last value that is accepted, and the next one.
// SPDX-License-Identifier: BSL-1.0
#include <dat/address.hpp>

#include <support/catch.hpp>

#include <array>
#include <netdb.h>
#include <string>

using dat::address_family;
using dat::conn_qual;
using dat::error;
using dat::ia_address;
using dat::return_subtype;
using dat::return_type;

namespace {

ia_address parsed(const std::string& text) {
  auto address = ia_address::parse(text);
  if (!address) FAIL("cannot parse " << text << ": " << address.error().message());
  return address.value();
}

} // namespace

TEST_CASE("an interface number of an address fills 32 bits, and a larger one is no number") {
  const std::string most = "fe80::1%4294967295";
  CHECK(parsed(most).scope_id() == 4294967295u);
  CHECK(parsed(most).to_string() == most);
  CHECK(parsed(most).host_string() == most);
  CHECK(parsed("fe80::1%9").scope_id() == 9);
  for (const auto* const name : {"fe80::1%4294967296", "fe80::1%0"}) {
    const auto refused = ia_address::parse(name); // taken as the name of an interface
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == error(return_type::invalid_address, return_subtype::address_unreachable));
    CHECK(refused.error().verb() == "if_nametoindex");
  }
}

TEST_CASE("the name of an interface has at most 15 characters") {
  const auto refusal = [](std::size_t length) {
    return ia_address::parse("fe80::1%" + std::string(length, 'x')).error().subtype();
  };
  CHECK(refusal(15) == return_subtype::address_unreachable); // no interface has it
  CHECK(refusal(16) == return_subtype::address_malformed);
}

TEST_CASE("the longest texts of addresses are parsed") {
  CHECK(parsed("255.255.255.254:65535").to_string() == "255.255.255.254:65535");
  CHECK(parsed("1111:2222:3333:4444:5555:6666:123.123.123.123").host_string() ==
        "1111:2222:3333:4444:5555:6666:7b7b:7b7b"); // 45 characters
  CHECK(parsed("[1111:2222:3333:4444:5555:6666:7777:8888]:65535").port() == 65535);
  CHECK(parsed("[fd00::1]").port() == 0);
  CHECK(parsed("10.0.0.1:0").port() == 0);
  CHECK(parsed("10.0.0.1:0").to_string() == "10.0.0.1");
  CHECK(parsed("10.0.0.1:9").port() == 9);
}

TEST_CASE("an IPv4 address keeps its port when it was written as IPv6, and nothing else") {
  ::sockaddr_in6 mapped{};
  mapped.sin6_family = AF_INET6;
  mapped.sin6_port = htons(7471);
  mapped.sin6_scope_id = 3;
  mapped.sin6_addr.s6_addr[10] = mapped.sin6_addr.s6_addr[11] = 0xff;
  mapped.sin6_addr.s6_addr[12] = 10;
  mapped.sin6_addr.s6_addr[15] = 1;
  const ia_address address(mapped);
  CHECK(address == parsed("10.0.0.1:7471"));
  CHECK(address.scope_id() == 0);
  CHECK(address.to_string() == "10.0.0.1:7471");
}

TEST_CASE("a native address without a family gets that of its type") {
  ::sockaddr_in v4{};
  v4.sin_addr.s_addr = htonl(0x0a000001);
  CHECK(ia_address(v4).family() == address_family::ipv4);
  CHECK(ia_address(v4).native_handle()->sa_family == AF_INET);
  ::sockaddr_in6 v6{};
  v6.sin6_addr.s6_addr[0] = 0xfd;
  CHECK(ia_address(v6).family() == address_family::ipv6);
  CHECK(ia_address(v6).native_handle()->sa_family == AF_INET6);
  CHECK(ia_address(v6).native_size() == sizeof(::sockaddr_in6));
}

TEST_CASE("the kinds of addresses end where their prefixes end") {
  struct {
    const char* text;
    bool link_local, loopback, multicast, reserved;
  } const rows[] = {
      {"169.253.255.255", false, false, false, false}, {"169.254.0.0", true, false, false, false},
      {"169.254.255.255", true, false, false, false},  {"126.255.255.255", false, false, false, false},
      {"127.0.0.0", false, true, false, false},        {"127.255.255.255", false, true, false, false},
      {"240.0.0.0", false, false, false, true},        {"0.0.0.1", false, false, false, true},
      {"0.255.255.255", false, false, false, true},    {"fe7f::1", false, false, false, true},
      {"fe80::", true, false, false, false},           {"febf:ffff::", true, false, false, false},
      {"feff::1", false, false, false, false},         {"fdff::1", false, false, false, false},
      {"fbff::1", false, false, false, true},          {"1fff:ffff::", false, false, false, true},
      {"2000::", false, false, false, false},          {"3fff:ffff::", false, false, false, false},
      {"5eff:ffff::", false, false, false, true},      {"5f00:ffff::", false, false, false, false},
      {"64:ff9b:ffff::", false, false, false, false},  {"64:ff9c::", false, false, false, true},
      {"ff00::", false, false, true, false},           {"::1", false, true, false, false},
  };
  for (const auto& row : rows) {
    CAPTURE(row.text);
    const auto a = parsed(row.text);
    CHECK(a.is_link_local() == row.link_local);
    CHECK(a.is_loopback() == row.loopback);
    CHECK(a.is_multicast() == row.multicast);
    CHECK(a.is_reserved() == row.reserved);
  }
}

TEST_CASE("a refused address has a hint where the reason is not obvious") {
  const auto hint = [](const char* text, dat::address_role role) {
    return std::string(parsed(text).check(role).error().hint());
  };
  using dat::address_role;
  CHECK(hint("240.0.0.1", address_role::local) == "This address range is reserved, so no host has the address.");
  CHECK(hint("::", address_role::remote) == "The any-address names no host to connect to.");
  CHECK(hint("fe80::1", address_role::remote) == "A link-local address needs its interface: write fe80::1%eth0.");
  CHECK(hint("224.0.0.1", address_role::remote).empty());
}

TEST_CASE("a list of addresses holds sixteen, and refuses the next one") {
  dat::address_list list;
  CHECK(list.empty());
  for (std::uint16_t i = 0; i < 16; ++i) {
    CHECK(list.push_back(ia_address().with_port(i)));
    CHECK(list.size() == i + std::size_t{1});
  }
  CHECK_FALSE(list.empty());
  CHECK_FALSE(list.push_back(ia_address()));
  CHECK(list.size() == 16);
  CHECK(list.end() - list.begin() == 16);
  CHECK(list.front().port() == 0);
  CHECK(list[15].port() == 15);
}

TEST_CASE("connection qualifiers are the ports 1 to 65535, and their service ids") {
  for (const std::uint64_t good : {0x1ull, 0xffffull, 0x1060001ull, 0x106ffffull}) {
    CAPTURE(good);
    const auto made = conn_qual::make(good);
    REQUIRE(made);
    CHECK(made.value().port() == (good & 0xffff));
    CHECK(made.value().value() == (good & 0xffff));
    CHECK(made.value().service_id() == (0x1060000 | (good & 0xffff)));
    CHECK(std::hash<conn_qual>{}(made.value()) == std::hash<std::uint16_t>{}(made.value().port()));
  }
  for (const std::uint64_t bad : {0x0ull, 0x10000ull, 0x10001ull, 0x1060000ull, 0x1070001ull, 0x1050001ull,
                                  0x1061'0001ull, 0x1'0106'0001ull, 0xffff'ffff'ffff'ffffull}) {
    CAPTURE(bad);
    const auto refused = conn_qual::make(bad);
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == error(return_type::invalid_parameter));
    CHECK(refused.error().call() == "conn_qual::make");
    CHECK(refused.error().quoted() == std::to_string(bad));
    CHECK(refused.error().hint() == "A connection qualifier is a port, 1 to 65535.");
  }
  CHECK_FALSE(conn_qual(std::uint16_t{0}).check());
  CHECK(conn_qual(std::uint16_t{1}).check());
  CHECK(conn_qual(std::uint16_t{1}) < conn_qual(std::uint16_t{2}));
}

TEST_CASE("the names of families and roles are their words, and other values say so") {
  CHECK(to_string(address_family::ipv4) == "ipv4");
  CHECK(to_string(address_family::ipv6) == "ipv6");
  CHECK(to_string(static_cast<address_family>(2)) == "unknown address_family");
  CHECK(to_string(dat::address_role::local) == "local");
  CHECK(to_string(dat::address_role::remote) == "remote");
  CHECK(to_string(static_cast<dat::address_role>(2)) == "unknown address_role");
}
