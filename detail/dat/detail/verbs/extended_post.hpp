// Requests that verbs posts only by the functions of an extended queue pair.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>

namespace dat { inline namespace v0 { namespace detail {

/// This bit of `ibv_device_attr_ex::device_cap_flags_ex` means that the device has atomic writes (Linux 6.3). verbs.h
/// has no name for it.
inline constexpr std::uint64_t device_has_atomic_writes = std::uint64_t{1} << 40;

/// Whether verbs.h has atomic writes: since rdma-core 44.
template <class Qp = ibv_qp_ex>
inline constexpr bool verbs_has_atomic_writes = requires(Qp* to) {
  to->wr_atomic_write;
};

/// Posts an atomic write, which `ibv_post_send` does not support. `create_extended_qp` has created `qp`; `wr` names the
/// word as an atomic does, and has the value as `compare_add`. Returns 0 or an errno.
template <class Qp = ibv_qp_ex>
[[nodiscard]] int post_extended(ibv_qp* qp, const ibv_send_wr& wr) noexcept {
  if constexpr (verbs_has_atomic_writes<Qp>) {
    Qp* const to = ibv_qp_to_qp_ex(qp);
    ibv_wr_start(to);
    to->wr_id = wr.wr_id;
    to->wr_flags = wr.send_flags;
    to->wr_atomic_write(to, wr.wr.atomic.rkey, wr.wr.atomic.remote_addr, &wr.wr.atomic.compare_add);
    return ibv_wr_complete(to);
  } else {
    return EOPNOTSUPP;
  }
}

/// Creates a queue pair that also takes extended requests. Null where the provider of the device has none.
[[nodiscard]] inline ibv_qp* create_extended_qp(ibv_pd* pd, ibv_qp_init_attr& init) noexcept {
  constexpr std::uint64_t with_atomic_writes = 1 << 12; // IBV_QP_EX_WITH_ATOMIC_WRITE
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
  ex.send_ops_flags = with_atomic_writes;
  ibv_qp* const qp = ibv_create_qp_ex(pd->context, &ex);
  if (qp) init.cap = ex.cap;
  return qp;
}

}}} // namespace dat::v0::detail
