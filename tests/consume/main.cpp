// The smallest program that a user of dat builds: it prints the version and calls into the libraries below dat.
// SPDX-License-Identifier: BSL-1.0
#include <dat/dat.hpp>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstdio>

int main() {
  // Uses one function of each library, so that a missing -l shows.
  int devices = 0;
  if (ibv_device** list = ibv_get_device_list(&devices)) ibv_free_device_list(list);
  std::printf("dat %d.%d.%d, %s\n", dat::version.major_part, dat::version.minor_part, dat::version.patch_part,
              rdma_event_str(RDMA_CM_EVENT_ESTABLISHED));
}
