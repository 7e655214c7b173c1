// Where an RDMA device sits in the machine: its PCI address, its NUMA node, and its distance from a processor.
//
// All of it is read from sysfs, from the tree in which libibverbs has found the device. A device without such files,
// such as a software device, has no place.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/attributes.hpp>

#include <dat/detail/base/config.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

namespace dat { inline namespace v0 { namespace detail {

/// Whether a name of a device in sysfs is the address of a PCI device: "0000:3b:00.0".
[[nodiscard]] constexpr bool is_pci_address(std::string_view name) noexcept {
  constexpr std::string_view form = "0000:00:00.0";
  if (name.size() != form.size()) return false;
  for (std::size_t i = 0; i < form.size(); ++i) {
    const bool digit = (name[i] >= '0' && name[i] <= '9') || (name[i] >= 'a' && name[i] <= 'f');
    if (form[i] == '0' ? !digit : name[i] != form[i]) return false;
  }
  return true;
}

/// The PCI address of a device; empty when it is not on a PCI bus.
[[nodiscard]] short_text pci_address_of(const ibv_device& device) noexcept;
/// The NUMA node of a device; empty when the kernel knows none.
[[nodiscard]] std::optional<std::uint32_t> numa_node_of(const ibv_device& device) noexcept;
/// The distance of that node from the node of a processor, as the firmware states it: 10 for the same node. Empty when
/// the kernel does not know it.
[[nodiscard]] std::optional<std::uint32_t> numa_distance(const ibv_device& device, std::uint32_t node,
                                                         std::uint32_t cpu) noexcept;

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/adapter/place.ipp>
#endif
