// Reads and prints numbers with units.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace perf {

/// A number and its unit: "20us", "1.5Gb/s", "64KiB". Each is empty if the text has another form. A unit is needed,
/// except for sizes and rates.
[[nodiscard]] std::optional<double> parse_number(std::string_view text);
[[nodiscard]] std::optional<double> parse_microseconds(std::string_view text); ///< ns, us, ms, s, min, h
[[nodiscard]] std::optional<double> parse_bandwidth(std::string_view text);    ///< bits per second
[[nodiscard]] std::optional<double> parse_rate(std::string_view text); ///< per second: k, M, G, with or without /s
[[nodiscard]] std::optional<double> parse_per_cent(std::string_view text);
[[nodiscard]] std::optional<std::uint64_t> parse_size(std::string_view text); ///< bytes: K or KiB, M or MiB, G or GiB
[[nodiscard]] std::optional<std::uint64_t> parse_count(std::string_view text);

inline constexpr std::string_view time_units = "ns, us, ms, s, min or h";
inline constexpr std::string_view bandwidth_units =
    "b/s, kb/s, Mb/s, Gb/s, Tb/s, B/s, kB/s, MB/s, GB/s, KiB/s, MiB/s or GiB/s";

[[nodiscard]] std::string as_size(std::uint64_t bytes); ///< "8", "64 KiB"
[[nodiscard]] std::string as_bandwidth(double bits);    ///< "9.42 Gb/s"
[[nodiscard]] std::string as_rate(double per_second);   ///< "1.31 M/s"
[[nodiscard]] std::string as_time(double microseconds); ///< "3.12 us"

} // namespace perf
