// Fills in the attributes of an ia.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/attributes.hpp>
#include <dat/expected.hpp>
#include <dat/version.hpp>

#include <dat/detail/basics.hpp>
#include <dat/detail/ia_core.hpp>
#include <dat/detail/work_ring.hpp>

#include <cstdint>
#include <endian.h>
#include <limits>
#include <string_view>

namespace dat::inline v0::detail {

[[nodiscard]] constexpr port_state port_state_of(ibv_port_state s) noexcept {
  switch (s) {
  case IBV_PORT_DOWN:
    return port_state::down;
  case IBV_PORT_INIT:
    return port_state::initialising;
  case IBV_PORT_ARMED:
    return port_state::armed;
  case IBV_PORT_ACTIVE:
    return port_state::active;
  case IBV_PORT_ACTIVE_DEFER:
    return port_state::active_deferred;
  default:
    return port_state::unknown;
  }
}
[[nodiscard]] constexpr link_layer link_layer_of(std::uint8_t l) noexcept {
  return l == IBV_LINK_LAYER_ETHERNET     ? link_layer::ethernet
         : l == IBV_LINK_LAYER_INFINIBAND ? link_layer::infiniband
                                          : link_layer::unspecified;
}

/// The first two numbers of "20.31.1014"; what is no number is 0.
struct firmware_number {
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
};
[[nodiscard]] constexpr firmware_number firmware_of(std::string_view text) noexcept {
  std::uint32_t parts[2] = {};
  std::size_t i = 0;
  for (std::uint32_t& part : parts) {
    const std::size_t begin = i;
    for (; i < text.size() && i - begin < 9 && text[i] >= '0' && text[i] <= '9'; ++i)
      part = 10 * part + static_cast<std::uint32_t>(text[i] - '0');
    if (i == begin || i == text.size() || text[i] != '.') break;
    ++i;
  }
  return {parts[0], parts[1]};
}

/// A device that has `total` for all gives `each` to every one of `endpoints`, or makes them share.
[[nodiscard]] constexpr read_resources reads_for_all(std::uint64_t total, std::uint64_t endpoints,
                                                     std::uint64_t each) noexcept {
  return total >= endpoints * each ? read_resources::guaranteed : read_resources::shared;
}

// Numbers of verbs are ints that are never negative.
[[nodiscard]] constexpr std::uint32_t count_of(int n) noexcept { return n < 0 ? 0 : static_cast<std::uint32_t>(n); }
[[nodiscard]] constexpr std::uint32_t count_of(int n, std::uint32_t most) noexcept {
  return smaller(count_of(n), most);
}

inline constexpr const char* query_call = "ia.query";

[[nodiscard]] inline expected<void> query(const ia_core& core, ia_attributes& a) noexcept {
  if (core.closed())
    return error(return_type::invalid_handle, return_subtype::handle_ia).at(query_call, object_kind::ia);
  ibv_port_attr port{};
  if (const int err = ibv_query_port(core.context(), core.where().port, &port))
    return map_errno(err, return_subtype::resource_device).at(query_call, object_kind::ia).from("ibv_query_port", err);
  const ibv_device_attr& d = core.device();
  const bool iwarp = core.context()->device->transport_type == IBV_TRANSPORT_IWARP;

  a.adapter_name = short_text(core.name());
  a.port = core.where().port;
  a.vendor_id = d.vendor_id;
  a.vendor_part_id = d.vendor_part_id;
  a.hardware_version_major = d.hw_ver;
  const std::string_view firmware(d.fw_ver, sizeof d.fw_ver);
  a.firmware_version = short_text(firmware.substr(0, firmware.find('\0')));
  const firmware_number number = firmware_of(a.firmware_version.view());
  a.firmware_version_major = number.major;
  a.firmware_version_minor = number.minor;
  for (const auto family : {address_family::ipv6, address_family::ipv4})
    if (const ia_address* address = core.address(family)) a.address = *address;
  a.link_layer = link_layer_of(port.link_layer);
  a.state = port_state_of(port.state);
  if (port.active_mtu >= IBV_MTU_256 && port.active_mtu <= IBV_MTU_4096) a.active_mtu = 128u << port.active_mtu;
  a.node_guid = be64toh(d.node_guid);
  a.system_image_guid = be64toh(d.sys_image_guid);

  a.max_eps = count_of(d.max_qp);
  const std::uint32_t max_wr = count_of(d.max_qp_wr, max_ring);
  a.max_dto_per_ep = max_wr > 0 ? max_wr - 1 : 0; // as ep_core::create
  a.max_rdma_read_per_ep_in = count_of(d.max_qp_rd_atom, 255);
  a.max_rdma_read_per_ep_out = count_of(d.max_qp_init_rd_atom, 255);
  a.max_rdma_read_in = count_of(d.max_res_rd_atom);
  a.max_rdma_read_out = std::uint64_t{a.max_eps} * a.max_rdma_read_per_ep_out;
  a.max_rdma_read_per_ep_in_kind = reads_for_all(a.max_rdma_read_in, a.max_eps, a.max_rdma_read_per_ep_in);
  a.max_rdma_read_per_ep_out_kind = read_resources::guaranteed; // a number of each queue pair
  a.max_evds = count_of(d.max_cq);
  a.max_evd_qlen = count_of(d.max_cqe);
  a.max_iov_segments_per_dto = count_of(d.max_sge, 255);
  a.max_iov_segments_per_rdma_write = a.max_iov_segments_per_dto;
  a.max_iov_segments_per_rdma_read = iwarp              ? 1
                                     : d.max_sge_rd > 0 ? smaller(a.max_iov_segments_per_dto, count_of(d.max_sge_rd))
                                                        : a.max_iov_segments_per_dto;
  a.max_lmrs = count_of(d.max_mr);
  a.max_lmr_block_size = d.max_mr_size;
  a.max_lmr_virtual_address = std::numeric_limits<std::uint64_t>::max();
  a.max_pzs = count_of(d.max_pd);
  a.max_message_size = core.max_message();
  a.max_rdma_size = core.max_message();
  a.extension_supported = iwarp ? extension::none : extension::infiniband;
  a.extension_version = iwarp ? 0 : 2;
  return success();
}

[[nodiscard]] inline expected<void> query(const ia_core& core, provider_attributes& a) noexcept {
  if (core.closed())
    return error(return_type::invalid_handle, return_subtype::handle_ia).at(query_call, object_kind::ia);
  const bool iwarp = core.context()->device->transport_type == IBV_TRANSPORT_IWARP;
  a.provider_version_major = version.major_part;
  a.provider_version_minor = version.minor_part;
  // On iWARP the peer places data without an answer to it, and the sink of a read is written by the peer's key.
  a.dto_async_return_guaranteed = !iwarp;
  a.rdma_write_for_rdma_read_req = iwarp;
  a.rdma_read_lmr_rmr_context_exposure = iwarp;
  a.immediate_data_supported = !iwarp;
  return success();
}

} // namespace dat::inline v0::detail
