// Device list, contexts, queries of device, port, GID and P_Key.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>

// Macros of verbs.h that would rename the symbols defined here.
#undef ibv_query_port

namespace fake::impl {

namespace {

int op_query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attr, std::size_t size) {
  entry e{call::ibv_query_port};
  auto& ctx = e.use<context_obj>(context);
  if (e.fault()) return e.code(e.fault());
  const auto* p = port_of(*ctx.dev, port);
  if (!p || ctx.dev->removed) return e.code(p ? EIO : EINVAL);
  ibv_port_attr a{};
  a.state = p->state;
  a.max_mtu = IBV_MTU_4096;
  a.active_mtu = p->active_mtu;
  a.gid_tbl_len = 1024;
  a.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
  a.max_msg_sz = p->max_msg_sz;
  a.pkey_tbl_len = std::uint16_t(p->pkeys.size());
  a.lid = p->lid;
  a.lmc = p->lmc;
  a.sm_lid = p->lid ? 1 : 0;
  a.flags = p->flags;
  a.max_vl_num = 1;
  a.active_width = ctx.dev->cfg.active_width;
  a.active_speed = ctx.dev->cfg.active_speed;
  a.phys_state = p->state == IBV_PORT_ACTIVE ? 5 : 3;
  a.link_layer = p->link_layer;
  std::memcpy(static_cast<void*>(attr), &a, std::min(size, sizeof a));
  return e.code(0);
}

ibv_gid_entry gid_entry_at(const device_state& d, std::uint8_t port, int index) {
  ibv_gid_entry g{};
  g.gid = gid_at(d, port, index);
  g.gid_index = std::uint32_t(index);
  g.port_num = port;
  g.gid_type = is_infiniband(d, port) ? IBV_GID_TYPE_IB : IBV_GID_TYPE_ROCE_V2;
  g.ndev_ifindex = 1;
  return g;
}

} // namespace

const port_config* port_of(const device_state& d, unsigned port) {
  return port >= 1 && port <= d.cfg.ports.size() ? &d.cfg.ports[port - 1] : nullptr;
}

device_state* device_named(std::string_view name) {
  for (auto& d : the_world().devices)
    if (d->cfg.name == name) return d.get();
  return nullptr;
}

context_obj& new_context(device_state& d, bool of_cm) {
  auto& c = adopt([&] {
    auto o = std::make_unique<context_obj>();
    o->counted = !of_cm;
    return o;
  }());
  c.dev = &d;
  c.v.sz = sizeof c.v;
  c.v.query_port = op_query_port;
  if (d.cfg.atomic_writes || d.cfg.flushes) c.v.query_device_ex = op_query_device_ex;
  if (d.cfg.extended_qps) c.v.create_qp_ex = op_create_qp_ex;
  auto& x = c.v.context;
  x.device = &d.dev;
  x.ops.poll_cq = op_poll_cq;
  x.ops.req_notify_cq = op_req_notify_cq;
  x.ops.post_send = op_post_send;
  x.ops.post_recv = op_post_recv;
  x.ops.post_srq_recv = op_post_srq_recv;
  x.ops.alloc_mw = op_alloc_mw;
  x.ops.dealloc_mw = op_dealloc_mw;
  x.ops.bind_mw = op_bind_mw;
  x.cmd_fd = -1;
  x.async_fd = -1;
  x.num_comp_vectors = the_world().cfg.num_comp_vectors;
  x.abi_compat = __VERBS_ABI_IS_EXTENDED;
  return c;
}

context_obj& cm_context(device_state& d) {
  if (!d.cm_context) d.cm_context = &new_context(d, true);
  return *d.cm_context;
}

sockaddr_storage parse_address(const std::string& text) {
  sockaddr_storage s{};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&s);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&s);
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1)
    s.ss_family = AF_INET;
  else if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1)
    s.ss_family = AF_INET6;
  else
    die("not a numeric address: " + text);
  return s;
}

ibv_gid gid_of(const sockaddr_storage& a) {
  ibv_gid g{};
  if (a.ss_family == AF_INET) {
    g.raw[10] = g.raw[11] = 0xff;
    std::memcpy(g.raw + 12, &reinterpret_cast<const sockaddr_in&>(a).sin_addr, 4);
  } else {
    std::memcpy(g.raw, &reinterpret_cast<const sockaddr_in6&>(a).sin6_addr, 16);
  }
  return g;
}

