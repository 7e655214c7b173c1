// The status of a completion, and its operation.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dat { inline namespace v0 {

/// DAT_DTO_COMPLETION_STATUS (uDAPL 2.0 §6.8.2). Every status but success means that the connection is broken.
enum class dto_status : std::uint8_t {
  success = 0,
  flushed = 1,               ///< the endpoint was disconnected before the operation began
  local_length = 2,          ///< too long for the receive buffer or the endpoint
  local_ep = 3,              ///< inconsistency inside the local endpoint
  local_protection = 4,      ///< a local segment may not be used this way
  bad_response = 5,          ///< the peer answered with an unexpected transport opcode
  remote_access = 6,         ///< the peer's memory may not be used this way
  remote_responder = 7,      ///< the peer could not complete it
  transport = 8,             ///< the network could not deliver it
  receiver_not_ready = 9,    ///< the peer had no receive posted
  partial_packet = 10,       ///< the data was truncated; never happens on InfiniBand and RoCE
  rmr_operation_failed = 11, ///< binding or unbinding an rmr violated its region's rights
  local_mm_error = 12,       ///< kernel DAPL only; never returned
};

/// An operation: the posted one and, for receives, the arrived one. Values up to 14 are those of DAT_DTOS and
/// DAT_IB_DTOS; later ones have no code there, see dat_code().
enum class dto_operation : std::uint8_t {
  send = 0,
  rdma_write = 1,
  rdma_read = 2,
  recv = 3,                  ///< posted; arrived: a plain send
  recv_with_invalidate = 4,  ///< arrived: a send that invalidated an rmr
  rdma_write_immediate = 7,  ///< posted
  recv_rdma_immediate = 8,   ///< arrived: the notification of an RDMA write with immediate data
  fetch_and_add = 9,         ///< posted
  compare_and_swap = 10,     ///< posted
  recv_immediate = 11,       ///< arrived: a send with immediate data
  send_ud = 12,              ///< posted on a UD endpoint
  recv_ud = 13,              ///< arrived on a UD endpoint
  recv_ud_immediate = 14,    ///< arrived on a UD endpoint, with immediate data
  send_with_invalidate = 15, ///< posted
  send_immediate = 16,       ///< posted
  rdma_read_to_rmr = 17,     ///< posted
  bind = 18,                 ///< posted: rmr bind
  unbind = 19,               ///< posted: rmr bind of length 0
  atomic_write = 20,         ///< posted
  flush = 21,                ///< posted: ib::flush
};

inline constexpr std::uint8_t dto_status_count = 13;    ///< of dat::dto_status
inline constexpr std::uint8_t dto_operation_count = 22; ///< of dat::dto_operation

/// The operation's value in DAT_DTOS or DAT_IB_DTOS as a completion event reports it: a send with invalidate is a
/// SEND, a read to an rmr an RDMA_READ. Empty for binds (they have an event of their own), for send_immediate,
/// atomic_write and flush, and outside the enumeration.
[[nodiscard]] constexpr std::optional<std::uint32_t> dat_code(dto_operation operation) noexcept {
  switch (operation) {
  case dto_operation::send:
  case dto_operation::rdma_write:
  case dto_operation::rdma_read:
  case dto_operation::recv:
  case dto_operation::recv_with_invalidate:
  case dto_operation::rdma_write_immediate:
  case dto_operation::recv_rdma_immediate:
  case dto_operation::fetch_and_add:
  case dto_operation::compare_and_swap:
  case dto_operation::recv_immediate:
  case dto_operation::send_ud:
  case dto_operation::recv_ud:
  case dto_operation::recv_ud_immediate:
    return static_cast<std::uint32_t>(operation);
  case dto_operation::send_with_invalidate:
    return static_cast<std::uint32_t>(dto_operation::send);
  case dto_operation::rdma_read_to_rmr:
    return static_cast<std::uint32_t>(dto_operation::rdma_read);
  case dto_operation::send_immediate:
  case dto_operation::bind:
  case dto_operation::unbind:
  case dto_operation::atomic_write:
  case dto_operation::flush:
    break;
  }
  return std::nullopt;
}

/// Whether it completes on the receive queue.
[[nodiscard]] constexpr bool is_receive(dto_operation operation) noexcept {
  switch (operation) {
  case dto_operation::recv:
  case dto_operation::recv_with_invalidate:
  case dto_operation::recv_rdma_immediate:
  case dto_operation::recv_immediate:
  case dto_operation::recv_ud:
  case dto_operation::recv_ud_immediate:
    return true;
  default:
    return false;
  }
}

/// Returns the name as text ("remote access error", "rdma_write"), or "unknown ..." for other values.
[[nodiscard]] constexpr std::string_view to_string(dto_status) noexcept;
[[nodiscard]] constexpr std::string_view to_string(dto_operation) noexcept;

/// One sentence with the usual cause of this status and its remedy; empty for success.
[[nodiscard]] constexpr std::string_view usual_cause(dto_status) noexcept;

}} // namespace dat::v0

#include <dat/detail/text/status_text.hpp> // definitions
