// rdma_cm ids: create, bind, listen, resolve, options, addresses, ports.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>

namespace fake::impl {

std::uint16_t port_number(const sockaddr_storage& a) {
  return ntohs(a.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(a).sin6_port
                                       : reinterpret_cast<const sockaddr_in&>(a).sin_port);
}
void set_port_number(sockaddr_storage& a, std::uint16_t port) {
  (a.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(a).sin6_port
                           : reinterpret_cast<sockaddr_in&>(a).sin_port) = htons(port);
}
bool is_any(const sockaddr_storage& a) {
  if (a.ss_family == AF_INET) return reinterpret_cast<const sockaddr_in&>(a).sin_addr.s_addr == INADDR_ANY;
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(a).sin6_addr);
}
bool is_loopback(const sockaddr_storage& a) {
  if (a.ss_family == AF_INET) return (ntohl(reinterpret_cast<const sockaddr_in&>(a).sin_addr.s_addr) >> 24) == 127;
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(a).sin6_addr);
}
bool same_address(const sockaddr_storage& a, const sockaddr_storage& b) {
  return a.ss_family == b.ss_family && std::memcmp(gid_of(a).raw, gid_of(b).raw, 16) == 0;
}

int copy_address(sockaddr_storage& to, const sockaddr* from) {
  to = {};
  if (!from) return EINVAL;
  if (from->sa_family == AF_INET)
    std::memcpy(&to, from, sizeof(sockaddr_in));
  else if (from->sa_family == AF_INET6)
    std::memcpy(&to, from, sizeof(sockaddr_in6));
  else
    return EINVAL; // rdma_cm has no length for another family
  return 0;
}

void set_addresses(id_obj& id) {
  auto& a = id.route.addr;
  std::memcpy(&a.src_storage, &id.src, sizeof a.src_storage);
  std::memcpy(&a.dst_storage, &id.dst, sizeof a.dst_storage);
  if (!id.dev) return;
  id.verbs = cm_context(*id.dev).as_c();
  id.port_num = id.dev_port;
  a.addr.ibaddr.sgid = gid_of_port(id.src);
  const auto& port = *port_of(*id.dev, id.dev_port);
  a.addr.ibaddr.pkey = htons(port.pkeys[port.interface_pkey]);
  if (id.dst.ss_family) a.addr.ibaddr.dgid = gid_of_port(id.dst);
}

id_obj* find_listener(const sockaddr_storage& dst, rdma_port_space ps) {
  id_obj* any = nullptr;
  for (auto* i : all_live<id_obj>()) {
    if (i->state != cma::listen || i->ps != ps || port_number(i->src) != port_number(dst)) continue;
    if (same_address(i->src, dst)) return i;
    if (is_any(i->src) && (i->src.ss_family == dst.ss_family || (i->src.ss_family == AF_INET6 && !i->af_only))) any = i;
  }
  return any;
}

