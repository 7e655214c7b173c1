// Runs a call of the library in a signal handler.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <csignal>
#include <functional>

namespace support {

/// Runs `call` in a handler of SIGUSR1, which this thread raises, and returns its result. One thread at a time.
inline bool in_handler(const std::function<bool()>& call) {
  static const std::function<bool()>* called;
  static bool result;
  called = &call;
  result = false;
  const auto before = std::signal(SIGUSR1, [](int) { result = (*called)(); });
  std::raise(SIGUSR1);
  std::signal(SIGUSR1, before);
  called = nullptr;
  return result;
}

} // namespace support
