// Reads and prints numbers with units.
// SPDX-License-Identifier: BSL-1.0
#include "units.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <span>

namespace perf {

namespace {

struct unit {
  std::string_view name;
  double factor;
};

constexpr std::array<unit, 6> times{{{"ns", 1e-3}, {"us", 1}, {"ms", 1e3}, {"s", 1e6}, {"min", 6e7}, {"h", 3.6e9}}};
constexpr std::array<unit, 12> bandwidths{{{"b/s", 1},
                                           {"kb/s", 1e3},
                                           {"Mb/s", 1e6},
                                           {"Gb/s", 1e9},
                                           {"Tb/s", 1e12},
                                           {"B/s", 8},
                                           {"kB/s", 8e3},
                                           {"MB/s", 8e6},
                                           {"GB/s", 8e9},
                                           {"KiB/s", 8. * 1024},
                                           {"MiB/s", 8. * 1024 * 1024},
                                           {"GiB/s", 8. * 1024 * 1024 * 1024}}};
constexpr std::array<unit, 8> rates{
    {{"", 1}, {"/s", 1}, {"k", 1e3}, {"k/s", 1e3}, {"M", 1e6}, {"M/s", 1e6}, {"G", 1e9}, {"G/s", 1e9}}};
constexpr std::array<unit, 9> sizes{{{"", 1},
                                     {"B", 1},
                                     {"K", 1024},
                                     {"KiB", 1024},
                                     {"M", 1024. * 1024},
                                     {"MiB", 1024. * 1024},
                                     {"G", 1024. * 1024 * 1024},
                                     {"GiB", 1024. * 1024 * 1024},
                                     {"bytes", 1}}};
constexpr std::array<unit, 2> per_cents{{{"", 1}, {"%", 1}}};

std::optional<double> parse(std::string_view text, std::span<const unit> units) {
  double number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (problem != std::errc() || !std::isfinite(number) || number < 0 || std::signbit(number)) return std::nullopt;
  const std::string_view name(end, static_cast<std::size_t>(text.data() + text.size() - end));
  for (const unit& u : units)
    if (name == u.name) return number * u.factor;
  return std::nullopt;
}

std::string scaled(double value, std::span<const unit> units, std::string_view suffix) {
  const unit* best = &units.front();
  for (const unit& u : units)
    if (value >= u.factor) best = &u;
  return fmt::format("{:.2f}{}{}{}", value / best->factor, best->name.empty() && suffix == "/s" ? "" : " ", best->name,
                     suffix);
}

} // namespace

std::optional<double> parse_number(std::string_view text) {
  constexpr std::array<unit, 1> none{{{"", 1}}};
  return parse(text, none);
}
std::optional<double> parse_microseconds(std::string_view text) { return parse(text, times); }
std::optional<double> parse_bandwidth(std::string_view text) { return parse(text, bandwidths); }
std::optional<double> parse_rate(std::string_view text) { return parse(text, rates); }
std::optional<double> parse_per_cent(std::string_view text) { return parse(text, per_cents); }

std::optional<std::uint64_t> parse_size(std::string_view text) {
  const auto bytes = parse(text, sizes);
  if (!bytes || *bytes >= 1e18 || *bytes != std::floor(*bytes)) return std::nullopt;
  return static_cast<std::uint64_t>(*bytes);
}

std::optional<std::uint64_t> parse_count(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string as_size(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 4> names{"", " KiB", " MiB", " GiB"};
  std::size_t power = 0;
  while (power + 1 < names.size() && bytes >= 1024 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++power;
  }
  return fmt::format("{}{}", bytes, names[power]);
}

std::string as_bandwidth(double bits) {
  constexpr std::array<unit, 5> powers{{{"b", 1}, {"kb", 1e3}, {"Mb", 1e6}, {"Gb", 1e9}, {"Tb", 1e12}}};
  return scaled(bits, powers, "/s");
}
std::string as_rate(double per_second) {
  constexpr std::array<unit, 4> powers{{{"", 1}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}}};
  return scaled(per_second, powers, "/s");
}
std::string as_time(double microseconds) {
  constexpr std::array<unit, 4> powers{{{"ns", 1e-3}, {"us", 1}, {"ms", 1e3}, {"s", 1e6}}};
  return scaled(microseconds, powers, "");
}

} // namespace perf
