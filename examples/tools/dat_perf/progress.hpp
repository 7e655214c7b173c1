// The line that shows the progress of a run, and the rates over its time.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "options.hpp"
#include "worker.hpp"

#include <cstdint>
#include <utility>
#include <vector>

namespace perf {

class progress {
public:
  explicit progress(const options& o);
  /// Returns the function that a worker calls during a run with operations of `size` bytes.
  [[nodiscard]] observer begin(std::uint32_t size);
  /// Seconds from the start, and operations per second since the last.
  [[nodiscard]] const std::vector<std::pair<double, double>>& course() const { return course_; }
  /// Removes the line.
  void end();

private:
  void update(clock::time_point now, std::uint64_t operations);
  void show(double seconds, std::uint64_t operations, double rate);

  const options& o_;
  bool terminal_;
  std::uint32_t size_ = 0;
  clock::time_point start_, last_, shown_;
  std::uint64_t before_ = 0;
  std::vector<std::pair<double, double>> course_;
};

/// The name of this host.
[[nodiscard]] std::string host_name();

} // namespace perf
