// The matrix of all pairs: which are slow, and its forms.
// SPDX-License-Identifier: BSL-1.0
#include "output.hpp"
#include "pairs.hpp"
#include "plot.hpp"
#include "units.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace perf {

namespace {

std::string as_figure(const std::string& figure, double value) {
  return figure == "bandwidth" ? as_bandwidth(value)
         : figure == "rate"    ? as_rate(value)
         : figure == "lost"    ? fmt::format("{:.3f} %", value)
                               : as_time(value);
}

std::string_view unit_of(const std::string& figure) {
  return figure == "bandwidth" ? "bits_per_second"
         : figure == "rate"    ? "per_second"
         : figure == "lost"    ? "per_cent"
                               : "microseconds";
}

template <class F>
void each_pair(const matrix& all, F f) {
  for (std::size_t from = 0; from < all.hosts.size(); ++from)
    for (std::size_t to = 0; to < all.hosts.size(); ++to)
      if (from != to) f(matrix::pair{from, to}, all.cells[from][to]);
}

/// Hosts all of whose pairs are of this kind; with `only_results`, pairs that have failed do not count.
std::vector<std::size_t> hosts_of_only(const matrix& all, const std::vector<matrix::pair>& kind, bool only_results) {
  std::vector<std::size_t> out;
  for (std::size_t h = 0; h < all.hosts.size(); ++h) {
    std::size_t pairs = 0;
    each_pair(all, [&](const matrix::pair& p, const cell& c) {
      if ((p.from == h || p.to == h) && (c.value || !only_results)) ++pairs;
    });
    const auto with = std::count_if(kind.begin(), kind.end(), [&](const auto& p) { return p.from == h || p.to == h; });
    if (pairs >= 2 && static_cast<std::size_t>(with) == pairs) out.push_back(h);
  }
  return out;
}

bool contains(const std::vector<matrix::pair>& pairs, std::size_t from, std::size_t to) {
  return std::any_of(pairs.begin(), pairs.end(), [&](const auto& p) { return p.from == from && p.to == to; });
}

std::string title(const options& o) {
  return fmt::format("{}{}: {}", to_string(o.run.test),
                     o.run.test == test::connections
                         ? ""
                         : fmt::format(" of {}, {} bytes", to_string(o.run.operation), as_size(o.run.sizes.front())),
                     o.figure);
}

std::string as_text(const options& o, const matrix& all) {
  std::size_t width = 10;
  for (const host_entry& h : all.hosts) width = std::max(width, h.name.size());
  std::string out = fmt::format("{}; a row sends to the columns\n{:{}}", title(o), "", width);
  for (const host_entry& h : all.hosts) out += fmt::format("  {:>{}}", h.name, width + 1);
  out += '\n';
  for (std::size_t from = 0; from < all.hosts.size(); ++from) {
    out += fmt::format("{:{}}", all.hosts[from].name, width);
    for (std::size_t to = 0; to < all.hosts.size(); ++to) {
      const cell& c = all.cells[from][to];
      out += fmt::format("  {:>{}}{}",
                         from == to ? "-"
                         : c.value  ? as_figure(o.figure, *c.value)
                                    : "failed",
                         width, contains(all.slow, from, to) ? '*' : ' ');
    }
    out += '\n';
  }
  if (all.failed.size() != all.hosts.size() * (all.hosts.size() - 1))
    out += fmt::format("median {}; * is {} times worse, or more\n", as_figure(o.figure, all.median), o.slow);
  for (const auto& p : all.slow)
    out += fmt::format("slow: {} to {}: {}\n", all.hosts[p.from].name, all.hosts[p.to].name,
                       as_figure(o.figure, *all.cells[p.from][p.to].value));
  for (const auto& p : all.failed)
    out += fmt::format("failed: {} to {}: {}\n", all.hosts[p.from].name, all.hosts[p.to].name,
                       all.cells[p.from][p.to].problem);
  for (const std::size_t h : all.slow_hosts)
    out += fmt::format("every pair with {} is slow: check its adapter and its cable\n", all.hosts[h].name);
  for (const std::size_t h : all.failed_hosts)
    out += fmt::format("every pair with {} has failed: run dat-info on it\n", all.hosts[h].name);
  return out;
}

std::string as_json(const options& o, const matrix& all) {
  using ordered = nlohmann::ordered_json;
  ordered j = described(o);
  j["ok"] = all.failed.empty() && all.slow.empty() && all.missed.empty();
  j["figure"] = o.figure;
  j["unit"] = unit_of(o.figure);
  j["median"] = all.median;
  j["slow_factor"] = o.slow;
  const auto name = [&](std::size_t h) { return all.hosts[h].name; };
  const auto names = [&](const std::vector<std::size_t>& hosts) {
    ordered out = ordered::array();
    for (const std::size_t h : hosts) out.push_back(name(h));
    return out;
  };
  const auto list = [&](const std::vector<matrix::pair>& pairs) {
    ordered out = ordered::array();
    for (const auto& p : pairs) out.push_back({{"from", name(p.from)}, {"to", name(p.to)}});
    return out;
  };
  j["hosts"] = ordered::array();
  for (const host_entry& h : all.hosts) j["hosts"].push_back({{"name", h.name}, {"address", h.address}});
  j["pairs"] = ordered::array();
  each_pair(all, [&](const matrix::pair& p, const cell& c) {
    ordered one = {{"from", name(p.from)}, {"to", name(p.to)}};
    if (c.value)
      one["value"] = *c.value;
    else
      one["problem"] = c.problem;
    j["pairs"].push_back(one);
  });
  j["slow"] = list(all.slow);
  j["failed"] = list(all.failed);
  j["slow_hosts"] = names(all.slow_hosts);
  j["failed_hosts"] = names(all.failed_hosts);
  j["missed"] = all.missed;
  return j.dump(2, ' ', false, ordered::error_handler_t::replace) + '\n';
}

std::string as_csv(const options& o, const matrix& all) {
  std::string out = fmt::format("from,to,{}_{},slow,problem\n", o.figure, unit_of(o.figure));
  each_pair(all, [&](const matrix::pair& p, const cell& c) {
    std::string problem;
    for (const char letter : c.problem) problem += letter == '"' ? std::string("\"\"") : std::string(1, letter);
    out += fmt::format("{},{},{},{:d},\"{}\"\n", all.hosts[p.from].name, all.hosts[p.to].name,
                       c.value ? fmt::format("{}", *c.value) : "", contains(all.slow, p.from, p.to), problem);
  });
  return out;
}

void draw(const options& o, const matrix& all) {
  const std::size_t n = all.hosts.size();
  std::string tics, labels, rows;
  for (std::size_t h = 0; h < n; ++h) tics += fmt::format("{}\"{}\" {}", h == 0 ? "" : ", ", all.hosts[h].name, h);
  for (std::size_t from = 0; from < n; ++from) {
    for (std::size_t to = 0; to < n; ++to) {
      const cell& c = all.cells[from][to];
      const bool slow = contains(all.slow, from, to);
      if (from != to)
        labels += fmt::format("set label \"{}\" at {},{} center front noenhanced{}\n",
                              c.value ? as_figure(o.figure, *c.value) : "failed", to, from,
                              slow || !c.value ? " textcolor rgb \"#c00000\"" : "");
      if (c.value) rows += fmt::format("{} {} 0.5 0.5 {}\n", to, from, *c.value);
    }
  }
  gnuplot(
      o.plot,
      fmt::format(
          "set title \"{}\" noenhanced\nunset key\nunset grid\nset xtics ({}) rotate by -30 noenhanced\nset ytics ({}) "
          "noenhanced\nset xrange [-0.5:{}]\nset yrange [{}:-0.5]\nset xlabel \"to\"\nset ylabel \"from\"\n"
          "set cblabel \"{}\"\n{}set palette defined (0 \"{}\", 1 \"{}\")\n{}plot {}",
          title(o), tics, tics, static_cast<double>(n) - 0.5, static_cast<double>(n) - 0.5, unit_of(o.figure),
          o.figure == "lost" ? "" : "set logscale cb\n", greater_is_better(o.figure) ? "#f0c0a0" : "#d0e8d0",
          greater_is_better(o.figure) ? "#d0e8d0" : "#f0c0a0", labels,
          rows.empty() ? "NaN" : "'-' using 1:2:3:4:5 with boxxyerror palette fillstyle solid\n" + rows + "e"));
}

} // namespace

