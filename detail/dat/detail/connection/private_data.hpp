// Private data: its limit, and the marks of dat, which show its length and the rejects of consumers.
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

/// The first bytes of a mark of dat. The byte after them is the length of the consumer's data.
inline constexpr std::array<std::byte, 3> dat_mark{std::byte{'D'}, std::byte{'A'}, std::byte{'T'}};
inline constexpr std::size_t mark_size = dat_mark.size() + 1;

inline std::byte* write_mark(std::size_t length, std::byte* out) noexcept {
  out = copy_bytes(dat_mark, out);
  *out = static_cast<std::byte>(length);
  return out + 1;
}

// --- requests and replies --------------------------------------------------------------------------------------------

/// Where the mark of a message is. In a request these are its last bytes, so data of 53 to 56 bytes leaves no room for
/// the mark. A reply has room behind the data.
inline constexpr std::size_t request_mark = max_private_data - mark_size;
inline constexpr std::size_t reply_mark = max_private_data;

/// Adds the mark to `message`, which has `length` bytes of data and then zeros, if the data leaves room for it. Returns
/// the length of the message.
inline std::uint8_t mark_end(std::byte* message, std::size_t length, std::size_t mark) noexcept {
  if (length > mark) return static_cast<std::uint8_t>(length);
  write_mark(length, message + mark);
  return static_cast<std::uint8_t>(mark + mark_size);
}
/// The consumer's data of a message: as many bytes as the mark states. A message that has no mark, or a byte other than
/// 0 where dat sends none, is of another program: all of it is data.
[[nodiscard]] inline std::span<const std::byte> before_mark(std::span<const std::byte> message,
                                                            std::size_t mark) noexcept {
  if (message.size() < mark + mark_size || std::memcmp(&message[mark], dat_mark.data(), dat_mark.size()) != 0)
    return message;
  const auto length = static_cast<std::size_t>(message[mark + dat_mark.size()]);
  if (length > mark || any_nonzero(message.subspan(length, mark - length)) ||
      any_nonzero(message.subspan(mark + mark_size)))
    return message;
  return message.first(length);
}

/// The bytes of a request. `data` must not be longer than max_private_data.
struct request_message {
  std::array<std::byte, max_private_data> bytes{};
  std::uint8_t size;
  /// False when the data is long, and by chance ends like a mark: the receiver must not look for the mark.
  bool may_have_mark;

  explicit request_message(std::span<const std::byte> data) noexcept {
    copy_bytes(data, bytes.data());
    size = mark_end(bytes.data(), data.size(), request_mark);
    may_have_mark = before_mark(bytes, request_mark).size() >= data.size();
  }
};

/// The bytes of a reply. `data` must not be longer than max_private_data.
struct reply_message {
  std::array<std::byte, max_private_data + mark_size> bytes{};
  std::uint8_t size;

  explicit reply_message(std::span<const std::byte> data) noexcept {
    copy_bytes(data, bytes.data());
    size = mark_end(bytes.data(), data.size(), reply_mark);
  }
};

// --- rejects ---------------------------------------------------------------------------------------------------------

/// The bytes of a consumer's reject. `data` must not be longer than Most.
template <std::size_t Most>
struct reject_message {
  std::array<std::byte, mark_size + Most> bytes{};
  std::uint8_t size;

  explicit reject_message(std::span<const std::byte> data) noexcept
      : size(static_cast<std::uint8_t>(mark_size + data.size())) {
    copy_bytes(data, write_mark(data.size(), bytes.data()));
  }
};

/// True when the data of a reject begins with the mark.
[[nodiscard]] inline bool is_marked(std::span<const std::byte> data) noexcept {
  return data.size() >= mark_size && std::memcmp(dat_mark.data(), data.data(), dat_mark.size()) == 0;
}
/// The consumer's data of a reject that has the mark.
[[nodiscard]] inline std::span<const std::byte> behind_mark(std::span<const std::byte> data) noexcept {
  const auto length = static_cast<std::size_t>(data[dat_mark.size()]);
  const auto rest = data.subspan(mark_size);
  return rest.first(min(length, rest.size()));
}

}}} // namespace dat::v0::detail
