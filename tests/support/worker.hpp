// A thread of a test. Catch2's assertions belong to the test's own thread: a worker records its failed checks, and join
// reports them.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "catch.hpp"

#include <string>
#include <thread>
#include <utility>

namespace support {

class worker {
public:
  /// Runs `body(*this)` in a thread of its own.
  template <class Body>
  explicit worker(Body body) : thread_([this, body = std::move(body)]() mutable { body(*this); }) {}
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;
  ~worker() {
    if (thread_.joinable()) join();
  }

  /// The worker calls this function: CHECK(claim).
  void check(bool claim, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    if (claim) return;
    failed_ += ' ';
    failed_ += file;
    failed_ += ':';
    failed_ += std::to_string(line);
  }
  /// The test calls this function: waits for the end of the worker and reports its failed checks.
  void join() {
    thread_.join();
    CHECK(failed_ == "");
  }

private:
  std::string failed_;
  std::jthread thread_;
};

} // namespace support
