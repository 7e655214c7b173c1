// Definitions of address.hpp: classification, text, resolver.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>

#include <dat/detail/text/address_text.hpp>
#include <dat/detail/text/errno.hpp>

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <net/if.h>
#include <netdb.h>

namespace dat { inline namespace v0 {

namespace detail {

// Parses decimal digits and nothing else. Written by hand, since <charconv> would be a fifth of the compile time of
// this header.
[[nodiscard]] constexpr bool parse_number(std::string_view digits, std::uint32_t max, std::uint32_t& into) noexcept {
  if (digits.empty()) return false;
  std::uint64_t number = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return false;
    number = number * 10 + static_cast<std::uint64_t>(c - '0');
    if (number > max) return false;
  }
  into = static_cast<std::uint32_t>(number);
  return true;
}

[[nodiscard]] constexpr bool parse_port(std::string_view digits, std::uint16_t& port) noexcept {
  std::uint32_t number = 0;
  if (!parse_number(digits, 0xFFFF, number)) return false;
  port = static_cast<std::uint16_t>(number);
  return true;
}

// The system's parsers need a terminated string; the longest host has 45 characters, an interface name 15 more.
template <std::size_t Size>
[[nodiscard]] bool copy_text(std::string_view text, std::array<char, Size>& into) noexcept {
  if (text.empty() || text.size() >= Size || text.find('\0') != std::string_view::npos) return false;
  std::memcpy(into.data(), text.data(), text.size());
  into[text.size()] = '\0';
  return true;
}

DAT_DECL expected<void> parse_scope(std::string_view text, std::uint32_t& index) noexcept {
  if (parse_number(text, 0xFFFFFFFF, index) && index != 0) return success();
  std::array<char, IF_NAMESIZE> name;
  if (!copy_text(text, name)) return malformed_address;
  index = ::if_nametoindex(name.data());
  if (index == 0)
    return error(return_type::invalid_address, return_subtype::address_unreachable).from("if_nametoindex", errno);
  return success();
}

DAT_DECL expected<void> parse_v4(std::string_view host, std::uint16_t port, ia_address& into) noexcept {
  std::array<char, INET_ADDRSTRLEN> text;
  ::sockaddr_in native{};
  native.sin_port = htons(port);
  if (!copy_text(host, text) || ::inet_pton(AF_INET, text.data(), &native.sin_addr) != 1) return malformed_address;
  into = ia_address(native);
  return success();
}

DAT_DECL expected<void> parse_v6(std::string_view host, std::uint16_t port, ia_address& into) noexcept {
  std::array<char, INET6_ADDRSTRLEN> text;
  ::sockaddr_in6 native{};
  native.sin6_port = htons(port);
  const auto percent = host.find('%');
  if (!copy_text(host.substr(0, percent), text) || ::inet_pton(AF_INET6, text.data(), &native.sin6_addr) != 1)
    return malformed_address;
  if (percent != std::string_view::npos) {
    if (auto known = parse_scope(host.substr(percent + 1), native.sin6_scope_id); !known) return known;
  }
  into = ia_address(native);
  return success();
}

// Writes into an address instead of returning one: see ia_address::from.
DAT_DECL expected<void> parse_address(std::string_view text, ia_address& into) noexcept {
  std::uint16_t port = 0;
  if (text.starts_with('[')) {
    const auto close = text.find(']');
    if (close == std::string_view::npos) return malformed_address;
    const auto host = text.substr(1, close - 1);
    const auto rest = text.substr(close + 1);
    if (rest.empty()) return parse_v6(host, 0, into);
    if (rest.front() != ':' || !parse_port(rest.substr(1), port)) return malformed_address;
    return parse_v6(host, port, into);
  }
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) return parse_v4(text, 0, into);
  if (text.find(':', colon + 1) != std::string_view::npos) return parse_v6(text, 0, into);
  if (!parse_port(text.substr(colon + 1), port)) return malformed_address;
  return parse_v4(text.substr(0, colon), port, into);
}

/// Returns false when there is no address of a known family; `into` is unchanged then.
DAT_DECL bool copy_address(const ::sockaddr* address, std::size_t length, ia_address& into) noexcept {
  ::sa_family_t family = AF_UNSPEC;
  if (address == nullptr || length < sizeof(family)) return false;
  std::memcpy(&family, address, sizeof(family)); // the family is the first member on Linux, where there is no sa_len
  if (family == AF_INET && length >= sizeof(::sockaddr_in)) {
    ::sockaddr_in v4;
    std::memcpy(&v4, address, sizeof(v4));
    into = ia_address(v4);
    return true;
  }
  if (family == AF_INET6 && length >= sizeof(::sockaddr_in6)) {
    ::sockaddr_in6 v6;
    std::memcpy(&v6, address, sizeof(v6));
    into = ia_address(v6);
    return true;
  }
  return false;
}

// Prefixes of IANA's IPv6 registry that a host may have; anything else is reserved or not assigned.
DAT_DECL bool assigned_v6(const ::in6_addr& a) noexcept {
  const auto* b = a.s6_addr;
  if ((b[0] & 0xE0) == 0x20) return true;              // 2000::/3 global unicast
  if ((b[0] & 0xFE) == 0xFC) return true;              // fc00::/7 unique local
  if (b[0] == 0xFE && (b[1] & 0x80) != 0) return true; // fe80::/10 link local, fec0::/10 site local
  if (b[0] == 0xFF) return true;                       // ff00::/8 multicast
  if (b[0] == 0x5F && b[1] == 0x00) return true;       // 5f00::/16 segment routing
  if (b[0] == 0x00 && b[1] == 0x64 && b[2] == 0xFF && b[3] == 0x9B) return true; // 64:ff9b::/32 IPv4 translation
  return IN6_IS_ADDR_LOOPBACK(&a) || IN6_IS_ADDR_UNSPECIFIED(&a);
}

DAT_DECL error resolver_error(int code, const char* verb, const char* unknown) noexcept {
  switch (code) {
  case EAI_MEMORY:
    return error(return_type::insufficient_resources, return_subtype::resource_memory).from(verb, 0);
  case EAI_AGAIN:
    return error(return_type::timeout_expired)
        .from(verb, 0)
        .hint("The name server does not answer: see /etc/resolv.conf, or give a numeric address.");
  case EAI_SYSTEM: {
    const error mapped = map_errno(errno, return_subtype::resource_memory);
    return mapped.from(verb, mapped.sys_errno());
  }
  default:
    return error(return_type::invalid_address, return_subtype::address_unreachable).from(verb, 0).hint(unknown);
  }
}

} // namespace detail

