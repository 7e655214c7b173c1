// The constexpr texts of addresses, and parsing addresses without a result type.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>

namespace dat { inline namespace v0 {

constexpr std::string_view to_string(address_family family) noexcept {
  switch (family) {
  case address_family::ipv4:
    return "ipv4";
  case address_family::ipv6:
    return "ipv6";
  }
  return "unknown address_family";
}

constexpr std::string_view to_string(address_role role) noexcept {
  switch (role) {
  case address_role::local:
    return "local";
  case address_role::remote:
    return "remote";
  }
  return "unknown address_role";
}

namespace detail {

inline constexpr error malformed_address{return_type::invalid_address, return_subtype::address_malformed};

/// Copies a native address of IPv4 or IPv6. Returns false for another family, or when `length` is too short.
[[nodiscard]] bool copy_address(const ::sockaddr* address, std::size_t length, ia_address& into) noexcept;
/// Reads an address as ia_address::parse does.
[[nodiscard]] expected<void> parse_address(std::string_view text, ia_address& into) noexcept;
inline constexpr const char* unknown_host =
    "No name service knows this host: check the spelling, /etc/hosts and DNS, or give a numeric address.";
/// The error for a code of getaddrinfo or getnameinfo, which is `verb`. `unknown`: the hint where there is no answer.
[[nodiscard]] error resolver_error(int code, const char* verb = "getaddrinfo",
                                   const char* unknown = unknown_host) noexcept;

} // namespace detail
}} // namespace dat::v0
