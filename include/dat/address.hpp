// Addresses of adapters (dat::ia_address), and numbers of services at an address (dat::conn_qual).
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/expected.hpp>

#include <array>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <type_traits>

namespace dat { inline namespace v0 {

/// The IP version of an address.
enum class address_family : std::uint8_t { ipv4, ipv6 };

/// The use of an address: local to listen on or send from, remote to connect to.
enum class address_role : std::uint8_t { local, remote };

[[nodiscard]] constexpr std::string_view to_string(address_family) noexcept;
[[nodiscard]] constexpr std::string_view to_string(address_role) noexcept;

/// The address of an interface adapter: IPv4 or IPv6, with port and scope (DAT_IA_ADDRESS_PTR, uDAPL 2.0 §6.4.1).
///
/// A value of 28 bytes, kept in the sockaddr that the system calls take; trivially copyable. An IPv4 address that is
/// written as IPv6 (::ffff:10.0.0.1) becomes IPv4, because rdma_cm does not accept that form.
/// Thread safety: a plain value. No member allocates or blocks unless its documentation states so.
class ia_address {
public:
  /// 0.0.0.0, port 0: every local address.
  ia_address() noexcept;

  explicit ia_address(const ::sockaddr_in&) noexcept;
  explicit ia_address(const ::sockaddr_in6&) noexcept;

  /// Copies a native address. Reads `length` bytes at most, and no more than the family needs.
  /// \param length bytes that may be read at `address`
  /// Errors: `invalid_address` (address_malformed) if the family is neither AF_INET nor AF_INET6, `length` is too short
  /// for it, or `address` is null.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] static expected<ia_address> from(const ::sockaddr* address, std::size_t length) noexcept;

  /// Reads "10.0.0.1", "10.0.0.1:7471", "fd00::1", "fe80::1%eth0", "[fd00::1]:7471", "[fe80::1%3]:7471". Never queries
  /// a name service. Port 0 means "no port".
  /// Errors: `invalid_address`: (address_malformed) for any other text; (address_unreachable) if no interface has the
  /// name after '%'.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] static expected<ia_address> parse(std::string_view text) noexcept;

  [[nodiscard]] address_family family() const noexcept;
  /// The port in host byte order; 0 if there is none.
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// This address with another port (host byte order).
  [[nodiscard]] ia_address with_port(std::uint16_t port) const noexcept;
  /// Interface index of a scoped IPv6 address; 0 otherwise.
  [[nodiscard]] std::uint32_t scope_id() const noexcept;

  [[nodiscard]] bool is_any() const noexcept;        ///< 0.0.0.0, ::
  [[nodiscard]] bool is_loopback() const noexcept;   ///< 127.0.0.0/8, ::1
  [[nodiscard]] bool is_multicast() const noexcept;  ///< 224.0.0.0/4, ff00::/8
  [[nodiscard]] bool is_broadcast() const noexcept;  ///< 255.255.255.255
  [[nodiscard]] bool is_link_local() const noexcept; ///< 169.254.0.0/16, fe80::/10
  /// Reserved or unassigned: 0.0.0.0/8, 240.0.0.0/4, IPv6 prefixes that are not assigned. The any-address and broadcast
  /// are not among them.
  [[nodiscard]] bool is_reserved() const noexcept;

  /// Checks that the address may be used in a role (uDAPL 2.0 §6.4.1, §A.5). It does not check that the address is
  /// reachable.
  /// Errors: `invalid_address`:
  /// - address_unsupported: multicast and broadcast addresses
  /// - address_malformed: reserved addresses; in role remote also the any-address and an fe80::/10 address without
  ///   scope
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] expected<void> check(address_role) const noexcept;

  /// The text that parse() reads: with ":port" and brackets if there is a port (RFC 5952). Allocates the string.
  [[nodiscard]] std::string to_string() const;
  /// The text without port and brackets.
  [[nodiscard]] std::string host_string() const;

  /// The native address, which is valid as long as *this, and its length in bytes, for calls such as bind(), connect()
  /// and rdma_bind_addr().
  [[nodiscard]] const ::sockaddr* native_handle() const noexcept;
  [[nodiscard]] ::socklen_t native_size() const noexcept;

  /// Compares family, address, scope and port. IPv6 flow labels are kept but not compared.
  friend std::strong_ordering operator<=>(const ia_address&, const ia_address&) noexcept;
  friend bool operator==(const ia_address&, const ia_address&) noexcept;

private:
  friend struct std::hash<ia_address>;

  // Both members begin with the family, so either may be used to read it.
  union storage {
    ::sockaddr_in6 v6;
    ::sockaddr_in v4;
  } native_;
};

static_assert(sizeof(ia_address) == 28 && std::is_trivially_copyable_v<ia_address>);

/// The addresses of one host, in the resolver's order of preference. Holds up to 16; a name with more keeps its first
/// 16.
class address_list {
public:
  static constexpr std::size_t capacity = 16;

