// Definitions of convert.hpp.
// SPDX-License-Identifier: BSL-1.0
#include "convert.hpp"

#include <cstdio>
#include <cstdlib>

namespace provider {

DAT_RETURN word(const dat::error& e) noexcept {
  static const bool log = std::getenv("DAT_PROVIDER_LOG") != nullptr;
  if (log && e.type() != return_type::queue_empty && e.type() != return_type::timeout_expired) {
    try {
      std::fprintf(stderr, "dat provider: %s\n", e.message().c_str());
    } catch (...) { // no memory for the text
    }
  }
  // OFA's header has one subtype more than the specification, DAT_INVALID_STATE_SRQ_SHUTDOWN, before the last ones.
  static_assert(static_cast<int>(return_subtype::srq_in_use) == DAT_INVALID_STATE_SRQ_IN_USE);
  static_assert(static_cast<int>(return_subtype::privileges_read) + 1 == DAT_PRIVILEGES_READ);
  static_assert(static_cast<int>(return_subtype::thread_safety_not_found) + 1 == DAT_THREAD_SAFETY_NOT_FOUND);
  return e.value() + (e.subtype() > return_subtype::srq_in_use ? 1 : 0);
}

namespace {
constexpr std::pair<DAT_QOS, dat::qos> qualities[] = {{DAT_QOS_BEST_EFFORT, dat::qos()}, // as the ia
                                                      {DAT_QOS_HIGH_THROUGHPUT, dat::qos::high_throughput()},
                                                      {DAT_QOS_LOW_LATENCY, dat::qos::low_latency()},
                                                      {DAT_QOS_ECONOMY, dat::qos::economy()},
                                                      {DAT_QOS_PREMIUM, dat::qos::premium()}};
} // namespace

std::optional<dat::qos> to_qos(DAT_QOS qos) noexcept {
  for (const auto& [in_c, quality] : qualities)
    if (qos == in_c) return quality;
  return std::nullopt;
}

std::optional<dat::completion_notification> to_notification(DAT_COMPLETION_FLAGS flags, bool receives) noexcept {
  using mode = dat::completion_notification;
  // The flags that posts may have, which DAT 1 named here, change nothing.
  const int chosen = flags & ~(receives ? 0 : DAT_COMPLETION_SUPPRESS_FLAG | DAT_COMPLETION_BARRIER_FENCE_FLAG);
  if (chosen == DAT_COMPLETION_DEFAULT_FLAG) return mode::by_default;
  if (chosen == DAT_COMPLETION_EVD_THRESHOLD_FLAG) return mode::evd_threshold;
  if (chosen == DAT_COMPLETION_UNSIGNALLED_FLAG) return mode::selective;
  if (chosen == DAT_COMPLETION_SOLICITED_WAIT_FLAG && receives) return mode::solicited_wait;
  return std::nullopt;
}

std::optional<dat::ep_attributes> to_attributes(const DAT_EP_ATTR* attr, bool with_srq) noexcept {
  dat::ep_attributes a;
  if (!attr) return a;
  const auto qos = to_qos(attr->qos);
  const auto recv = to_notification(attr->recv_completion_flags, true);
  const auto request = to_notification(attr->request_completion_flags, false);
  const bool counts = attr->max_recv_dtos >= (with_srq ? -1 : 0) && attr->max_request_dtos >= 0 &&
                      attr->max_recv_iov >= 0 && attr->max_request_iov >= 0 && attr->max_rdma_write_iov >= 0 &&
                      attr->max_rdma_read_iov >= 0 && attr->max_rdma_read_in >= 0 && attr->max_rdma_read_out >= 0;
  const bool names = attr->ep_transport_specific_count == 0 && attr->ep_provider_specific_count == 0; // there are none
  if (!qos || !recv || !request || !counts || !names) return std::nullopt;
  const auto at_least_1 = [](DAT_COUNT n) { return static_cast<std::uint32_t>(std::max(n, 1)); };
  const auto reads = [](DAT_COUNT n) { return static_cast<std::uint8_t>(std::min(n, 255)); };
  a.max_request_dtos = at_least_1(attr->max_request_dtos);
  a.max_request_iov = at_least_1(std::max({attr->max_request_iov, attr->max_rdma_write_iov, attr->max_rdma_read_iov}));
  // dat has one limit for messages and RDMA. Without a limit of messages it is the device's: programs ask for less RDMA
  // than they post.
  if (attr->max_message_size != 0) a.max_message_size = std::max(attr->max_message_size, attr->max_rdma_size);
  a.max_rdma_read_in = reads(attr->max_rdma_read_in);
  a.max_rdma_read_out = reads(attr->max_rdma_read_out);
  a.recv_completion = *recv;
  a.request_completion = *request;
  a.qos = *qos;
  if (with_srq) { // the receives are the queue's; these are watermarks
    a.soft_high_watermark = static_cast<std::uint32_t>(attr->srq_soft_hw);
    a.hard_high_watermark = static_cast<std::uint32_t>(attr->max_recv_dtos);
  } else {
    a.max_recv_dtos = at_least_1(attr->max_recv_dtos);
    a.max_recv_iov = at_least_1(attr->max_recv_iov);
  }
  return a;
}

DAT_EP_ATTR from_attributes(const dat::ep_attributes& a, bool datagram, bool with_srq) noexcept {
  const auto in_c = [](dat::completion_notification n) { return static_cast<DAT_COMPLETION_FLAGS>(n); };
  DAT_EP_ATTR attr{};
  attr.service_type = datagram ? static_cast<DAT_SERVICE_TYPE>(DAT_IB_SERVICE_TYPE_UD) : DAT_SERVICE_TYPE_RC;
  attr.max_message_size = attr.max_rdma_size = a.max_message_size.value_or(0);
  attr.qos = DAT_QOS_BEST_EFFORT;
  for (const auto& [in, quality] : qualities)
    if (a.qos == quality) attr.qos = in;
  attr.recv_completion_flags = in_c(a.recv_completion);
  attr.request_completion_flags = in_c(a.request_completion);
  attr.max_recv_dtos = static_cast<DAT_COUNT>(with_srq ? a.hard_high_watermark : a.max_recv_dtos);
  attr.max_request_dtos = to_count(a.max_request_dtos);
  attr.max_recv_iov = with_srq ? 0 : to_count(a.max_recv_iov);
  attr.max_request_iov = attr.max_rdma_read_iov = attr.max_rdma_write_iov = to_count(a.max_request_iov);
  attr.max_rdma_read_in = a.max_rdma_read_in.value_or(0);
  attr.max_rdma_read_out = a.max_rdma_read_out.value_or(0);
  attr.srq_soft_hw = static_cast<DAT_COUNT>(a.soft_high_watermark);
  return attr;
}

} // namespace provider
