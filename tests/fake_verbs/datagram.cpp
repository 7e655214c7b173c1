// Datagrams: address handles, sends to them, multicast groups, and the exchange that finds a peer.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

#include <algorithm>
#include <cerrno>

namespace fake::impl {

namespace {

constexpr std::uint16_t first_group_lid = 0xc000; // the LIDs of groups are greater
constexpr int nobody_listens = 1, said_no = 2;    // values of the answer to a request

bool same_gid(const ibv_gid& a, const ibv_gid& b) { return std::memcmp(a.raw, b.raw, sizeof a.raw) == 0; }

/// Whether the network delivers the messages of a group to the device: some id is a member that receives.
bool brings(const device_state& d, const ibv_gid& group) {
  const auto ids = all_live<id_obj>();
  return std::any_of(ids.begin(), ids.end(), [&](const auto* i) {
    return i->dev == &d &&
           std::any_of(i->receives.begin(), i->receives.end(), [&](const auto& g) { return same_gid(g, group); });
  });
}

/// A receive of `p` takes the message, if there is a receive with room.
void arrive(qp_obj& q, qp_obj& p, const send_wqe& s, const std::vector<std::byte>& data, const ibv_gid& to) {
  const auto state = p.true_state();
  if ((state != IBV_QPS_RTR && state != IBV_QPS_RTS) || p.attr.qkey != s.wr.wr.ud.remote_qkey || p.rq.empty()) return;
  // Without a route header its 40 bytes are present, and undefined.
  const bool by_address = live_object<ah_obj>(s.wr.wr.ud.ah, "a datagram").attr.is_global != 0;
  std::vector<std::byte> message(40);
  const auto from = gid_at(*q.ctx->dev, q.attr.port_num, 1);
  message[20] = std::byte{0x45};
  message[28] = std::byte{64};
  std::memcpy(&message[32], from.raw + 12, 4);
  std::memcpy(&message[36], to.raw + 12, 4);
  message.insert(message.end(), data.begin(), data.end());
  std::uint64_t room = 0;
  for (const auto& g : p.rq.front().sges) room += g.length;
  if (room < message.size()) return;
  const auto r = p.rq.front();
  p.rq.pop_front();
  const std::byte* at = message.data();
  std::size_t left = message.size();
  for (const auto& g : r.sges) {
    const auto part = std::min<std::size_t>(left, g.length);
    const auto* m = local_region(p, {g.addr, std::uint32_t(part), g.lkey}, true);
    if (part == 0 || !m) break;
    dma_copy(pointer_into(*m, g.addr), at, part);
    at += part;
    left -= part;
  }
  ibv_wc wc{};
  wc.wr_id = r.wr_id;
  wc.opcode = IBV_WC_RECV;
  wc.byte_len = std::uint32_t(message.size());
  wc.qp_num = p.qp_num;
  wc.src_qp = q.qp_num;
  wc.wc_flags = by_address ? IBV_WC_GRH : 0;
  if (!by_address) {
    const auto& port = *port_of(*q.ctx->dev, q.attr.port_num);
    wc.slid = port.lid;
    wc.sl = port.service_level;
  }
  if (s.wr.opcode == IBV_WR_SEND_WITH_IMM) {
    wc.wc_flags |= IBV_WC_WITH_IMM;
    wc.imm_data = s.wr.imm_data;
  }
  push_wc(*p.rcq, wc, (s.wr.send_flags & IBV_SEND_SOLICITED) != 0);
}

} // namespace

void deliver_datagram(qp_obj& q, const send_wqe& s, const std::vector<std::byte>& data) {
  const auto& ah = live_object<ah_obj>(s.wr.wr.ud.ah, "a send to an address handle");
  auto to = ah.attr.grh.dgid;
  if (!ah.attr.is_global) // within the subnet, the LID names the port
    for (auto& d : the_world().devices)
      for (std::uint8_t n = 1; n <= d->cfg.ports.size(); ++n)
        if (port_of(*d, n)->lid == ah.attr.dlid) to = gid_at(*d, n, 0);
  // A message that is too long is lost without an error at the sender.
  if (data.size() > (128u << port_of(*q.ctx->dev, q.attr.port_num)->active_mtu)) return;
  for (auto* p : all_live<qp_obj>()) {
    if (p->qp_type != IBV_QPT_UD) continue;
    const bool member = brings(*p->ctx->dev, to) && std::any_of(p->groups.begin(), p->groups.end(),
                                                                [&](const auto& g) { return same_gid(g.gid, to); });
    if (s.wr.wr.ud.remote_qpn == 0xffffff ? member : p->qp_num == s.wr.wr.ud.remote_qpn && has_gid(*p->ctx->dev, to))
      arrive(q, *p, s, data, to);
  }
}

namespace {
void answer(id_obj& from, rdma_cm_event_type type, int status, const void* data, std::size_t n, std::uint32_t qp_num) {
  auto* p = from.peer;
  from.wire = ib::dead;
  if (!p || !p->alive || p->wire != ib::req_sent) return;
  cm_record r;
  r.id = p;
  r.type = type;
  r.status = status;
  r.datagram = true;
  r.data = padded(data, n, 136);
  r.ud.qp_num = qp_num;
  r.ud.qkey = RDMA_UDP_QKEY;
  r.ud.ah_attr = path_between(*p->dev, p->dev_port, p->src, p->dst);
  r.arrive = [p] { p->wire = ib::dead; };
  post_event(std::move(r));
}
} // namespace

int ask_datagram(id_obj& id, const rdma_conn_param* param) {
  if (id.state != cma::route_resolved || (param && param->private_data_len > 180)) return EINVAL;
  id.state = cma::connect;
  id.wire = ib::req_sent;
  auto* l = find_listener(id.dst, id.ps);
  const auto o = owner_of(id.dst);
  if (!l || !o.dev) {
    cm_record r;
    r.id = &id;
    r.type = RDMA_CM_EVENT_UNREACHABLE;
    r.status = o.dev ? nobody_listens : -ETIMEDOUT;
    post_event(std::move(r));
    return 0;
  }
  auto& child = new_child(*l, id, o);
  cm_record r;
  r.id = &child;
  r.listener = l;
  r.type = RDMA_CM_EVENT_CONNECT_REQUEST;
  r.datagram = true;
  r.data = padded(param ? param->private_data : nullptr, param ? param->private_data_len : 0, 180);
  post_event(std::move(r));
  return 0;
}

int accept_datagram(id_obj& id, const rdma_conn_param* param) {
  if (id.wire != ib::req_rcvd || !param || param->private_data_len > 136) return EINVAL;
  answer(id, RDMA_CM_EVENT_ESTABLISHED, 0, param->private_data, param->private_data_len, param->qp_num);
  return 0;
}

int reject_datagram(id_obj& id, const void* data, std::size_t n) {
  if (id.wire != ib::req_rcvd || n > 136) return EINVAL;
  answer(id, RDMA_CM_EVENT_UNREACHABLE, said_no, data, n, 0);
  return 0;
}

} // namespace fake::impl

