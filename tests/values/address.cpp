// Addresses of adapters and connection qualifiers.
// SPDX-License-Identifier: BSL-1.0
#include <dat/address.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <vector>

using dat::address_family;
using dat::address_role;
using dat::conn_qual;
using dat::error;
using dat::ia_address;
using dat::return_subtype;
using dat::return_type;

namespace {

constexpr error malformed(return_type::invalid_address, return_subtype::address_malformed);
constexpr error unsupported(return_type::invalid_address, return_subtype::address_unsupported);

ia_address parsed(const char* text) {
  auto address = ia_address::parse(text);
  if (!address) FAIL("cannot parse " << text << ": " << address.error().message());
  return address.value();
}

::sockaddr_in6 native_v6(const char* text, std::uint16_t port) {
  ::sockaddr_in6 native{};
  native.sin6_family = AF_INET6;
  native.sin6_port = htons(port);
  if (::inet_pton(AF_INET6, text, &native.sin6_addr) != 1) FAIL("inet_pton " << text);
  return native;
}

} // namespace

TEST_CASE("a default address is the IPv4 any-address without port") {
  const ia_address any;
  CHECK(any.family() == address_family::ipv4);
  CHECK(any.is_any());
  CHECK(any.port() == 0);
  CHECK(any.to_string() == "0.0.0.0");
  STATIC_REQUIRE(sizeof(ia_address) == 28);
  STATIC_REQUIRE(std::is_trivially_copyable_v<ia_address>);
}

TEST_CASE("text is parsed and written back in canonical form") {
  struct sample {
    const char* in;
    const char* out;
    address_family family;
    std::uint16_t port;
  };
  const std::array samples{
      sample{"10.78.1.1", "10.78.1.1", address_family::ipv4, 0},
      sample{"10.78.1.1:7471", "10.78.1.1:7471", address_family::ipv4, 7471},
      sample{"10.78.1.1:65535", "10.78.1.1:65535", address_family::ipv4, 65535},
      sample{"10.78.1.1:0", "10.78.1.1", address_family::ipv4, 0},
      sample{"fd00::1", "fd00::1", address_family::ipv6, 0},
      sample{"[fd00::1]", "fd00::1", address_family::ipv6, 0},
      sample{"[FD00:0:0:0:0:0:0:1]:7471", "[fd00::1]:7471", address_family::ipv6, 7471},
      sample{"fe80::1%lo", "fe80::1%lo", address_family::ipv6, 0},
      sample{"[fe80::1%1]:9", "[fe80::1%lo]:9", address_family::ipv6, 9},
      sample{"fe80::1%4294967295", "fe80::1%4294967295", address_family::ipv6, 0},
      sample{"::", "::", address_family::ipv6, 0},
      sample{"::ffff:10.78.1.1", "10.78.1.1", address_family::ipv4, 0},
      sample{"[::ffff:10.78.1.1]:80", "10.78.1.1:80", address_family::ipv4, 80},
  };
  for (const auto& s : samples) {
    CAPTURE(s.in);
    const auto address = parsed(s.in);
    CHECK(address.to_string() == s.out);
    CHECK(address.family() == s.family);
    CHECK(address.port() == s.port);
    CHECK(parsed(s.out) == address);
  }
  CHECK(parsed("[fe80::1%lo]:9").host_string() == "fe80::1%lo");
  CHECK(parsed("10.78.1.1:7471").host_string() == "10.78.1.1");
}

TEST_CASE("text that is no address is malformed", "[ADDR-004][ERR-040]") {
  const auto* const text =
      GENERATE("", " ", "localhost", "10.78.1", "10.78.1.256", "10.78.1.1:", "10.78.1.1:65536", "10.78.1.1:-1",
               "10.78.1.1:+7", "10.78.1.1: 7", "10.78.1.1:7x", "10.78.1.1:99999999999999999999", "010.1.1.1",
               "fd00::1::2", "[fd00::1", "[fd00::1]7471", "[fd00::1]:", "[fd00::1]:65536", "[10.78.1.1]:80", "fd00::1]",
               "[]", "fe80::1%", "fe80::1%a-name-that-no-interface-can-have", "%lo", "12345:1", "1:2:3",
               "0:0:0:0:0:0:0:0:0", "10.78.1.1%lo", "1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:cccc");
  CAPTURE(text);
  const auto address = ia_address::parse(text);
  REQUIRE_FALSE(address.has_value());
  CHECK(address.error() == malformed);
}