int gid_count(const device_state& d, unsigned port) {
  return is_infiniband(d, port) ? 1 : 1 + int(port_of(d, port)->addresses.size());
}
ibv_gid gid_at(const device_state& d, std::uint8_t port, int index) {
  ibv_gid g{};
  const auto& addresses = port_of(d, port)->addresses;
  if (index == 0) {
    g.raw[0] = 0xfe;
    g.raw[1] = 0x80;
    if (const auto prefix = htobe64(port_of(d, port)->subnet_prefix)) std::memcpy(g.raw, &prefix, 8);
    std::memcpy(g.raw + 8, &d.guid, 8);
    g.raw[8] = std::uint8_t(g.raw[8] ^ port);
  } else if (!is_infiniband(d, port) && std::size_t(index) <= addresses.size()) {
    g = gid_of(parse_address(addresses[std::size_t(index) - 1]));
  }
  return g;
}

int gid_index(const device_state& d, std::uint8_t port, const ibv_gid& g) {
  for (int i = 0; i < gid_count(d, port); ++i)
    if (std::memcmp(gid_at(d, port, i).raw, g.raw, 16) == 0) return i;
  return -1;
}

bool has_gid(const device_state& d, const ibv_gid& g) {
  for (std::uint8_t p = 1; p <= d.cfg.ports.size(); ++p)
    if (gid_index(d, p, g) >= 0) return true;
  return false;
}

owner owner_of(const sockaddr_storage& a) {
  for (auto& d : the_world().devices) {
    if (d->removed) continue;
    for (std::uint8_t p = 1; p <= d->cfg.ports.size(); ++p)
      for (const auto& text : d->cfg.ports[p - 1u].addresses)
        if (same_address(a, parse_address(text))) return {d.get(), p};
  }
  return {};
}

bool same_subnet(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) return false;
  const auto ga = gid_of(a), gb = gid_of(b);
  return std::memcmp(ga.raw, gb.raw, a.ss_family == AF_INET ? 15 : 8) == 0;
}

} // namespace fake::impl

using namespace fake;
using namespace fake::impl;

extern "C" {

ibv_device** ibv_get_device_list(int* num_devices) {
  entry e{call::ibv_get_device_list};
  if (num_devices) *num_devices = 0;
  if (e.fault()) return e.null(e.fault());
  std::vector<ibv_device*> present;
  for (auto& d : e.w.devices)
    if (!d->removed) present.push_back(&d->dev);
  auto list = std::make_unique<ibv_device*[]>(present.size() + 1);
  std::copy(present.begin(), present.end(), list.get());
  auto** raw = list.get();
  e.w.device_lists[raw] = std::move(list);
  if (num_devices) *num_devices = int(present.size());
  return raw;
}

void ibv_free_device_list(ibv_device** list) {
  entry e{call::ibv_free_device_list};
  if (e.w.device_lists.erase(list) == 0) die("ibv_free_device_list: not a device list, or freed before");
}

const char* ibv_get_device_name(ibv_device* device) {
  entry e{call::ibv_get_device_name};
  return device ? device->name : nullptr;
}

__be64 ibv_get_device_guid(ibv_device* device) {
  entry e{call::ibv_get_device_guid};
  for (auto& d : e.w.devices)
    if (&d->dev == device) return d->guid;
  die("ibv_get_device_guid: not a device of this world");
}

int ibv_get_device_index(ibv_device*) { return -1; }

ibv_context* ibv_open_device(ibv_device* device) {
  entry e{call::ibv_open_device};
  if (e.fault()) return e.null(e.fault());
  for (auto& d : e.w.devices) {
    if (&d->dev != device) continue;
    if (d->removed) return e.null(ENODEV);
    auto& c = new_context(*d, false);
    if (const int err = c.async_fd.open()) {
      c.alive = false;
      return e.null(err);
    }
    c.v.context.async_fd = c.async_fd.fd();
    e.made(c);
    return c.as_c();
  }
  die("ibv_open_device: not a device of this world");
}

int ibv_close_device(ibv_context* context) {
  entry e{call::ibv_close_device};
  auto& ctx = e.use<context_obj>(context);
  if (e.fault()) return e.minus1(e.fault());
  if (!ctx.counted) die("ibv_close_device: the context belongs to librdmacm");
  std::string left;
  for (auto& o : e.w.objects) {
    if (!o->alive) continue;
    context_obj* of = nullptr;
    switch (o->what) {
    case kind::pd:
      of = static_cast<pd_obj*>(o.get())->ctx;
      break;
    case kind::comp_channel:
      of = static_cast<channel_obj*>(o.get())->ctx;
      break;
    case kind::cq:
      of = static_cast<cq_obj*>(o.get())->ctx;
      break;
    default:
      break; // every other object refers to a context
    }
    if (of == &ctx) left += (left.empty() ? "" : ", ") + o->name();
  }
  if (!left.empty()) e.w.wrong_orders.push_back(ctx.name() + " closed while it has " + left);
  ctx.alive = false;
  ctx.events.clear();
  return e.minus1(0);
}

int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  entry e{call::ibv_query_device};
  auto& ctx = e.use<context_obj>(context);
  if (e.fault()) return e.code(e.fault());
  if (ctx.dev->removed) return e.code(EIO);
  *attr = ctx.dev->attr;
  return e.code(0);
}

