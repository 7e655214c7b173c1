// Definitions of descriptor.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/descriptor.hpp>

#include <dat/detail/base/big_endian.hpp>
#include <dat/detail/base/utility.hpp>

#include <cstring>

namespace dat { inline namespace v0 {

DAT_DECL std::uint32_t ib::descriptor::check_sum(const wire& w) noexcept {
  std::uint32_t sum = 2166136261u;
  for (std::size_t i = 0; i < wire_size - 4; ++i) sum = (sum ^ static_cast<std::uint32_t>(w[i])) * 16777619u;
  return sum;
}

DAT_DECL ib::descriptor::wire ib::descriptor::to_wire() const noexcept {
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

DAT_DECL expected<ib::descriptor> ib::descriptor::from_wire(std::span<const std::byte> bytes) noexcept {
  const auto bad = [](const char* hint) {
    return error(return_type::invalid_parameter).at("descriptor.from_wire", object_kind::ep).hint(hint);
  };
  if (bytes.size() != wire_size) return bad("A descriptor has 64 bytes.");
  wire w;
  detail::copy_bytes(bytes, w.data());
  if (std::memcmp(w.data(), mark.data(), mark.size()) != 0) return bad("These bytes are no descriptor of dat.");
  if (w[4] != version) return bad("The version is unknown: the peer uses another form of descriptors.");
  const auto order = detail::get_be<std::uint16_t>(&w[6]);
  if (order == 0x0201) return bad("The peer has written the numbers in the other byte order.");
  if (order != byte_order || detail::get_be<std::uint32_t>(&w[60]) != check_sum(w))
    return bad("The descriptor was corrupted in transit.");
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
    return bad("The descriptor has more members than this version knows.");
  const bool ethernet = r.link == IBV_LINK_LAYER_ETHERNET;
  const ia_address host = d.host();
  if ((r.service != 1 && r.service != 2) || (!ethernet && r.link != IBV_LINK_LAYER_INFINIBAND) || r.mtu < IBV_MTU_256 ||
      r.mtu > IBV_MTU_4096 || r.place.qp_num < 2 || r.place.qp_num > 0xff'ffff || r.psn > 0xff'ffff ||
      ethernet != (r.place.lid == 0) || host.is_any() || host.is_multicast() || host.is_broadcast())
    return bad("No endpoint has such numbers.");
  return d;
}

DAT_DECL expected<ib::descriptor> ep<rc>::make_descriptor() const noexcept {
  static constexpr const char* call = "ep.export_descriptor";
  if (!alive()) return empty_handle(call);
  auto raw = core_->describe(call, address_family::ipv4);
  if (!raw) return raw.assume_error();
  return detail::descriptor_access::make(raw.assume_value());
}

DAT_DECL expected<void> ep<rc>::connect(const ib::descriptor& peer, const qos& quality) noexcept {
  if (!alive()) return empty_handle("ep.connect");
  return core_->connect_directly(detail::descriptor_access::of(peer), quality);
}

}} // namespace dat::v0