namespace {

/// 0, or the errno for which the port of `a` cannot be taken.
int port_conflict(const id_obj& self, const sockaddr_storage& a) {
  for (auto* i : all_live<id_obj>()) {
    if (i == &self || i->ps != self.ps || i->state == cma::idle || i->child) continue;
    if (port_number(i->src) != port_number(a) || (self.reuse_addr && i->reuse_addr)) continue;
    if (i->src.ss_family != a.ss_family && (self.af_only || i->af_only)) continue;
    if (is_any(a) || is_any(i->src)) return EADDRNOTAVAIL;
    if (same_address(a, i->src)) return EADDRINUSE;
  }
  return 0;
}

int bind(id_obj& id, sockaddr_storage a) {
  if (id.state != cma::idle) return EINVAL;
  owner o;
  if (!is_any(a) && !is_loopback(a)) {
    o = owner_of(a);
    if (!o.dev) return EADDRNOTAVAIL;
  }
  if (port_number(a)) {
    if (const int error = port_conflict(id, a)) return error;
  } else {
    auto& next = the_world().next_port;
    for (int tries = 0;; ++tries) {
      if (tries == 28232) return EADDRNOTAVAIL;
      set_port_number(a, next);
      next = next == 60999 ? std::uint16_t{32768} : std::uint16_t(next + 1);
      if (!port_conflict(id, a)) break;
    }
  }
  id.src = a;
  id.dev = o.dev;
  id.dev_port = o.port;
  id.state = cma::bound;
  return 0;
}

/// Starts address resolution; 0 or errno. The result comes as an event.
int resolve(id_obj& id, const sockaddr_storage& dst) {
  if (id.state != cma::bound || dst.ss_family != id.src.ss_family) return EINVAL;
  auto to = owner_of(dst);
  auto from = owner{id.dev, id.dev_port};
  int status = 0;
  if (is_loopback(dst) || is_any(dst)) {
    status = -ENODEV;
  } else {
    if (!from.dev && to.dev) from = to;
    if (!from.dev) // the device whose network has the address, if any
      for (auto& d : the_world().devices)
        for (std::uint8_t p = 1; !d->removed && p <= d->cfg.ports.size(); ++p)
          for (const auto& text : d->cfg.ports[p - 1u].addresses)
            if (!from.dev && same_subnet(parse_address(text), dst)) from = {d.get(), p};
    if (!from.dev || port_of(*from.dev, from.port)->state != IBV_PORT_ACTIVE) return ENETUNREACH;
    if (!to.dev) {
      bool near = false;
      for (auto& d : the_world().devices)
        for (const auto& p : d->cfg.ports)
          for (const auto& text : p.addresses) near = near || same_subnet(parse_address(text), dst);
      if (!near) return ENETUNREACH;
    }
    if (!to.dev || port_of(*to.dev, to.port)->state != IBV_PORT_ACTIVE) status = -ETIMEDOUT;
  }
  id.dst = dst;
  id.state = cma::addr_query;
  post_event({&id,
              nullptr,
              status ? RDMA_CM_EVENT_ADDR_ERROR : RDMA_CM_EVENT_ADDR_RESOLVED,
              status,
              {},
              {},
              [&id, from, status] {
                if (status) {
                  id.state = cma::bound;
                  return;
                }
                id.state = cma::addr_resolved;
                id.dev = from.dev;
                id.dev_port = from.port;
                if (!is_any(id.src)) return;
                const auto port = port_number(id.src);
                for (const auto& text : port_of(*from.dev, from.port)->addresses)
                  if (const auto a = parse_address(text); a.ss_family == id.dst.ss_family) {
                    if (is_any(id.src) || same_address(a, id.dst)) id.src = a;
                  }
                set_port_number(id.src, port);
              }});
  return 0;
}

} // namespace

} // namespace fake::impl

using namespace fake;
using namespace fake::impl;

extern "C" {

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** out, void* context, rdma_port_space ps) {
  entry e{call::rdma_create_id};
  if (e.fault()) return e.minus1(e.fault());
  if (!channel) return e.minus1(ENOSYS); // synchronous ids are not simulated
  auto& chan = live_object<evchan_obj>(channel, "rdma_create_id");
  if (ps != RDMA_PS_TCP && ps != RDMA_PS_UDP) return e.minus1(EPROTONOSUPPORT);
  auto& id = adopt(std::make_unique<id_obj>());
  id.channel = channel;
  id.chan = &chan;
  id.context = context;
  id.ps = ps;
  id.qp_type = ps == RDMA_PS_TCP ? IBV_QPT_RC : IBV_QPT_UD;
  e.made(id);
  *out = id.as_c();
  return e.minus1(0);
}

int rdma_destroy_id(rdma_cm_id* handle) {
  entry e{call::rdma_destroy_id};
  auto& id = e.use<id_obj>(handle);
  if (e.fault()) return e.minus1(e.fault());
  if (!id.counted) die("rdma_destroy_id: " + id.name() + " was not handed out yet");
  destroy_on_wire(id);
  discard_events(id);
  wait_acked(e.lock(), "rdma_destroy_id(" + id.name() + ")", [&] { return id.unacked == 0; });
  discard_events(id); // drops events that arrived while the id waited
  id.alive = false;
  run();
  return e.minus1(0);
}

int rdma_bind_addr(rdma_cm_id* handle, sockaddr* addr) {
  entry e{call::rdma_bind_addr};
  auto& id = e.use<id_obj>(handle);
  if (e.fault()) return e.minus1(e.fault());
  sockaddr_storage a;
  if (const int error = copy_address(a, addr)) return e.minus1(error);
  if (const int error = bind(id, a)) return e.minus1(error);
  set_addresses(id);
  return e.minus1(0);
}

