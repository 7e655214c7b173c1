// Waits until another thread of the test sleeps in a wait of the library.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "catch.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace support {

/// The numbers of ppoll: of this program's machine, and of x86-64 and arm64. The kernel reports that of its own
/// machine, which under qemu-user is another one. No thread of a test sleeps in another call with one of these numbers.
inline constexpr std::array<long, 3> ppoll_numbers{SYS_ppoll, 271, 73};

/// Returns when the thread sleeps in ppoll. The thread stores its id when it begins.
inline void until_asleep(const std::atomic<pid_t>& thread, std::chrono::steady_clock::duration limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  std::string line;
  const auto waits = [&] {
    return std::ranges::any_of(ppoll_numbers, [&](long n) { return line.starts_with(std::to_string(n) + ' '); });
  };
  for (; !waits(); std::this_thread::yield()) {
    std::ifstream in("/proc/self/task/" + std::to_string(thread) + "/syscall");
    std::getline(in, line);
    if (std::chrono::steady_clock::now() > until) FAIL("the thread does not wait: " << line);
  }
}

} // namespace support
