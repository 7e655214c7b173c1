// Compiles and links dat, and prints its version; needs no RDMA device.
// SPDX-License-Identifier: BSL-1.0
#include <dat/dat.hpp>

#include <cstdio>

int main() {
  const auto adapters = dat::ia::list_adapters(); // without a device: an empty list, or an error
  std::printf("dat %d.%d.%d, %s\n", dat::version.major_part, dat::version.minor_part, dat::version.patch_part,
              adapters ? "adapters listed" : "no adapters");
}