  [[nodiscard]] const ia_address* begin() const noexcept { return addresses_.data(); }
  [[nodiscard]] const ia_address* end() const noexcept { return addresses_.data() + size_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] const ia_address& front() const noexcept { return addresses_.front(); }
  [[nodiscard]] const ia_address& operator[](std::size_t i) const noexcept { return addresses_[i]; }

  /// Appends an address. Returns false when there is no room.
  bool push_back(const ia_address& address) noexcept {
    if (size_ == capacity) return false;
    addresses_[size_++] = address;
    return true;
  }

private:
  std::array<ia_address, capacity> addresses_;
  std::size_t size_ = 0;
};

/// All addresses of a host, in the order of the host's resolver, unchanged and not cached (uDAPL 2.0 §5.8).
/// \param host name or address; empty for this host's loopback  \param port host byte order; 0 for none
/// Errors: `invalid_address` (address_unreachable) for an unknown name; `timeout_expired` if the name server does not
/// answer; `insufficient_resources` (resource_memory); other failures by errno.
/// Allocates: yes.
/// Blocks: as long as the resolver does (DNS: many seconds). It may open sockets and read files.
/// Thread safety: safe.
[[nodiscard]] expected<address_list> resolve(const std::string& host, std::uint16_t port = 0);

/// A connection qualifier: the number of a service at an address (DAT_CONN_QUAL, uDAPL 2.0 §6.4.2). With rdma_cm it is
/// a port number 1..65535; its InfiniBand service id, 0x01060000 | port, is a synonym. A constant converts implicitly,
/// and the compiler checks it; for a value that is known at run time use make().
class conn_qual {
public:
  /// For `ia.create_psp(7471, evd)`. Does not compile for a constant that is not a connection qualifier.
  template <std::integral I>
  requires(!std::same_as<I, std::uint16_t>) consteval conn_qual(
      I constant) noexcept // NOLINT(google-explicit-constructor)
      : port_{checked(constant)} {}

  /// A port that is known at run time: `ep.connect(address, port, limit)` with a `std::uint16_t port`. Calls refuse
  /// port 0 with `invalid_parameter`.
  constexpr conn_qual(std::uint16_t port) noexcept : port_{port} {} // NOLINT(google-explicit-constructor)

  /// A connection qualifier from a number that is known at run time and may be no port, or from a service id.
  /// Errors: `invalid_parameter` for 0 and for every value that is neither a port nor the service id of one.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] static expected<conn_qual> make(std::uint64_t value) noexcept;
  /// Checks that the port is not 0.
  /// Errors: `invalid_parameter` for port 0.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  [[nodiscard]] expected<void> check() const noexcept {
    if (port_ == 0) return not_a_port();
    return success();
  }

  /// The plain port in host byte order.
  [[nodiscard]] constexpr std::uint16_t port() const noexcept { return port_; }
  /// The canonical value, equal to the port.
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return port_; }
  /// The InfiniBand service id that rdma_cm derives from it (port space RDMA_PS_TCP).
  [[nodiscard]] constexpr std::uint64_t service_id() const noexcept { return service_id_base | port_; }

  [[nodiscard]] friend constexpr bool operator==(conn_qual, conn_qual) noexcept = default;
  [[nodiscard]] friend constexpr std::strong_ordering operator<=>(conn_qual, conn_qual) noexcept = default;

private:
  [[nodiscard]] static error not_a_port() noexcept {
    return error(return_type::invalid_parameter).hint("A connection qualifier is a port, 1 to 65535.");
  }
  static constexpr std::uint64_t service_id_base = 0x01060000;

  static constexpr bool valid(std::uint64_t value) noexcept {
    return (value & 0xFFFF) != 0 && (value <= 0xFFFF || (value & ~std::uint64_t{0xFFFF}) == service_id_base);
  }

  // It is not constexpr, so that its use in a constant expression does not compile.
  static void a_connection_qualifier_is_a_port_from_1_to_65535() noexcept {}

  template <class I>
  static consteval std::uint16_t checked(I constant) noexcept {
    if (constant < I{} || !valid(static_cast<std::uint64_t>(constant)))
      a_connection_qualifier_is_a_port_from_1_to_65535();
    return static_cast<std::uint16_t>(constant);
  }

  std::uint16_t port_;
};

}} // namespace dat::v0

template <>
struct std::hash<dat::ia_address> {
  [[nodiscard]] std::size_t operator()(const dat::ia_address& address) const noexcept;
};

template <>
struct std::hash<dat::conn_qual> {
  [[nodiscard]] std::size_t operator()(dat::conn_qual qualifier) const noexcept {
    return std::hash<std::uint16_t>{}(qualifier.port());
  }
};

#include <dat/detail/text/address_text.hpp> // The definitions of the constexpr functions.

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/text/address_text.ipp>
#endif