// Only a program that was built against headers from before 2019 calls this; ibv_port_attr has grown at its end.
int ibv_query_port(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* attr) {
  return op_query_port(context, port, reinterpret_cast<ibv_port_attr*>(attr), offsetof(ibv_port_attr, port_cap_flags2));
}

int ibv_query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid) {
  entry e{call::ibv_query_gid};
  auto& ctx = e.use<context_obj>(context);
  if (e.fault()) return e.minus1(e.fault());
  if (!port_of(*ctx.dev, port) || index < 0 || index >= 1024) return e.minus1(EINVAL);
  *gid = gid_at(*ctx.dev, port, index);
  return e.minus1(0);
}

int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* out,
                      std::uint32_t flags, std::size_t size) {
  entry e{call::ibv_query_gid_ex};
  auto& ctx = e.use<context_obj>(context);
  if (e.fault()) return e.code(e.fault());
  const auto* p = port_of(*ctx.dev, port);
  if (!p || flags) return e.code(EINVAL);
  if (index >= unsigned(gid_count(*ctx.dev, port))) return e.code(ENODATA);
  const auto g = gid_entry_at(*ctx.dev, std::uint8_t(port), int(index));
  std::memcpy(static_cast<void*>(out), &g, std::min(size, sizeof g));
  return e.code(0);
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* out, std::size_t max, std::uint32_t flags,
                             std::size_t size) {
  entry e{call::ibv_query_gid_table};
  auto& ctx = e.use<context_obj>(context);
  if (e.fault()) return -e.code(e.fault());
  if (flags || size != sizeof(ibv_gid_entry)) return -e.code(EINVAL);
  std::size_t n = 0;
  for (std::uint8_t p = 1; p <= ctx.dev->cfg.ports.size(); ++p)
    for (int i = 0; i < gid_count(*ctx.dev, p); ++i) {
      if (n == max) return -e.code(EINVAL);
      out[n++] = gid_entry_at(*ctx.dev, p, i);
    }
  return ssize_t(n);
}

int ibv_query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* pkey) {
  entry e{call::ibv_query_pkey};
  auto& ctx = e.use<context_obj>(context);
  if (e.fault()) return e.minus1(e.fault());
  const auto* p = port_of(*ctx.dev, port);
  if (!p || index < 0 || std::size_t(index) >= p->pkeys.size()) return e.minus1(EINVAL);
  *pkey = htons(p->pkeys[std::size_t(index)]);
  return e.minus1(0);
}

int ibv_get_pkey_index(ibv_context* context, std::uint8_t port, __be16 pkey) {
  entry e{call::ibv_get_pkey_index};
  auto& ctx = e.use<context_obj>(context);
  if (e.fault()) return e.minus1(e.fault());
  if (const auto* p = port_of(*ctx.dev, port))
    for (std::size_t i = 0; i < p->pkeys.size(); ++i)
      if (htons(p->pkeys[i]) == pkey) return int(i);
  return e.minus1(EINVAL);
}

int ibv_fork_init(void) {
  entry e{call::ibv_fork_init};
  if (!e.fault() && e.w.cfg.fork_status == IBV_FORK_DISABLED) e.w.cfg.fork_status = IBV_FORK_ENABLED;
  return e.code(e.fault());
}
ibv_fork_status ibv_is_fork_initialized(void) {
  const std::lock_guard hold{mutex()};
  return the_world().cfg.fork_status;
}

} // extern "C"
