// What the two sides of the comparison share: how many connections, and what is measured of them.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <malloc.h>
#include <string>

namespace connecting {

/// Queues of each endpoint, on both sides of the comparison.
inline constexpr std::uint32_t depth = 16;
inline constexpr std::uint32_t segments = 1;

/// What one turn does: `total` connections, of which `together` are under way at a time. Who accepts ends each as soon
/// as it is established: the last message of the handshake and a disconnect that follows it may change places in the
/// kernel, so the other side cannot know whether it has arrived. With `held` all stay until the last one is
/// established, memory is looked at, and who connects ends them.
struct job {
  std::size_t total = 0;
  std::size_t together = 1;
  bool held = false;
};

struct place {
  std::string local;
  std::string remote; ///< only who connects
  std::uint16_t port;
};

[[noreturn]] inline void give_up(const char* what, const char* why) {
  std::fprintf(stderr, "connect: %s: %s\n", what, why);
  std::exit(1);
}

/// Memory of this process, in bytes. The kernel's own is in neither number, but queues that it shares with the program
/// are in the second.
struct memory {
  std::size_t heap = 0;
  std::size_t resident = 0;

  [[nodiscard]] static memory now() {
    memory m;
    const auto info = ::mallinfo2();
    m.heap = info.uordblks + info.hblkhd;
    std::ifstream statm("/proc/self/statm");
    std::size_t all = 0;
    std::size_t pages = 0;
    if (statm >> all >> pages) m.resident = pages * 4096;
    return m;
  }
};

} // namespace connecting
