// Messages of the soak: numbered, of one life, with a checksum over header and payload.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>

namespace soak {

using random = std::mt19937_64;

/// A number below `limit`.
[[nodiscard]] inline std::uint64_t below(random& from, std::uint64_t limit) { return from() % limit; }

enum class message_kind : std::uint32_t { request = 1, answer, keep_alive, window, last };

/// The header before the payload of each message.
struct message_header {
  std::uint64_t life = 0;
  std::uint64_t number = 0; ///< counts the messages of one side in one life
  message_kind kind{};
  std::uint32_t slot = 0;  ///< the slot of the client's window, to which request and answer belong
  std::uint32_t bytes = 0; ///< the length of the payload
  std::uint32_t spare = 0;
  std::uint64_t sum = 0; ///< the checksum of the members above and the payload
};

inline constexpr std::size_t largest_message = 4096;
inline constexpr std::size_t largest_payload = largest_message - sizeof(message_header);

/// The checksum of a message whose header is at the start of `whole`. The field `sum` counts as 0.
[[nodiscard]] inline std::uint64_t sum_of(std::span<const std::byte> whole) noexcept {
  message_header header;
  std::memcpy(&header, whole.data(), sizeof header);
  header.sum = 0;
  const auto seed = XXH3_64bits(&header, sizeof header);
  return XXH3_64bits_withSeed(whole.data() + sizeof header, whole.size() - sizeof header, seed);
}

/// Writes a message with `bytes` random bytes into `room`, and returns its length.
inline std::size_t write_message(std::span<std::byte> room, message_header header, std::size_t bytes, random& from) {
  header.bytes = static_cast<std::uint32_t>(bytes);
  header.sum = 0;
  std::memcpy(room.data(), &header, sizeof header);
  std::uint64_t bits = from();
  for (std::size_t i = 0; i < bytes; ++i) {
    if (i % 8 == 0) bits = bits * 6364136223846793005u + 1442695040888963407u;
    room[sizeof header + i] = static_cast<std::byte>(bits >> (8 * (i % 8)));
  }
  header.sum = sum_of(room.first(sizeof header + bytes));
  std::memcpy(room.data(), &header, sizeof header);
  return sizeof header + bytes;
}

/// Reads a message of `length` bytes (0: as many as its header names) of the life `life`; null when it is damaged.
[[nodiscard]] inline const char* read_message(std::span<const std::byte> room, std::size_t length, std::uint64_t life,
                                              message_header& header) noexcept {
  if (room.size() < sizeof header) return "is shorter than a header";
  std::memcpy(&header, room.data(), sizeof header);
  if (header.bytes > room.size() - sizeof header) return "names an impossible length";
  if (length != 0 && length != sizeof header + header.bytes) return "has another length than its header";
  if (sum_of(room.first(sizeof header + header.bytes)) != header.sum) return "has a wrong checksum";
  if (header.life != life) return "is of another life";
  return nullptr;
}

/// The byte at `i` of the region that clients read, which both sides can compute.
[[nodiscard]] inline std::byte pattern(std::uint64_t life, std::size_t i) noexcept {
  return static_cast<std::byte>((life * 0x9e3779b97f4a7c15u + i * 0x5851f42d4c957f2du) >> 56);
}

/// The contents of the target of a read or an atomic before the data comes.
inline constexpr std::byte untouched{0xa5};

} // namespace soak