namespace fake {

std::vector<ibv_ah_attr> ah_attributes() {
  const std::lock_guard hold{impl::mutex()};
  std::vector<ibv_ah_attr> all;
  for (const auto* a : impl::all_live<impl::ah_obj>()) all.push_back(a->attr);
  return all;
}

} // namespace fake

using namespace fake;
using namespace fake::impl;

extern "C" {

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  entry e{call::ibv_create_ah};
  auto& p = e.use<pd_obj>(pd);
  if (e.fault()) return e.null(e.fault());
  if (!port_of(*p.ctx->dev, attr->port_num)) return e.null(EINVAL);
  auto& a = adopt(std::make_unique<ah_obj>());
  a.context = p.context;
  a.pd = pd;
  a.handle = a.serial;
  a.domain = &p;
  a.attr = *attr;
  ++p.users;
  e.made(a);
  return a.as_c();
}

int ibv_destroy_ah(ibv_ah* ah) {
  entry e{call::ibv_destroy_ah};
  auto& a = e.use<ah_obj>(ah);
  if (e.fault()) return e.code(e.fault());
  for (const auto* q : all_live<qp_obj>())
    for (const auto& s : q->sq)
      if (q->qp_type == IBV_QPT_UD && s.wr.wr.ud.ah == ah)
        e.w.wrong_orders.push_back(a.name() + " destroyed while a send of " + q->name() + " names it");
  a.alive = false;
  --a.domain->users;
  return e.code(0);
}

