// Descriptors of a device that was disassociated: they always poll as POLLERR, and reading them fails with EIO.
//
// Source: Linux "RDMA/uverbs: Make the event_queue fds return POLLERR when disassociated" (5.6 and stable kernels);
// mlx5 disassociates on firmware reset, health recovery, driver unbind and hot unplug.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

namespace fake {

using namespace impl;

void impl::kill_descriptors_of(const device_state& d) {
  for (auto* c : all_live<context_obj>())
    if (c->dev == &d) c->async_fd.kill();
  for (auto* c : all_live<channel_obj>())
    if (c->ctx->dev == &d) c->signal.kill();
}

void kill_descriptors(std::string_view device) {
  const std::lock_guard hold{mutex()};
  auto* d = device_named(device);
  if (!d) impl::die("kill_descriptors: no such device");
  kill_descriptors_of(*d);
}

} // namespace fake
