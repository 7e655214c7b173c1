// Protection domains, memory regions and windows.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

#include <cerrno>
#include <sys/mman.h>
#include <unistd.h>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace fake::impl {

namespace {

/// 0, or the errno that the kernel returns for such a registration.
int registration_error(const device_state& d, void* addr, std::size_t length, std::uint64_t iova, unsigned access) {
  const unsigned flushes = d.cfg.flushes ? 3u << 8 : 0; // IBV_ACCESS_FLUSH_GLOBAL, IBV_ACCESS_FLUSH_PERSISTENT
  const unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                         IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_HUGETLB | flushes;
  if (d.removed) return EIO;
  if (access & IBV_ACCESS_ZERO_BASED) return EOPNOTSUPP;
  if (access & ~(known | unsigned(IBV_ACCESS_OPTIONAL_RANGE))) return EINVAL;
  if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE))
    return EINVAL;
  if (length == 0) return EINVAL;
  if (length > d.attr.max_mr_size) return EINVAL;
  if (!addr) return EFAULT;
  const auto page = std::uint64_t(::sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<std::uint64_t>(addr);
  if (start + length < start) return EINVAL;
  if ((start ^ iova) & (page - 1)) return EINVAL;
  const auto first = start & ~(page - 1);
  // msync reports a hole in the range without touching the pages.
  if (::msync(reinterpret_cast<void*>(first), start + length - first, MS_ASYNC) != 0) return EFAULT;
  return 0;
}

ibv_mr* new_region(entry& e, pd_obj& p, void* addr, std::size_t length, std::uint64_t iova, unsigned access) {
  if (const int error = registration_error(*p.ctx->dev, addr, length, iova, access)) return e.null(error);
  std::size_t on_device = 0;
  for (const auto& [key, m] : e.w.keys) on_device += m->domain->ctx->dev == p.ctx->dev;
  if (on_device >= std::size_t(p.ctx->dev->attr.max_mr)) return e.null(ENOMEM);
  auto& m = adopt(std::make_unique<mr_obj>());
  m.context = p.context;
  m.pd = p.as_c();
  m.addr = addr;
  m.memory = static_cast<std::byte*>(addr);
  m.length = length;
  m.handle = m.serial;
  m.lkey = m.rkey = (e.w.next_key++ << 8) | 0x5a;
  m.domain = &p;
  m.iova = iova;
  m.access = access;
  ++p.users;
  e.w.keys[m.lkey] = &m;
  e.made(m);
  return m.as_c();
}

ibv_mr* register_region(call c, ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, unsigned access) {
  entry e{c};
  auto& p = e.use<pd_obj>(pd);
  return e.fault() ? e.null(e.fault()) : new_region(e, p, addr, length, iova, access);
}

mr_obj* region(std::uint32_t key, std::uint64_t addr, std::uint64_t length) {
  auto& w = the_world();
  const auto it = w.keys.find(key);
  if (it == w.keys.end()) return nullptr;
  auto& m = *it->second;
  if (addr < m.iova || length > m.length || addr - m.iova > m.length - length) return nullptr;
  return &m;
}

} // namespace

mr_obj* local_region(qp_obj& q, const ibv_sge& s, bool write) {
  auto* m = region(s.lkey, s.addr, s.length);
  if (!m || m->domain != q.domain || (write && !(m->access & IBV_ACCESS_LOCAL_WRITE))) return nullptr;
  return m;
}

std::byte* remote_memory(qp_obj& responder, std::uint32_t rkey, std::uint64_t addr, std::uint64_t length,
                         unsigned access) {
  auto& w = the_world();
  if (const auto it = w.windows.find(rkey >> 8); it != w.windows.end()) {
    const mw_obj& m = *it->second;
    if (m.key != rkey || !m.region || m.domain != responder.domain || (m.access & access) != access) return nullptr;
    if (m.through && m.through != &responder) return nullptr;
    const std::uint64_t first = m.access & IBV_ACCESS_ZERO_BASED ? 0 : m.start;
    if (addr < first || length > m.size || addr - first > m.size - length) return nullptr;
    return pointer_into(*m.region, m.start + (addr - first));
  }
  auto* m = region(rkey, addr, length);
  return m && m->domain == responder.domain && (m->access & access) == access ? pointer_into(*m, addr) : nullptr;
}

bool remote_region(qp_obj& responder, std::uint32_t rkey, unsigned access) {
  const auto& keys = the_world().keys;
  const auto it = keys.find(rkey);
  return it != keys.end() && it->second->domain == responder.domain && (it->second->access & access) == access;
}

void unbind(mw_obj& m) {
  if (m.region) --m.region->windows;
  m.region = nullptr;
  m.through = nullptr;
}

bool bind_window(qp_obj& q, const send_wqe& s) {
  auto& w = the_world();
  const auto& b = s.wr.bind_mw;
  const auto it = w.windows.find(b.rkey >> 8);
  if (it == w.windows.end()) return false;
  mw_obj& m = *it->second;
  const bool type_2 = m.type == IBV_MW_TYPE_2;
  if (m.domain != q.domain || m.key != s.window_key || (type_2 && m.region)) return false;
  if (b.bind_info.length == 0) {
    if (type_2) return false;
    unbind(m);
    m.key = b.rkey;
    return true;
  }
  auto* r = region(b.bind_info.mr->lkey, b.bind_info.addr, b.bind_info.length);
  const unsigned access = b.bind_info.mw_access_flags;
  constexpr unsigned writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  if (!r || r->domain != m.domain || !(r->access & IBV_ACCESS_MW_BIND)) return false;
  if ((access & writes) && !(r->access & IBV_ACCESS_LOCAL_WRITE)) return false;
  if (access & ~(writes | IBV_ACCESS_REMOTE_READ | (type_2 ? unsigned(IBV_ACCESS_ZERO_BASED) : 0u))) return false;
  unbind(m);
  m.region = r;
  ++r->windows;
  m.through = type_2 ? &q : nullptr;
  m.key = b.rkey;
  m.start = b.bind_info.addr;
  m.size = b.bind_info.length;
  m.access = access;
  return true;
}

