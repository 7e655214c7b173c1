// Waits until another thread of the test sleeps in a wait of the library.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "catch.hpp"

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace support {

/// Returns when the thread sleeps in ppoll. The thread stores its id when it begins.
inline void until_asleep(const std::atomic<pid_t>& thread, std::chrono::steady_clock::duration limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  for (std::string line; !line.starts_with(std::to_string(SYS_ppoll) + ' '); std::this_thread::yield()) {
    std::ifstream in("/proc/self/task/" + std::to_string(thread) + "/syscall");
    std::getline(in, line);
    if (std::chrono::steady_clock::now() > until) FAIL("the thread does not wait: " << line);
  }
}

} // namespace support
