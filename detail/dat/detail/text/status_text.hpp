// Texts of completion statuses and operations.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/status.hpp>

namespace dat { inline namespace v0 {

constexpr std::string_view to_string(dto_status status) noexcept {
  switch (status) {
  case dto_status::success:
    return "success";
  case dto_status::flushed:
    return "flushed";
  case dto_status::local_length:
    return "local length error";
  case dto_status::local_ep:
    return "local endpoint error";
  case dto_status::local_protection:
    return "local protection error";
  case dto_status::bad_response:
    return "bad response";
  case dto_status::remote_access:
    return "remote access error";
  case dto_status::remote_responder:
    return "remote responder error";
  case dto_status::transport:
    return "transport error";
  case dto_status::receiver_not_ready:
    return "receiver not ready";
  case dto_status::partial_packet:
    return "partial packet";
  case dto_status::rmr_operation_failed:
    return "rmr operation failed";
  case dto_status::local_mm_error:
    return "local memory management error";
  }
  return "unknown dto_status";
}

constexpr std::string_view to_string(dto_operation operation) noexcept {
  switch (operation) {
  case dto_operation::send:
    return "send";
  case dto_operation::rdma_write:
    return "rdma_write";
  case dto_operation::rdma_read:
    return "rdma_read";
  case dto_operation::recv:
    return "recv";
  case dto_operation::recv_with_invalidate:
    return "recv_with_invalidate";
  case dto_operation::rdma_write_immediate:
    return "rdma_write_immediate";
  case dto_operation::recv_rdma_immediate:
    return "recv_rdma_immediate";
  case dto_operation::fetch_and_add:
    return "fetch_and_add";
  case dto_operation::compare_and_swap:
    return "compare_and_swap";
  case dto_operation::recv_immediate:
    return "recv_immediate";
  case dto_operation::send_ud:
    return "send_ud";
  case dto_operation::recv_ud:
    return "recv_ud";
  case dto_operation::recv_ud_immediate:
    return "recv_ud_immediate";
  case dto_operation::send_with_invalidate:
    return "send_with_invalidate";
  case dto_operation::send_immediate:
    return "send_immediate";
  case dto_operation::rdma_read_to_rmr:
    return "rdma_read_to_rmr";
  case dto_operation::bind:
    return "bind";
  case dto_operation::unbind:
    return "unbind";
  case dto_operation::atomic_write:
    return "atomic_write";
  case dto_operation::flush:
    return "flush";
  }
  return "unknown dto_operation";
}

constexpr std::string_view usual_cause(dto_status status) noexcept {
  switch (status) {
  case dto_status::success:
    return "";
  case dto_status::flushed:
    return "The endpoint was disconnected before this operation began; an earlier completion or the connection event "
           "has the cause.";
  case dto_status::local_length:
    return "A message was longer than the receive buffer it met, or than the endpoint's largest message; post larger "
           "receives or send less at once. Some devices report a receive whose memory was freed in this way, too.";
  case dto_status::local_ep:
    return "The device found the endpoint or a segment's key unusable; some devices report memory that was freed or "
           "belongs to another protection zone in this way. On a receive: the peer's send invalidates a key that names "
           "no window, a closed window, or a window of another endpoint.";
  case dto_status::local_protection:
    return "A local segment lies outside its lmr, its lmr was freed, or it lacks the right: receives and RDMA reads "
           "need local write access.";
  case dto_status::bad_response:
    return "The peer's device broke the protocol; its firmware or driver is at fault.";
  case dto_status::remote_access:
    return "The remote segment lies outside the peer's registration, its registration is gone, or it lacks the right "
           "(remote read, write or atomic, or a flush) for this operation.";
  case dto_status::remote_responder:
    return "The peer could not complete the operation: a message too long for its receive buffer, an RDMA read or "
           "atomic that its endpoint does not allow, or a misaligned atomic.";
  case dto_status::transport:
    return "The peer did not acknowledge in time: its process or host is gone, a link is down, or, on RoCE v2, a "
           "firewall drops UDP port 4791. If small messages arrive and large ones do not, a device on the path has a "
           "smaller MTU than the two hosts: compare `ip link` along the path. Some devices end a send in this way, "
           "too, when the peer posts no receive within ack_timeout times retry_count.";
  case dto_status::receiver_not_ready:
    return "The peer had no receive posted for this message within the retries; it should post receives before the "
           "sender may send.";
  case dto_status::partial_packet:
    return "The received data was truncated; send it again.";
  case dto_status::rmr_operation_failed:
    return "The rmr's range lies outside its lmr, their protection zones differ, or more rights were asked for than "
           "the "
           "lmr and the endpoint have.";
  case dto_status::local_mm_error:
    return "Local memory management failed; user-level DAPL never reports it.";
  }
  return "A status that this version does not know.";
}

}} // namespace dat::v0
