// The parts that both ends of the measurement share: the buffers, and the counters that its loops wait for.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace pingpong {

inline constexpr std::size_t largest = 64 * 1024; ///< bytes of a message
inline constexpr std::size_t receives = 16;       ///< receives that are posted at all times
inline constexpr std::uint32_t depth = 64;        ///< size of each queue of an endpoint
inline constexpr std::size_t window = 32;         ///< operations in flight while the rate is measured
inline constexpr std::size_t quiet = 16;          ///< sends of which one has a completion, where that is enough

/// One block of memory: the sent data, the peer's target, and the receives.
struct buffers {
  std::vector<char> memory = std::vector<char>((2 + receives) * largest);
  static constexpr std::size_t out = 0;
  static constexpr std::size_t target = largest;
  static constexpr std::size_t in(std::size_t i) { return (2 + i) * largest; }
};

/// How the program waits for completions.
enum class waiting { polling, events };

/// The number of completions so far.
struct counters {
  std::size_t sent = 0;
  std::size_t received = 0;
  std::size_t written = 0;
};

[[noreturn]] inline void give_up(const char* what, const char* why) {
  std::fprintf(stderr, "pingpong: %s: %s\n", what, why);
  std::exit(1);
}

} // namespace pingpong
