// What an ia reads: connection events and asynchronous events.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/async.hpp>

#include <dat/detail/connection_base.hpp>
#include <dat/detail/ep_core.hpp>
#include <dat/detail/ia_core.hpp>
#include <dat/detail/srq_core.hpp>

namespace dat::inline v0::detail {

inline void ia_core::read_cm_events() noexcept {
  rdma_cm_event* e = nullptr;
  while (rdma_get_cm_event(channel(), &e) == 0) {
    cm_fails_ = false;
    take_over();
    ref<connection_base> done;
    reactor.putting_off([&]() noexcept { done = take_cm_event(*e); });
    if (done) done->drop_id(); // only now: who waits for the event is not to wait for that
  }
  const int err = errno;
  if (err != EAGAIN && err != EINTR && !std::exchange(cm_fails_, true)) failed_inside("rdma_get_cm_event", err);
}

inline ref<connection_base> ia_core::take_cm_event(rdma_cm_event& e) noexcept {
  const cm_event copy(e);
  // Until the acknowledgement the id, and with it its owner, cannot go: take a reference now.
  const bool request = e.event == RDMA_CM_EVENT_CONNECT_REQUEST;
  rdma_cm_id* owned = request ? e.listen_id : e.id;
  ref<connection_base> owner(static_cast<connection_base*>(owned->context));
  if (request) owner->on_request(e.id, e);
  rdma_ack_cm_event(&e);
  const bool done = !request && owner->on_event(copy);
  if (copy.type == RDMA_CM_EVENT_DEVICE_REMOVAL) catastrophe();
  if (!done) owner = {};
  return owner;
}

inline void ia_core::read_async_events() noexcept {
  ibv_async_event e{};
  while (ibv_get_async_event(context(), &e) == 0) take_async(e);
}

/// What can follow from an event is done after the acknowledgement, for which the end of the object waits; so a
/// reference is taken before, and no lock of the object is held.
inline void ia_core::take_async(const ibv_async_event& e) noexcept {
  ibv_async_event taken = e;
  const auto acknowledge = [&] { ibv_ack_async_event(&taken); };
  const auto port = [&](async_kind what, port_change change = {}) {
    const bool ours = e.element.port_num == where_.port;
    acknowledge();
    if (ours) raise(what, {.reason = static_cast<int>(change)});
  };
  switch (e.event_type) {
  case IBV_EVENT_QP_FATAL:
  case IBV_EVENT_QP_REQ_ERR:
  case IBV_EVENT_QP_ACCESS_ERR: {
    const ep_tag tag = reinterpret_cast<std::uintptr_t>(e.element.qp->qp_context);
    ref<ep_core> ep;
    {
      const std::lock_guard lock(work_mutex);
      if (const work_entry* of = work.find(tag); of && of->ring().owner().try_add_ref())
        ep = ref<ep_core>(&of->ring().owner(), adopt);
    }
    acknowledge();
    if (!ep) return;
    ep->broke(tag);
    const auto why = e.event_type == IBV_EVENT_QP_FATAL ? ep_error::transfer_to_error : ep_error::other_error;
    return raise(async_kind::ep_broken, {.reason = static_cast<int>(why)}, ref<counted>(ep.get()));
  }
  case IBV_EVENT_CQ_ERR: {
    auto* found = static_cast<evd_core*>(e.element.cq->cq_context);
    const ref<evd_core> evd = found->try_add_ref() ? ref<evd_core>(found, adopt) : ref<evd_core>();
    acknowledge();
    if (!evd || !evd->lost_completions()) return; // told already
    overflowed(evd->number());
    // Verbs does not say whose completions were lost: all that feed the evd may wait for one that never comes.
    return for_each_endpoint([&](ep_core& ep) { ep.broke_with(*evd); });
  }
  case IBV_EVENT_SRQ_LIMIT_REACHED:
  case IBV_EVENT_SRQ_ERR: {
    auto* found = static_cast<srq_core*>(e.element.srq->srq_context);
    const ref<srq_core> srq = found->try_add_ref() ? ref<srq_core>(found, adopt) : ref<srq_core>();
    acknowledge();
    if (!srq) return;
    return e.event_type == IBV_EVENT_SRQ_ERR ? srq->broke() : srq->limit_reached();
  }
  case IBV_EVENT_DEVICE_FATAL:
    acknowledge();
    return catastrophe();
  case IBV_EVENT_PORT_ERR:
    return port(async_kind::port_down);
  case IBV_EVENT_PORT_ACTIVE:
    return port(async_kind::port_active);
  case IBV_EVENT_LID_CHANGE:
    return port(async_kind::port_changed, port_change::lid);
  case IBV_EVENT_PKEY_CHANGE:
    return port(async_kind::port_changed, port_change::pkey_table);
  case IBV_EVENT_GID_CHANGE:
    return port(async_kind::port_changed, port_change::gid_table);
  case IBV_EVENT_SM_CHANGE:
    return port(async_kind::port_changed, port_change::subnet_manager);
  case IBV_EVENT_CLIENT_REREGISTER:
    return port(async_kind::port_changed, port_change::client_reregister);
  default: // steps of a connection's life, which its own events tell of; they must be read all the same
    return acknowledge();
  }
}

inline void ia_core::catastrophe() noexcept {
  if (catastrophic_.exchange(true, std::memory_order_relaxed)) return;
  raise(async_kind::ia_catastrophic);
  for_each_endpoint([](ep_core& ep) { ep.broke(); });
}

inline void ia_core::raise(async_kind what, const async_info& more, const ref<counted>& endpoint) noexcept {
  async_info info = more;
  info.context = context();
  const std::lock_guard lock(async_mutex_);
  for (listener* l = listeners_.front(); l; l = listeners_.after(*l)) l->evd->push_async(record(what, info, endpoint));
  if (borrowed_) static_cast<merged_evd*>(borrowed_.get())->push_async(record(what, info, endpoint));
}

template <class F>
void ia_core::for_each_endpoint(F f) noexcept {
  for_each(child_kind::endpoint, [&](ia_child& c) { f(static_cast<ep_core&>(c)); });
}

template <class F>
void ia_core::for_each(child_kind kind, F f) noexcept {
  ref<ia_child> at;
  for (;;) {
    ref<ia_child> next; // what stood here before goes without the lock
    {
      const std::lock_guard lock(mutex_);
      if (at && !at->linked()) return; // the ia is being closed
      ia_child* c = at ? children_.after(*at) : children_.front();
      while (c && !(c->kind() == kind && c->shown() && c->try_add_ref())) c = children_.after(*c);
      if (!c) return;
      next = ref<ia_child>(c, adopt);
    }
    f(*next);
    at = std::move(next);
  }
}

} // namespace dat::inline v0::detail
