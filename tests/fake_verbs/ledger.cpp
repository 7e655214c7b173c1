// Live objects, leaks, searches for objects, limits of rxe, names of enumerators.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

#include <algorithm>

namespace fake {

using namespace impl;

namespace {

using lock = std::lock_guard<std::mutex>;

template <class T>
void tell(std::string& s, const char* what) {
  std::string names;
  std::size_t n = 0;
  for (auto* o : all_live<T>()) {
    if (!o->counted) continue;
    if (++n <= 8) names += (names.empty() ? "" : ", ") + o->name();
  }
  if (n)
    s += (s.empty() ? "leaked: " : "; ") + std::to_string(n) + " " + what + " (" + names + (n > 8 ? ", ..." : "") + ")";
}

live_counts count_live() {
  live_counts n;
  auto& w = the_world();
  for (auto& o : w.objects) {
    if (!o->alive || !o->counted) continue;
    switch (o->what) {
    case kind::context:
      ++n.contexts;
      n.unacked_async_events += static_cast<context_obj*>(o.get())->unacked;
      break;
    case kind::pd:
      ++n.pds;
      break;
    case kind::mr:
      ++n.mrs;
      break;
    case kind::mw:
      ++n.mws;
      break;
    case kind::comp_channel:
      ++n.comp_channels;
      break;
    case kind::cq:
      ++n.cqs;
      n.unacked_cq_events += static_cast<cq_obj*>(o.get())->unacked;
      break;
    case kind::srq:
      ++n.srqs;
      break;
    case kind::qp:
      ++n.qps;
      break;
    case kind::event_channel:
      ++n.event_channels;
      break;
    case kind::id:
      ++n.ids;
      break;
    case kind::ah:
      ++n.ahs;
      break;
    case kind::count:
      break;
    }
  }
  n.device_lists = w.device_lists.size() + w.cm_device_lists.size();
  n.unacked_cm_events = w.cm_events.size();
  return n;
}

template <class T>
auto handles() {
  const lock hold{mutex()};
  std::vector<decltype(std::declval<T&>().as_c())> r;
  for (auto* o : all_live<T>())
    if (o->counted) r.push_back(o->as_c());
  return r;
}

} // namespace

std::size_t live_counts::total() const {
  return contexts + pds + mrs + mws + comp_channels + cqs + srqs + qps + ahs + event_channels + ids + device_lists +
         unacked_cm_events + unacked_cq_events + unacked_async_events;
}

live_counts live() {
  const lock hold{mutex()};
  return count_live();
}

std::string leaks() {
  const lock hold{mutex()};
  std::string s;
  tell<context_obj>(s, "context");
  tell<pd_obj>(s, "pd");
  tell<mr_obj>(s, "mr");
  tell<mw_obj>(s, "mw");
  tell<channel_obj>(s, "comp channel");
  tell<cq_obj>(s, "cq");
  tell<srq_obj>(s, "srq");
  tell<qp_obj>(s, "qp");
  tell<evchan_obj>(s, "event channel");
  tell<id_obj>(s, "id");
  const auto n = count_live();
  const auto more = [&](std::size_t count, const char* what) {
    if (count) s += (s.empty() ? "leaked: " : "; ") + std::to_string(count) + " " + what;
  };
  more(n.device_lists, "device list");
  more(n.unacked_cm_events, "cm event not acknowledged");
  more(n.unacked_cq_events, "cq event not acknowledged");
  more(n.unacked_async_events, "async event not acknowledged");
  for (const auto& v : the_world().wrong_orders) s += (s.empty() ? "" : "; ") + v;
  return s;
}

std::vector<std::string> violations() {
  const lock hold{mutex()};
  return the_world().wrong_orders;
}

std::vector<ibv_qp*> qps() { return handles<qp_obj>(); }
std::vector<ibv_cq*> cqs() { return handles<cq_obj>(); }
std::vector<ibv_context*> contexts() { return handles<context_obj>(); }
std::vector<rdma_cm_id*> ids() { return handles<id_obj>(); }

ibv_qp* qp_by_num(std::uint32_t qp_num) {
  const lock hold{mutex()};
  auto* q = find_qp(qp_num);
  return q ? q->as_c() : nullptr;
}

std::vector<flushed_range> flushed() {
  const lock hold{mutex()};
  return the_world().flushed;
}
int resolve_timeout_ms() {
  const lock hold{mutex()};
  return the_world().resolve_timeout_ms;
}

std::vector<rdma_conn_param> connection_parameters() {
  const lock hold{mutex()};
  return the_world().connection_parameters;
}

rdma_cm_id* id_of_qp(std::uint32_t qp_num) {
  const lock hold{mutex()};
  rdma_cm_id* found = nullptr;
  for (auto* i : all_live<id_obj>())
    if (i->counted && i->own_qpn == qp_num) found = i->as_c();
  return found;
}

rdma_cm_id* listener(std::uint16_t port) {
  const lock hold{mutex()};
  for (auto* i : all_live<id_obj>())
    if (i->state == cma::listen && port_number(i->src) == port) return i->as_c();
  return nullptr;
}

ibv_qp_state qp_state(const ibv_qp* qp) {
  const lock hold{mutex()};
  return live_object<qp_obj>(qp, "fake::qp_state").true_state();
}
std::size_t posted_receives(const ibv_qp* qp) {
  const lock hold{mutex()};
  const auto& q = live_object<qp_obj>(qp, "fake::posted_receives");
  return q.shared ? q.shared->rq.size() : q.rq.size();
}
std::size_t pending_sends(const ibv_qp* qp) {
  const lock hold{mutex()};
  return live_object<qp_obj>(qp, "fake::pending_sends").sq.size();
}
std::size_t unread_completions(const ibv_cq* cq) {
  const lock hold{mutex()};
  return live_object<cq_obj>(cq, "fake::unread_completions").entries.size();
}

ibv_device_attr rxe_attr() {
  ibv_device_attr a{};
  a.max_mr_size = ~std::uint64_t{0};
  a.page_size_cap = 0xfffff000;
  a.vendor_id = 0xffffff;
  a.max_qp = 1048560;
  a.max_qp_wr = 1048576;
  a.device_cap_flags = IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR | IBV_DEVICE_CHANGE_PHY_PORT |
                       IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
                       IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW |
                       IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  a.max_sge = a.max_sge_rd = 32;
  a.max_cq = 1048576;
  a.max_cqe = 32767;
  a.max_mr = 524287;
  a.max_mw = 524287;
  a.max_pd = 1048576;
  a.max_qp_rd_atom = a.max_qp_init_rd_atom = 128;
  a.max_res_rd_atom = 258048;
  a.atomic_cap = IBV_ATOMIC_HCA;
  a.max_ah = 32767;
  a.max_srq = 917503;
  a.max_srq_wr = 1048576;
  a.max_srq_sge = 27;
  a.max_pkeys = 1;
  a.local_ca_ack_delay = 15;
  return a;
}

} // namespace fake
