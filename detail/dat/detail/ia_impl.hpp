// What an ia reads: connection events and asynchronous events.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/connection_base.hpp>
#include <dat/detail/ep_core.hpp>
#include <dat/detail/ia_core.hpp>

namespace dat::inline v0::detail {

inline void ia_core::read_cm_events() noexcept {
  rdma_cm_event* e = nullptr;
  while (rdma_get_cm_event(channel(), &e) == 0) {
    take_over();
    const cm_event copy(*e);
    // Until the acknowledgement the id, and with it its owner, cannot go: take a reference now.
    const bool request = e->event == RDMA_CM_EVENT_CONNECT_REQUEST;
    rdma_cm_id* owned = request ? e->listen_id : e->id;
    const ref<connection_base> owner(static_cast<connection_base*>(owned->context));
    if (request) owner->on_request(e->id, *e);
    rdma_ack_cm_event(e);
    if (!request) owner->on_event(copy);
  }
}

inline void ia_core::read_async_events() noexcept {
  ibv_async_event e{};
  while (ibv_get_async_event(context(), &e) == 0) {
    ep_tag broken = 0;
    switch (e.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      broken = reinterpret_cast<std::uintptr_t>(e.element.qp->qp_context);
      break;
    default:
      break; // read all the same: the kernel keeps unread events
    }
    ref<ep_core> ep;
    if (broken != 0) {
      const std::lock_guard lock(slots_mutex);
      if (ep_core* found = slots.find(broken); found && found->try_add_ref()) ep = ref<ep_core>(found, adopt);
    }
    ibv_ack_async_event(&e); // destroying the QP waits for this, so no lock of the endpoint is held here
    if (ep) ep->broke(broken);
  }
}

} // namespace dat::inline v0::detail
