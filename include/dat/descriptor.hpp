// Connecting without a connection manager: each side exports a descriptor and uses the descriptor of the other.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ep.hpp>
#include <dat/error.hpp>
#include <dat/expected.hpp>
#include <dat/port.hpp>

#include <dat/detail/connection/direct_peer.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace dat { inline namespace v0 {

namespace detail {
struct descriptor_access;
}

namespace ib {

/// The data that a peer needs to connect to an endpoint. `ep.export_descriptor()` creates it, and any channel carries
/// its 64 bytes (`to_wire`, `from_wire`): a TCP connection, a file, a scheduler. Any host of the same network that has
/// the descriptor can send to the endpoint, so use a trusted channel.
///
///     channel.write(ep.export_descriptor()->to_wire());          // both sides
///     auto peer = dat::ib::descriptor::from_wire(channel.read());
///     ep.connect(*peer);
///
/// Copyable.
/// Thread safety: a value.
class descriptor {
public:
  enum class service : std::uint8_t { rc = 1, ud = 2 };

  /// The wire form, with all numbers big-endian: mark (4 bytes), version (1), service (1), the number 0x0102 (2) that
  /// shows the byte order, link layer (1), MTU code (1), RDMA reads served at a time (1), 0 (1), queue pair number (4),
  /// first packet number (4), key (4), lid (2), 0 (6), gid (16), 0 (12), check sum of all before (4).
  static constexpr std::size_t wire_size = 64;
  using wire = std::array<std::byte, wire_size>;

  [[nodiscard]] service kind() const noexcept { return static_cast<service>(raw_.service); }
  /// The endpoint's number.
  [[nodiscard]] std::uint32_t number() const noexcept { return raw_.place.qp_num; }
  [[nodiscard]] dat::link_layer link_layer() const noexcept {
    return raw_.link == IBV_LINK_LAYER_INFINIBAND ? dat::link_layer::infiniband : dat::link_layer::ethernet;
  }
  /// The address of the endpoint's adapter: on RoCE the IP address, on InfiniBand the GID in the form of an IPv6
  /// address.
  [[nodiscard]] ia_address host() const noexcept { return detail::address_of(raw_.place.gid); }

  /// The form that is sent to the peer.
  [[nodiscard]] wire to_wire() const noexcept;

  /// Reads the bytes of a peer's `to_wire`. Invalid bytes are safe: the call returns an error.
  /// Errors: `invalid_parameter`, whose hint names the reason: another length, no descriptor, an unknown version, the
  /// other byte order, a wrong checksum, or numbers that no endpoint has.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] static expected<descriptor> from_wire(std::span<const std::byte> bytes) noexcept;

private:
  friend struct detail::descriptor_access;
  static constexpr std::array<std::byte, 4> mark{std::byte{'D'}, std::byte{'A'}, std::byte{'T'}, std::byte{'E'}};
  static constexpr std::byte version{1};
  static constexpr std::uint16_t byte_order = 0x0102;

  /// The checksum FNV-1a, which detects accidental damage and no attacks.
  [[nodiscard]] static std::uint32_t check_sum(const wire& w) noexcept;
  detail::direct_peer raw_{};
};

} // namespace ib

namespace detail {

/// Converts the numbers of a descriptor to the descriptor and back.
struct descriptor_access {
  [[nodiscard]] static const direct_peer& of(const ib::descriptor& d) noexcept { return d.raw_; }
  [[nodiscard]] static ib::descriptor make(const direct_peer& raw) noexcept {
    ib::descriptor d;
    d.raw_ = raw;
    return d;
  }
};

} // namespace detail

}} // namespace dat::v0

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/impl/descriptor.ipp>
#endif
