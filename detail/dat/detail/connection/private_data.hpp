// Private data: its limit, and the mark by which a peer distinguishes a consumer's reject from a reject of the kernel.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/utility.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace dat { inline namespace v0 { namespace detail {

/// The bytes of private data that fit a connect request of rdma_cm over IP. The limit holds for connect, accept and
/// reject alike.
inline constexpr std::size_t max_private_data = 56;
inline constexpr const char* private_data_hint = "Private data has at most 56 bytes.";

/// The first bytes of a reject that a consumer made. The byte after them is the length of the consumer's data.
inline constexpr std::array<std::byte, 3> reject_mark{std::byte{'D'}, std::byte{'A'}, std::byte{'T'}};

/// The bytes of a consumer's reject. `data` must not be longer than Most.
template <std::size_t Most>
struct reject_message {
  std::array<std::byte, reject_mark.size() + 1 + Most> bytes{};
  std::uint8_t size;

  explicit reject_message(std::span<const std::byte> data) noexcept
      : size(static_cast<std::uint8_t>(reject_mark.size() + 1 + data.size())) {
    std::byte* out = copy_bytes(reject_mark, bytes.data());
    *out++ = static_cast<std::byte>(data.size());
    copy_bytes(data, out);
  }
};

/// True when the data of a reject begins with the mark.
[[nodiscard]] inline bool is_marked(std::span<const std::byte> data) noexcept {
  return data.size() > reject_mark.size() && std::memcmp(reject_mark.data(), data.data(), reject_mark.size()) == 0;
}
/// The consumer's data of a reject that has the mark.
[[nodiscard]] inline std::span<const std::byte> behind_mark(std::span<const std::byte> data) noexcept {
  const auto length = static_cast<std::size_t>(data[reject_mark.size()]);
  const auto rest = data.subspan(reject_mark.size() + 1);
  return rest.first(min(length, rest.size()));
}

}}} // namespace dat::v0::detail
