// The untyped contents of segments, and the one door through which the library makes and reads them.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/common_zone.hpp>

#include <cstdint>

namespace dat::inline v0::detail {

/// A piece of local memory with its key.
struct raw_segment {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t key = 0;
  common_zone zone = common_zone::no_bytes();
};

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
  template <class W, class... A>
  static constexpr W make_word(const A&... a) noexcept {
    return W(a...);
  }
  /// Where an atomic goes.
  template <class W>
  [[gnu::always_inline]] static constexpr raw_remote place(const W& word) noexcept {
    return {word.address_, sizeof(std::uint64_t), word.key_};
  }
};

/// Whether `count` elements of `U`, `offset` bytes from `address` on, are inside of `length` bytes and aligned.
template <class U>
[[nodiscard]] constexpr bool fits(std::uint64_t address, std::uint64_t length, std::uint64_t offset,
                                  std::uint64_t count) noexcept {
  return offset <= length && count <= (length - offset) / sizeof(U) && (address + offset) % alignof(U) == 0;
}
inline constexpr const char* fits_hint =
    "offset + count * sizeof(U) must not exceed size_bytes(), and the first byte must be aligned for U";

} // namespace dat::inline v0::detail
