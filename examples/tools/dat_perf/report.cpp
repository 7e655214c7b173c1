// Writes results as a table, as JSON and as CSV.
// SPDX-License-Identifier: BSL-1.0
#include "output.hpp"
#include "plot.hpp"
#include "results.hpp"
#include "units.hpp"

#include <dat/version.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace perf {

namespace {

using ordered = nlohmann::ordered_json;

ordered described(const place& p) { return {{"host", p.host}, {"adapter", p.adapter}, {"address", p.address}}; }

ordered described(const result& r, const direction& d) {
  return {{"operations", d.operations},
          {"seconds", d.seconds},
          {"per_second", d.rate()},
          {"bits_per_second", 8. * r.bytes * d.rate()}};
}

ordered described(const options& o, const result& r) {
  const bool moves = o.run.test != test::connections;
  ordered j;
  if (moves) j["bytes"] = r.bytes;
  j["operations"] = r.out.operations + r.back.operations;
  j["seconds"] = r.out.seconds;
  for (const std::string_view name : figures_of(o.run)) {
    const double value = r.figure(std::string(name));
    if (name == "rate")
      j["per_second"] = value;
    else if (name == "bandwidth")
      j["bits_per_second"] = value;
    else if (name == "lost")
      j["lost"] = {{"sent", r.sent}, {"lost", r.lost}, {"per_cent", value}};
    else
      j["microseconds"][std::string(name)] = value;
  }
  if (o.run.bidirectional) j["directions"] = {described(r, r.out), described(r, r.back)};
  j["operations_of_endpoints"] = r.endpoints;
  if (r.times.count() != 0) {
    j["histogram"] = {{"relative_error", histogram::relative_error}, {"unit", "microseconds"}};
    j["histogram"]["bins"] = ordered::array();
    for (const auto& [end, count] : r.times.bins())
      j["histogram"]["bins"].push_back({std::min(end, r.times.greatest()), count});
  }
  return j;
}

std::string measured(const parameters& run) {
  if (run.test == test::connections) return "from connect to established";
  return run.there_and_back() ? "half of the time there and back" : "from post to completion";
}

std::string table(const options& o, const report& all) {
  const parameters& run = o.run;
  const auto figures = figures_of(run);
  std::string out =
      fmt::format("{}{}, {} ({}) to {} ({}), {}, {} endpoint{}{}{}{}\n", to_string(run.test),
                  run.test == test::connections ? "" : fmt::format(" of {}", to_string(run.operation)),
                  all.client.address, all.client.adapter, all.server.address, all.server.adapter, to_string(run.mode),
                  run.endpoints, run.endpoints == 1 ? "" : "s",
                  run.test == test::bandwidth || run.test == test::rate ? fmt::format(", depth {}", run.depth) : "",
                  run.shared_queue ? ", shared queue" : "", run.bidirectional ? ", both directions" : "");
  const bool moves = run.test != test::connections, times = run.test == test::latency || !moves;
  if (moves) out += fmt::format("{:>10} ", "bytes");
  out += fmt::format("{:>11}", "operations");
  for (const auto name : figures)
    out += name == "rate" || name == "bandwidth" ? fmt::format(" {:>13}", name) : fmt::format(" {:>9}", name);
  out += '\n';
  for (const result& r : all.results) {
    if (moves) out += fmt::format("{:>10} ", r.bytes);
    out += fmt::format("{:>11}", r.out.operations + r.back.operations);
    for (const auto name : figures) {
      const double value = r.figure(std::string(name));
      out += name == "rate"        ? fmt::format(" {:>13}", as_rate(value))
             : name == "bandwidth" ? fmt::format(" {:>13}", as_bandwidth(value))
             : name == "lost"      ? fmt::format(" {:>7.3f} %", value)
                                   : fmt::format(" {:>9.2f}", value);
    }
    out += '\n';
  }
  if (times)
    out += fmt::format("times in microseconds, {}; percentiles within {:.0f} %\n", measured(run),
                       100 * histogram::relative_error);
  return out;
}

std::string csv(const options& o, const report& all) {
  const parameters& run = o.run;
  std::string out =
      "test,operation,mode,endpoints,depth,shared_queue,bidirectional,bytes,operations,seconds,per_second,"
      "bits_per_second,sent,lost,min_us,mean_us,p50_us,p90_us,p99_us,p99.9_us,max_us\n";
  for (const result& r : all.results) {
    const bool moves = run.test != test::connections;
    out += fmt::format("{},{},{},{},{},{:d},{:d},{},{},{},{},{},{},{}", to_string(run.test),
                       moves ? to_string(run.operation) : "", to_string(run.mode), run.endpoints, run.depth,
                       run.shared_queue, run.bidirectional, moves ? r.bytes : 0, r.out.operations + r.back.operations,
                       r.out.seconds, r.rate(), moves ? r.bandwidth() : 0, moves ? r.sent : 0, r.lost);
    for (const char* const name : {"min", "mean", "p50", "p90", "p99", "p99.9", "max"})
      out += r.times.count() != 0 ? fmt::format(",{}", r.figure(name)) : ",";
    out += '\n';
  }
  return out;
}

} // namespace

ordered described(const options& o) {
  const parameters& run = o.run;
  ordered p = {{"mode", to_string(run.mode)}, {"endpoints", run.endpoints}};
  if (run.test != test::connections) {
    p["operation"] = to_string(run.operation);
    p["depth"] = run.depth;
    p["shared_queue"] = run.shared_queue;
    p["bidirectional"] = run.bidirectional;
  }
  if (run.iterations != 0)
    p["iterations"] = run.iterations;
  else
    p["duration_seconds"] = run.seconds;
  if (run.test == test::latency) p["warm_up"] = run.warm_up;
  return {{"dat_perf", 1},
          {"version", fmt::format("{}.{}.{}", DAT_VERSION_MAJOR, DAT_VERSION_MINOR, DAT_VERSION_PATCH)},
          {"test", to_string(run.test)},
          {"parameters", p}};
}

void put(const std::string& where, const std::string& text) {
  std::FILE* const file = where == "-" ? stdout : std::fopen(where.c_str(), "w");
  const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = file == nullptr || (file == stdout ? std::fflush(file) : std::fclose(file)) == 0;
  if (!written || !closed) throw std::runtime_error(fmt::format("cannot write {}: {}", where, std::strerror(errno)));
}

void write(const options& o, const report& all) {
  if (o.json != "-" && o.csv != "-") put("-", table(o, all));
  if (!o.json.empty()) {
    ordered j = described(o);
    j["ok"] = all.missed.empty();
    j["client"] = described(all.client);
    j["server"] = described(all.server);
    if (o.run.test != test::connections) j["parameters"]["inline"] = all.max_inline;
    if (o.run.test == test::latency || o.run.test == test::connections) j["measured"] = measured(o.run);
    j["results"] = ordered::array();
    for (const result& r : all.results) j["results"].push_back(described(o, r));
    j["missed"] = all.missed;
    put(o.json, j.dump(2, ' ', false, ordered::error_handler_t::replace) + '\n');
  }
  if (!o.csv.empty()) put(o.csv, csv(o, all));
  if (!o.plot.empty()) plot(o, all);
}

void write_failure(const options& o, const std::string& problem) {
  if (o.json.empty()) return;
  ordered j = described(o);
  j["ok"] = false;
  j["host"] = o.host;
  j["problem"] = problem;
  put(o.json, j.dump(2, ' ', false, ordered::error_handler_t::replace) + '\n');
}

} // namespace perf
