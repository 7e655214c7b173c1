// Counts the allocations of the program.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

namespace overhead {

/// Calls of malloc and related functions so far, in all threads; operator new calls malloc.
[[nodiscard]] std::uint64_t allocations() noexcept;

} // namespace overhead
