// Completions as the tests count them, from evds of every kind.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/dat.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <span>

namespace perf {

/// The streams of the evd for completions. It is a completions-only evd, or a merged one with a shared receive queue,
/// which needs that.
inline constexpr dat::streams lean = dat::stream::dto | dat::stream::datagrams;
inline constexpr dat::streams merged = dat::stream::dto | dat::stream::datagrams | dat::stream::software;

/// The kind of a posted operation, from its cookie.
struct ticket {
  enum class kind : std::uint8_t { request, credit, receive };
  kind what = kind::request;
  std::uint32_t endpoint = 0, slot = 0;

  [[nodiscard]] std::uint64_t cookie() const {
    return static_cast<std::uint64_t>(what) << 62 | static_cast<std::uint64_t>(endpoint) << 32 | slot;
  }
  static ticket of(std::uint64_t cookie) {
    return {static_cast<kind>(cookie >> 62), static_cast<std::uint32_t>(cookie >> 32) & 0x3fffffffu,
            static_cast<std::uint32_t>(cookie)};
  }
};

/// A completion without an error.
struct finished {
  ticket of;
  std::uint32_t bytes = 0;     ///< for a receive: without the header of a datagram
  std::uint32_t immediate = 0; ///< for a receive; 0 without immediate data
};

/// Takes completions. A failed operation throws std::runtime_error.
class completion_source {
public:
  completion_source(const completion_source&) = delete;
  completion_source& operator=(const completion_source&) = delete;
  virtual ~completion_source() = default;
  /// Takes the completions that are there.
  virtual std::span<const finished> poll() = 0;
  /// Takes completions, and sleeps for at most `limit` while there is none. Empty after `limit`, after wake, and after
  /// a signal.
  virtual std::span<const finished> wait(dat::timeout limit) = 0;
  /// Ends the wait of another thread, or the next one.
  virtual void wake() = 0;

protected:
  completion_source() = default;
};

[[nodiscard]] std::unique_ptr<completion_source> source_of(dat::evd<lean>& evd);
/// The endpoint of a receive is here the context of its endpoint: any endpoint of a shared queue can take a buffer.
[[nodiscard]] std::unique_ptr<completion_source> source_of(dat::evd<merged>& evd);

} // namespace perf