bool greater_is_better(const std::string& figure) { return figure == "rate" || figure == "bandwidth"; }

void judge(const options& o, matrix& all) {
  const bool greater = greater_is_better(o.figure);
  std::vector<double> values;
  each_pair(all, [&](const matrix::pair& p, const cell& c) {
    if (c.value)
      values.push_back(*c.value);
    else
      all.failed.push_back(p);
  });
  // The best value comes first: of two values, the better one is the median.
  std::sort(values.begin(), values.end());
  if (greater) std::reverse(values.begin(), values.end());
  if (!values.empty()) all.median = values[(values.size() - 1) / 2];
  each_pair(all, [&](const matrix::pair& p, const cell& c) {
    if (!c.value) return;
    if (greater ? *c.value * o.slow <= all.median : *c.value >= all.median * o.slow && *c.value > 0)
      all.slow.push_back(p);
    for (const threshold& t : o.thresholds)
      if (t.above ? *c.value > t.limit : *c.value < t.limit)
        all.missed.push_back(fmt::format("{} from {} to {} is {}: {} {}", t.figure, all.hosts[p.from].name,
                                         all.hosts[p.to].name, as_figure(o.figure, *c.value),
                                         t.above ? "--fail-above" : "--fail-below", t.text));
  });
  all.slow_hosts = hosts_of_only(all, all.slow, true);
  all.failed_hosts = hosts_of_only(all, all.failed, false);
}

void write(const options& o, const matrix& all) {
  if (o.json != "-" && o.csv != "-") put("-", as_text(o, all));
  if (!o.json.empty()) put(o.json, as_json(o, all));
  if (!o.csv.empty()) put(o.csv, as_csv(o, all));
  if (!o.plot.empty()) draw(o, all);
}

} // namespace perf