TEST_CASE("the error of a text that is no address quotes the text", "[ERR-040]") {
  const error wrong = ia_address::parse(std::string("10.0.0.300:7471")).error(); // the text itself no longer exists
  CHECK(wrong == malformed);
  CHECK(wrong.quoted() == "10.0.0.300:7471");
  CHECK(wrong.call() == "ia_address::parse");
  CHECK_THAT(wrong.message(), support::contains_text("ia_address::parse failed for \"10.0.0.300:7471\": "));
  CHECK_THAT(wrong.message(), support::contains_text("Write it as 10.0.0.1, "));
  CHECK_THAT(ia_address::parse("").error().message(), support::contains_text("failed for \"\": "));
  CHECK_THAT(ia_address::parse("a-name-that-no-interface-can-have").error().message(),
             support::contains_text("failed for \"a-name-that-no-interface...\": "));
  CHECK_THAT(ia_address::parse("1\n\x80").error().message(), support::contains_text("failed for \"1?"
                                                                                    "?\": "));
  // Other errors of addresses quote no text.
  CHECK(ia_address::from(nullptr, 0).error().quoted().empty());
  CHECK(ia_address::from(nullptr, 0).error().message().find('"') == std::string::npos);
}

TEST_CASE("text with a zero byte inside is malformed") {
  using namespace std::string_view_literals;
  CHECK(ia_address::parse("10.78.1.1\0"sv).error() == malformed);
  CHECK(ia_address::parse("fd00::1%lo\0"sv).error() == malformed);
  CHECK(ia_address::parse("10.78.1.1"sv));
}

TEST_CASE("a scope that names no interface is unreachable") {
  const auto address = ia_address::parse("fe80::1%nosuchif0");
  REQUIRE_FALSE(address.has_value());
  CHECK(address.error() == error(return_type::invalid_address, return_subtype::address_unreachable));
  CHECK(address.error().verb() == "if_nametoindex");
  CHECK(address.error().sys_errno() == ENODEV);
  CHECK(address.error().call() == "ia_address::parse");
  CHECK(address.error().quoted().empty()); // the text is well-formed
  CHECK(parsed("fe80::1%lo").scope_id() == ::if_nametoindex("lo"));
  CHECK(parsed("fe80::1").scope_id() == 0);
  CHECK(parsed("10.99.1.1").scope_id() == 0);
}

TEST_CASE("a native address is converted in both directions byte for byte", "[ADDR-002]") {
  ::sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(5000);
  v4.sin_addr.s_addr = htonl(0x0A4E0101);
  const ia_address a(v4);
  REQUIRE(a.native_size() == sizeof v4);
  CHECK(std::memcmp(a.native_handle(), &v4, sizeof v4) == 0);
  CHECK(ia_address::from(reinterpret_cast<const ::sockaddr*>(&v4), sizeof v4).value() == a);

  auto v6 = native_v6("fd00::1", 5000);
  v6.sin6_flowinfo = htonl(0x12345);
  v6.sin6_scope_id = 3;
  const ia_address b(v6);
  REQUIRE(b.native_size() == sizeof v6);
  CHECK(std::memcmp(b.native_handle(), &v6, sizeof v6) == 0);
  const auto c = ia_address::from(reinterpret_cast<const ::sockaddr*>(&v6), sizeof(::sockaddr_storage));
  CHECK(c.value() == b);
  CHECK(std::memcmp(c.value().native_handle(), &v6, sizeof v6) == 0);
}

