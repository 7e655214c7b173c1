// Memory for tests of sizes that no test needs as memory.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <support/catch.hpp>

#include <cstddef>
#include <span>
#include <sys/mman.h>

namespace unit {

/// Addresses without memory behind them.
struct reserved_addresses {
  explicit reserved_addresses(std::size_t bytes)
      : all(static_cast<std::byte*>(
                ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE | MAP_NORESERVE, -1, 0)),
            bytes) {
    REQUIRE(static_cast<void*>(all.data()) != MAP_FAILED);
  }
  reserved_addresses(const reserved_addresses&) = delete;
  reserved_addresses& operator=(const reserved_addresses&) = delete;
  ~reserved_addresses() { ::munmap(all.data(), all.size()); }
  std::span<std::byte> all;
};

} // namespace unit
