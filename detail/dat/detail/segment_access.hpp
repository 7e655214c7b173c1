// The untyped contents of segments, and the one door through which the library makes and reads them.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

namespace dat::inline v0::detail {

class pz_core;

/// In place of a zone, for what cannot be posted: a region that is too long for one segment.
inline const pz_core* no_zone() noexcept { return reinterpret_cast<const pz_core*>(std::uintptr_t{1}); }

/// A piece of local memory with its key. `pz` is compared, never dereferenced: the region may be gone. Null for a
/// segment of length 0, and only for that.
struct raw_segment {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t key = 0;
  const pz_core* pz = nullptr;
};

/// Set in the zone of a segment that has more than this part of the bytes of a message of its adapter: a post that
/// finds the zone as it should be need not add up the lengths of so many segments.
inline constexpr std::uint32_t message_parts = 8;
inline constexpr std::uintptr_t long_mark = 4;
[[nodiscard]] inline const pz_core* marked_long(const pz_core* pz) noexcept {
  return reinterpret_cast<const pz_core*>(reinterpret_cast<std::uintptr_t>(pz) | long_mark);
}

/// Likewise, of a region that is addressed from 0: the address is no pointer, so nothing can be copied from it.
inline constexpr std::uintptr_t offset_mark = 8;
[[nodiscard]] inline const pz_core* marked_offset(const pz_core* pz) noexcept {
  return reinterpret_cast<const pz_core*>(reinterpret_cast<std::uintptr_t>(pz) | offset_mark);
}

/// Address and key first, as they stand in the work request of an RDMA operation.
struct raw_remote {
  constexpr raw_remote() noexcept = default;
  constexpr raw_remote(std::uint64_t first, std::uint64_t size, std::uint32_t rkey) noexcept
      : address(first), key(rkey), length(size) {}
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint32_t unused = 0;
  std::uint64_t length = 0;
};

struct segment_access {
  template <class S>
  static constexpr const auto& raw(const S& s) noexcept {
    return s.raw_;
  }
  template <class S, class R>
  static constexpr S make(const R& raw) noexcept {
    S s;
    s.raw_ = raw;
    return s;
  }
};

} // namespace dat::inline v0::detail
