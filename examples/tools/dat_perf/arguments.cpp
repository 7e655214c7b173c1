// Reads the arguments of dat-perf. Reports each wrong argument in an error that names the allowed values.
// SPDX-License-Identifier: BSL-1.0
#include "options.hpp"
#include "units.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

namespace perf {

namespace {

constexpr const char* help_text =
    "Measures latency, bandwidth, message rate and connections per second of RDMA between two hosts, or of all pairs "
    "of\n"
    "a list of hosts.\n"
    "  dat-perf                          on one host: a server, for one client after the other\n"
    "  dat-perf HOST latency             on the other\n"
    "  dat-perf HOST bandwidth --operation write --size 8..1MiB --json -\n"
    "  dat-perf HOST rate --fail-below rate=1M\n"
    "  dat-perf --all hosts.txt bandwidth --launch srun\n"
    "Exit codes: 0 success; 1 an error, which one line names; 2 wrong use; 3 a result beyond --fail-above or "
    "--fail-below.";

template <class Names>
std::string choices(const Names& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

[[noreturn]] void wrong(std::string_view option, const std::string& text) {
  throw CLI::ValidationError(std::string(option), text);
}

template <class Enum, class Names>
Enum choose(std::string_view option, const std::string& text, const Names& names) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) wrong(option, fmt::format("\"{}\" is none of {}", text, choices(names)));
  return static_cast<Enum>(found - names.begin());
}

std::uint64_t count_of(std::string_view option, const std::string& text, std::uint64_t least, std::uint64_t most) {
  const auto n = parse_count(text);
  if (!n || *n < least || *n > most)
    wrong(option, fmt::format("\"{}\" is no whole number from {} to {}", text, least, most));
  return *n;
}

double seconds_of(std::string_view option, const std::string& text, double least, double most) {
  const auto us = parse_microseconds(text);
  if (!us || *us < least * 1e6 || *us > most * 1e6)
    wrong(option, fmt::format("\"{}\" is no time from {} to {}; its unit is {}", text, as_time(least * 1e6),
                              as_time(most * 1e6), time_units));
  return *us / 1e6;
}

/// "8", "8,64KiB", "8..64KiB".
std::vector<std::uint32_t> sizes_of(const std::string& text) {
  const auto one = [&](std::string_view part) {
    const auto n = parse_size(part);
    if (!n || *n < 1 || *n > parameters::max_size)
      wrong("--size", fmt::format("\"{}\" is no size: 1 to {} bytes, as 8 or 64KiB; several as 8,64KiB; doubled from "
                                  "8 to 64 KiB as 8..64KiB",
                                  part, parameters::max_size));
    return static_cast<std::uint32_t>(*n);
  };
  std::vector<std::uint32_t> out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string_view part = std::string_view(text).substr(at, end - at);
    if (const std::size_t dots = part.find(".."); dots != std::string_view::npos) {
      const std::uint32_t first = one(part.substr(0, dots)), last = one(part.substr(dots + 2));
      if (first > last)
        wrong("--size", fmt::format("the range \"{}\" is empty: the first size exceeds the last", part));
      for (std::uint64_t n = first; n <= last; n *= 2) out.push_back(static_cast<std::uint32_t>(n));
    } else {
      out.push_back(one(part));
    }
    at = end + 1;
  }
  return out;
}

threshold threshold_of(bool above, const std::string& text, const parameters& run) {
  const std::string_view option = above ? "--fail-above" : "--fail-below";
  const std::size_t equals = text.find('=');
  const std::string figure = text.substr(0, equals);
  const auto figures = figures_of(run);
  if (equals == std::string::npos || std::find(figures.begin(), figures.end(), figure) == figures.end())
    wrong(option,
          fmt::format("\"{}\" is no FIGURE=LIMIT; figures of {} are {}", text, to_string(run.test), choices(figures)));
  const std::string limit = text.substr(equals + 1);
  const auto take = [&](std::optional<double> value, const std::string& what) {
    if (!value) wrong(option, fmt::format("\"{}\" is no {}", limit, what));
    return *value;
  };
  double value = 0;
  if (figure == "bandwidth") {
    value = take(parse_bandwidth(limit), fmt::format("bandwidth: a number and {}, as 10Gb/s", bandwidth_units));
  } else if (figure == "rate") {
    value = take(parse_rate(limit), "rate: a number of operations per second, as 500k or 1M");
  } else if (figure == "lost") {
    value = take(parse_per_cent(limit), "part of the datagrams in per cent, as 0.1%");
  } else {
    value = take(parse_microseconds(limit), fmt::format("time: a number and {}, as 20us", time_units));
  }
  return {above, figure, value, text};
}

