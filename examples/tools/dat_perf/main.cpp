// dat-perf: measures latency, bandwidth, message rate and connections per second between two hosts, or all pairs of
// hosts.
// SPDX-License-Identifier: BSL-1.0
#include "pairs.hpp"
#include "plot.hpp"
#include "results.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <exception>

namespace {

int run(const perf::options& o) {
  if (o.role == perf::role::server) return perf::run_server(o);
  if (o.role == perf::role::all_pairs) return perf::run_pairs(o);
  try {
    if (!o.plot.empty()) perf::need_gnuplot();
    perf::report all = perf::run_client(o);
    perf::check_thresholds(o, all);
    perf::write(o, all);
    for (const std::string& text : all.missed) fmt::print(stderr, "dat-perf: {}\n", text);
    return all.missed.empty() ? 0 : perf::threshold_missed;
  } catch (const std::exception& e) {
    perf::write_failure(o, e.what());
    throw;
  }
}

} // namespace

int main(int argc, char** argv) {
  try {
    perf::options o;
    if (const int code = perf::read_arguments(argc, argv, o); code != 0) return code < 0 ? 0 : code;
    return run(o);
  } catch (const std::exception& e) {
    fmt::print(stderr, "dat-perf: {}\n", e.what());
    return perf::failed;
  }
}