DAT_DECL ia_address::ia_address() noexcept : ia_address(::sockaddr_in{AF_INET, 0, {}, {}}) {}

DAT_DECL ia_address::ia_address(const ::sockaddr_in& v4) noexcept : native_{.v6 = {}} {
  native_.v4 = v4;
  native_.v4.sin_family = AF_INET;
}

DAT_DECL ia_address::ia_address(const ::sockaddr_in6& v6) noexcept : native_{.v6 = v6} {
  native_.v6.sin6_family = AF_INET6;
  if (!IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return;
  ::sockaddr_in v4{};
  v4.sin_port = v6.sin6_port;
  std::memcpy(&v4.sin_addr, &v6.sin6_addr.s6_addr[12], sizeof(v4.sin_addr));
  *this = ia_address(v4);
}

DAT_DECL expected<ia_address> ia_address::from(const ::sockaddr* address, std::size_t length) noexcept {
  ia_address a;
  if (!detail::copy_address(address, length, a)) return detail::malformed_address;
  return a;
}

DAT_DECL expected<ia_address> ia_address::parse(std::string_view text) noexcept {
  ia_address a;
  if (auto ok = detail::parse_address(text, a); !ok) {
    const error why = ok.assume_error().at("ia_address::parse");
    return why.sys_errno() == 0 ? why.quote(text) : why; // an unknown interface has an errno
  }
  return a;
}

DAT_DECL expected<conn_qual> conn_qual::make(std::uint64_t value) noexcept {
  if (valid(value)) return conn_qual(static_cast<std::uint16_t>(value));
  std::array<char, 20> digits; // the length of the longest number
  std::size_t first = digits.size();
  do digits[--first] = static_cast<char>('0' + value % 10);
  while ((value /= 10) != 0);
  return not_a_port().at("conn_qual::make").quote({&digits[first], digits.size() - first});
}

DAT_DECL address_family ia_address::family() const noexcept {
  return native_.v4.sin_family == AF_INET ? address_family::ipv4 : address_family::ipv6;
}

DAT_DECL std::uint16_t ia_address::port() const noexcept {
  return ntohs(family() == address_family::ipv4 ? native_.v4.sin_port : native_.v6.sin6_port);
}

DAT_DECL ia_address ia_address::with_port(std::uint16_t port) const noexcept {
  ia_address copy = *this;
  (family() == address_family::ipv4 ? copy.native_.v4.sin_port : copy.native_.v6.sin6_port) = htons(port);
  return copy;
}

DAT_DECL std::uint32_t ia_address::scope_id() const noexcept {
  return family() == address_family::ipv6 ? native_.v6.sin6_scope_id : 0;
}

DAT_DECL bool ia_address::is_any() const noexcept {
  return family() == address_family::ipv4 ? native_.v4.sin_addr.s_addr == INADDR_ANY
                                          : IN6_IS_ADDR_UNSPECIFIED(&native_.v6.sin6_addr) != 0;
}

DAT_DECL bool ia_address::is_loopback() const noexcept {
  return family() == address_family::ipv4 ? (ntohl(native_.v4.sin_addr.s_addr) >> 24) == 127
                                          : IN6_IS_ADDR_LOOPBACK(&native_.v6.sin6_addr) != 0;
}

DAT_DECL bool ia_address::is_multicast() const noexcept {
  return family() == address_family::ipv4 ? (ntohl(native_.v4.sin_addr.s_addr) >> 28) == 0xE
                                          : native_.v6.sin6_addr.s6_addr[0] == 0xFF;
}

DAT_DECL bool ia_address::is_broadcast() const noexcept {
  return family() == address_family::ipv4 && native_.v4.sin_addr.s_addr == INADDR_BROADCAST;
}

DAT_DECL bool ia_address::is_link_local() const noexcept {
  return family() == address_family::ipv4 ? (ntohl(native_.v4.sin_addr.s_addr) >> 16) == 0xA9FE
                                          : IN6_IS_ADDR_LINKLOCAL(&native_.v6.sin6_addr) != 0;
}

DAT_DECL bool ia_address::is_reserved() const noexcept {
  if (family() == address_family::ipv6) return !detail::assigned_v6(native_.v6.sin6_addr);
  const std::uint32_t host_order = ntohl(native_.v4.sin_addr.s_addr);
  return ((host_order >> 24) == 0 && !is_any()) || ((host_order >> 28) == 0xF && !is_broadcast());
}

DAT_DECL expected<void> ia_address::check(address_role role) const noexcept {
  if (is_multicast() || is_broadcast()) return error(return_type::invalid_address, return_subtype::address_unsupported);
  if (is_reserved())
    return detail::malformed_address.hint("This address range is reserved, so no host has the address.");
  if (role == address_role::local) return success();
  if (is_any()) return detail::malformed_address.hint("The any-address names no host to connect to.");
  if (family() == address_family::ipv6 && is_link_local() && scope_id() == 0)
    return detail::malformed_address.hint("A link-local address needs its interface: write fe80::1%eth0.");
  return success();
}

DAT_DECL std::string ia_address::host_string() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (family() == address_family::ipv4)
    return ::inet_ntop(AF_INET, &native_.v4.sin_addr, text.data(), INET6_ADDRSTRLEN);
  std::string host = ::inet_ntop(AF_INET6, &native_.v6.sin6_addr, text.data(), INET6_ADDRSTRLEN);
  if (scope_id() == 0) return host;
  std::array<char, IF_NAMESIZE> name{};
  host += '%';
  if (::if_indextoname(scope_id(), name.data()) != nullptr) return host += name.data();
  return host += std::to_string(scope_id());
}