/// The defaults that depend on the test, and the combinations that do not exist.
void settle(parameters& run, bool sizes_given, bool depth_given, bool warm_up_given) {
  const bool streams = run.test == test::bandwidth || run.test == test::rate;
  const auto needs_stream = [&](std::string_view option) {
    if (!streams)
      wrong(option, fmt::format("a {} test has no such option; bandwidth and rate have it", to_string(run.test)));
  };
  if (run.test == test::connections) {
    if (sizes_given) wrong("--size", "a connections test moves no data");
    if (run.operation != operation::send) wrong("--operation", "a connections test has no operation");
    if (run.mode == mode::coroutine) wrong("--mode", "a connections test has the modes polled and waiting");
  }
  if (run.bidirectional) needs_stream("--bidirectional");
  if (depth_given) needs_stream("--depth");
  if (warm_up_given && run.test != test::latency) wrong("--warm-up", "only a latency test has it");
  if (run.shared_queue &&
      (run.test == test::connections || run.operation == operation::datagram || !run.with_receives()))
    wrong("--shared-queue", "only the operations send and write-immediate take receives from a shared queue");
  if (run.mode == mode::coroutine && run.shared_queue)
    wrong("--shared-queue", "the coroutines post the receives of endpoints; use --mode polled or waiting");
  if (run.mode == mode::coroutine && run.operation == operation::datagram)
    wrong("--mode", "datagrams have the modes polled and waiting");
  if (!sizes_given) run.sizes = {run.test == test::bandwidth ? 65536u : 8u};
  if (run.atomic()) {
    if (sizes_given && run.sizes != std::vector<std::uint32_t>{8})
      wrong("--size", fmt::format("{} works on 8 bytes", to_string(run.operation)));
    run.sizes = {8};
  }
  if (run.operation == operation::datagram && !sizes_given) run.sizes = {run.test == test::bandwidth ? 1024u : 8u};
  if (run.test == test::connections) run.sizes = {1};
  if (!depth_given) run.depth = streams ? 64 : 1;
  if (run.test == test::latency && !warm_up_given) run.warm_up = 100;
}

} // namespace

std::vector<std::string_view> figures_of(const parameters& of) {
  std::vector<std::string_view> names;
  if (of.test == test::latency || of.test == test::connections)
    names = {"min", "mean", "p50", "p90", "p99", "p99.9", "max"};
  if (of.test != test::latency) names.emplace_back("rate");
  if (of.test == test::bandwidth || of.test == test::rate) names.emplace_back("bandwidth");
  if (of.operation == operation::datagram) names.emplace_back("lost");
  return names;
}

std::vector<std::string> arguments_of(const parameters& of) {
  std::vector<std::string> out{std::string(to_string(of.test)), "--mode", std::string(to_string(of.mode))};
  const auto add = [&](const char* option, const std::string& value) { out.insert(out.end(), {option, value}); };
  add("--endpoints", fmt::format("{}", of.endpoints));
  if (of.test != test::connections) {
    add("--operation", std::string(to_string(of.operation)));
    add("--size", fmt::format("{}", fmt::join(of.sizes, ",")));
    if (of.test != test::latency) add("--depth", fmt::format("{}", of.depth));
  }
  if (of.test == test::latency) add("--warm-up", fmt::format("{}", of.warm_up));
  if (of.iterations != 0)
    add("--iterations", fmt::format("{}", of.iterations));
  else
    add("--duration", fmt::format("{:.0f}us", of.seconds * 1e6));
  if (of.exact_inline) add("--inline", fmt::format("{}", of.max_inline));
  if (of.shared_queue) out.emplace_back("--shared-queue");
  if (of.bidirectional) out.emplace_back("--bidirectional");
  return out;
}

