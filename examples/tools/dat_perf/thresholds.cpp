// The figures of a result, and their limits.
// SPDX-License-Identifier: BSL-1.0
#include "results.hpp"
#include "units.hpp"

#include <fmt/format.h>

#include <stdexcept>

namespace perf {

double result::figure(const std::string& name) const {
  if (name == "min") return times.least();
  if (name == "mean") return times.mean();
  if (name == "p50") return times.percentile(0.5);
  if (name == "p90") return times.percentile(0.9);
  if (name == "p99") return times.percentile(0.99);
  if (name == "p99.9") return times.percentile(0.999);
  if (name == "max") return times.greatest();
  if (name == "rate") return rate();
  if (name == "bandwidth") return bandwidth();
  if (name == "lost") return sent == 0 ? 0 : 100. * static_cast<double>(lost) / static_cast<double>(sent);
  throw std::runtime_error("no figure " + name);
}

void check_thresholds(const options& o, report& all) {
  for (const threshold& t : o.thresholds)
    for (const result& r : all.results) {
      const double value = r.figure(t.figure);
      if (t.above ? value <= t.limit : value >= t.limit) continue;
      const std::string text = t.figure == "bandwidth" ? as_bandwidth(value)
                               : t.figure == "rate"    ? as_rate(value)
                               : t.figure == "lost"    ? fmt::format("{:.3f} %", value)
                                                       : as_time(value);
      const std::string where = o.run.test == test::connections ? "" : fmt::format(" of {} bytes", as_size(r.bytes));
      all.missed.push_back(
          fmt::format("{}{} is {}: {} {}", t.figure, where, text, t.above ? "--fail-above" : "--fail-below", t.text));
    }
}

} // namespace perf
