// A histogram of times with a bounded relative error, which merges with others.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace perf {

/// Times in microseconds. The bins grow by `relative_error`, so that a percentile is exact within it. The least, the
/// greatest and the mean are exact.
class histogram {
public:
  static constexpr double relative_error = 0.01;

  histogram();
  histogram(const histogram& other);
  histogram(histogram&&) noexcept;
  histogram& operator=(const histogram& other);
  histogram& operator=(histogram&&) noexcept;
  ~histogram();

  void record(double microseconds);
  void merge(const histogram& other);

  [[nodiscard]] std::uint64_t count() const;
  [[nodiscard]] double least() const;    ///< 0 when nothing was recorded
  [[nodiscard]] double greatest() const; ///< 0 when nothing was recorded
  [[nodiscard]] double mean() const;     ///< 0 when nothing was recorded
  /// The time that `part` (0 to 1) of the times do not exceed.
  [[nodiscard]] double percentile(double part) const;

  /// The upper ends of the bins that are not empty, and their counts.
  [[nodiscard]] std::vector<std::pair<double, std::uint64_t>> bins() const;

private:
  struct state;
  std::unique_ptr<state> state_;
};

} // namespace perf
