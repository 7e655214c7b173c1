// The order of bytes: big-endian numbers in byte buffers, and numbers in the other order.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>

namespace dat { inline namespace v0 { namespace detail {

inline constexpr std::uint8_t segment_wire_version = 1;

template <std::unsigned_integral U>
constexpr void put_be(std::byte* to, U value) noexcept {
  for (std::size_t i = 0; i < sizeof(U); ++i)
    to[i] = static_cast<std::byte>((value >> (8 * (sizeof(U) - 1 - i))) & 0xff);
}

template <std::unsigned_integral U>
[[nodiscard]] constexpr U get_be(const std::byte* from) noexcept {
  U value = 0;
  for (std::size_t i = 0; i < sizeof(U); ++i)
    value = static_cast<U>(static_cast<U>(value << (sizeof(U) > 1 ? 8 : 0)) | static_cast<U>(from[i]));
  return value;
}

template <std::unsigned_integral U>
[[nodiscard]] constexpr U swap_bytes(U value) noexcept {
  std::array<std::byte, sizeof(U)> bytes{};
  put_be(bytes.data(), value);
  U swapped = 0;
  for (std::size_t i = sizeof(U); i > 0; --i) swapped = static_cast<U>(swapped << 8 | std::to_integer<U>(bytes[i - 1]));
  return swapped;
}

}}} // namespace dat::v0::detail
