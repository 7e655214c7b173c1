// One side of one turn of the peers' table: hand-written verbs, or dat on a lean or a merged evd.
// SPDX-License-Identifier: BSL-1.0
#include "own.hpp"
#include "../pingpong/dat_link.hpp"
#include "../pingpong/raw_link.hpp"

int main(int argc, char** argv) {
  peers::work w{};
  std::string_view how;
  const std::string_view way = argc > 1 ? argv[1] : "";
  if (peers::read_arguments(argc, argv, 2, w, how)) {
    if (way == "verbs") return peers::run<pingpong::raw_link>(w, how);
    if (way == "lean") return peers::run<pingpong::dat_link>(w, how);
    if (way == "merged") return peers::run<pingpong::merged_dat_link>(w, how);
  }
  std::fprintf(stderr, "usage: own verbs|lean|merged %s", peers::arguments);
  return 2;
}
