// The parameters of a test, which both sides agree on, and the other options of dat-perf.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace perf {

using clock = std::chrono::steady_clock;

enum class test : std::uint8_t { latency, bandwidth, rate, connections };
enum class operation : std::uint8_t { send, write, write_immediate, read, fetch_add, compare_swap, datagram };
enum class mode : std::uint8_t { polled, waiting, coroutine };

inline constexpr std::array<std::string_view, 4> test_names{"latency", "bandwidth", "rate", "connections"};
inline constexpr std::array<std::string_view, 7> operation_names{"send",      "write",        "write-immediate", "read",
                                                                 "fetch-add", "compare-swap", "datagram"};
inline constexpr std::array<std::string_view, 3> mode_names{"polled", "waiting", "coroutine"};

[[nodiscard]] constexpr std::string_view to_string(test t) { return test_names[static_cast<std::size_t>(t)]; }
[[nodiscard]] constexpr std::string_view to_string(operation o) { return operation_names[static_cast<std::size_t>(o)]; }
[[nodiscard]] constexpr std::string_view to_string(mode m) { return mode_names[static_cast<std::size_t>(m)]; }

/// The parameters that both sides agree on before a test.
struct parameters {
  perf::test test = test::latency;
  perf::operation operation = operation::send;
  perf::mode mode = mode::polled;
  bool shared_queue = false;
  bool bidirectional = false;
  std::uint32_t endpoints = 1;
  std::uint32_t depth = 1;          ///< operations under way at each endpoint
  std::vector<std::uint32_t> sizes; ///< bytes of one operation; each is one run
  double seconds = 2;               ///< the time of each run, unless `iterations` is set
  std::uint64_t iterations = 0;     ///< operations of each endpoint in each run; 0: as many as `seconds` allow
  std::uint32_t warm_up = 0;        ///< operations of each endpoint that a latency test does not measure
  std::uint32_t max_inline = 64;    ///< requests of at most so many bytes are posted with inline data
  bool exact_inline = false;        ///< whether a device without so much inline data is an error

  static constexpr std::uint32_t max_endpoints = 1024;
  static constexpr std::uint32_t max_depth = 8192;
  static constexpr std::uint32_t max_size = 1u << 30;
  static constexpr double max_seconds = 24 * 60 * 60;

  [[nodiscard]] bool atomic() const {
    return operation == operation::fetch_add || operation == operation::compare_swap;
  }
  /// Whether each operation arrives in a receive of the peer.
  [[nodiscard]] bool with_receives() const {
    return operation == operation::send || operation == operation::write_immediate || operation == operation::datagram;
  }
  /// Whether a latency test sends messages there and back. Other operations are measured from post to completion.
  [[nodiscard]] bool there_and_back() const { return test == test::latency && with_receives(); }
  [[nodiscard]] std::uint32_t largest() const {
    std::uint32_t most = 1;
    for (const std::uint32_t s : sizes) most = s > most ? s : most;
    return most;
  }
};

/// A limit of a result, which sets the exit code.
struct threshold {
  bool above;         ///< whether results above the limit fail, or those below
  std::string figure; ///< "p99", "bandwidth", ...
  double limit;       ///< in microseconds, bits per second, per second, or per cent
  std::string text;   ///< the limit as it was given
};

enum class role : std::uint8_t { server, client, all_pairs };

struct options {
  perf::role role = role::server;
  parameters run;
  std::vector<threshold> thresholds;
  std::string host;    ///< the host of the server
  std::string address; ///< the address of the adapter of this side
  std::uint16_t port = 7480;
  double limit = 10; ///< seconds that the peer may take for a step
  bool once = false;
  bool end_with_input = false;
  bool progress = false;
  std::string json, csv, plot; ///< files; "-" is the standard output

  std::string hosts; ///< the file with the list of hosts
  std::string launch = "ssh";
  std::string program = "dat-perf"; ///< on the hosts
  std::string figure;               ///< the figure that the matrix shows
  double slow = 2;                  ///< times worse than the median
  std::uint32_t parallel = 1;
};

/// Exit codes besides 0.
inline constexpr int failed = 1, wrong_use = 2, threshold_missed = 3;

/// Reads the arguments. Returns 0, or -1 when help was requested and printed, or `wrong_use` after an error.
[[nodiscard]] int read_arguments(int argc, char** argv, options& into);

/// The arguments by which another process gets the same parameters.
[[nodiscard]] std::vector<std::string> arguments_of(const parameters& of);

/// The names of the figures of a test, for thresholds and for the matrix.
[[nodiscard]] std::vector<std::string_view> figures_of(const parameters& of);

} // namespace perf