TEST_CASE("the port is in network order in the native address and in host order everywhere else", "[ADDR-010]") {
  const auto address = parsed("10.78.1.1").with_port(5000);
  CHECK(address.port() == 5000);
  CHECK(address.port() != 0x8813); // 5000 with its bytes swapped
  ::sockaddr_in native{};
  std::memcpy(&native, address.native_handle(), sizeof native);
  CHECK(native.sin_port == htons(5000));
  CHECK(parsed("[fd00::1]:9").with_port(5000).to_string() == "[fd00::1]:5000");
  CHECK(parsed("10.78.1.1:9").with_port(0).port() == 0);
}

TEST_CASE("a native address of another family or too short is malformed and not read beyond its length",
          "[ADDR-004][ERR-040][NAME-017][NAME-008]") {
  // The address is on the heap with exactly this length, so that AddressSanitizer detects a read beyond its end.
  const auto of = [](::sa_family_t family, std::size_t length) {
    const std::unique_ptr<unsigned char[]> bytes(new unsigned char[length == 0 ? 1 : length]());
    std::memcpy(bytes.get(), &family, std::min(length, sizeof family));
    return ia_address::from(reinterpret_cast<const ::sockaddr*>(bytes.get()), length);
  };
  for (const auto family : std::array<::sa_family_t, 4>{AF_UNSPEC, AF_UNIX, AF_IB, 0xFFFF}) {
    CAPTURE(family);
    REQUIRE_FALSE(of(family, 2).has_value());
    CHECK(of(family, 2).error() == malformed);
    CHECK(of(family, sizeof(::sockaddr_storage)).error() == malformed);
  }
  CHECK(of(AF_INET, sizeof(::sockaddr_in) - 1).error() == malformed);
  CHECK(of(AF_INET6, sizeof(::sockaddr_in6) - 1).error() == malformed);
  CHECK(of(AF_INET, 2).error() == malformed);
  CHECK(of(AF_INET, 1).error() == malformed);
  CHECK(of(AF_INET, 0).error() == malformed);
  CHECK(ia_address::from(nullptr, sizeof(::sockaddr_in)).error() == malformed);
  CHECK(of(AF_INET, sizeof(::sockaddr_in)).has_value());
  CHECK(of(AF_INET6, sizeof(::sockaddr_in6)).has_value());
  // The form is native, and each operation checks whether the contents are valid for it.
  CHECK(of(AF_INET6, sizeof(::sockaddr_in6)).value().native_handle()->sa_family == AF_INET6);
  CHECK(parsed("10.78.1.1").native_handle()->sa_family == AF_INET);
  CHECK(parsed("224.0.0.1").check(address_role::remote).error() == unsupported);
  CHECK(parsed("0.0.0.0").check(address_role::local).has_value());
  CHECK(parsed("0.0.0.0").check(address_role::remote).error() == malformed);
}

TEST_CASE("an address is a copy of its source", "[NAME-017]") {
  ::sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(0x0A4E0101);
  const auto address = ia_address::from(reinterpret_cast<const ::sockaddr*>(&v4), sizeof v4).value();
  std::memset(&v4, 0xFF, sizeof v4);
  CHECK(address.to_string() == "10.78.1.1");
}

TEST_CASE("an IPv4 address written as IPv6 becomes IPv4", "[ADDR-008]"
                                                          "[REQ-171]") {
  const auto v6 = native_v6("::ffff:10.78.1.1", 7471);
  const auto address = ia_address::from(reinterpret_cast<const ::sockaddr*>(&v6), sizeof v6).value();
  CHECK(address.family() == address_family::ipv4);
  CHECK(address == parsed("10.78.1.1:7471"));
  CHECK(address.native_handle()->sa_family == AF_INET);
  CHECK(address.native_size() == sizeof(::sockaddr_in));
  const auto other = native_v6("::fffe:10.78.1.1", 7471); // similar to a mapped address, but not one
  CHECK(ia_address(other).family() == address_family::ipv6);
}

