// The bytes of one run of a fuzz target, read as numbers, choices and data.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/expected.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace fuzz {

/// Ends the run as a failure: libFuzzer keeps the input.
[[noreturn]] inline void fail(std::string_view what) {
  std::fprintf(stderr, "fuzz: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}
inline void require(bool ok, std::string_view what) {
  if (!ok) fail(what);
}
template <class T>
T must(dat::expected<T>&& r) {
  if (!r) fail(r.error().message());
  if constexpr (!std::is_void_v<T>) return std::move(r).value();
}

/// Reads the bytes from front to back. After the last byte every value is 0.
class input {
public:
  input(const std::uint8_t* data, std::size_t size) noexcept : left_(std::as_bytes(std::span(data, size))) {}

  [[nodiscard]] bool empty() const noexcept { return left_.empty(); }
  /// An unsigned number of the type's size, in little-endian order.
  template <class N>
  [[nodiscard]] N number() noexcept {
    std::uint64_t n = 0;
    const auto bytes = take(sizeof(N));
    for (std::size_t i = 0; i < bytes.size(); ++i) n |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
    return static_cast<N>(n);
  }
  [[nodiscard]] std::uint8_t byte() noexcept { return number<std::uint8_t>(); }
  /// A choice below `n`, which is at most 256.
  [[nodiscard]] unsigned below(unsigned n) noexcept { return byte() % n; }
  [[nodiscard]] bool flag() noexcept { return below(2) == 1; }
  /// One of a few values.
  template <class T, std::size_t N>
  [[nodiscard]] const T& one_of(const T (&values)[N]) noexcept {
    return values[below(N)];
  }
  /// At most `most` bytes: a length (1 byte), then the bytes.
  [[nodiscard]] std::span<const std::byte> data(std::size_t most) noexcept {
    const std::size_t wanted = byte();
    return take(wanted < most ? wanted : most);
  }
  [[nodiscard]] std::span<const std::byte> rest() noexcept { return take(left_.size()); }

private:
  std::span<const std::byte> take(std::size_t n) noexcept {
    const auto bytes = left_.first(n < left_.size() ? n : left_.size());
    left_ = left_.subspan(bytes.size());
    return bytes;
  }
  std::span<const std::byte> left_;
};

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

} // namespace fuzz
