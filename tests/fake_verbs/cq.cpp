// Completion channels and completion queues.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>

namespace fake::impl {

std::uint32_t ring_depth(std::uint32_t asked) { return std::bit_ceil(asked + 1) - 1; }

void push_wc(cq_obj& cq, const ibv_wc& wc, bool solicited) {
  if (!cq.alive || cq.overrun) return;
  if (cq.entries.size() >= std::size_t(cq.cqe)) {
    // The completion is lost; by default the queue pair is not affected.
    cq.overrun = the_world().ways.fatal_overrun;
    ibv_async_event e{};
    e.event_type = IBV_EVENT_CQ_ERR;
    e.element.cq = cq.as_c();
    push_async(*cq.ctx, e);
    if (cq.overrun)
      for (auto* q : all_live<qp_obj>())
        if (q->scq == &cq || q->rcq == &cq) to_error(*q);
    return;
  }
  cq.entries.push_back(wc);
  const bool fires = cq.armed == cq_obj::arm::all ||
                     (cq.armed == cq_obj::arm::solicited && (solicited || wc.status != IBV_WC_SUCCESS));
  if (!fires) return;
  cq.armed = cq_obj::arm::none;
  if (!cq.chan) return;
  cq.chan->events.push_back(&cq);
  cq.chan->signal.set(true);
}

ibv_wc failed_wc(const qp_obj& q, std::uint64_t wr_id, ibv_wc_status status) {
  ibv_wc wc{};
  if (the_world().ways.vendor_errors) {
    // Only wr_id, status, qp_num and vendor_err are valid in a completion that failed (man ibv_poll_cq).
    std::memset(&wc, 0xdb, sizeof wc);
    wc.vendor_err = status == IBV_WC_WR_FLUSH_ERR        ? 0xf9
                    : status == IBV_WC_RETRY_EXC_ERR     ? 0x81
                    : status == IBV_WC_RNR_RETRY_EXC_ERR ? 0x87
                    : status == IBV_WC_REM_ACCESS_ERR    ? 0x88
                                                         : 0x52;
  }
  wc.wr_id = wr_id;
  wc.status = status;
  wc.qp_num = q.qp_num;
  return wc;
}

int op_poll_cq(ibv_cq* handle, int n, ibv_wc* wc) {
  entry e{call::ibv_poll_cq};
  auto& cq = e.use<cq_obj>(handle);
  if (e.fault()) return e.minus1(e.fault());
  int got = 0;
  while (got < n && !cq.entries.empty()) {
    wc[got++] = cq.entries.front();
    cq.entries.pop_front();
  }
  if (!got) e.quiet();
  return got;
}

int op_req_notify_cq(ibv_cq* handle, int solicited_only) {
  entry e{call::ibv_req_notify_cq};
  auto& cq = e.use<cq_obj>(handle);
  if (e.fault()) return e.code(e.fault());
  if (!solicited_only)
    cq.armed = cq_obj::arm::all;
  else if (cq.armed == cq_obj::arm::none)
    cq.armed = cq_obj::arm::solicited;
  return e.code(0);
}

} // namespace fake::impl

using namespace fake;
using namespace fake::impl;