TEST_CASE("an address reports its kind") {
  CHECK(parsed("0.0.0.0").is_any());
  CHECK(parsed("::").is_any());
  CHECK_FALSE(parsed("0.0.0.1").is_any());
  CHECK_FALSE(parsed("::1").is_any());
  CHECK(parsed("127.3.2.1").is_loopback());
  CHECK(parsed("::1").is_loopback());
  CHECK_FALSE(parsed("128.0.0.1").is_loopback());
  CHECK_FALSE(parsed("::2").is_loopback());
  CHECK(parsed("224.0.0.1").is_multicast());
  CHECK(parsed("239.255.255.255").is_multicast());
  CHECK(parsed("ff02::1").is_multicast());
  CHECK_FALSE(parsed("223.255.255.255").is_multicast());
  CHECK_FALSE(parsed("fe02::1").is_multicast());
  CHECK(parsed("255.255.255.255").is_broadcast());
  CHECK_FALSE(parsed("255.255.255.254").is_broadcast());
  CHECK_FALSE(parsed("ffff:ffff::").is_broadcast());
  CHECK(parsed("169.254.1.1").is_link_local());
  CHECK(parsed("fe80::1").is_link_local());
  CHECK(parsed("febf::1").is_link_local());
  CHECK_FALSE(parsed("169.255.1.1").is_link_local());
  CHECK_FALSE(parsed("fec0::1").is_link_local());
  for (const auto* const usable : {"ff02::1", "224.0.0.1", "0.0.0.0", "255.255.255.255"})
    CHECK_FALSE(parsed(usable).is_reserved());
}

TEST_CASE("an address is checked for its use", "[ADDR-005][ERR-038][ERR-040]") {
  struct sample {
    const char* text;
    const error* local;
    const error* remote;
  };
  const std::array samples{
      sample{"10.78.1.1:7471", nullptr, nullptr},
      sample{"127.0.0.1", nullptr, nullptr},
      sample{"169.254.1.1", nullptr, nullptr},
      sample{"223.255.255.254", nullptr, nullptr},
      sample{"0.0.0.0", nullptr, &malformed},
      sample{"0.0.0.0:7471", nullptr, &malformed},
      sample{"0.1.2.3", &malformed, &malformed},
      sample{"224.0.0.1", &unsupported, &unsupported},
      sample{"239.1.2.3", &unsupported, &unsupported},
      sample{"240.0.0.1", &malformed, &malformed},
      sample{"255.255.255.254", &malformed, &malformed},
      sample{"255.255.255.255", &unsupported, &unsupported},
      sample{"2001:db8::1", nullptr, nullptr},
      sample{"fd00::1", nullptr, nullptr},
      sample{"::1", nullptr, nullptr},
      sample{"64:ff9b::a4e:101", nullptr, nullptr},
      sample{"::ffff:10.78.1.1", nullptr, nullptr},
      sample{"::ffff:0.0.0.0", nullptr, &malformed},
      sample{"::ffff:224.0.0.1", &unsupported, &unsupported},
      sample{"::", nullptr, &malformed},
      sample{"fe80::1", nullptr, &malformed},
      sample{"fe80::1%lo", nullptr, nullptr},
      sample{"ff02::1", &unsupported, &unsupported},
      sample{"ff02::1%lo", &unsupported, &unsupported},
      sample{"::2", &malformed, &malformed},
      sample{"100::1", &malformed, &malformed},
      sample{"4000::1", &malformed, &malformed},
      sample{"f800::1", &malformed, &malformed},
      sample{"fe00::1", &malformed, &malformed},
      sample{"fe01::1", &malformed, &malformed},
      sample{"fec0::1", nullptr, nullptr},
      sample{"fc00::1", nullptr, nullptr},
      sample{"1fff::1", &malformed, &malformed},
      sample{"2101::1", nullptr, nullptr},
      sample{"3fff::1", nullptr, nullptr},
      sample{"5e00::1", &malformed, &malformed},
      sample{"5f00::1", nullptr, nullptr},
      sample{"5f01::1", &malformed, &malformed},
      sample{"64:ff9a::1", &malformed, &malformed},
      sample{"64:fe9b::1", &malformed, &malformed},
      sample{"65:ff9b::1", &malformed, &malformed},
      sample{"164:ff9b::1", &malformed, &malformed},
      sample{"1.0.0.1", nullptr, nullptr},
  };
  for (const auto& s : samples) {
    CAPTURE(s.text);
    const auto address = parsed(s.text);
    for (const auto& [role, wanted] :
         {std::pair{address_role::local, s.local}, std::pair{address_role::remote, s.remote}}) {
      CAPTURE(to_string(role));
      const auto result = address.check(role);
      CHECK(result.has_value() == (wanted == nullptr));
      if (wanted != nullptr && !result) CHECK(result.error() == *wanted);
    }
  }
}

