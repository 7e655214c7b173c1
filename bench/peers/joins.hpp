// One side of a turn in which connections are made: as many per second as a peer can, or the memory of those that stay.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../connect/ends.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace connecting {

struct side_of_turn {
  bool serves;
  std::string_view what; ///< connections, heap or resident
  job work;
  place where;
};

/// One connection after the other for `connections`; for memory, `count` that stay until the last one is established.
inline bool read_arguments(int argc, char** argv, int first, side_of_turn& side) {
  if (argc != first + 6) return false;
  const std::string_view role = argv[first], what = argv[first + 1];
  const long count = std::atol(argv[first + 2]);
  const long port = std::atol(argv[first + 5]);
  if ((role != "serve" && role != "connect") || (what != "connections" && what != "heap" && what != "resident") ||
      count < 1 || count > 4096 || port < 1 || port > 65535)
    return false;
  const auto n = static_cast<std::size_t>(count);
  const bool held = what != "connections";
  side = {role == "serve",
          what,
          {n, held ? std::min<std::size_t>(n, 16) : 1, held},
          {argv[first + 3], argv[first + 4], static_cast<std::uint16_t>(port)}};
  return true;
}

/// Runs a side. The connecting one prints connections per second, or bytes of memory per connection.
template <class End>
int run_side(End& end, const side_of_turn& side) {
  using clock = std::chrono::steady_clock;
  if (side.serves) {
    end.serve(
        side.work,
        [] {
          std::puts("ready");
          std::fflush(stdout);
        },
        [] {});
    return 0;
  }
  const memory before = memory::now();
  memory held;
  const auto start = clock::now();
  end.connect(side.work, [&] { held = memory::now(); });
  const double seconds = std::chrono::duration<double>(clock::now() - start).count();
  const auto n = static_cast<double>(side.work.total);
  const auto each = [&](std::size_t a, std::size_t b) { return (static_cast<double>(b) - static_cast<double>(a)) / n; };
  if (side.what == "connections") std::printf("result %.4f\n", n / seconds);
  if (side.what == "heap") std::printf("result %.1f\n", each(before.heap, held.heap));
  if (side.what == "resident") std::printf("result %.1f\n", each(before.resident, held.resident));
  return 0;
}

} // namespace connecting
