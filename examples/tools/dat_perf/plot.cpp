// Pictures of results, which gnuplot draws.
// SPDX-License-Identifier: BSL-1.0
#include "plot.hpp"

#include <fmt/format.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace perf {

void need_gnuplot() {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (access((folder + "/gnuplot").c_str(), X_OK) == 0) return;
  throw std::runtime_error("--plot: the program gnuplot is not in the PATH: install it (Debian: gnuplot-nox), or use "
                           "--json or --csv with another program");
}

void gnuplot(const std::string& file, const std::string& commands) {
  std::string quoted;
  for (const char c : file) quoted += c == '\'' ? std::string("''") : std::string(1, c);
  const std::string format = file.ends_with(".svg")   ? "svg size 900,550"
                             : file.ends_with(".pdf") ? "pdfcairo size 9in,5.5in"
                                                      : "pngcairo size 900,550";
  std::FILE* const pipe = popen("gnuplot", "w");
  if (pipe == nullptr) throw std::runtime_error("--plot: gnuplot cannot be started");
  fmt::print(pipe, "set terminal {}\nset output '{}'\nset grid\n{}\n", format, quoted, commands);
  if (const int status = pclose(pipe); status != 0)
    throw std::runtime_error(
        fmt::format("--plot: gnuplot has failed with exit code {}", WIFEXITED(status) ? WEXITSTATUS(status) : status));
}

namespace {

std::string series(const report& all, const std::string& figure, double unit) {
  std::string out;
  for (const result& r : all.results) out += fmt::format("{} {}\n", r.bytes, r.figure(figure) / unit);
  return out + "e\n";
}

} // namespace

void plot(const options& o, const report& all) {
  const parameters& run = o.run;
  std::string out = fmt::format("set title '{} of {}, {} to {}, {}' noenhanced\n", to_string(run.test),
                                run.test == test::connections ? "connect" : to_string(run.operation),
                                all.client.address, all.server.address, to_string(run.mode));
  const bool times = run.test == test::latency || run.test == test::connections;
  if (all.results.size() > 1) {
    out += "set xlabel 'bytes'\nset logscale x 2\n";
    if (times)
      out += "set ylabel 'microseconds'\nset logscale y\nplot '-' with linespoints title 'p50', '-' with linespoints "
             "title "
             "'p99', '-' with linespoints title 'p99.9'\n" +
             series(all, "p50", 1) + series(all, "p99", 1) + series(all, "p99.9", 1);
    else if (run.test == test::bandwidth)
      out += "set ylabel 'Gb/s'\nset yrange [0:*]\nplot '-' with linespoints notitle\n" + series(all, "bandwidth", 1e9);
    else
      out += "set ylabel 'operations per second'\nset yrange [0:*]\nplot '-' with linespoints notitle\n" +
             series(all, "rate", 1);
    return gnuplot(o.plot, out);
  }
  const result& one = all.results.front();
  if (times) {
    out += "set xlabel 'microseconds'\nset logscale x\nset ylabel 'per cent that took no longer'\nplot '-' with steps "
           "notitle\n";
    double sum = 0;
    for (const auto& [end, count] : one.times.bins()) {
      sum += static_cast<double>(count);
      out += fmt::format("{} {}\n", std::min(end, one.times.greatest()),
                         100 * sum / static_cast<double>(one.times.count()));
    }
  } else {
    const double unit = run.test == test::bandwidth ? 1e9 / 8 / one.bytes : 1;
    out += fmt::format(
        "set xlabel 'seconds'\nset yrange [0:*]\nset ylabel '{}'\nplot '-' with lines title 'from the client', {} "
        "title 'on average'\n",
        run.test == test::bandwidth ? "Gb/s" : "operations per second", one.out.rate() / unit);
    out += fmt::format("0 {}\n", (one.course.empty() ? one.out.rate() : one.course.front().second) / unit);
    for (const auto& [second, rate] : one.course) out += fmt::format("{} {}\n", second, rate / unit);
  }
  gnuplot(o.plot, out + "e\n");
}

} // namespace perf
