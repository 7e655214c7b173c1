// Streams of evds, and the visitor, that many tests use.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/streams.hpp>

namespace support {

inline constexpr auto soft = dat::stream::software;
inline constexpr auto mixed = dat::stream::dto | dat::stream::software;
inline constexpr auto ignore = [](const auto&) {};

} // namespace support
