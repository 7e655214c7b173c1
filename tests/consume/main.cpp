// The smallest program that a user of dat builds: it prints the version and calls into the libraries below dat.
// SPDX-License-Identifier: BSL-1.0
#include <dat/version.hpp>

#include <infiniband/verbs.h>

#include <cstdio>

int main() {
  int devices = 0;
  ibv_device** list = ibv_get_device_list(&devices);
  if (list) ibv_free_device_list(list);
  std::printf("dat %d.%d.%d\n", dat::version.major_part, dat::version.minor_part, dat::version.patch_part);
}
