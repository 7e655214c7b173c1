// Queues that take no work, and a completion queue that is always empty.
//
// They replace the queues of objects that may not be used at present, so that the fast paths need no check.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <infiniband/verbs.h>

namespace dat { inline namespace v0 { namespace detail {

/// The result of a post to the null device. No errno has this value.
inline constexpr int null_device_errno = -4242;

class null_device {
public:
  constexpr null_device() noexcept {
    context_.ops.post_send = [](ibv_qp*, ibv_send_wr*, ibv_send_wr**) { return null_device_errno; };
    context_.ops.post_recv = [](ibv_qp*, ibv_recv_wr*, ibv_recv_wr**) { return null_device_errno; };
    context_.ops.post_srq_recv = [](ibv_srq*, ibv_recv_wr*, ibv_recv_wr**) { return null_device_errno; };
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
/// One object for the whole program, also where its parts are compiled with hidden visibility.
[[gnu::visibility("default")]] inline constinit null_device null_device_instance;

}}} // namespace dat::v0::detail
