// Asynchronous events, and changes of devices and ports.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

#include <algorithm>
#include <cerrno>

namespace fake::impl {

namespace {

/// The counter of fetched events of the object that an event names; nullptr for device and port events.
std::size_t* unacked_counter(const ibv_async_event& e) {
  switch (e.event_type) {
  case IBV_EVENT_CQ_ERR:
    if (auto* o = peek<cq_obj>(e.element.cq)) return &o->unacked_async;
    break;
  case IBV_EVENT_QP_FATAL:
  case IBV_EVENT_QP_REQ_ERR:
  case IBV_EVENT_QP_ACCESS_ERR:
  case IBV_EVENT_COMM_EST:
  case IBV_EVENT_SQ_DRAINED:
  case IBV_EVENT_PATH_MIG:
  case IBV_EVENT_PATH_MIG_ERR:
  case IBV_EVENT_QP_LAST_WQE_REACHED:
    if (auto* o = peek<qp_obj>(e.element.qp)) return &o->unacked_async;
    break;
  case IBV_EVENT_SRQ_ERR:
  case IBV_EVENT_SRQ_LIMIT_REACHED:
    if (auto* o = peek<srq_obj>(e.element.srq)) return &o->unacked_async;
    break;
  default:
    break;
  }
  return nullptr;
}

template <class T>
void script_async(ibv_event_type type, typename std::remove_reference_t<decltype(*std::declval<T&>().as_c())>* h) {
  const std::lock_guard hold{mutex()};
  auto& o = live_object<T>(h, "fake::async");
  ibv_async_event e{};
  e.event_type = type;
  if constexpr (std::is_same_v<T, qp_obj>) e.element.qp = h;
  if constexpr (std::is_same_v<T, cq_obj>) e.element.cq = h;
  if constexpr (std::is_same_v<T, srq_obj>) e.element.srq = h;
  push_async(*o.ctx, e);
}

} // namespace

void push_async(context_obj& ctx, const ibv_async_event& e) {
  if (!ctx.alive || ctx.disassociated) return;
  ctx.events.push_back(e);
  ctx.async_fd.set(true);
}

void discard_async_of(context_obj& ctx, const void* handle) {
  if (!ctx.alive) return;
  std::erase_if(ctx.events, [&](const ibv_async_event& e) { return unacked_counter(e) && e.element.qp == handle; });
  ctx.async_fd.set(ctx.disassociated || !ctx.events.empty());
}

} // namespace fake::impl

using namespace fake;
using namespace fake::impl;

extern "C" {

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  entry e{call::ibv_get_async_event};
  auto& ctx = e.use<context_obj>(context);
  if (e.fault()) return e.minus1(e.fault());
  if (ctx.disassociated) return e.quiet(), e.minus1(EIO);
  while (ctx.events.empty()) {
    if (ctx.async_fd.dead()) return e.minus1(EIO);
    if (const int error = wait_readable(e.lock(), ctx.async_fd.fd())) {
      if (error == EAGAIN) e.quiet();
      return e.minus1(error);
    }
    if (!ctx.alive) die("ibv_get_async_event: " + ctx.name() + " was closed meanwhile");
  }
  *event = ctx.events.front();
  ctx.events.pop_front();
  ctx.async_fd.set(ctx.disassociated || !ctx.events.empty());
  ++ctx.unacked;
  if (auto* n = unacked_counter(*event)) ++*n;
  if (event->event_type == IBV_EVENT_QP_LAST_WQE_REACHED)
    if (auto* q = peek<qp_obj>(event->element.qp); q && q->held_wr_id)
      flush_at_once(*q, true, *std::exchange(q->held_wr_id, {}));
  return e.minus1(0);
}

void ibv_ack_async_event(ibv_async_event* event) {
  entry e{call::ibv_ack_async_event};
  context_obj* ctx = nullptr;
  if (auto* n = unacked_counter(*event)) {
    if (*n == 0) die("ibv_ack_async_event: nothing to acknowledge for this object");
    --*n;
    const auto* o = e.w.by_handle[event->element.qp];
    ctx = o->what == kind::qp   ? static_cast<const qp_obj*>(o)->ctx
          : o->what == kind::cq ? static_cast<const cq_obj*>(o)->ctx
                                : static_cast<const srq_obj*>(o)->ctx;
  } else {
    // A port event does not name its context: any context with an unacknowledged event is taken.
    for (auto* c : all_live<context_obj>())
      if (c->unacked) ctx = c;
  }
  if (!ctx || ctx->unacked == 0) die("ibv_ack_async_event: nothing to acknowledge");
  --ctx->unacked;
  acked().notify_all();
}

} // extern "C"

namespace fake {

void async(ibv_event_type type, ibv_qp* qp) { script_async<qp_obj>(type, qp); }
void async(ibv_event_type type, ibv_cq* cq) { script_async<cq_obj>(type, cq); }
void async(ibv_event_type type, ibv_srq* srq) { script_async<srq_obj>(type, srq); }
void async(ibv_event_type type, ibv_context* context, int port) {
  const std::lock_guard hold{mutex()};
  ibv_async_event e{};
  e.event_type = type;
  e.element.port_num = port;
  push_async(live_object<context_obj>(context, "fake::async"), e);
}

void set_port_state(std::string_view device, std::uint8_t port, ibv_port_state state) {
  const std::lock_guard hold{mutex()};
  auto* d = device_named(device);
  if (!d || !port_of(*d, port)) die("set_port_state: no such port");
  auto& p = d->cfg.ports[port - 1u];
  if (p.state == state) return;
  const bool was = p.state == IBV_PORT_ACTIVE, is = state == IBV_PORT_ACTIVE;
  p.state = state;
  if (was == is) return;
  ibv_async_event e{};
  e.event_type = is ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
  e.element.port_num = port;
  for (auto* c : all_live<context_obj>())
    if (c->dev == d) push_async(*c, e);
  for (auto* q : all_live<qp_obj>()) kick(*q);
  run();
}

void remove_device(std::string_view device) {
  const std::lock_guard hold{mutex()};
  auto* d = device_named(device);
  if (!d || d->removed) die("remove_device: no such device");
  d->removed = true;
  ibv_async_event e{};
  e.event_type = IBV_EVENT_DEVICE_FATAL;
  for (auto* c : all_live<context_obj>())
    if (c->dev == d) push_async(*c, e);
  for (auto* q : all_live<qp_obj>())
    if (q->ctx->dev == d) to_error(*q);
  if (the_world().ways.removal_kills) kill_descriptors_of(*d);
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
