// Where an adapter is (dat::ia_address) and which service there (dat::conn_qual).
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

namespace dat::inline v0 {

enum class address_family : std::uint8_t { ipv4, ipv6 };

/// What an address is wanted for: something to listen on or send from, or somebody to connect to.
enum class address_role : std::uint8_t { local, remote };

[[nodiscard]] constexpr std::string_view to_string(address_family) noexcept;
[[nodiscard]] constexpr std::string_view to_string(address_role) noexcept;

/// The address of an interface adapter: IPv4 or IPv6, with port and scope (DAT_IA_ADDRESS_PTR, uDAPL 2.0 §6.4.1).
///
/// A value of 28 bytes, kept in the sockaddr that the system calls take; trivially copyable. An IPv4 address written as
/// IPv6 (::ffff:10.0.0.1) becomes IPv4 on the way in, since rdma_cm does not know that form.
/// Thread safety: a plain value. No member allocates or blocks unless it says so.
class ia_address {
public:
  /// 0.0.0.0, port 0: every local address.
  ia_address() noexcept;

  explicit ia_address(const ::sockaddr_in&) noexcept;
  explicit ia_address(const ::sockaddr_in6&) noexcept;

  /// Copies a native address. Reads `length` bytes at most, and no more than the family needs.
  /// \param length bytes that may be read at `address`
  /// Errors: invalid_address(address_malformed) if the family is neither AF_INET nor AF_INET6, `length` is too short
  /// for it, or `address` is null.
  template <class Address = ia_address> // so that only who calls it pays for compiling it
  [[nodiscard]] static expected<Address> from(const ::sockaddr* address, std::size_t length) noexcept;

  /// Reads "10.0.0.1", "10.0.0.1:7471", "fd00::1", "fe80::1%eth0", "[fd00::1]:7471", "[fe80::1%3]:7471". Never asks a
  /// name service. Port 0 is kept as "no port".
  /// Errors: invalid_address(address_malformed) for anything else; invalid_address(address_unreachable) if there is no
  /// interface of the name after '%'.
  template <class Address = ia_address>
  [[nodiscard]] static expected<Address> parse(std::string_view text) noexcept;

  [[nodiscard]] address_family family() const noexcept;
  /// In host byte order; 0 if there is none.
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// The same address with another port (host byte order).
  [[nodiscard]] ia_address with_port(std::uint16_t port) const noexcept;
  /// Interface index of a scoped IPv6 address; 0 otherwise.
  [[nodiscard]] std::uint32_t scope_id() const noexcept;

  [[nodiscard]] bool is_any() const noexcept;        ///< 0.0.0.0, ::
  [[nodiscard]] bool is_loopback() const noexcept;   ///< 127.0.0.0/8, ::1
  [[nodiscard]] bool is_multicast() const noexcept;  ///< 224.0.0.0/4, ff00::/8
  [[nodiscard]] bool is_broadcast() const noexcept;  ///< 255.255.255.255
  [[nodiscard]] bool is_link_local() const noexcept; ///< 169.254.0.0/16, fe80::/10
  /// Reserved or unassigned: 0.0.0.0/8, 240.0.0.0/4, IPv6 prefixes outside those handed out. Not: any, broadcast.
  [[nodiscard]] bool is_reserved() const noexcept;

  /// Whether the address may be used so. Errors, all invalid_address (uDAPL 2.0 §6.4.1, §A.5):
  /// address_unsupported for multicast and broadcast; address_malformed for reserved addresses and, in role remote, for
  /// the any-address and for an fe80::/10 address without scope. Reachability is not looked at.
  [[nodiscard]] expected<void> check(address_role) const noexcept;

  /// As parse() reads it: with ":port" and brackets if there is a port (RFC 5952). Allocates the string.
  [[nodiscard]] std::string to_string() const;
  /// The same without port and brackets.
  [[nodiscard]] std::string host_string() const;

  /// The native address, valid as long as *this, and its length in bytes: for bind(), connect(), rdma_bind_addr(), ...
  [[nodiscard]] const ::sockaddr* native_handle() const noexcept;
  [[nodiscard]] ::socklen_t native_size() const noexcept;