bool invalidate_window(qp_obj& q, std::uint32_t key) {
  auto& w = the_world();
  const auto it = w.windows.find(key >> 8);
  if (it == w.windows.end() || it->second->key != key || it->second->through != &q) return false;
  unbind(*it->second);
  return true;
}

ibv_mw* op_alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  entry e{call::ibv_alloc_mw};
  auto& p = e.use<pd_obj>(pd);
  if (e.fault()) return e.null(e.fault());
  const auto& a = p.ctx->dev->attr;
  const unsigned needed = type == IBV_MW_TYPE_1 ? IBV_DEVICE_MEM_WINDOW : IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  if (!(a.device_cap_flags & needed)) return e.null(EOPNOTSUPP);
  if (e.w.windows.size() >= std::size_t(a.max_mw)) return e.null(ENOMEM);
  auto& m = adopt(std::make_unique<mw_obj>());
  m.context = p.context;
  m.pd = pd;
  m.type = type;
  m.domain = &p;
  m.key = m.rkey = (e.w.next_key++ << 8) | 0xfe;
  ++p.users;
  e.w.windows[m.key >> 8] = &m;
  e.made(m);
  return m.as_c();
}

int op_dealloc_mw(ibv_mw* mw) {
  entry e{call::ibv_dealloc_mw};
  auto& m = e.use<mw_obj>(mw);
  if (e.fault()) return e.code(e.fault());
  unbind(m);
  e.w.windows.erase(m.key >> 8);
  --m.domain->users;
  m.alive = false;
  return e.code(0);
}

int op_bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  {
    entry e{call::ibv_bind_mw};
    e.use<mw_obj>(mw);
    if (e.fault()) return e.code(e.fault());
    if (!bind->bind_info.mr) die("ibv_bind_mw without a region, which crashes a provider");
  }
  ibv_send_wr wr{};
  wr.wr_id = bind->wr_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = bind->send_flags;
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  wr.bind_mw.bind_info = bind->bind_info;
  ibv_send_wr* bad = nullptr;
  const int error = op_post_send(qp, &wr, &bad);
  if (!error) mw->rkey = wr.bind_mw.rkey;
  return error;
}

std::byte* pointer_into(const mr_obj& m, std::uint64_t addr) { return m.memory + (addr - m.iova); }

} // namespace fake::impl

namespace fake {

void offer_dmabuf(int descriptor, std::span<std::byte> memory) {
  const std::lock_guard lock(impl::mutex());
  impl::the_world().dmabufs[descriptor] = memory;
}
unsigned mr_access(const ibv_mr* mr) { return static_cast<const impl::mr_obj*>(mr)->access; }

} // namespace fake

using namespace fake;
using namespace fake::impl;

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  entry e{call::ibv_alloc_pd};
  auto& ctx = e.use<context_obj>(context);
  if (e.fault()) return e.null(e.fault());
  if (ctx.dev->removed) return e.null(EIO);
  if (is_full<pd_obj>(*ctx.dev, ctx.dev->attr.max_pd)) return e.null(ENOMEM);
  auto& p = adopt(std::make_unique<pd_obj>());
  p.context = context;
  p.ctx = &ctx;
  e.made(p);
  return p.as_c();
}

int ibv_dealloc_pd(ibv_pd* pd) {
  entry e{call::ibv_dealloc_pd};
  auto& p = e.use<pd_obj>(pd);
  if (e.fault()) return e.code(e.fault());
  if (p.users) return e.code(EBUSY);
  p.alive = false;
  return e.code(0);
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, std::size_t length, int access) {
  return register_region(call::ibv_reg_mr, pd, addr, length, reinterpret_cast<std::uintptr_t>(addr), unsigned(access));
}
ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, int access) {
  return register_region(call::ibv_reg_mr_iova, pd, addr, length, iova, unsigned(access));
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, unsigned access) {
  return register_region(call::ibv_reg_mr_iova2, pd, addr, length, iova, access);
}

// The kernel allows fewer flags here, and libibverbs keeps the offset as the address.
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                          int access) {
  constexpr unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                             IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING;
  entry e{call::ibv_reg_dmabuf_mr};
  auto& p = e.use<pd_obj>(pd);
  if (e.fault()) return e.null(e.fault());
  if (e.w.dmabufs.empty()) return e.null(EOPNOTSUPP);
  const auto it = e.w.dmabufs.find(fd);
  if (it == e.w.dmabufs.end()) return e.null(EINVAL);
  const auto memory = it->second;
  if (unsigned(access) & ~known || offset > memory.size() || length > memory.size() - offset) return e.null(EINVAL);
  ibv_mr* const mr = new_region(e, p, memory.data() + offset, length, iova, unsigned(access));
  if (mr) mr->addr = reinterpret_cast<void*>(offset);
  return mr;
}

int ibv_dereg_mr(ibv_mr* mr) {
  entry e{call::ibv_dereg_mr};
  auto& m = e.use<mr_obj>(mr);
  if (e.fault()) return e.code(e.fault());
  if (m.windows) return e.code(EINVAL);
  e.w.keys.erase(m.lkey);
  --m.domain->users;
  m.alive = false;
  return e.code(0);
}

} // extern "C"