TEST_CASE("addresses compare and hash by family, address, scope and port") {
  const auto a = parsed("10.78.1.1:7471");
  CHECK(a == parsed("10.78.1.1:7471"));
  CHECK(a == parsed("[::ffff:10.78.1.1]:7471"));
  CHECK(a != parsed("10.78.1.1:7472"));
  CHECK(a != parsed("10.78.1.2:7471"));
  CHECK(parsed("fe80::1%1") != parsed("fe80::1%2"));
  CHECK(parsed("fe80::1%1") != parsed("fe80::1"));
  CHECK(parsed("9.0.0.1") < parsed("10.0.0.1"));
  CHECK(parsed("10.0.0.1:256") > parsed("10.0.0.1:255")); // compares by value, and not by bytes in memory
  CHECK(parsed("255.0.0.1") < parsed("::1"));

  auto labelled = native_v6("fd00::1", 1);
  labelled.sin6_flowinfo = htonl(5);
  CHECK(ia_address(labelled) == parsed("[fd00::1]:1"));

  const std::unordered_set<ia_address> set{a, parsed("[::ffff:10.78.1.1]:7471"), parsed("fd00::1"),
                                           ia_address(labelled), parsed("[fd00::1]:1")};
  CHECK(set.size() == 3);
  CHECK(set.count(parsed("fd00::2")) == 0);
  const auto hash_of = [](const char* text) { return std::hash<ia_address>{}(parsed(text)); };
  CHECK(hash_of("10.0.0.1:1") != hash_of("10.0.0.1:2"));
  CHECK(hash_of("10.0.0.1:1") != hash_of("10.0.0.2:1"));
  CHECK(hash_of("[fd00::1]:1") != hash_of("[fd00::2]:1"));
  CHECK(hash_of("fe80::1%1") != hash_of("fe80::1%2"));
}

TEST_CASE("resolve() gives the resolver's own answer, with the port", "[NAME-001][NAME-006][NAME-007]") {
  const auto found = dat::resolve("localhost", 7471);
  REQUIRE(found);
  REQUIRE_FALSE(found.value().empty());
  bool loopback = false;
  for (const auto& address : found.value()) {
    CHECK(address.port() == 7471);
    loopback = loopback || address.is_loopback();
  }
  CHECK(loopback);
  SHOWS("NAME-008"); // the name is in the DNS

  ::addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  ::addrinfo* list = nullptr;
  REQUIRE(::getaddrinfo("localhost", "7471", &hints, &list) == 0);
  std::vector<ia_address> direct;
  for (const auto* entry = list; entry != nullptr; entry = entry->ai_next)
    direct.push_back(ia_address::from(entry->ai_addr, entry->ai_addrlen).value());
  ::freeaddrinfo(list);
  CHECK(std::vector(found.value().begin(), found.value().end()) == direct);
}

TEST_CASE("resolve() takes numeric addresses, and fails for an unknown name") {
  const auto numeric = dat::resolve("10.78.1.1", 5).value();
  CHECK(numeric.size() == 1);
  CHECK(numeric.front() == parsed("10.78.1.1:5"));
  const auto unknown = dat::resolve("no such host.invalid");
  REQUIRE_FALSE(unknown.has_value());
  CHECK(unknown.error() == error(return_type::invalid_address, return_subtype::address_unreachable));
  CHECK(unknown.error().verb() == "getaddrinfo");
  CHECK_THAT(unknown.error().message(), support::contains_text("No name service knows this host"));
}