  /// By family, address, scope, port. IPv6 flow labels are kept but not compared.
  friend std::strong_ordering operator<=>(const ia_address&, const ia_address&) noexcept;
  friend bool operator==(const ia_address&, const ia_address&) noexcept;

private:
  friend struct std::hash<ia_address>;

  // Both members begin with the family, so it may be read through either.
  union storage {
    ::sockaddr_in6 v6;
    ::sockaddr_in v4;
  } native_;
};

static_assert(sizeof(ia_address) == 28 && std::is_trivially_copyable_v<ia_address>);

/// The addresses of one host, in the order of preference that the host's resolver has. Holds up to 16 by itself; a name
/// with more keeps its first 16.
class address_list {
public:
  static constexpr std::size_t capacity = 16;

  [[nodiscard]] const ia_address* begin() const noexcept { return addresses_.data(); }
  [[nodiscard]] const ia_address* end() const noexcept { return addresses_.data() + size_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] const ia_address& front() const noexcept { return addresses_.front(); }
  [[nodiscard]] const ia_address& operator[](std::size_t i) const noexcept { return addresses_[i]; }

  /// Appends an address. False when there is no room.
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
/// Blocks for as long as the resolver does (DNS: many seconds); may open sockets and read files; allocates.
/// Thread-safe. Errors: invalid_address(address_unreachable) if nobody knows the name; timeout_expired if the name
/// server does not answer; insufficient_resources(resource_memory); else by errno.
template <class List = address_list> // a template, so that only who calls it pays for compiling it
[[nodiscard]] expected<List> resolve(const std::string& host, std::uint16_t port = 0);

/// A connection qualifier: which service at an address (DAT_CONN_QUAL, uDAPL 2.0 §6.4.2). With rdma_cm a port number
/// 1..65535; its InfiniBand service id, 0x01060000 | port, is a synonym. A constant converts implicitly and is checked
/// by the compiler; a value known at run time goes through make().
class conn_qual {
public:
  /// `ia.create_psp(7471, evd)`: does not compile for a constant that is no connection qualifier.
  template <std::integral I>
  consteval conn_qual(I constant) noexcept // NOLINT(google-explicit-constructor)
      : port_{checked(constant)} {}

  /// Errors: invalid_parameter for 0 and everything else that is neither a port nor the service id of one.
  template <class Qualifier = conn_qual> // a template, so that only who calls it pays for compiling it
  [[nodiscard]] static expected<Qualifier> make(std::uint64_t value) noexcept {
    if (!valid(value))
      return error(return_type::invalid_parameter).hint("A connection qualifier is a port, 1 to 65535.");
    return conn_qual(from_port{}, static_cast<std::uint16_t>(value));
  }

  /// The plain port, 1..65535, in host byte order.
  [[nodiscard]] constexpr std::uint16_t port() const noexcept { return port_; }
  /// The canonical value, equal to the port.
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return port_; }
  /// The InfiniBand service id that rdma_cm makes of it (port space RDMA_PS_TCP).
  [[nodiscard]] constexpr std::uint64_t service_id() const noexcept { return service_id_base | port_; }

  [[nodiscard]] friend constexpr bool operator==(conn_qual, conn_qual) noexcept = default;
  [[nodiscard]] friend constexpr std::strong_ordering operator<=>(conn_qual, conn_qual) noexcept = default;

private:
  struct from_port {};
  constexpr conn_qual(from_port, std::uint16_t port) noexcept : port_{port} {}

  static constexpr std::uint64_t service_id_base = 0x01060000;

  static constexpr bool valid(std::uint64_t value) noexcept {
    return (value & 0xFFFF) != 0 && (value <= 0xFFFF || (value & ~std::uint64_t{0xFFFF}) == service_id_base);
  }

  // Not constexpr: naming it in a constant expression is the compile error.
  static void a_connection_qualifier_is_a_port_from_1_to_65535() noexcept {}

  template <class I>
  static consteval std::uint16_t checked(I constant) noexcept {
    if (constant < I{} || !valid(static_cast<std::uint64_t>(constant)))
      a_connection_qualifier_is_a_port_from_1_to_65535();
    return static_cast<std::uint16_t>(constant);
  }

  std::uint16_t port_;
};

} // namespace dat::inline v0

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

#include <dat/detail/address_text.hpp> // definitions
