// The interrupts of an adapter's completion vectors, and the processors that serve them, as the kernel has them in
// /proc and /sys. SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace dat_info {

/// An interrupt that reports completions.
struct interrupt {
  unsigned number = 0;
  unsigned vector = 0;    ///< the completion vector, as the driver numbers it in the name
  std::string name;       ///< "mlx5_comp3@pci:0000:3b:00.0"
  std::string processors; ///< as the kernel lists them: "3", "0-7,16"; empty when the kernel lists none
};

/// The completion vector in the name that a driver gives its interrupt: mlx5_comp3@..., efa-comp3@...,
/// bnxt_re-nq-3@..., irdma-...-CEQ-3, hns-ceq-3, erdma-ceq3@... Empty for an interrupt of another kind.
inline std::optional<unsigned> vector_in(std::string_view name) {
  for (const std::string_view mark : {"comp", "nq-", "ceq-", "CEQ-", "ceq"}) {
    for (auto at = name.find(mark); at != name.npos; at = name.find(mark, at + 1)) {
      const std::string_view digits = name.substr(at + mark.size());
      unsigned n = 0;
      if (std::from_chars(digits.data(), digits.data() + digits.size(), n).ec == std::errc()) return n;
    }
  }
  return std::nullopt;
}

/// The first line of a file; empty when there is none.
inline std::string line_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

/// The interrupts of a device of verbs, in the order of their vectors. Empty for a software device. `root` is "/" but
/// in tests.
inline std::vector<interrupt> completion_interrupts(const std::string& device,
                                                    const std::filesystem::path& root = "/") {
  std::error_code none;
  std::vector<std::string> numbers; // of this device
  for (const auto& entry :
       std::filesystem::directory_iterator(root / "sys/class/infiniband" / device / "device/msi_irqs", none))
    numbers.push_back(entry.path().filename().string());
  std::vector<interrupt> found;
  std::ifstream table(root / "proc/interrupts");
  for (std::string line; std::getline(table, line);) {
    // "  45:  0  120  PCI-MSI 524288-edge  mlx5_comp0@pci:0000:3b:00.0": the name is the last word.
    const auto colon = line.find(':');
    const auto first = line.find_first_not_of(' ');
    const auto last = line.find_last_of(' ');
    if (colon == line.npos || last == line.npos || last < colon) continue;
    const std::string number = line.substr(first, colon - first);
    if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) continue;
    interrupt i;
    i.name = line.substr(last + 1);
    const auto vector = vector_in(i.name);
    if (!vector || std::from_chars(number.data(), number.data() + number.size(), i.number).ec != std::errc()) continue;
    i.vector = *vector;
    const auto folder = root / "proc/irq" / number;
    i.processors = line_of(folder / "effective_affinity_list");
    if (i.processors.empty()) i.processors = line_of(folder / "smp_affinity_list");
    found.push_back(std::move(i));
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.vector < b.vector; });
  return found;
}

} // namespace dat_info
