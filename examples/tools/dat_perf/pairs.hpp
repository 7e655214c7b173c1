// All pairs of a list of hosts, and the matrix of their results.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "options.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace perf {

struct host_entry {
  std::string name;    ///< for the launcher
  std::string address; ///< the address of its adapter; empty: the adapter that leads to the other host
  [[nodiscard]] const std::string& target() const { return address.empty() ? name : address; }
};

/// Reads a file with a host in each line: NAME [ADDRESS]. Throws with the number of a line that has another form.
[[nodiscard]] std::vector<host_entry> read_hosts(const std::string& file);

/// The result for a host that sends to another one: a figure, or the failure.
struct cell {
  std::optional<double> value;
  std::string problem;
};

struct matrix {
  std::vector<host_entry> hosts;
  std::vector<std::vector<cell>> cells; ///< indexed by the host that sends, then by the one that serves

  // What judge finds.
  double median = 0;
  struct pair {
    std::size_t from, to;
  };
  std::vector<pair> slow, failed;
  std::vector<std::size_t> slow_hosts, failed_hosts; ///< hosts all of whose pairs are so
  std::vector<std::string> missed;                   ///< thresholds, as sentences
};

/// Finds the slow and the failed pairs.
void judge(const options& o, matrix& all);
/// Whether a greater figure is better.
[[nodiscard]] bool greater_is_better(const std::string& figure);
/// Writes the matrix to the outputs that the options name.
void write(const options& o, const matrix& all);

/// Starts a server on each host, and clients for all pairs. Returns the exit code.
[[nodiscard]] int run_pairs(const options& o);

} // namespace perf
