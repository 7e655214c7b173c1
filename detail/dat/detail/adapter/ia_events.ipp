// Definitions of ia_core: asynchronous events, and descriptors that fail.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/async.hpp>

#include <dat/detail/adapter/ia_core.hpp>

#include <cerrno>
#include <chrono>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL void ia_core::on_async(event_source& s) noexcept { static_cast<member_source&>(s).self->read_async_events(); }

DAT_DECL void ia_core::read_async_events() noexcept {
  for (int n = 0; n < async_events_per_round;) {
    ibv_async_event e{};
    if (ibv_get_async_event(context(), &e) != 0) {
      if (!read_failed(async_source_, errno)) return;
      continue;
    }
    ++n;
    async_source_.failures = 0;
    take_async(e);
  }
}

/// The descriptors of a device that was reset, unplugged or unbound stay readable, and a read fails with EIO (Linux
/// 5.7, "RDMA/uverbs: Make the event_queue fds return POLLERR when disassociated"). The reactor must not watch them.
DAT_DECL bool ia_core::read_failed(member_source& s, int err) noexcept {
  if (err == EAGAIN || err == EINTR) return false;
  if (s.failures++ == 0) failed_inside(s.verb, err);
  if (s.failures < failures_of_dead) return true;
  reactor.unwatch(s.fd, s);
  if (err != ENOMEM) {
    catastrophe();
    return false;
  }
  // The descriptor is intact: try again later.
  s.failures = 1;
  retry_.self = this;
  retry_.run = [](task& t) noexcept {
    ia_core& self = *static_cast<member_task&>(t).self;
    for (member_source* each : {&self.cm_source_, &self.async_source_}) (void)self.reactor.watch(each->fd, *each);
  };
  (void)reactor.defer(retry_, clock::now() + std::chrono::milliseconds(10));
  return false;
}

/// The effects of an event come after its acknowledgement, because the end of the object waits for the acknowledgement.
/// So the reference is taken first, and no lock of the object is held.
DAT_DECL void ia_core::take_async(const ibv_async_event& e) noexcept {
  ibv_async_event taken = e;
  const auto acknowledge = [&] { ibv_ack_async_event(&taken); };
  const auto port = [&](async_kind what, port_change change = {}) {
    const bool ours = e.element.port_num == where_.port;
    acknowledge();
    if (ours) raise(what, {.reason = static_cast<int>(change)});
  };
  // The context of a verbs queue points to the queue's owner.
  const auto report = [&](void* context, device_report::kind what) {
    auto* const owner = static_cast<ia_child*>(context);
    const ref<ia_child> alive = owner->try_add_ref() ? ref<ia_child>(owner, adopt) : ref<ia_child>();
    acknowledge();
    if (alive) alive->type().on_device(*alive, {.what = what});
  };
  switch (e.event_type) {
  case IBV_EVENT_QP_LAST_WQE_REACHED:
  case IBV_EVENT_QP_FATAL:
  case IBV_EVENT_QP_REQ_ERR:
  case IBV_EVENT_QP_ACCESS_ERR: {
    const ep_generation generation = reinterpret_cast<std::uintptr_t>(e.element.qp->qp_context);
    const ref<ia_child> ep = endpoint_of(generation);
    const std::uint32_t number = e.element.qp->qp_num;
    acknowledge();
    if (!ep) return;
    if (e.event_type == IBV_EVENT_QP_LAST_WQE_REACHED)
      return ep->type().on_device(*ep, {.what = device_report::kind::last_receive_done, .generation = generation});
    ep->type().on_device(*ep, {.what = device_report::kind::queue_pair_failed, .generation = generation});
    const auto why = e.event_type == IBV_EVENT_QP_FATAL ? ep_error::transfer_to_error : ep_error::other_error;
    return raise(async_kind::ep_broken, {.number = number, .reason = static_cast<int>(why)}, ref<counted>(ep.get()));
  }
  case IBV_EVENT_CQ_ERR:
    return report(e.element.cq->cq_context, device_report::kind::completions_lost);
  case IBV_EVENT_SRQ_LIMIT_REACHED:
    return report(e.element.srq->srq_context, device_report::kind::limit_reached);
  case IBV_EVENT_SRQ_ERR:
    return report(e.element.srq->srq_context, device_report::kind::queue_failed);
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
  default: // connection steps have events of their own, but their asynchronous events must be read
    return acknowledge();
  }
}

DAT_DECL ref<ia_child> ia_core::endpoint_of(std::uint64_t generation) noexcept {
  ref<ia_child> (*lookup)(ia_core&, std::uint64_t) noexcept = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const ia_child* any = children(child_kind::endpoint).front()) lookup = any->type().of_generation;
  }
  return lookup ? lookup(*this, generation) : ref<ia_child>();
}

DAT_DECL void ia_core::catastrophe() noexcept {
  if (catastrophic_.exchange(true, std::memory_order_relaxed)) return;
  raise(async_kind::ia_catastrophic);
  for_each(child_kind::endpoint,
           [](ia_child& ep) { ep.type().on_device(ep, {.what = device_report::kind::device_lost}); });
}

DAT_DECL void ia_core::raise(async_kind what, const async_info& more, const ref<counted>& endpoint) noexcept {
  async_info info = more;
  info.context = context();
  if constexpr (trace_build) log_event(level_of(what), [&] { return async_message(what, info); });
  const auto give = [&](ia_child& evd) { evd.type().on_async(evd, what, info, endpoint); };
  const std::lock_guard lock(async_mutex_);
  for (listener* l = listeners_.front(); l; l = listeners_.after(*l)) give(*l->evd);
  if (borrowed_evd_) give(*borrowed_evd_);
}

}}} // namespace dat::v0::detail