int rdma_listen(rdma_cm_id* handle, int backlog) {
  entry e{call::rdma_listen};
  auto& id = e.use<id_obj>(handle);
  if (e.fault()) return e.minus1(e.fault());
  if (id.state == cma::idle) {
    sockaddr_storage any{};
    any.ss_family = AF_INET;
    if (const int error = bind(id, any)) return e.minus1(error);
  }
  if (id.state != cma::bound) return e.minus1(EINVAL);
  id.backlog = backlog > 0 && backlog < e.w.cfg.max_backlog ? backlog : e.w.cfg.max_backlog;
  id.state = cma::listen;
  set_addresses(id);
  return e.minus1(0);
}

int rdma_resolve_addr(rdma_cm_id* handle, sockaddr* src, sockaddr* dst, int timeout_ms) {
  entry e{call::rdma_resolve_addr};
  auto& id = e.use<id_obj>(handle);
  if (e.fault()) return e.minus1(e.fault());
  e.w.resolve_timeout_ms = timeout_ms;
  sockaddr_storage to, from{};
  if (const int error = copy_address(to, dst)) return e.minus1(error);
  if (id.state == cma::idle) {
    from.ss_family = to.ss_family;
    if (src)
      if (const int error = copy_address(from, src)) return e.minus1(error);
    if (const int error = bind(id, from)) return e.minus1(error);
  }
  const int error = resolve(id, to);
  if (!error) std::memcpy(&id.route.addr.dst_storage, &to, sizeof to);
  return e.minus1(error);
}

int rdma_resolve_route(rdma_cm_id* handle, int timeout_ms) {
  entry e{call::rdma_resolve_route};
  auto& id = e.use<id_obj>(handle);
  if (e.fault()) return e.minus1(e.fault());
  if (timeout_ms <= 0 || id.state != cma::addr_resolved) return e.minus1(EINVAL);
  id.state = cma::route_query;
  post_event({&id, nullptr, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, {}, {}, [&id] { id.state = cma::route_resolved; }});
  return e.minus1(0);
}

int rdma_set_option(rdma_cm_id* handle, int level, int name, void* value, std::size_t size) {
  entry e{call::rdma_set_option};
  auto& id = e.use<id_obj>(handle);
  if (e.fault()) return e.minus1(e.fault());
  if (level != RDMA_OPTION_ID) return e.minus1(ENOSYS);
  const bool is_int = size == sizeof(int), is_byte = size == 1;
  switch (name) {
  case RDMA_OPTION_ID_TOS:
    if (!is_byte) return e.minus1(EINVAL);
    id.tos = *static_cast<std::uint8_t*>(value);
    return e.minus1(0);
  case RDMA_OPTION_ID_REUSEADDR:
    if (!is_int || id.state != cma::idle) return e.minus1(EINVAL);
    id.reuse_addr = *static_cast<int*>(value) != 0;
    return e.minus1(0);
  case RDMA_OPTION_ID_AFONLY:
    if (!is_int || (id.state != cma::idle && id.state != cma::bound)) return e.minus1(EINVAL);
    id.af_only = *static_cast<int*>(value) != 0;
    return e.minus1(0);
  case RDMA_OPTION_ID_ACK_TIMEOUT:
    if (!is_byte || *static_cast<std::uint8_t*>(value) > 31) return e.minus1(EINVAL);
    id.ack_timeout = *static_cast<std::uint8_t*>(value);
    return e.minus1(0);
  default:
    return e.minus1(ENOSYS);
  }
}

__be16 rdma_get_src_port(rdma_cm_id* id) { return htons(port_number(id->route.addr.src_storage)); }
__be16 rdma_get_dst_port(rdma_cm_id* id) { return htons(port_number(id->route.addr.dst_storage)); }

ibv_context** rdma_get_devices(int* num_devices) {
  entry e{call::rdma_get_devices};
  if (num_devices) *num_devices = 0;
  if (e.fault()) return e.null(e.fault());
  std::vector<ibv_context*> present;
  for (auto& d : e.w.devices)
    if (!d->removed) present.push_back(cm_context(*d).as_c());
  auto list = std::make_unique<ibv_context*[]>(present.size() + 1);
  std::copy(present.begin(), present.end(), list.get());
  auto** raw = list.get();
  e.w.cm_device_lists[raw] = std::move(list);
  if (num_devices) *num_devices = int(present.size());
  return raw;
}

void rdma_free_devices(ibv_context** list) {
  entry e{call::rdma_free_devices};
  if (e.w.cm_device_lists.erase(list) == 0) die("rdma_free_devices: not a device list, or freed before");
}

} // extern "C"
