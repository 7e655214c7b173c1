// One side of one turn of the peers' table in libfabric.
// SPDX-License-Identifier: BSL-1.0
#include "fabric_link.hpp"
#include "own.hpp"

int main(int argc, char** argv) {
  peers::work w{};
  std::string_view how;
  if (peers::read_arguments(argc, argv, 1, w, how)) return peers::run<peers::fabric_link>(w, how);
  std::fprintf(stderr, "usage: own_fabric %s", peers::arguments);
  return 2;
}
