// Finds what this host lacks for RDMA, when librdmacm reports only that there is no device.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/config.hpp>

#include <cstdint>

namespace dat { inline namespace v0 { namespace detail {

enum class lacking : std::uint8_t {
  kernel_module, ///< rdma_ucm is not loaded, or the container has no /dev/infiniband
  permission,    ///< the user may not open /dev/infiniband/rdma_cm
  device,        ///< there is no RDMA device
  none           ///< nothing is missing
};
/// Finds what is missing; librdmacm returns ENODEV or ENOENT in each case. `file`: the connection manager's device
/// file.
[[nodiscard]] lacking what_is_missing(const char* file = "/dev/infiniband/rdma_cm") noexcept;
/// The remedy for the user, as a sentence; null without one.
[[nodiscard]] const char* remedy_of(lacking what) noexcept;

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/discovery/missing.ipp>
#endif
