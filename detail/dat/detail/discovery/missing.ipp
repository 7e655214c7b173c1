// Definitions of missing.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/discovery/missing.hpp>

#include <infiniband/verbs.h>

#include <cerrno>
#include <unistd.h>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL lacking what_is_missing(const char* file) noexcept {
  if (::access(file, R_OK | W_OK) != 0)
    return errno == EACCES || errno == EPERM ? lacking::permission : lacking::kernel_module;
  int count = 0;
  if (ibv_device** const devices = ibv_get_device_list(&count)) ibv_free_device_list(devices);
  return count == 0 ? lacking::device : lacking::none;
}

DAT_DECL const char* remedy_of(lacking what) noexcept {
  switch (what) {
  case lacking::kernel_module:
    return "/dev/infiniband/rdma_cm is missing: load the kernel module by `modprobe rdma_ucm`, or pass /dev/infiniband "
           "into the container.";
  case lacking::permission:
    return "This user may not open /dev/infiniband/rdma_cm: check its owner and mode (rdma-core's udev rules make it "
           "accessible to everyone).";
  case lacking::device:
    return "This host has no RDMA device: load the adapter's driver, or make a Soft-RoCE device on an Ethernet "
           "interface by `modprobe rdma_rxe` and `rdma link add rxe0 type rxe netdev <interface>`.";
  case lacking::none:
    break;
  }
  return nullptr;
}

}}} // namespace dat::v0::detail
