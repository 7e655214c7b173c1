// Requests that verbs posts only by the functions of an extended queue pair: atomic writes and flushes.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/request/work_request.hpp>

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace dat { inline namespace v0 { namespace detail {

/// IBV_ACCESS_FLUSH_GLOBAL and IBV_ACCESS_FLUSH_PERSISTENT, which verbs.h names since rdma-core 45.
inline constexpr int access_flush_global = 1 << 8;
inline constexpr int access_flush_persistent = 1 << 9;

/// The two access flags of flushes that a device has, by `ibv_device_attr_ex::device_cap_flags_ex`. The kernel has bits
/// 38 and 39 for them since Linux 6.2. verbs.h has no names for these bits.
[[nodiscard]] constexpr int flush_access_of(std::uint64_t capabilities) noexcept {
  return static_cast<int>(capabilities >> 38 & 3) << 8;
}

/// A request that only an extended queue pair takes. The values are those of IBV_QP_EX_WITH_*.
enum class extended_op : std::uint32_t { none = 0, flush = 1 << 11, atomic_write = 1 << 12 };

/// A set of such requests.
struct extended_op_set {
  std::uint32_t bits = 0;

  [[nodiscard]] constexpr bool includes(extended_op op) const noexcept {
    return (bits & static_cast<std::uint32_t>(op)) != 0;
  }
  [[nodiscard]] constexpr extended_op_set only(extended_op op) const noexcept {
    return {bits & static_cast<std::uint32_t>(op)};
  }
};

/// Whether verbs.h has atomic writes: since rdma-core 44.
template <class Qp = ibv_qp_ex>
inline constexpr bool verbs_has_atomic_writes = requires(Qp* to) {
  to->wr_atomic_write;
};
/// Whether verbs.h has flushes: since rdma-core 45.
template <class Qp = ibv_qp_ex>
inline constexpr bool verbs_has_flushes = requires(Qp* to) {
  to->wr_flush;
};

/// `ibv_qp_ex` as rdma-core 45 and later have it. The library appends members only, so the header of rdma-core 44, the
/// last one without flushes, has all members before `wr_flush`.
struct extended_qp_with_flush {
  ibv_qp_ex known;
  void (*wr_flush)(ibv_qp_ex*, std::uint32_t rkey, std::uint64_t address, std::size_t length, std::uint8_t type,
                   std::uint8_t level);
};

/// The requests that a device has by its capabilities, and that can be posted with this verbs.h. The provider of the
/// device may lack them. Bit 40 of the capabilities means atomic writes (Linux 6.3); verbs.h has no name for it.
template <class Qp = ibv_qp_ex>
[[nodiscard]] constexpr extended_op_set extended_ops_of(std::uint64_t capabilities) noexcept {
  extended_op_set ops;
  if constexpr (verbs_has_atomic_writes<Qp>) {
    if ((capabilities >> 40 & 1) != 0) ops.bits |= static_cast<std::uint32_t>(extended_op::atomic_write);
    if (flush_access_of(capabilities) != 0) ops.bits |= static_cast<std::uint32_t>(extended_op::flush);
  }
  return ops;
}

/// Gives the device a flush between wr_start and wr_complete.
template <class Qp>
void put_flush(Qp* to, const ibv_send_wr& wr) noexcept {
  const auto& w = wr.wr.atomic;
  const bool region = (w.swap & flush_region) != 0;
  const auto put = [&](auto* function) noexcept {
    function(to, w.rkey, w.remote_addr, static_cast<std::size_t>(w.compare_add), static_cast<std::uint8_t>(w.swap),
             std::uint8_t{region}); // IBV_FLUSH_MR is 1, IBV_FLUSH_RANGE is 0
  };
  if constexpr (verbs_has_flushes<Qp>)
    put(to->wr_flush);
  else
    put(reinterpret_cast<const extended_qp_with_flush*>(to)->wr_flush);
}

/// Posts a request that `ibv_post_send` does not support. `create_extended_qp` has created `qp` for requests of this
/// kind. `wr` names the remote memory as an atomic does. An atomic write has its value as `compare_add`; a flush has
/// its length there, and its placement as `swap`. Returns 0 or an errno.
template <class Qp = ibv_qp_ex>
[[nodiscard]] int post_extended(ibv_qp* qp, const ibv_send_wr& wr) noexcept {
  if constexpr (verbs_has_atomic_writes<Qp>) {
    Qp* const to = ibv_qp_to_qp_ex(qp);
    ibv_wr_start(to);
    to->wr_id = wr.wr_id;
    to->wr_flags = wr.send_flags;
    if (wr.opcode == flush_opcode)
      put_flush(to, wr);
    else
      to->wr_atomic_write(to, wr.wr.atomic.rkey, wr.wr.atomic.remote_addr, &wr.wr.atomic.compare_add);
    return ibv_wr_complete(to);
  } else {
    return EOPNOTSUPP;
  }
}
[[nodiscard]] inline bool is_posted_extended(ibv_wr_opcode opcode) noexcept {
  return opcode == atomic_write_opcode || opcode == flush_opcode;
}

/// Creates a queue pair that also takes extended requests. Null where the provider of the device lacks one of them.
[[nodiscard]] inline ibv_qp* create_extended_qp(ibv_pd* pd, ibv_qp_init_attr& init, extended_op_set with) noexcept {
  ibv_qp_init_attr_ex ex{};
  ex.qp_context = init.qp_context;
  ex.send_cq = init.send_cq;
  ex.recv_cq = init.recv_cq;
  ex.srq = init.srq;
  ex.cap = init.cap;
  ex.qp_type = init.qp_type;
  ex.sq_sig_all = init.sq_sig_all;
  ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  ex.pd = pd;
  ex.send_ops_flags = with.bits;
  ibv_qp* const qp = ibv_create_qp_ex(pd->context, &ex);
  if (qp) init.cap = ex.cap;
  return qp;
}
/// Creates a queue pair that takes as many kinds of `ops` as the provider has, and leaves these in `ops`. A provider
/// can have one of them only: that of Soft-RoCE got atomic writes before flushes. Null where it has none: then `ops` is
/// empty. Null with errno, and `ops` unchanged, where the device or its memory is exhausted.
[[nodiscard]] inline ibv_qp* create_best_extended_qp(ibv_pd* pd, ibv_qp_init_attr& init,
                                                     extended_op_set& ops) noexcept {
  const extended_op_set all = ops;
  if (all.bits == 0) return nullptr;
  // Another error does not show what the provider has.
  const auto lacks_one = [] { return errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS; };
  if (ibv_qp* const qp = create_extended_qp(pd, init, all)) return qp;
  for (const extended_op op : {extended_op::atomic_write, extended_op::flush}) {
    if (!lacks_one()) return nullptr;
    const extended_op_set one = all.only(op);
    if (one.bits == 0 || one.bits == all.bits) continue;
    if (ibv_qp* const qp = create_extended_qp(pd, init, one)) {
      ops = one;
      return qp;
    }
  }
  if (lacks_one()) ops = {};
  return nullptr;
}

}}} // namespace dat::v0::detail
