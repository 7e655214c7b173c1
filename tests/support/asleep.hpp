// Waits until another thread of the test sleeps, in a wait of the library or for a lock.
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

/// The numbers of the system calls ppoll and futex, on this program's machine, on x86-64 and on arm64. The kernel
/// reports the number of its own machine, which under qemu-user is another machine. No thread of a test sleeps in
/// another call with one of these numbers.
inline constexpr std::array<long, 3> ppoll_numbers{SYS_ppoll, 271, 73};
inline constexpr std::array<long, 3> futex_numbers{SYS_futex, 202, 98};

/// Returns when the thread sleeps in one of the system calls, or `done` returns true. The thread stores its id when it
/// begins.
template <class Done>
void until_asleep_in(const std::array<long, 3>& calls, const std::atomic<pid_t>& thread,
                     std::chrono::steady_clock::duration limit, Done done) {
  const auto until = std::chrono::steady_clock::now() + limit;
  std::string line;
  const auto waits = [&] {
    return std::ranges::any_of(calls, [&](long n) { return line.starts_with(std::to_string(n) + ' '); });
  };
  for (; !waits() && !done(); std::this_thread::yield()) {
    std::ifstream in("/proc/self/task/" + std::to_string(thread) + "/syscall");
    std::getline(in, line);
    if (std::chrono::steady_clock::now() > until) FAIL("the thread does not wait: " << line);
  }
}

/// Returns when the thread sleeps in ppoll.
inline void until_asleep(const std::atomic<pid_t>& thread, std::chrono::steady_clock::duration limit) {
  until_asleep_in(ppoll_numbers, thread, limit, [] { return false; });
}
/// Returns when the thread sleeps because another one has a lock, or `done` returns true.
template <class Done>
void until_locked_out(const std::atomic<pid_t>& thread, std::chrono::steady_clock::duration limit, Done done) {
  until_asleep_in(futex_numbers, thread, limit, done);
}

} // namespace support
