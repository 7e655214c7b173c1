// The errno that the kernel has and libc does not name.
// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace dat { inline namespace v0 { namespace detail {

// ENOTSUPP, which rdma_cm and some drivers return to the program.
inline constexpr int kernel_enotsupp = 524;

}}} // namespace dat::v0::detail
