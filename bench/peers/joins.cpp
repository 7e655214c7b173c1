// Connections by hand-written verbs, or by dat with the service thread or without it.
// SPDX-License-Identifier: BSL-1.0
#include "joins.hpp"
#include "../connect/dat_end.hpp"
#include "../connect/raw_end.hpp"

using namespace connecting;

int main(int argc, char** argv) {
  side_of_turn side{};
  const std::string_view way = argc > 1 ? argv[1] : "";
  if (!read_arguments(argc, argv, 2, side) || (way != "verbs" && way != "dat" && way != "manual")) {
    std::fputs("usage: joins verbs|dat|manual serve|connect connections|heap|resident COUNT LOCAL REMOTE PORT\n",
               stderr);
    return 2;
  }
  if (way == "verbs") {
    raw_end end(side.where);
    return run_side(end, side);
  }
  dat_end end(side.where, way == "dat" ? dat::progress::automatic : dat::progress::manual);
  return run_side(end, side);
}