DAT_DECL std::string ia_address::to_string() const {
  std::string text = host_string();
  if (port() == 0) return text;
  if (family() == address_family::ipv6) text.insert(0, 1, '[').push_back(']');
  return text.append(":").append(std::to_string(port()));
}

DAT_DECL const ::sockaddr* ia_address::native_handle() const noexcept {
  return reinterpret_cast<const ::sockaddr*>(&native_);
}

DAT_DECL ::socklen_t ia_address::native_size() const noexcept {
  return family() == address_family::ipv4 ? sizeof(::sockaddr_in) : sizeof(::sockaddr_in6);
}

DAT_DECL std::strong_ordering operator<=>(const ia_address& a, const ia_address& b) noexcept {
  if (const auto order = a.family() <=> b.family(); std::is_neq(order)) return order;
  const bool v4 = a.family() == address_family::ipv4;
  const int bytes = v4 ? std::memcmp(&a.native_.v4.sin_addr, &b.native_.v4.sin_addr, sizeof(::in_addr))
                       : std::memcmp(&a.native_.v6.sin6_addr, &b.native_.v6.sin6_addr, sizeof(::in6_addr));
  if (bytes != 0) return bytes <=> 0;
  if (const auto order = a.scope_id() <=> b.scope_id(); std::is_neq(order)) return order;
  return a.port() <=> b.port();
}

DAT_DECL bool operator==(const ia_address& a, const ia_address& b) noexcept { return std::is_eq(a <=> b); }

DAT_DECL expected<address_list> resolve(const std::string& host, std::uint16_t port) {
  ::addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM; // one entry for each address, not one for each socket type
  wanted.ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV;
  ::addrinfo* first = nullptr;
  const std::string service = std::to_string(port);
  if (const int code = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), service.c_str(), &wanted, &first);
      code != 0)
    return detail::resolver_error(code).at("resolve");
  struct list {
    ::addrinfo* first;
    ~list() { ::freeaddrinfo(first); }
  } const owner{first};
  address_list found;
  for (const ::addrinfo* entry = first; entry != nullptr; entry = entry->ai_next)
    if (ia_address address; detail::copy_address(entry->ai_addr, entry->ai_addrlen, address))
      (void)found.push_back(address);
  if (found.empty()) return detail::resolver_error(EAI_NONAME).at("resolve");
  return found;
}

}} // namespace dat::v0

DAT_DECL std::size_t std::hash<dat::ia_address>::operator()(const dat::ia_address& address) const noexcept {
  const bool v4 = address.family() == dat::address_family::ipv4;
  const char* const bytes = v4 ? reinterpret_cast<const char*>(&address.native_.v4.sin_addr)
                               : reinterpret_cast<const char*>(&address.native_.v6.sin6_addr);
  const std::string_view view(bytes, v4 ? sizeof(::in_addr) : sizeof(::in6_addr));
  const std::size_t tail = (std::size_t{address.scope_id()} << 16) | address.port();
  return std::hash<std::string_view>{}(view) ^ (tail * std::size_t{0x9E3779B97F4A7C15});
}
