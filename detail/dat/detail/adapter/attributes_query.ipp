// Definitions of attributes_query.hpp: what verbs reports, as attributes.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/version.hpp>

#include <dat/detail/adapter/attributes_query.hpp>
#include <dat/detail/adapter/place.hpp>
#include <dat/detail/base/utility.hpp>
#include <dat/detail/text/errno.hpp>
#include <dat/detail/work/work_ring.hpp>

#include <cerrno>
#include <endian.h>
#include <limits>
#include <unistd.h>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

// Verbs reports counts as ints, which are never negative.
[[nodiscard]] constexpr std::uint32_t count_of(int n) noexcept { return static_cast<std::uint32_t>(max(n, 0)); }
[[nodiscard]] constexpr std::uint32_t count_of(int n, std::uint32_t most) noexcept { return min(count_of(n), most); }

DAT_DECL short_text number_text(std::uint64_t n, unsigned digits) noexcept {
  char text[24] = {};
  std::size_t first = sizeof text;
  if (digits != 0) {
    for (; digits > 0; --digits, n >>= 4) text[--first] = "0123456789abcdef"[n & 15];
    text[--first] = 'x';
    text[--first] = '0';
  } else {
    do text[--first] = static_cast<char>('0' + n % 10);
    while (n /= 10);
  }
  return short_text({text + first, sizeof text - first});
}
/// A GID as eight groups of four digits.
[[nodiscard]] constexpr short_text gid_text(const std::uint8_t (&gid)[16]) noexcept {
  char text[39] = {};
  std::size_t n = 0;
  for (std::size_t i = 0; i < 16; ++i) {
    if (i != 0 && i % 2 == 0) text[n++] = ':';
    text[n++] = "0123456789abcdef"[gid[i] >> 4];
    text[n++] = "0123456789abcdef"[gid[i] & 15];
  }
  return short_text({text, n});
}

inline constexpr const char* query_call = "ia.query";