extern "C" {

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  entry e{call::ibv_create_comp_channel};
  auto& ctx = e.use<context_obj>(context);
  if (e.fault()) return e.null(e.fault());
  auto made = std::make_unique<channel_obj>();
  if (const int err = made->signal.open()) return e.null(err);
  auto& c = adopt(std::move(made));
  c.context = context;
  c.fd = c.signal.fd();
  c.ctx = &ctx;
  e.made(c);
  return c.as_c();
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  entry e{call::ibv_destroy_comp_channel};
  auto& c = e.use<channel_obj>(channel);
  if (e.fault()) return e.code(e.fault());
  if (c.refcnt) return e.code(EBUSY);
  c.alive = false;
  return e.code(0);
}

ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel, int comp_vector) {
  entry e{call::ibv_create_cq};
  auto& ctx = e.use<context_obj>(context);
  if (e.fault()) return e.null(e.fault());
  channel_obj* chan = channel ? &live_object<channel_obj>(channel, "ibv_create_cq") : nullptr;
  if (ctx.dev->removed) return e.null(EIO);
  if (cqe < 1 || cqe > ctx.dev->attr.max_cqe) return e.null(EINVAL);
  if (comp_vector < 0 || comp_vector >= ctx.v.context.num_comp_vectors) return e.null(EINVAL);
  if (chan && chan->ctx != &ctx) return e.null(EINVAL);
  if (is_full<cq_obj>(*ctx.dev, ctx.dev->attr.max_cq)) return e.null(ENOMEM);
  auto& cq = adopt(std::make_unique<cq_obj>());
  cq.context = context;
  cq.channel = channel;
  cq.cq_context = cq_context;
  cq.handle = cq.serial;
  cq.cqe = int(ring_depth(std::uint32_t(cqe)));
  cq.ctx = &ctx;
  cq.chan = chan;
  if (chan) ++chan->refcnt;
  e.made(cq);
  return cq.as_c();
}

int ibv_resize_cq(ibv_cq* handle, int cqe) {
  entry e{call::ibv_resize_cq};
  auto& cq = e.use<cq_obj>(handle);
  if (e.fault()) return e.code(e.fault());
  if (!e.w.ways.cq_resize) return e.code(EOPNOTSUPP);
  if (cqe < 1 || cqe > cq.ctx->dev->attr.max_cqe || std::size_t(cqe) < cq.entries.size()) return e.code(EINVAL);
  cq.cqe = int(ring_depth(std::uint32_t(cqe)));
  return e.code(0);
}

int ibv_destroy_cq(ibv_cq* handle) {
  entry e{call::ibv_destroy_cq};
  auto& cq = e.use<cq_obj>(handle);
  if (e.fault()) return e.code(e.fault());
  if (cq.users) return e.code(EBUSY);
  if (cq.chan) {
    std::erase(cq.chan->events, &cq);
    cq.chan->signal.set(!cq.chan->events.empty());
  }
  discard_async_of(*cq.ctx, cq.as_c());
  wait_acked(e.lock(), "ibv_destroy_cq(" + cq.name() + ")", [&] { return cq.unacked == 0 && cq.unacked_async == 0; });
  if (cq.chan) --cq.chan->refcnt;
  cq.alive = false;
  cq.entries.clear();
  return e.code(0);
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** handle, void** cq_context) {
  entry e{call::ibv_get_cq_event};
  auto& c = e.use<channel_obj>(channel);
  if (e.fault()) return e.minus1(e.fault());
  if (c.ctx->disassociated) return e.quiet(), e.minus1(EIO);
  if (c.signal.dead()) return e.minus1(EIO);
  while (c.events.empty()) {
    if (const int error = wait_readable(e.lock(), c.fd)) {
      if (error == EAGAIN) e.quiet();
      return e.minus1(error);
    }
    if (!c.alive) die("ibv_get_cq_event: " + c.name() + " was destroyed meanwhile");
  }
  auto* cq = c.events.front();
  c.events.pop_front();
  c.signal.set(!c.events.empty());
  ++cq->unacked;
  *handle = cq->as_c();
  *cq_context = cq->cq_context;
  return e.minus1(0);
}

void ibv_ack_cq_events(ibv_cq* handle, unsigned n) {
  entry e{call::ibv_ack_cq_events};
  auto& cq = e.use<cq_obj>(handle);
  if (n > cq.unacked)
    die("ibv_ack_cq_events: " + cq.name() + " has " + std::to_string(cq.unacked) + " events to acknowledge, not " +
        std::to_string(n));
  cq.unacked -= n;
  acked().notify_all();
}

} // extern "C"
