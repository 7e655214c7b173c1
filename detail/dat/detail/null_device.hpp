// Queues that take nothing, and a completion queue that has nothing.
//
// They stand in for those of objects that may not be used, or not now, so that the fast paths need not ask.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <infiniband/verbs.h>

namespace dat::inline v0::detail {

/// What posting to the null device returns: no errno.
inline constexpr int refused = -4242;

class null_device {
public:
  constexpr null_device() noexcept {
    context_.ops.post_send = [](ibv_qp*, ibv_send_wr*, ibv_send_wr**) { return refused; };
    context_.ops.post_recv = [](ibv_qp*, ibv_recv_wr*, ibv_recv_wr**) { return refused; };
    context_.ops.post_srq_recv = [](ibv_srq*, ibv_recv_wr*, ibv_recv_wr**) { return refused; };
    context_.ops.poll_cq = [](ibv_cq*, int, ibv_wc*) { return 0; };
    qp_.context = &context_;
    cq_.context = &context_;
    srq_.context = &context_;
  }
  null_device(const null_device&) = delete;
  null_device& operator=(const null_device&) = delete;
  ~null_device() = default;

  [[nodiscard]] constexpr ibv_qp* qp() noexcept { return &qp_; }
  [[nodiscard]] constexpr ibv_cq* cq() noexcept { return &cq_; }
  [[nodiscard]] constexpr ibv_srq* srq() noexcept { return &srq_; }

private:
  ibv_context context_{};
  ibv_qp qp_{};
  ibv_cq cq_{};
  ibv_srq srq_{};
};
inline constinit null_device nothing;

} // namespace dat::inline v0::detail
