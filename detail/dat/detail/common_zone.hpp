// Which protection zone segments are of: one word for all segments of a list.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <bit>
#include <cstdint>

namespace dat::inline v0::detail {

class pz_core;

/// A region of more than this part of the bytes of a message of its adapter is marked as long: a post that finds the
/// zone as it should be need not add up the lengths of so many segments.
inline constexpr std::uint32_t message_parts = 8;

/// The protection zones of some segments, together; what an endpoint compares with its own, once per list.
///
/// The word of a zone is its address beside the number of zeros in it (a Berger code). No such word has all the bits of
/// another: what has more ones has fewer zeros, and no number has all the bits of a greater one. So the OR of several
/// is the word of a zone only where all are of that zone. Marks, where an address has no bits, make a list another
/// look. The address is compared, never used: the zone may be gone.
class common_zone {
public:
  /// Of no segments.
  constexpr common_zone() noexcept = default;
  explicit common_zone(const pz_core* pz) noexcept {
    const auto address = std::uint64_t{reinterpret_cast<std::uintptr_t>(pz)};
    constexpr std::uint64_t counted = (one << address_bits) - 1;
    value_ = address | static_cast<std::uint64_t>(std::popcount(~address & counted)) << address_bits;
  }
  /// What no list has, and no zone.
  [[nodiscard]] static constexpr common_zone none() noexcept { return common_zone(one); }
  /// Of a segment of length 0.
  [[nodiscard]] static constexpr common_zone no_bytes() noexcept { return common_zone(empty_mark); }
  /// Of what cannot be posted: a region that is too long for one segment.
  [[nodiscard]] static constexpr common_zone unpostable() noexcept { return common_zone(~(marks | one)); }
  /// From what value() gave.
  [[nodiscard]] static constexpr common_zone of(std::uint64_t value) noexcept { return common_zone(value); }
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }

  /// Of a segment with more than its part of the bytes of a message.
  [[nodiscard]] constexpr common_zone marked_long() const noexcept { return common_zone(value_ | long_mark); }
  /// Of a part that is short.
  [[nodiscard]] constexpr common_zone marked_short() const noexcept { return common_zone(value_ & ~long_mark); }
  /// Of a region that is addressed from 0: the address is no pointer, so nothing can be copied from it.
  [[nodiscard]] constexpr common_zone marked_offset() const noexcept { return common_zone(value_ | offset_mark); }
  [[nodiscard]] constexpr bool marked() const noexcept { return (value_ & marks) != 0; }
  [[nodiscard]] constexpr bool has_offsets() const noexcept { return (value_ & offset_mark) != 0; }
  [[nodiscard]] constexpr common_zone unmarked() const noexcept { return common_zone(value_ & ~marks); }

  friend constexpr common_zone operator|(common_zone a, common_zone b) noexcept {
    return common_zone(a.value_ | b.value_);
  }
  friend constexpr bool operator==(common_zone, common_zone) noexcept = default;

private:
  static constexpr std::uint64_t one = 1;
  static constexpr unsigned address_bits = 48; // of a process; what a tag above bit 53 says is part of the word
  // Zones are at multiples of 16.
  static constexpr std::uint64_t empty_mark = 2;
  static constexpr std::uint64_t long_mark = 4;
  static constexpr std::uint64_t offset_mark = 8;
  static constexpr std::uint64_t marks = empty_mark | long_mark | offset_mark;

  constexpr explicit common_zone(std::uint64_t value) noexcept : value_(value) {}

  std::uint64_t value_ = 0;
};

} // namespace dat::inline v0::detail
