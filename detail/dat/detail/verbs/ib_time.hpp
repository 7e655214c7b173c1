// Time codes of InfiniBand queue pairs.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace dat { inline namespace v0 { namespace detail {

/// 4.096 us * 2^31.
inline constexpr std::chrono::microseconds longest_ack_timeout{8'796'093'022};

/// Smallest t with 4.096 us * 2^t >= d, 1..31. Zero would mean no limit.
[[nodiscard]] constexpr std::uint8_t ack_timeout_code(std::chrono::microseconds d) noexcept {
  // Longer times have the largest code; their nanoseconds might not fit into 64 bits.
  if (d > std::chrono::hours(3)) return 31;
  if (d <= std::chrono::microseconds(0)) return 1;
  std::uint8_t code = 1;
  for (std::int64_t ns = 8192; code < 31 && ns < std::chrono::nanoseconds(d).count(); ns *= 2) ++code;
  return code;
}

/// Code of the shortest RNR timer that is at least d (IBA table 45); code 0 is the longest, 655.36 ms.
[[nodiscard]] constexpr std::uint8_t rnr_timer_code(std::chrono::microseconds d) noexcept {
  constexpr std::array<std::int32_t, 32> us{655360, 10,    20,    30,     40,     60,     80,     120,
                                            160,    240,   320,   480,    640,    960,    1280,   1920,
                                            2560,   3840,  5120,  7680,   10240,  15360,  20480,  30720,
                                            40960,  61440, 81920, 122880, 163840, 245760, 327680, 491520};
  for (std::uint8_t code = 1; code < 32; ++code)
    if (us[code] >= d.count()) return code;
  return 0;
}

}}} // namespace dat::v0::detail
