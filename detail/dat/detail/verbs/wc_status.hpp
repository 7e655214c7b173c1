// Maps ibv_wc_status to DAT's completion status (uDAPL 2.0 §6.8.3, completed for every enumerator of rdma-core).
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/status.hpp>

#include <infiniband/verbs.h>

namespace dat { inline namespace v0 { namespace detail {

/// The flags of a completion that its event depends on. IBV_WC_GRH, which RoCE devices set on every receive of RC, does
/// not belong to them.
inline constexpr unsigned relevant_flags = IBV_WC_WITH_IMM | IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK;

[[nodiscard]] constexpr dto_status request_status(int status, dto_operation operation) noexcept {
  switch (status) {
  case IBV_WC_SUCCESS:
    return dto_status::success;
  case IBV_WC_WR_FLUSH_ERR:
    return dto_status::flushed;
  case IBV_WC_LOC_LEN_ERR:
    return dto_status::local_length;
  case IBV_WC_LOC_QP_OP_ERR:
  case IBV_WC_MW_BIND_ERR:
    return dto_status::local_ep; // a bind error occurs on binds only
  case IBV_WC_LOC_PROT_ERR:
  case IBV_WC_LOC_ACCESS_ERR:
    return dto_status::local_protection;
  case IBV_WC_BAD_RESP_ERR:
    return dto_status::bad_response;
  case IBV_WC_REM_ACCESS_ERR:
    // A plain send names no remote memory, so DAT has no "remote access" for it.
    return operation == dto_operation::send || operation == dto_operation::send_immediate ||
                   operation == dto_operation::send_ud
               ? dto_status::remote_responder
               : dto_status::remote_access;
  case IBV_WC_REM_INV_REQ_ERR:
  case IBV_WC_REM_OP_ERR:
  case IBV_WC_REM_ABORT_ERR:
    return dto_status::remote_responder;
  case IBV_WC_RNR_RETRY_EXC_ERR:
    return dto_status::receiver_not_ready;
  default:
    return dto_status::transport; // never "flushed": that would hide a first cause
  }
}

[[nodiscard]] constexpr dto_status receive_status(int status, dto_operation operation) noexcept {
  switch (status) {
  case IBV_WC_SUCCESS:
    return dto_status::success;
  case IBV_WC_WR_FLUSH_ERR:
    return dto_status::flushed;
  case IBV_WC_LOC_LEN_ERR:
  // rxe reports this status for a message longer than the buffer, and for a buffer whose registration was freed after
  // the post.
  case IBV_WC_LOC_QP_OP_ERR:
    return dto_status::local_length;
  case IBV_WC_REM_INV_REQ_ERR:
    // The message was to close a window that cannot be closed. rxe reports this status also for a datagram that is
    // longer than its buffer.
    return operation == dto_operation::recv_ud || operation == dto_operation::recv_ud_immediate
               ? dto_status::local_length
               : dto_status::local_ep;
  case IBV_WC_LOC_PROT_ERR:
  case IBV_WC_LOC_ACCESS_ERR:
  case IBV_WC_REM_ACCESS_ERR:
    return dto_status::local_protection; // rxe: RDMA write with immediate into a bad region
  case IBV_WC_REM_OP_ERR:
  case IBV_WC_REM_ABORT_ERR:
  case IBV_WC_MW_BIND_ERR:
    return dto_status::local_ep;
  default:
    return dto_status::transport;
  }
}

[[nodiscard]] constexpr dto_status bind_status(int status, dto_operation operation) noexcept {
  switch (status) {
  case IBV_WC_SUCCESS:
    return dto_status::success;
  case IBV_WC_WR_FLUSH_ERR:
    return dto_status::flushed;
  case IBV_WC_LOC_LEN_ERR:
  case IBV_WC_LOC_PROT_ERR:
  case IBV_WC_LOC_ACCESS_ERR:
  case IBV_WC_REM_ACCESS_ERR:
  case IBV_WC_MW_BIND_ERR:
    return dto_status::rmr_operation_failed;
  case IBV_WC_LOC_QP_OP_ERR:
    // An unbind is a local invalidation; rxe reports its refusal with this status.
    return operation == dto_operation::unbind ? dto_status::rmr_operation_failed : dto_status::local_ep;
  default:
    return dto_status::local_ep;
  }
}

// Takes ibv_wc::status as a number, since a device may report a status that this version's enumeration lacks.
// Every value has a status that DAT allows for the operation. Unreachable from the success path: callers test for
// IBV_WC_SUCCESS first.
[[nodiscard]] constexpr dto_status to_dto_status(int status, dto_operation operation) noexcept {
  if (is_receive(operation)) return receive_status(status, operation);
  if (operation == dto_operation::bind || operation == dto_operation::unbind) return bind_status(status, operation);
  return request_status(status, operation);
}

}}} // namespace dat::v0::detail
