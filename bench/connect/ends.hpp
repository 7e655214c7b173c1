// The parts that both sides of the comparison share: the number of connections, and the measured values.
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

/// Queue sizes of each endpoint, on both sides of the comparison.
inline constexpr std::uint32_t depth = 16;
inline constexpr std::uint32_t segments = 1;

/// The job of one turn: `total` connections, of which `together` are under way at a time. The accepting side
/// disconnects each connection as soon as it is established: the last handshake message and a disconnect behind it may
/// change places in the kernel, so the other side cannot know whether the message has arrived. With `held` all
/// connections stay until the last one is established, memory is measured, and the connecting side disconnects.
struct job {
  std::size_t total = 0;
  std::size_t together = 1;
  bool held = false;
};

struct place {
  std::string local;
  std::string remote; ///< set on the connecting side only
  std::uint16_t port;
};

[[noreturn]] inline void give_up(const char* what, const char* why) {
  std::fprintf(stderr, "connect: %s: %s\n", what, why);
  std::exit(1);
}

/// Memory of this process, in bytes. Kernel memory is in neither number, but queues that the kernel shares with the
/// program are in the second.
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
