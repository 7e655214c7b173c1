// rdma_cm event channels: events are lost, held or queued, then read and acknowledged.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

#include <algorithm>
#include <cerrno>

namespace fake::impl {

std::vector<std::byte> padded(const void* data, std::size_t n, std::size_t size) {
  std::vector<std::byte> d(size);
  if (n != 0 && size != 0) std::memcpy(d.data(), data, std::min(n, size));
  return d;
}

void arrive_event(cm_record r) {
  if (!r.id->alive || (r.listener && !r.listener->alive)) return;
  auto* l = r.listener;
  // The request is dropped without an answer. A real peer would repeat it for a minute.
  if (l && l->unread >= std::size_t(l->backlog)) {
    if (r.id->peer) r.id->peer->peer = nullptr;
    r.id->alive = false;
    return;
  }
  if (r.arrive) r.arrive();
  if (l) ++l->unread;
  auto* chan = (l ? l : r.id)->chan;
  chan->queue.push_back(std::move(r));
  chan->signal.set(true);
}

void post_event(cm_record r) {
  auto& w = the_world();
  if (const auto it = w.drops.find(r.type); it != w.drops.end() && it->second) {
    --it->second;
    return;
  }
  const bool hold = w.hold_all || std::find(w.hold_types.begin(), w.hold_types.end(), r.type) != w.hold_types.end();
  if (hold)
    w.held.push_back(std::move(r));
  else
    arrive_event(std::move(r));
}

void discard_events(id_obj& id) {
  std::vector<id_obj*> orphans; // requests that no thread has read
  const auto gone = [&](const cm_record& r) {
    if (r.listener == &id) orphans.push_back(r.id);
    return r.id == &id || r.listener == &id;
  };
  std::erase_if(id.chan->queue, gone);
  std::erase_if(the_world().held, gone);
  id.chan->signal.set(!id.chan->queue.empty());
  for (auto* o : orphans) {
    destroy_on_wire(*o);
    o->alive = false;
  }
}

namespace {

void describe_path(id_obj& id) {
  id.path = std::make_unique<ibv_sa_path_rec>();
  auto& p = *id.path;
  p.sgid = gid_of_port(id.src);
  p.dgid = gid_of_port(id.dst);
  p.hop_limit = 64;
  p.reversible = 1;
  p.numb_path = 1;
  const auto& port = *port_of(*id.dev, id.dev_port);
  p.pkey = htons(port.pkeys[port.interface_pkey]);
  p.sl = port.service_level;
  p.slid = htons(port.lid);
  if (const auto o = owner_of(id.dst); o.dev) p.dlid = htons(port_of(*o.dev, o.port)->lid);
  p.mtu = std::uint8_t(port_of(*id.dev, id.dev_port)->active_mtu);
  id.route.path_rec = &p;
  id.route.num_paths = 1;
}

} // namespace

} // namespace fake::impl

using namespace fake;
using namespace fake::impl;

extern "C" {

rdma_event_channel* rdma_create_event_channel(void) {
  entry e{call::rdma_create_event_channel};
  if (e.fault()) return e.null(e.fault());
  auto made = std::make_unique<evchan_obj>();
  if (const int err = made->signal.open()) return e.null(err);
  auto& c = adopt(std::move(made));
  c.fd = c.signal.fd();
  e.made(c);
  return c.as_c();
}

void rdma_destroy_event_channel(rdma_event_channel* channel) {
  entry e{call::rdma_destroy_event_channel};
  auto& c = e.use<evchan_obj>(channel);
  std::string left;
  for (auto* i : all_live<id_obj>())
    if (i->chan == &c && i->counted) left += (left.empty() ? "" : ", ") + i->name();
  if (!left.empty()) e.w.wrong_orders.push_back(c.name() + " destroyed while it serves " + left);
  c.alive = false;
  c.queue.clear();
}

int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** out) {
  entry e{call::rdma_get_cm_event};
  auto& c = e.use<evchan_obj>(channel);
  if (e.fault()) return e.minus1(e.fault());
  while (c.queue.empty()) {
    if (const int error = wait_readable(e.lock(), c.fd)) {
      if (error == EAGAIN) e.quiet();
      return e.minus1(error);
    }
    if (!c.alive) die("rdma_get_cm_event: " + c.name() + " was destroyed meanwhile");
  }
  auto r = std::move(c.queue.front());
  c.queue.pop_front();
  c.signal.set(!c.queue.empty());
  auto ev = std::make_unique<event_obj>();
  ev->id = r.id->as_c();
  ev->listen_id = r.listener ? r.listener->as_c() : nullptr;
  ev->event = r.type;
  ev->status = r.status;
  ev->param.conn = r.conn;
  std::copy(r.data.begin(), r.data.end(), ev->bytes.begin());
  if (r.datagram) ev->param.ud = r.ud;
  // Both kinds of parameters begin with these two members.
  ev->param.conn.private_data = r.data.empty() ? nullptr : ev->bytes.data();
  ev->param.conn.private_data_len = std::uint8_t(r.data.size());
  ev->counts_on = r.listener ? r.listener : r.id;
  ++ev->counts_on->unacked;
  // The work of librdmacm itself when it reads an event.
  switch (r.type) {
  case RDMA_CM_EVENT_CONNECT_REQUEST:
    --r.listener->unread;
    r.id->counted = true;
    r.id->event = ev.get();
    set_addresses(*r.id);
    describe_path(*r.id);
    break;
  case RDMA_CM_EVENT_ADDR_RESOLVED:
    set_addresses(*r.id);
    break;
  case RDMA_CM_EVENT_ROUTE_RESOLVED:
    set_addresses(*r.id);
    if (r.id->dev) describe_path(*r.id);
    break;
  default:
    break;
  }
  e.made(*r.id);
  *out = ev.get();
  e.w.cm_events[ev.get()] = std::move(ev);
  return e.minus1(0);
}

int rdma_ack_cm_event(rdma_cm_event* event) {
  entry e{call::rdma_ack_cm_event};
  const auto it = e.w.cm_events.find(event);
  if (it == e.w.cm_events.end()) die("rdma_ack_cm_event: not an event of this world, or acknowledged before");
  if (e.fault()) return e.minus1(e.fault());
  --it->second->counts_on->unacked;
  e.w.cm_events.erase(it);
  acked().notify_all();
  return e.minus1(0);
}

int rdma_migrate_id(rdma_cm_id* handle, rdma_event_channel* channel) {
  entry e{call::rdma_migrate_id};
  auto& id = e.use<id_obj>(handle);
  if (e.fault()) return e.minus1(e.fault());
  if (!channel) return e.minus1(ENOSYS);
  auto& to = live_object<evchan_obj>(channel, "rdma_migrate_id");
  auto& from = *id.chan;
  if (&to == &from) return e.minus1(0);
  wait_acked(e.lock(), "rdma_migrate_id(" + id.name() + ")", [&] { return id.unacked == 0; });
  const auto mine = [&](const cm_record& r) { return (r.listener ? r.listener : r.id) == &id; };
  for (auto& r : from.queue)
    if (mine(r)) to.queue.push_back(r);
  std::erase_if(from.queue, mine);
  from.signal.set(!from.queue.empty());
  to.signal.set(!to.queue.empty());
  id.chan = &to;
  id.channel = channel;
  return e.minus1(0);
}

} // extern "C"
