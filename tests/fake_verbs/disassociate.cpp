// Contexts of a device that its driver has reset.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

namespace fake {

void disassociate(std::string_view device) {
  using namespace impl;
  const std::lock_guard hold{mutex()};
  auto* d = device_named(device);
  if (!d) die("disassociate: no such device");
  for (auto* c : all_live<context_obj>()) {
    if (c->dev != d || !c->counted) continue; // librdmacm opens its own contexts again
    c->disassociated = true;
    c->events.clear();
    c->async_fd.set(true);
  }
  for (auto* c : all_live<channel_obj>())
    if (c->ctx->disassociated) c->signal.set(true);
  for (auto* q : all_live<qp_obj>())
    if (q->ctx->disassociated) {
      q->sq.clear();
      q->rq.clear();
    }
  for (auto* i : all_live<id_obj>()) {
    if (i->dev != d || !i->counted) continue;
    if (i->wire == ib::established) send_dreq(*i);
    i->state = cma::removed;
    i->wire = ib::dead;
    post_event({i, nullptr, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, {}, {}, {}});
  }
  run();
}

} // namespace fake