DAT_DECL expected<void> query(const ia_core& core, ia_attributes& a) noexcept {
  if (core.closed())
    return error(return_type::invalid_handle, return_subtype::handle_ia).at(query_call, object_kind::ia);
  ibv_port_attr port{};
  if (const int err = ibv_query_port(core.context(), core.where().port, &port))
    return map_errno(err, return_subtype::resource_device).at(query_call, object_kind::ia).from("ibv_query_port", err);
  const ibv_device_attr& d = core.device();
  const bool iwarp = core.iwarp();

  a.device_name = short_text(core.name());
  a.port = core.where().port;
  a.adapter_name = name_text(core.opened_as().empty() ? core.name() : core.opened_as());
  if (core.opened_as().empty() && a.port != 1) {
    a.adapter_name.append("/");
    a.adapter_name.append(number_text(a.port).view());
  }
  a.vendor_id = d.vendor_id;
  a.vendor_name = number_text(d.vendor_id, 6);
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
  a.link_width = lanes_of(port.active_width);
  a.link_speed = a.link_width * lane_speed_of(port.active_speed);
  a.num_comp_vectors = count_of(core.context()->num_comp_vectors);
  a.pci_address = pci_address_of(*core.context()->device);
  a.numa_node = numa_node_of(*core.context()->device);
  a.node_guid = be64toh(d.node_guid);
  a.system_image_guid = be64toh(d.sys_image_guid);

  a.max_eps = count_of(d.max_qp);
  // One evd may take all requests of a queue.
  const std::uint32_t max_wr = count_of(min(d.max_qp_wr, d.max_cqe), max_ring);
  a.max_dto_per_ep = max_wr - min(max_wr, 1u); // as ep_core::create
  a.max_rdma_read_per_ep_in = count_of(d.max_qp_rd_atom, 255);
  a.max_rdma_read_per_ep_out = count_of(d.max_qp_init_rd_atom, 255);
  a.max_rdma_read_in = count_of(d.max_res_rd_atom);
  a.max_rdma_read_out = std::uint64_t{a.max_eps} * a.max_rdma_read_per_ep_out;
  a.max_rdma_read_per_ep_in_kind = reads_for_all(a.max_rdma_read_in, a.max_eps, a.max_rdma_read_per_ep_in);
  a.max_rdma_read_per_ep_out_kind = read_resources::guaranteed; // every queue pair has its own number
  a.max_evds = count_of(d.max_cq);
  a.max_evd_qlen = count_of(d.max_cqe);
  a.max_iov_segments_per_dto = count_of(d.max_sge, 255);
  a.max_iov_segments_per_rdma_write = a.max_iov_segments_per_dto;
  a.max_iov_segments_per_rdma_read = iwarp              ? 1
                                     : d.max_sge_rd > 0 ? min(a.max_iov_segments_per_dto, count_of(d.max_sge_rd))
                                                        : a.max_iov_segments_per_dto;
  a.max_lmrs = count_of(d.max_mr);
  a.max_lmr_block_size = d.max_mr_size;
  a.max_lmr_virtual_address = std::numeric_limits<std::uint64_t>::max();
  a.max_rmr_target_address = std::numeric_limits<std::uint64_t>::max();
  a.max_pzs = count_of(d.max_pd);
  a.max_srqs = count_of(d.max_srq);
  if (a.max_srqs != 0) {
    a.max_ep_per_srq = a.max_eps; // limited by the device only
    a.max_recv_per_srq = count_of(d.max_srq_wr, max_ring);
  }
  a.max_rmrs = count_of(d.max_mw);
  a.max_message_size = core.max_message();
  a.max_rdma_size = core.max_message();
  a.extension_supported = iwarp ? extension::none : extension::infiniband;
  a.extension_version = iwarp ? 0 : 2;

  a.transport.push_back({"link_layer", short_text(to_string(a.link_layer))});
  a.transport.push_back({"active_mtu", number_text(a.active_mtu)});
  a.transport.push_back({"port_state", short_text(to_string(a.state))});
  ibv_gid gid{};
  if (ibv_query_gid(core.context(), a.port, 0, &gid) == 0) a.transport.push_back({"gid", gid_text(gid.raw)});
  a.vendor.push_back({"device", a.device_name});
  a.vendor.push_back({"port", number_text(a.port)});
  a.vendor.push_back({"firmware", a.firmware_version});
  a.vendor.push_back({"node_guid", number_text(a.node_guid, 16)});
  a.vendor.push_back({"system_image_guid", number_text(a.system_image_guid, 16)});
  return success();
}

