// XXH3 in 128 bits, over data that comes in pieces.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "protocol.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <string>

namespace datcp {

class hasher {
public:
  hasher() : state_(XXH3_createState()) {
    if (!state_) throw std::bad_alloc();
    reset();
  }
  void reset() { XXH3_128bits_reset(state_.get()); }
  void update(std::span<const std::byte> data) { XXH3_128bits_update(state_.get(), data.data(), data.size()); }
  /// The checksum of all data since the last reset. More may follow.
  [[nodiscard]] checksum sum() const {
    XXH128_canonical_t canonical; // big-endian
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
    checksum out;
    static_assert(sizeof canonical == sizeof out);
    std::memcpy(out.data(), canonical.digest, sizeof out);
    return out;
  }

private:
  struct release {
    void operator()(XXH3_state_t* s) const noexcept { XXH3_freeState(s); }
  };
  std::unique_ptr<XXH3_state_t, release> state_;
};

/// The checksum as text, as `xxhsum -H2` prints it.
[[nodiscard]] inline std::string to_hex(const checksum& sum) {
  std::string text;
  for (const std::byte b : sum) text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return text;
}

} // namespace datcp