int read_arguments(int argc, char** argv, options& o) {
  CLI::App app(help_text, "dat-perf");
  parameters& run = o.run;
  std::string test_name, operation_name = "send", mode_name = "polled", sizes, duration = "2s", iterations,
                         endpoints = "1", depth, warm_up, max_inline, port = "7480", limit = "10s", slow = "2",
                         parallel = "1";
  std::vector<std::string> above, below;
  app.add_option("HOST", o.host, "Name or address of the server; without it, dat-perf is the server");
  app.add_option("TEST", test_name, choices(test_names));
  auto* const measured = "Measurement";
  app.add_option("--operation", operation_name, choices(operation_names))->capture_default_str()->group(measured);
  app.add_option("--mode", mode_name, choices(mode_names) + ": how each side gets its completions")
      ->capture_default_str()
      ->group(measured);
  app.add_option("--size", sizes, "Bytes of an operation: 8, 64KiB; 8,64KiB; 8..64KiB doubles (8; bandwidth: 64KiB)")
      ->group(measured);
  app.add_option("--depth", depth, "Operations under way at each endpoint (64)")->group(measured);
  app.add_option("--endpoints", endpoints, "Number of endpoints of each side")->capture_default_str()->group(measured);
  auto* const for_time = app.add_option("--duration", duration, "Time of each size, as 500ms or 10s")
                             ->capture_default_str()
                             ->group(measured);
  app.add_option("--iterations", iterations, "Operations of each endpoint, in place of a time")
      ->excludes(for_time)
      ->group(measured);
  app.add_option("--warm-up", warm_up, "Operations of each endpoint before a latency test measures (100)")
      ->group(measured);
  app.add_option("--inline", max_inline, "Requests of at most so many bytes carry their data (64, if the adapter can)")
      ->group(measured);
  app.add_flag("--shared-queue", run.shared_queue, "Receives come from one shared receive queue")->group(measured);
  app.add_flag("--bidirectional", run.bidirectional, "Both sides send at the same time")->group(measured);

  auto* const results = "Results";
  app.add_option("--json", o.json, "Write the results as JSON; - is the standard output")->group(results);
  app.add_option("--csv", o.csv, "Write the results as CSV; - is the standard output")->group(results);
  app.add_option("--plot", o.plot, "Draw the results by gnuplot: a file .png, .svg or .pdf")->group(results);
  app.add_flag("--progress", o.progress, "Print progress also where the standard error is no terminal")->group(results);
  app.add_option("--fail-above", above, "FIGURE=LIMIT: exit code 3 when a result is above, as p99=20us")
      ->group(results);
  app.add_option("--fail-below", below, "FIGURE=LIMIT: exit code 3 when a result is below, as bandwidth=10Gb/s")
      ->group(results);

  auto* const connection = "Connection";
  app.add_option("--address", o.address, "Use the adapter that has this address")->group(connection);
  app.add_option("--port", port, "Port of the server")->capture_default_str()->group(connection);
  app.add_option("--limit", limit, "Time that the peer may take for a step")->capture_default_str()->group(connection);
  app.add_flag("--once", o.once, "As server: end after one client")->group(connection);
  app.add_flag("--end-with-input", o.end_with_input, "As server: end when the standard input ends")->group(connection);

  auto* const pairs = "All pairs";
  auto* const all =
      app.add_option("--all", o.hosts, "Test all pairs of the hosts of this file; a line is NAME [ADDRESS]")
          ->group(pairs);
  for (auto* const option :
       {app.add_option("--launch", o.launch, "ssh, srun, mpi, or a command; {host} in it is the name of the host")
            ->capture_default_str(),
        app.add_option("--program", o.program, "dat-perf on the hosts")->capture_default_str(),
        app.add_option("--figure", o.figure, "What the matrix shows (latency: p50; otherwise bandwidth or rate)"),
        app.add_option("--slow", slow, "A pair is slow when it is so many times worse than the median")
            ->capture_default_str(),
        app.add_option("--parallel", parallel, "Pairs that are tested at the same time; a host is in one of them")
            ->capture_default_str()})
    option->needs(all)->group(pairs);

  try {
    app.parse(argc, argv);
    if (all->count() != 0) {
      o.role = role::all_pairs;
      if (!test_name.empty()) wrong("--all", "only a TEST goes with it, and no HOST");
      test_name = o.host.empty() ? "latency" : o.host;
      o.host.clear();
    } else if (!o.host.empty()) {
      o.role = role::client;
      if (test_name.empty()) wrong("TEST", "missing; it is one of " + choices(test_names));
    }
    o.port = static_cast<std::uint16_t>(count_of("--port", port, 1, 65535));
    o.limit = seconds_of("--limit", limit, 0.001, 3600);
    const bool for_client = o.role != role::server;
    if (!for_client) {
      for (auto* const option : app.get_options(
               [&](const CLI::Option* e) { return e->get_group() == measured || e->get_group() == results; }))
        if (option->count() != 0)
          wrong(option->get_name(), "it goes with HOST TEST: the server takes what its clients ask for");
      return 0;
    }
    if (o.once) wrong("--once", "only the server has it");
    if (o.end_with_input) wrong("--end-with-input", "only the server has it");
    run.test = choose<test>("TEST", test_name, test_names);
    run.operation = choose<operation>("--operation", operation_name, operation_names);
    run.mode = choose<mode>("--mode", mode_name, mode_names);
    if (!sizes.empty()) run.sizes = sizes_of(sizes);
    run.endpoints = static_cast<std::uint32_t>(count_of("--endpoints", endpoints, 1, parameters::max_endpoints));
    if (!depth.empty()) run.depth = static_cast<std::uint32_t>(count_of("--depth", depth, 1, parameters::max_depth));
    run.seconds = seconds_of("--duration", duration, 0.001, parameters::max_seconds);
    if (!iterations.empty()) run.iterations = count_of("--iterations", iterations, 1, 1'000'000'000'000);
    if (!warm_up.empty()) run.warm_up = static_cast<std::uint32_t>(count_of("--warm-up", warm_up, 0, 1'000'000));
    run.exact_inline = !max_inline.empty();
    if (run.exact_inline) run.max_inline = static_cast<std::uint32_t>(count_of("--inline", max_inline, 0, 65536));
    settle(run, !sizes.empty(), !depth.empty(), !warm_up.empty());
    for (const std::string& t : above) o.thresholds.push_back(threshold_of(true, t, run));
    for (const std::string& t : below) o.thresholds.push_back(threshold_of(false, t, run));

    if (o.json == "-" && o.csv == "-") wrong("--csv", "--json has the standard output already");
    if (!o.plot.empty() && !o.plot.ends_with(".png") && !o.plot.ends_with(".svg") && !o.plot.ends_with(".pdf"))
      wrong("--plot", fmt::format("\"{}\" does not end with .png, .svg or .pdf", o.plot));
    o.parallel = static_cast<std::uint32_t>(count_of("--parallel", parallel, 1, 1024));
    const auto factor = parse_number(slow);
    if (!factor || *factor <= 1 || *factor > 1e6)
      wrong("--slow", fmt::format("\"{}\" is no number above 1 up to 1000000", slow));
    o.slow = *factor;
    if (o.figure.empty())
      o.figure = run.test == test::latency ? "p50" : run.test == test::bandwidth ? "bandwidth" : "rate";
    if (const auto names = figures_of(run); std::find(names.begin(), names.end(), o.figure) == names.end())
      wrong("--figure", fmt::format("\"{}\" is none of {}", o.figure, choices(names)));
    if (o.role == role::all_pairs)
      for (const threshold& t : o.thresholds)
        if (t.figure != o.figure)
          wrong(t.above ? "--fail-above" : "--fail-below",
                fmt::format("the matrix has {}; --figure {} gives {}", o.figure, t.figure, t.figure));
    if (o.role == role::all_pairs && run.sizes.size() != 1) wrong("--size", "all pairs are tested with one size");
    if (o.launch.empty()) wrong("--launch", "it is ssh, srun, mpi, or a command");
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? -1 : wrong_use;
  }
  return 0;
}

} // namespace perf
