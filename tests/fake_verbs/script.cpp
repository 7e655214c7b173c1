// The script interface: injected and delayed events, scripted completions, ledger and searches.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

#include <algorithm>

namespace fake {

using namespace impl;

namespace {

using lock = std::lock_guard<std::mutex>;

id_obj* newest_id_of(std::uint32_t qp_num) {
  id_obj* found = nullptr;
  for (auto* i : all_live<id_obj>())
    if (i->counted && i->own_qpn == qp_num) found = i;
  return found;
}

id_obj* listener_on(std::uint16_t port) {
  for (auto* i : all_live<id_obj>())
    if (i->state == cma::listen && port_number(i->src) == port) return i;
  return nullptr;
}

void deliver_request(id_obj& l, const cm_event& e, const rdma_conn_param& shown) {
  auto& child = new_child(l);
  auto local = l.src;
  if (is_any(local)) { // a wildcard listener gets the first address of the first device
    const auto port = port_number(local);
    for (auto& d : the_world().devices)
      if (!d->removed && is_any(local)) local = parse_address(d->cfg.ports.at(0).addresses.at(0));
    set_port_number(local, port);
  }
  child.src = local;
  child.dst = parse_address(e.remote_address);
  set_port_number(child.dst, 40000);
  const auto o = owner_of(local);
  child.dev = o.dev;
  child.dev_port = o.port;
  child.peer_qpn = e.remote_qp_num;
  child.responder_resources = e.responder_resources;
  child.initiator_depth = e.initiator_depth;
  arrive_event(
      {&child, &l, e.event, e.status, shown, padded(e.private_data.data(), e.private_data.size(), req_data), {}});
}

/// The state into which a real message of this kind would put the id.
void follow(id_obj& id, const cm_event& e) {
  switch (e.event) {
  case RDMA_CM_EVENT_ADDR_RESOLVED:
    id.state = cma::addr_resolved;
    break;
  case RDMA_CM_EVENT_ADDR_ERROR:
    id.state = cma::bound;
    break;
  case RDMA_CM_EVENT_ROUTE_RESOLVED:
    id.state = cma::route_resolved;
    break;
  case RDMA_CM_EVENT_ROUTE_ERROR:
    id.state = cma::addr_resolved;
    break;
  case RDMA_CM_EVENT_CONNECT_RESPONSE:
    id.wire = ib::rep_rcvd;
    id.peer_qpn = e.remote_qp_num;
    id.responder_resources = e.responder_resources;
    id.initiator_depth = e.initiator_depth;
    break;
  case RDMA_CM_EVENT_ESTABLISHED:
    id.wire = ib::established;
    break;
  case RDMA_CM_EVENT_REJECTED:
  case RDMA_CM_EVENT_UNREACHABLE:
  case RDMA_CM_EVENT_CONNECT_ERROR:
    id.wire = ib::dead;
    break;
  case RDMA_CM_EVENT_DISCONNECTED:
    id.wire = id.wire == ib::dreq_sent ? ib::timewait : ib::dreq_rcvd;
    break;
  case RDMA_CM_EVENT_DEVICE_REMOVAL:
    id.state = cma::removed;
    id.wire = ib::dead;
    break;
  default:
    break;
  }
}

template <class Queue>
auto find_wr(Queue& q, std::optional<std::uint64_t> wr_id, auto&& id_of) {
  return wr_id ? std::find_if(q.begin(), q.end(), [&](const auto& x) { return id_of(x) == *wr_id; }) : q.begin();
}

} // namespace

void deliver(const cm_event& e) {
  const lock hold{mutex()};
  auto* id = e.id ? &live_object<id_obj>(e.id, "fake::deliver") : e.port ? listener_on(e.port) : newest_id_of(e.qp_num);
  if (!id) die("fake::deliver: no such target");
  rdma_conn_param shown{};
  std::size_t size = 0;
  if (e.event == RDMA_CM_EVENT_CONNECT_REQUEST || e.event == RDMA_CM_EVENT_CONNECT_RESPONSE) {
    shown.qp_num = e.remote_qp_num;
    shown.responder_resources = e.responder_resources;
    shown.initiator_depth = e.initiator_depth;
    shown.flow_control = e.flow_control;
    shown.retry_count = shown.rnr_retry_count = 7;
    size = rep_data;
  }
  if (e.event == RDMA_CM_EVENT_REJECTED) size = rej_data;
  if (e.event == RDMA_CM_EVENT_CONNECT_REQUEST) return deliver_request(*id, e, shown);
  arrive_event({id, nullptr, e.event, e.status, shown, padded(e.private_data.data(), e.private_data.size(), size),
                [&] { follow(*id, e); }});
}

void drop_next(rdma_cm_event_type type, unsigned n) {
  const lock hold{mutex()};
  the_world().drops[type] += n;
}

void hold_events(std::optional<rdma_cm_event_type> type) {
  const lock hold{mutex()};
  if (type)
    the_world().hold_types.push_back(*type);
  else
    the_world().hold_all = true;
}

std::vector<rdma_cm_event_type> held_events() {
  const lock hold{mutex()};
  std::vector<rdma_cm_event_type> r;
  for (const auto& h : the_world().held) r.push_back(h.type);
  return r;
}

bool release_event(std::size_t index) {
  const lock hold{mutex()};
  auto& h = the_world().held;
  if (index >= h.size()) return false;
  auto r = std::move(h[index]);
  h.erase(h.begin() + std::ptrdiff_t(index));
  arrive_event(std::move(r));
  return true;
}

void release_events() {
  const lock hold{mutex()};
  auto& w = the_world();
  w.hold_all = false;
  w.hold_types.clear();
  while (!w.held.empty()) {
    auto r = std::move(w.held.front());
    w.held.pop_front();
    arrive_event(std::move(r));
  }
}

void hold(ibv_qp* qp, bool on) {
  const lock guard{mutex()};
  auto& q = live_object<qp_obj>(qp, "fake::hold");
  q.held = on;
  if (on) return;
  for (auto& s : q.sq) s.held = false;
  kick(q);
  run();
}

bool complete(ibv_qp* qp, std::optional<std::uint64_t> wr_id, ibv_wc_status status) {
  const lock guard{mutex()};
  auto& q = live_object<qp_obj>(qp, "fake::complete");
  const auto it = find_wr(q.sq, wr_id, [](const send_wqe& s) { return s.wr.wr_id; });
  if (it == q.sq.end()) return false;
  auto s = std::move(*it);
  const auto place = q.sq.erase(it);
  if (status != IBV_WC_SUCCESS) {
    fail_send(q, s, status);
  } else if (!execute(q, s)) {
    q.sq.insert(place, std::move(s));
    return false;
  }
  run();
  return true;
}

bool lose_acknowledgement(ibv_qp* qp) {
  const lock guard{mutex()};
  auto& q = live_object<qp_obj>(qp, "fake::lose_acknowledgement");
  if (q.sq.empty()) return false;
  auto s = std::move(q.sq.front());
  q.sq.pop_front();
  const auto flags = s.wr.send_flags;
  const bool all = std::exchange(q.sig_all, false);
  s.wr.send_flags &= ~unsigned(IBV_SEND_SIGNALED);
  const bool arrived = execute(q, s);
  q.sig_all = all;
  s.wr.send_flags = flags;
  if (!arrived) {
    q.sq.push_front(std::move(s));
    return false;
  }
  if (q.true_state() == IBV_QPS_RTS) fail_send(q, s, IBV_WC_RETRY_EXC_ERR);
  run();
  return true;
}

bool complete_recv(ibv_qp* qp, std::optional<std::uint64_t> wr_id, ibv_wc_status status, std::uint32_t byte_len) {
  const lock guard{mutex()};
  auto& q = live_object<qp_obj>(qp, "fake::complete_recv");
  auto& rq = q.shared ? q.shared->rq : q.rq;
  const auto it = find_wr(rq, wr_id, [](const recv_wqe& r) { return r.wr_id; });
  if (it == rq.end()) return false;
  ibv_wc wc{};
  wc.wr_id = it->wr_id;
  wc.qp_num = q.qp_num;
  if (status != IBV_WC_SUCCESS) wc = failed_wc(q, it->wr_id, status);
  rq.erase(it);
  if (q.shared) check_limit(*q.shared);
  if (status == IBV_WC_SUCCESS) {
    wc.opcode = IBV_WC_RECV;
    wc.byte_len = byte_len;
    wc.wc_flags = q.attr.ah_attr.is_global ? IBV_WC_GRH : 0;
    wc.src_qp = q.attr.dest_qp_num;
  }
  push_wc(*q.rcq, wc, false);
  if (status != IBV_WC_SUCCESS) to_error(q);
  run();
  return true;
}

bool give_up(ibv_qp* qp) {
  const lock guard{mutex()};
  auto& q = live_object<qp_obj>(qp, "fake::give_up");
  if (q.sq.empty()) return false;
  const auto waits = q.sq.front().waits;
  if (waits != send_wqe::wait::receive && waits != send_wqe::wait::peer) return false;
  auto s = std::move(q.sq.front());
  q.sq.pop_front();
  fail_send(q, s, waits == send_wqe::wait::receive ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_RETRY_EXC_ERR);
  run();
  return true;
}

void forge(ibv_cq* cq, const ibv_wc& wc, bool solicited) {
  const lock guard{mutex()};
  push_wc(live_object<cq_obj>(cq, "fake::forge"), wc, solicited);
}

void break_qp(ibv_qp* qp) {
  const lock guard{mutex()};
  to_error(live_object<qp_obj>(qp, "fake::break_qp"));
  run();
}

} // namespace fake
