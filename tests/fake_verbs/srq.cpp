// Shared receive queues.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

#include <cerrno>

namespace fake::impl {

void check_limit(srq_obj& s) {
  if (s.limit == 0 || s.rq.size() >= s.limit) return;
  s.limit = 0;
  ibv_async_event e{};
  e.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
  e.element.srq = s.as_c();
  push_async(*s.ctx, e);
}

int op_post_srq_recv(ibv_srq* handle, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  entry e{call::ibv_post_srq_recv};
  auto& s = e.use<srq_obj>(handle);
  if (e.fault()) {
    *bad = wr;
    return e.code(e.fault());
  }
  int error = 0;
  for (; wr && !error; wr = wr->next) {
    if (wr->num_sge < (is_iwarp(*s.ctx->dev) ? 1 : 0) || std::uint32_t(wr->num_sge) > s.max_sge)
      error = EINVAL;
    else if (s.rq.size() >= s.depth)
      error = ENOMEM;
    else
      s.rq.push_back({wr->wr_id, copy_sges(wr->sg_list, wr->num_sge)});
    if (error) *bad = wr;
  }
  for (auto* q : all_live<qp_obj>())
    if (q->shared == &s) kick_peer(*q);
  run();
  return e.code(error);
}

} // namespace fake::impl

using namespace fake;
using namespace fake::impl;

extern "C" {

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* init) {
  entry e{call::ibv_create_srq};
  auto& p = e.use<pd_obj>(pd);
  if (e.fault()) return e.null(e.fault());
  const auto& limits = p.ctx->dev->attr;
  if (p.ctx->dev->removed) return e.null(EIO);
  if (init->attr.max_wr == 0 || init->attr.max_wr > unsigned(limits.max_srq_wr)) return e.null(EINVAL);
  if (init->attr.max_sge > unsigned(limits.max_srq_sge)) return e.null(EINVAL);
  if (init->attr.srq_limit > ring_depth(init->attr.max_wr)) return e.null(EINVAL);
  if (is_full<srq_obj>(*p.ctx->dev, limits.max_srq)) return e.null(ENOMEM);
  auto& s = adopt(std::make_unique<srq_obj>());
  s.context = p.context;
  s.srq_context = init->srq_context;
  s.pd = pd;
  s.handle = s.serial;
  s.ctx = p.ctx;
  s.domain = &p;
  s.depth = ring_depth(init->attr.max_wr);
  s.max_sge = init->attr.max_sge;
  s.limit = init->attr.srq_limit;
  // The values that the kernel wrote back, in place of ibv_query_srq.
  init->attr.max_wr = s.depth;
  ++p.users;
  e.made(s);
  return s.as_c();
}

int ibv_query_srq(ibv_srq* handle, ibv_srq_attr* attr) {
  entry e{call::ibv_query_srq};
  auto& s = e.use<srq_obj>(handle);
  if (e.fault()) return e.code(e.fault());
  if (!e.w.ways.srq_query) return e.code(EOPNOTSUPP);
  attr->max_wr = s.depth;
  attr->max_sge = s.max_sge;
  attr->srq_limit = s.limit;
  return e.code(0);
}

int ibv_modify_srq(ibv_srq* handle, ibv_srq_attr* attr, int mask) {
  entry e{call::ibv_modify_srq};
  auto& s = e.use<srq_obj>(handle);
  if (e.fault()) return e.code(e.fault());
  auto depth = s.depth;
  auto limit = s.limit;
  if (mask & IBV_SRQ_MAX_WR) {
    if (!e.w.ways.srq_resize) return e.code(EINVAL);
    if (attr->max_wr == 0 || attr->max_wr > unsigned(s.ctx->dev->attr.max_srq_wr)) return e.code(EINVAL);
    depth = ring_depth(attr->max_wr);
    if (depth < limit || depth < s.rq.size()) return e.code(EINVAL);
  }
  if (mask & IBV_SRQ_LIMIT) {
    if (attr->srq_limit > depth) return e.code(EINVAL);
    limit = attr->srq_limit;
  }
  s.depth = depth;
  s.limit = limit;
  return e.code(0);
}

int ibv_destroy_srq(ibv_srq* handle) {
  entry e{call::ibv_destroy_srq};
  auto& s = e.use<srq_obj>(handle);
  if (e.fault()) return e.code(e.fault());
  if (s.users) return e.code(EBUSY);
  discard_async_of(*s.ctx, s.as_c());
  wait_acked(e.lock(), "ibv_destroy_srq(" + s.name() + ")", [&] { return s.unacked_async == 0; });
  --s.domain->users;
  s.alive = false;
  s.rq.clear();
  return e.code(0);
}

} // extern "C"
