// The untyped contents of segments, and the one door through which the library makes and reads them.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

namespace dat::inline v0::detail {

class pz_core;

/// A piece of local memory with its key. `pz` is compared, never dereferenced: the region may be gone.
struct raw_segment {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t key = 0;
  const pz_core* pz = nullptr;
};

struct raw_remote {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint32_t key = 0;
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
