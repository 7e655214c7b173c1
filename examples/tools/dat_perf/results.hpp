// The results of a test: one for each size.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "histogram.hpp"
#include "options.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace perf {

/// The operations that one side has sent.
struct direction {
  std::uint64_t operations = 0; ///< operations that arrived
  double seconds = 0;
  [[nodiscard]] double rate() const { return seconds > 0 ? static_cast<double>(operations) / seconds : 0; }
};

struct result {
  std::uint32_t bytes = 0;
  direction out, back;                           ///< of the client; of the server, in a bidirectional test
  std::uint64_t sent = 0, lost = 0;              ///< datagrams
  std::vector<std::uint64_t> endpoints;          ///< operations of the client on each endpoint
  histogram times;                               ///< the times of a test of latency or connections
  std::vector<std::pair<double, double>> course; ///< seconds from the start, operations per second since the last

  [[nodiscard]] double rate() const { return out.rate() + back.rate(); }
  [[nodiscard]] double bandwidth() const { return 8. * bytes * rate(); } ///< bits per second
  /// A figure by its name: see figures_of.
  [[nodiscard]] double figure(const std::string& name) const;
};

/// The sides of a test.
struct place {
  std::string host, adapter, address;
};

struct report {
  place client, server;
  std::uint32_t max_inline = 0; ///< of both sides
  std::vector<result> results;
  std::vector<std::string> missed; ///< thresholds, as sentences
};

/// Runs the test of a client. Throws std::runtime_error with the step that failed.
[[nodiscard]] report run_client(const options& o);
/// Serves clients until a signal. Returns the exit code.
[[nodiscard]] int run_server(const options& o);

/// Compares the results with the thresholds.
void check_thresholds(const options& o, report& all);
/// Writes the results to the outputs that the options name.
void write(const options& o, const report& all);
/// Writes the known data of a failed test, if the options request JSON.
void write_failure(const options& o, const std::string& problem);

} // namespace perf
