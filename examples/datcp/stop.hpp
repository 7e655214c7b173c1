// Ctrl-C and SIGTERM.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <csignal>

namespace datcp {

inline std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may use it then");

/// From now on SIGINT and SIGTERM request the end of the program; the second one ends it at once.
inline void listen_to_signals() {
  struct ::sigaction action {};
  action.sa_handler = [](int) { stop_requested = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  // Exceeding the limit of file sizes is an error of one file, and must not end the program.
  std::signal(SIGXFSZ, SIG_IGN); // NOLINT(bugprone-*): no handler
}

} // namespace datcp