DAT_DECL expected<void> query(const ia_core& core, provider_attributes& a) noexcept {
  if (core.closed())
    return error(return_type::invalid_handle, return_subtype::handle_ia).at(query_call, object_kind::ia);
  const bool iwarp = core.iwarp();
  a.provider_version_major = version.major_part;
  a.provider_version_minor = version.minor_part;
  // On iWARP the peer writes data without an acknowledgement, and the adapter writes an RDMA read into the key that the
  // request names.
  a.dto_async_return_guaranteed = !iwarp;
  a.rdma_write_for_rdma_read_req = iwarp;
  a.rdma_read_lmr_rmr_context_exposure = iwarp;
  a.immediate_data_supported = !iwarp;
  a.zb_supported = !core.siw();
  a.completion_flags_supported.solicited_wait = !core.siw();
  if (!iwarp) a.evd_stream_merging_supported = a.evd_stream_merging_supported | streams::datagrams;
  a.srq_supported = core.device().max_srq > 0;
  a.srq_watermarks_supported = {a.srq_supported, a.srq_supported, a.srq_supported};
  a.srq_info_supported = {a.srq_supported, a.srq_supported};
  const unsigned caps = core.device().device_cap_flags;
  const bool of_pz = (caps & IBV_DEVICE_MEM_WINDOW) != 0;
  const bool of_ep = (caps & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) != 0;
  a.rmr_supported = core.device().max_mw > 0 && (of_pz || of_ep);
  a.rmr_scope_supported = of_pz == of_ep ? rmr_scope::any : of_pz ? rmr_scope::pz : rmr_scope::ep;
  a.specific = {};
  if (iwarp) return success();
  constexpr short_text yes("TRUE");
  a.specific.push_back({"DAT_EXTENSION_INTERFACE", yes});
  a.specific.push_back({"DAT_EXTENSION_VERSION", short_text("2")});
  constexpr std::string_view always[] = {"DAT_IB_IMMED_DATA_OP", "DAT_IB_IMMED_DATA", "DAT_IB_UD",
                                         "DAT_EXT_RDMA_WRITE_IMMED", "DAT_EXT_RECV_IMMED_EVENT"};
  constexpr std::string_view atomics[] = {"DAT_IB_FETCH_AND_ADD_OP", "DAT_IB_CMP_AND_SWAP_OP", "DAT_IB_FETCH_AND_ADD",
                                          "DAT_IB_CMP_AND_SWAP",     "DAT_EXT_FETCH_AND_ADD",  "DAT_EXT_CMP_AND_SWAP"};
  for (const std::string_view name : always) a.specific.push_back({name, yes});
  if (core.device().atomic_cap != IBV_ATOMIC_NONE)
    for (const std::string_view name : atomics) a.specific.push_back({name, yes});
  return success();
}

/// A stable sort, so that adapters with equal distances, and adapters without a distance, stay in the order of verbs.
DAT_DECL void sort_by_distance(adapter_list& all) noexcept {
  const auto of = [](const adapter& a) { return a.numa_distance.value_or(~std::uint32_t{0}); };
  for (std::size_t i = 1; i < all.size(); ++i)
    for (std::size_t k = i; k > 0 && of(all[k]) < of(all[k - 1]); --k) std::swap(all[k], all[k - 1]);
}

DAT_DECL expected<adapter_list> list_adapters(const char* call, std::optional<std::uint32_t> cpu) noexcept {
  if (cpu && *cpu >= static_cast<std::uint32_t>(max(::sysconf(_SC_NPROCESSORS_CONF), 1L)))
    return error(return_type::invalid_parameter, return_subtype::arg1)
        .at(call, object_kind::ia)
        .hint("`cpu` is the number of a processor of this host, counted from 0: run lscpu, or call sched_getcpu().");
  adapter_list all;
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  if (!devices && errno != ENOSYS) // ENOSYS: a kernel without InfiniBand has no device
    return map_errno(errno, return_subtype::resource_device)
        .at(call, object_kind::ia)
        .from("ibv_get_device_list", errno);
  for (int i = 0; devices && i < count; ++i) {
    const std::string_view name = ibv_get_device_name(devices[i]);
    const unique_c<ibv_context, &ibv_close_device> context(ibv_open_device(devices[i]));
    ibv_device_attr d{};
    unsigned ports = 1;
    const auto node = numa_node_of(*devices[i]);
    if (context && ibv_query_device(context.get(), &d) == 0) ports = d.phys_port_cnt;
    for (unsigned n = 1; n <= ports; ++n) {
      adapter a{.name = short_text(name), .numa_node = node};
      if (cpu && node) a.numa_distance = numa_distance(*devices[i], *node, *cpu);
      if (n != 1) {
        a.name.append("/");
        a.name.append(number_text(n).view());
      }
      ibv_port_attr port{};
      if (context && ibv_query_port(context.get(), static_cast<std::uint8_t>(n), &port) == 0)
        a.state = port_state_of(port.state);
      all.push_back(a);
    }
  }
  if (devices) ibv_free_device_list(devices);
  if (cpu) sort_by_distance(all);
  return all;
}

}}} // namespace dat::v0::detail