int ibv_init_ah_from_wc(ibv_context* context, std::uint8_t port, ibv_wc* wc, ibv_grh* grh, ibv_ah_attr* attr) {
  entry e{call::ibv_init_ah_from_wc};
  auto& ctx = e.use<context_obj>(context);
  if (e.fault()) return e.minus1(e.fault());
  if (is_infiniband(*ctx.dev, port) && !(wc->wc_flags & IBV_WC_GRH)) {
    *attr = {};
    attr->port_num = port;
    attr->dlid = wc->slid;
    attr->sl = wc->sl;
    return e.minus1(0);
  }
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(grh);
  if (!port_of(*ctx.dev, port) || (bytes[20] >> 4) != 4) return e.minus1(EPROTONOSUPPORT);
  const auto gid = [&](std::size_t at) {
    ibv_gid g{};
    g.raw[10] = g.raw[11] = 0xff;
    std::memcpy(g.raw + 12, bytes + at, 4);
    return g;
  };
  const int own = gid_index(*ctx.dev, port, gid(36));
  if (own < 0) return e.minus1(EINVAL);
  *attr = {};
  attr->is_global = 1;
  attr->port_num = port;
  attr->dlid = wc->slid;
  attr->grh.dgid = gid(32);
  attr->grh.sgid_index = std::uint8_t(own);
  attr->grh.hop_limit = 64;
  return e.minus1(0);
}

int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  entry e{call::ibv_attach_mcast};
  auto& q = e.use<qp_obj>(qp);
  if (e.fault()) return e.code(e.fault());
  if (q.qp_type != IBV_QPT_UD || gid->raw[0] != 0xff) return e.code(EINVAL);
  if (is_infiniband(*q.ctx->dev, q.attr.port_num) && lid <= first_group_lid) return e.code(EINVAL);
  q.groups.push_back({*gid, lid});
  return e.code(0);
}

int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  entry e{call::ibv_detach_mcast};
  auto& q = e.use<qp_obj>(qp);
  if (e.fault()) return e.code(e.fault());
  const auto at = std::find_if(q.groups.begin(), q.groups.end(),
                               [&](const auto& g) { return same_gid(g.gid, *gid) && g.lid == lid; });
  if (at == q.groups.end()) return e.code(EINVAL);
  q.groups.erase(at);
  return e.code(0);
}

int rdma_join_multicast_ex(rdma_cm_id* handle, rdma_cm_join_mc_attr_ex* how, void*) {
  entry e{call::rdma_join_multicast_ex};
  auto& id = e.use<id_obj>(handle);
  if (e.fault()) return e.minus1(e.fault());
  // As librdmacm: it needs both members, and sends the flags to the kernel.
  if (how->comp_mask != (RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS)) return e.minus1(EINVAL);
  sockaddr_storage group;
  if (const int error = copy_address(group, how->addr)) return e.minus1(error);
  if (!id.dev || (id.state != cma::bound && id.state != cma::addr_resolved)) return e.minus1(EINVAL);
  cm_record r;
  r.id = &id;
  r.type = RDMA_CM_EVENT_MULTICAST_JOIN;
  r.datagram = true;
  r.ud.qp_num = 0xffffff;
  r.ud.qkey = RDMA_UDP_QKEY;
  r.ud.ah_attr.is_global = 1;
  r.ud.ah_attr.port_num = id.dev_port;
  r.ud.ah_attr.grh.dgid = gid_of(group);
  r.ud.ah_attr.grh.dgid.raw[0] = 0xff; // 0xff0e::ffff:239.1.2.3, as the kernel writes it
  r.ud.ah_attr.grh.dgid.raw[1] = 0x0e;
  if (is_infiniband(*id.dev, id.dev_port)) r.ud.ah_attr.dlid = first_group_lid + 1;
  if (how->join_flags == RDMA_MC_JOIN_FLAG_FULLMEMBER) id.receives.push_back(r.ud.ah_attr.grh.dgid);
  post_event(std::move(r));
  return e.minus1(0);
}

int rdma_leave_multicast(rdma_cm_id* handle, sockaddr*) {
  entry e{call::rdma_leave_multicast};
  auto& id = e.use<id_obj>(handle);
  return e.minus1(e.fault() ? e.fault() : id.alive ? 0 : EINVAL);
}

} // extern "C"