TEST_CASE("each kind of resolver failure has its own error") {
  CHECK(dat::detail::resolver_error(EAI_AGAIN).type() == return_type::timeout_expired);
  CHECK(dat::detail::resolver_error(EAI_AGAIN).sys_errno() == 0);
  CHECK(dat::detail::resolver_error(EAI_MEMORY).sys_errno() == 0);
  CHECK(dat::detail::resolver_error(EAI_MEMORY) ==
        error(return_type::insufficient_resources, return_subtype::resource_memory));
  errno = EMFILE;
  const error system = dat::detail::resolver_error(EAI_SYSTEM);
  CHECK(system.type() == return_type::insufficient_resources);
  CHECK(system.sys_errno() == EMFILE);
  CHECK(system.verb() == "getaddrinfo");
  errno = EMFILE;
  CHECK(dat::detail::resolver_error(EAI_SYSTEM, "getnameinfo", "").sys_errno() == EMFILE);
  const error none = dat::detail::resolver_error(EAI_NONAME, "getnameinfo", "It has no name.");
  CHECK(none == error(return_type::invalid_address, return_subtype::address_unreachable));
  CHECK(none.verb() == "getnameinfo");
  CHECK(none.hint() == "It has no name.");
  CHECK(none.sys_errno() == 0);
}

TEST_CASE("a connection qualifier is a port or its service id, and nothing else", "[ADDR-012][ADDR-013]") {
  CHECK(conn_qual::make(1).value().port() == 1);
  CHECK(conn_qual::make(5000).value().port() == 5000);
  CHECK(conn_qual::make(65535).value().port() == 65535);
  CHECK(conn_qual::make(0x01061388).value() == conn_qual::make(5000).value());
  CHECK(conn_qual::make(0x01061388).value().value() == 5000); // the canonical value
  CHECK(conn_qual::make(5000).value().service_id() == 0x01061388);

  const auto bad =
      GENERATE(std::uint64_t{0}, std::uint64_t{65536}, std::uint64_t{0x10000 + 5000}, std::uint64_t{0x01060000},
               std::uint64_t{0x01111388}, std::uint64_t{0x0000000101061388}, ~std::uint64_t{0});
  CAPTURE(bad);
  REQUIRE_FALSE(conn_qual::make(bad).has_value());
  CHECK(conn_qual::make(bad).error().type() == return_type::invalid_parameter);
  CHECK(conn_qual::make(bad).error().quoted() == std::to_string(bad));
  CHECK_THAT(conn_qual::make(bad).error().message(),
             support::contains_text("conn_qual::make failed for \"" + std::to_string(bad) + "\": "));
}

TEST_CASE("a port of run time is a connection qualifier, which calls check") {
  const auto port_of = [](conn_qual qualifier) { return qualifier.port(); };
  const auto port = static_cast<std::uint16_t>(std::stoul("7471"));
  CHECK(port_of(port) == 7471);
  CHECK(conn_qual(port).check());
  const auto none = conn_qual(std::uint16_t{0}).check();
  REQUIRE_FALSE(none);
  CHECK(none.error().type() == return_type::invalid_parameter);
  CHECK(none.error().quoted().empty());
}

TEST_CASE("a constant connection qualifier is checked by the compiler") {
  const auto port_of = [](conn_qual qualifier) { return qualifier.port(); };
  CHECK(port_of(7471) == 7471);
  CHECK(port_of(0x01061388U) == 5000);
  STATIC_REQUIRE(conn_qual(1) < conn_qual(2));
  STATIC_REQUIRE(conn_qual(5000) == conn_qual(0x01061388));
  STATIC_REQUIRE(std::is_trivially_copyable_v<conn_qual>);
  STATIC_REQUIRE_FALSE(std::is_default_constructible_v<conn_qual>);
  const std::unordered_set<conn_qual> set{conn_qual(5000), conn_qual(0x01061388), conn_qual(1)};
  CHECK(set.size() == 2);
}
