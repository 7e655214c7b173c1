// Connecting without a connection manager: each side exports a descriptor, and is given the other's.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ep.hpp>
#include <dat/error.hpp>
#include <dat/expected.hpp>
#include <dat/port.hpp>

#include <dat/detail/direct_connection.hpp>
#include <dat/detail/wire.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace dat::inline v0::ib {

/// What a peer has to know of an endpoint to be connected to it. Made by `ep.export_descriptor()`, carried as 64 bytes
/// (`to_wire` / `from_wire`) by any means: a TCP connection, a file, a scheduler. Says where the endpoint is; whoever
/// has it and is in the same network can send to the endpoint, so it deserves a channel that can be trusted.
///
///     channel.write(ep.export_descriptor()->to_wire());          // both sides
///     auto peer = dat::ib::descriptor::from_wire(channel.read());
///     ep.connect(*peer);
///
/// Copyable. Thread safety: a value.
class descriptor {
public:
  enum class service : std::uint8_t { rc = 1, ud = 2 };

  /// All numbers big-endian: mark (4), version (1), service (1), the number 0x0102 (2) that shows the byte order, link
  /// layer (1), MTU code (1), RDMA reads served at a time (1), 0 (1), queue pair number (4), first packet number (4),
  /// key (4), lid (2), 0 (6), gid (16), 0 (12), check sum of all before (4).
  static constexpr std::size_t wire_size = 64;
  using wire = std::array<std::byte, wire_size>;

  [[nodiscard]] service kind() const noexcept { return static_cast<service>(raw_.service); }
  /// The endpoint's number.
  [[nodiscard]] std::uint32_t number() const noexcept { return raw_.place.qp_num; }
  [[nodiscard]] dat::link_layer link_layer() const noexcept {
    return raw_.link == IBV_LINK_LAYER_INFINIBAND ? dat::link_layer::infiniband : dat::link_layer::ethernet;
  }
  /// The address of its adapter: on RoCE the IP address, on InfiniBand the GID in the form of one.
  [[nodiscard]] ia_address host() const noexcept { return detail::address_of(raw_.place.gid); }

  /// The form to hand to the peer.
  [[nodiscard]] wire to_wire() const noexcept {
    wire w{};
    detail::copy_bytes(mark, w.data());
    w[4] = version;
    w[5] = static_cast<std::byte>(raw_.service);
    detail::put_be(&w[6], byte_order);
    w[8] = static_cast<std::byte>(raw_.link);
    w[9] = static_cast<std::byte>(raw_.mtu);
    w[10] = static_cast<std::byte>(raw_.reads_in);
    detail::put_be(&w[12], raw_.place.qp_num);
    detail::put_be(&w[16], raw_.psn);
    detail::put_be(&w[20], raw_.place.qkey);
    detail::put_be(&w[24], raw_.place.lid);
    std::memcpy(&w[32], raw_.place.gid.raw, sizeof raw_.place.gid.raw);
    detail::put_be(&w[60], check_sum(w));
    return w;
  }

  /// Reads what a peer's `to_wire` gave. Whatever the bytes are, nothing but an error comes of bad ones.
  /// Errors: `invalid_parameter`, whose hint says which: another length, no descriptor at all, an unknown version, the
  /// other byte order, damaged, or numbers that no endpoint has. Allocates: no.
  [[nodiscard]] static expected<descriptor> from_wire(std::span<const std::byte> bytes) noexcept {
    const auto bad = [](const char* hint) {
      return error(return_type::invalid_parameter).at("descriptor.from_wire", object_kind::ep).hint(hint);
    };
    if (bytes.size() != wire_size) return bad("a descriptor has 64 bytes");
    wire w;
    detail::copy_bytes(bytes, w.data());
    if (std::memcmp(w.data(), mark.data(), mark.size()) != 0) return bad("these bytes are no descriptor of dat");
    if (w[4] != version) return bad("unknown version: the peer does not speak this version's descriptors");
    const auto order = detail::get_be<std::uint16_t>(&w[6]);
    if (order == 0x0201) return bad("the peer has written the numbers in the other byte order");
    if (order != byte_order || detail::get_be<std::uint32_t>(&w[60]) != check_sum(w))
      return bad("the descriptor was damaged on its way");
    descriptor d;
    detail::direct_peer& r = d.raw_;
    r.service = static_cast<std::uint8_t>(w[5]);
    r.link = static_cast<std::uint8_t>(w[8]);
    r.mtu = static_cast<std::uint8_t>(w[9]);
    r.reads_in = static_cast<std::uint8_t>(w[10]);
    r.place.qp_num = detail::get_be<std::uint32_t>(&w[12]);
    r.psn = detail::get_be<std::uint32_t>(&w[16]);
    r.place.qkey = detail::get_be<std::uint32_t>(&w[20]);
    r.place.lid = detail::get_be<std::uint16_t>(&w[24]);
    std::memcpy(r.place.gid.raw, &w[32], sizeof r.place.gid.raw);
    const auto is_zero = [&](std::size_t first, std::size_t n) {
      return !detail::any_nonzero(std::span(w).subspan(first, n));
    };
    if (!is_zero(11, 1) || !is_zero(26, 6) || !is_zero(48, 12))
      return bad("the descriptor has more than this version knows");
    const bool ethernet = r.link == IBV_LINK_LAYER_ETHERNET;
    const ia_address host = d.host();
    if ((r.service != 1 && r.service != 2) || (!ethernet && r.link != IBV_LINK_LAYER_INFINIBAND) ||
        r.mtu < IBV_MTU_256 || r.mtu > IBV_MTU_4096 || r.place.qp_num < 2 || r.place.qp_num > 0xff'ffff ||
        r.psn > 0xff'ffff || ethernet != (r.place.lid == 0) || host.is_any() || host.is_multicast() ||
        host.is_broadcast())
      return bad("no endpoint is like that");
    return d;
  }

private:
  friend struct detail::direct_connection;
  static constexpr std::array<std::byte, 4> mark{std::byte{'D'}, std::byte{'A'}, std::byte{'T'}, std::byte{'E'}};
  static constexpr std::byte version{1};
  static constexpr std::uint16_t byte_order = 0x0102;

  /// FNV-1a: against accidents, not against intent.
  [[nodiscard]] static std::uint32_t check_sum(const wire& w) noexcept {
    std::uint32_t sum = 2166136261u;
    for (std::size_t i = 0; i < wire_size - 4; ++i) sum = (sum ^ static_cast<std::uint32_t>(w[i])) * 16777619u;
    return sum;
  }
  detail::direct_peer raw_{};
};

} // namespace dat::inline v0::ib

namespace dat::inline v0 {

template <class Descriptor>
expected<Descriptor> ep<rc>::export_descriptor() const noexcept {
  static constexpr const char* call = "ep.export_descriptor";
  if (!core_ || core_->dead()) return detail::empty_handle(call, return_subtype::handle_ep);
  return detail::direct_connection::describe<Descriptor>(*core_, call, address_family::ipv4);
}

inline expected<void> ep<rc>::connect(const ib::descriptor& peer) noexcept {
  if (!core_ || core_->dead()) return detail::empty_handle("ep.connect", return_subtype::handle_ep);
  return detail::direct_connection::connect(*core_, peer);
}

} // namespace dat::inline v0
