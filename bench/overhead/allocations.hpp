// Counts what the program allocates.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

namespace overhead {

/// Calls of malloc and its kin so far, in all threads; operator new comes through malloc.
[[nodiscard]] std::uint64_t allocations() noexcept;

} // namespace overhead
