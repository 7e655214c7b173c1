// Descriptors with changed contents and a valid checksum, so that the checks behind the checksum run.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/descriptor.hpp>

#include <cstddef>
#include <cstdint>

namespace support {

/// Writes the checksum of the other bytes into the last four bytes.
inline void seal(dat::ib::descriptor::wire& w) {
  std::uint32_t sum = 2166136261u;
  for (std::size_t i = 0; i < w.size() - 4; ++i) sum = (sum ^ static_cast<std::uint32_t>(w[i])) * 16777619u;
  for (std::size_t i = 0; i < 4; ++i) w[w.size() - 4 + i] = static_cast<std::byte>(sum >> (24 - 8 * i));
}

} // namespace support
