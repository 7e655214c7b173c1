// From C to dat and back: return words, times, addresses, flags and attributes.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "objects.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace provider {

inline constexpr DAT_RETURN success = DAT_SUCCESS;

/// The return word of an error. With DAT_PROVIDER_LOG set, a line on stderr says what its words in full are.
[[nodiscard]] DAT_RETURN word(const dat::error& e) noexcept;
/// The return word of a result.
template <class T>
[[nodiscard]] DAT_RETURN word(const dat::expected<T>& result) noexcept {
  return result ? DAT_RETURN{DAT_SUCCESS} : word(result.assume_error());
}
/// Errors that this provider finds itself.
[[nodiscard]] inline DAT_RETURN refuse(return_type type, return_subtype subtype, const char* call) noexcept {
  return word(dat::error(type, subtype).at(call));
}
[[nodiscard]] inline DAT_RETURN bad_handle(return_subtype which, const char* call) noexcept {
  return refuse(return_type::invalid_handle, which, call);
}
/// `position`: of the argument in the C signature, from 1.
[[nodiscard]] inline DAT_RETURN bad_argument(unsigned position, const char* call) noexcept {
  const auto arg1 = static_cast<std::uint16_t>(return_subtype::arg1);
  return refuse(return_type::invalid_parameter, static_cast<return_subtype>(arg1 + position - 1), call);
}
[[nodiscard]] inline DAT_RETURN no_memory(const char* call) noexcept {
  return refuse(return_type::insufficient_resources, return_subtype::resource_memory, call);
}

/// Whether a mask has only the bits of `all`.
[[nodiscard]] constexpr bool within(std::uint64_t mask, std::uint64_t all) noexcept { return (mask & ~all) == 0; }

[[nodiscard]] inline dat::timeout to_timeout(DAT_TIMEOUT t) noexcept {
  return t == DAT_TIMEOUT_INFINITE ? dat::infinite : dat::timeout(t);
}
[[nodiscard]] inline std::span<const std::byte> to_bytes(const void* data, DAT_COUNT size) noexcept {
  return {static_cast<const std::byte*>(data), static_cast<std::size_t>(size)};
}
/// Whether private data is a range: no negative size, and no null with a size.
[[nodiscard]] inline bool is_range(const void* data, DAT_COUNT size) noexcept {
  return size == 0 || (size > 0 && data != nullptr);
}
[[nodiscard]] inline dat::expected<dat::ia_address> to_address(DAT_IA_ADDRESS_PTR address) noexcept {
  return dat::ia_address::from(address, sizeof(sockaddr_in6));
}
/// The port of a connection qualifier: its lowest 16 bits, as in OFA's provider, with which programs use larger
/// numbers. Fails where they are 0.
[[nodiscard]] inline dat::expected<dat::conn_qual> to_port(DAT_CONN_QUAL qual) noexcept {
  return dat::conn_qual::make(qual & 0xffff);
}
/// Stores an address where C can point to it.
inline DAT_IA_ADDRESS_PTR keep(sockaddr_storage& at, const dat::ia_address& address) noexcept {
  std::memcpy(&at, address.native_handle(), address.native_size());
  return reinterpret_cast<DAT_IA_ADDRESS_PTR>(&at);
}
[[nodiscard]] constexpr DAT_COUNT to_count(std::uint64_t n) noexcept {
  return static_cast<DAT_COUNT>(std::min<std::uint64_t>(n, 0x7fffffff));
}
[[nodiscard]] constexpr DAT_SEG_LENGTH to_length(std::uint64_t n) noexcept {
  return static_cast<DAT_SEG_LENGTH>(std::min<std::uint64_t>(n, 0xffffffff));
}
[[nodiscard]] constexpr DAT_BOOLEAN to_boolean(bool b) noexcept { return b ? DAT_TRUE : DAT_FALSE; }

/// The quality of service; empty for a value that DAT does not have.
[[nodiscard]] std::optional<dat::qos> to_qos(DAT_QOS qos) noexcept;
/// The completions that wake a waiter; empty for flags that cannot be an attribute.
[[nodiscard]] std::optional<dat::completion_notification> to_notification(DAT_COMPLETION_FLAGS flags,
                                                                          bool receives) noexcept;
/// The attributes of an endpoint from those that `mask` has; null: all defaults. Empty when one is none of DAT.
[[nodiscard]] std::optional<dat::ep_attributes> to_attributes(const DAT_EP_ATTR* attr, bool with_srq) noexcept;
/// The attributes of an endpoint in C.
[[nodiscard]] DAT_EP_ATTR from_attributes(const dat::ep_attributes& a, bool datagram, bool with_srq) noexcept;

/// The event of a completion. The numbers of the most common operations are those of DAT_DTOS.
inline void write_dto(DAT_EVENT& to, DAT_EVD_HANDLE evd, dat::dto_operation operation, dat::cookie cookie,
                      std::size_t bytes, dat::cookie ep) noexcept {
  to.event_number = DAT_DTO_COMPLETION_EVENT;
  to.evd_handle = evd;
  auto& data = to.event_data.dto_completion_event_data;
  data.ep_handle = ep.as<DAT_HANDLE>();
  data.user_cookie.as_64 = cookie.value();
  data.status = DAT_DTO_SUCCESS;
  data.transfered_length = static_cast<DAT_SEG_LENGTH>(bytes);
  data.operation = static_cast<DAT_DTOS>(operation);
  data.rmr_context = 0;
}

/// A visitor that turns an event into C's. An event that C does not have leaves the number 0.
class event_writer {
public:
  event_writer(evd_object& of, DAT_EVENT& into) noexcept : evd(of), to(into) {}
  template <class E>
  void operator()(E& e) const noexcept {
    to.event_number = DAT_EVENT_NUMBER{};
    to.evd_handle = evd.self;
    if constexpr (requires { write(e); }) write(e);
  }

private:
  /// A completion, which has the places of its members in common with all others.
  void dto(DAT_DTOS operation, const dat::completion& e, std::size_t bytes) const noexcept {
    write_dto(to, evd.self, static_cast<dat::dto_operation>(operation), e.cookie(), bytes,
              dat::cookie(e.ep().context<handle>()));
  }
  void write(dat::send_done& e) const noexcept { dto(DAT_DTO_SEND, e, e.bytes()); }
  void write(dat::rdma_write_done& e) const noexcept { dto(DAT_DTO_RDMA_WRITE, e, e.bytes()); }
  void write(dat::rdma_read_done& e) const noexcept { dto(DAT_DTO_RDMA_READ, e, e.bytes()); }
  void write(dat::recv_done& e) const noexcept {
    dto(DAT_DTO_RECEIVE, e, e.bytes());
    if (const auto key = e.invalidated()) {
      to.event_data.dto_completion_event_data.operation = DAT_DTO_RECEIVE_WITH_INVALIDATE;
      to.event_data.dto_completion_event_data.rmr_context = *key;
    }
  }

  /// The completion of any operation, with the data of an extension where it is one.
  void operation(dat::dto_operation done, const dat::completion& e, std::size_t bytes,
                 std::uint32_t immediate = 0) const noexcept;
  void connection(DAT_EVENT_NUMBER number, const dat::connection_event& e,
                  std::span<const std::byte> data = {}) const noexcept;
  void async(DAT_EVENT_NUMBER number, DAT_HANDLE about, DAT_COUNT reason) const noexcept;
  void arrived(std::unique_ptr<cr_object> made, DAT_EVENT_NUMBER number, DAT_HANDLE service,
               std::uint16_t port) const noexcept;
  void write(dat::dto_failure& e) const noexcept;
  void write(dat::bind_done& e) const noexcept;
  void write(dat::ib::recv_immediate_done& e) const noexcept {
    operation(dat::dto_operation::recv_immediate, e, e.bytes(), e.immediate());
  }
  void write(dat::ib::recv_write_immediate_done& e) const noexcept {
    operation(dat::dto_operation::recv_rdma_immediate, e, e.bytes(), e.immediate());
  }
  void write(dat::ib::rdma_write_immediate_done& e) const noexcept {
    operation(dat::dto_operation::rdma_write_immediate, e, e.bytes());
  }
  void write(dat::ib::fetch_and_add_done& e) const noexcept {
    operation(dat::dto_operation::fetch_and_add, e, e.bytes());
  }
  void write(dat::ib::compare_and_swap_done& e) const noexcept {
    operation(dat::dto_operation::compare_and_swap, e, e.bytes());
  }
  void write(dat::ib::atomic_write_done&) const noexcept {} // C cannot post it
  void write(dat::ib::flush_done&) const noexcept {}        // nor this
  void write(dat::ib::datagram_send_done& e) const noexcept { operation(dat::dto_operation::send_ud, e, e.bytes()); }
  void write(dat::ib::datagram_recv_done& e) const noexcept { operation(dat::dto_operation::recv_ud, e, e.bytes()); }
  void write(dat::ib::datagram_recv_immediate_done& e) const noexcept {
    operation(dat::dto_operation::recv_ud_immediate, e, e.bytes(), e.immediate());
  }
  void write(dat::established& e) const noexcept { connection(DAT_CONNECTION_EVENT_ESTABLISHED, e, e.private_data()); }
  void write(dat::peer_rejected& e) const noexcept {
    connection(DAT_CONNECTION_EVENT_PEER_REJECTED, e, e.private_data());
  }
  void write(dat::non_peer_rejected& e) const noexcept { connection(DAT_CONNECTION_EVENT_NON_PEER_REJECTED, e); }
  void write(dat::accept_completion_error& e) const noexcept {
    connection(DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR, e);
  }
  void write(dat::disconnected& e) const noexcept { connection(DAT_CONNECTION_EVENT_DISCONNECTED, e); }
  void write(dat::connection_broken& e) const noexcept { connection(DAT_CONNECTION_EVENT_BROKEN, e); }
  void write(dat::connection_timed_out& e) const noexcept { connection(DAT_CONNECTION_EVENT_TIMED_OUT, e); }
  void write(dat::connection_unreachable& e) const noexcept { connection(DAT_CONNECTION_EVENT_UNREACHABLE, e); }
  void write(dat::ib::datagram_established& e) const noexcept;
  void write(dat::ib::group_joined&) const noexcept {} // C cannot join
  void write(dat::cr& e) const noexcept;
  void write(dat::ib::datagram_request& e) const noexcept;
  void write(dat::software_event& e) const noexcept;
  void write(dat::evd_overflow& e) const noexcept {
    async(DAT_ASYNC_ERROR_EVD_OVERFLOW, evd.ia.evd_of(e.evd()), DAT_EVD_OVERFLOW_ERROR);
  }
  void write(dat::ia_catastrophic&) const noexcept {
    async(DAT_ASYNC_ERROR_IA_CATASTROPHIC, evd.ia.self, DAT_IA_CATASTROPHIC_ERROR);
  }
  void write(dat::ep_broken& e) const noexcept {
    async(DAT_ASYNC_ERROR_EP_BROKEN, e.ep().context<handle>(), DAT_EP_TRANSFER_TO_ERROR);
  }
  void write(dat::provider_internal_error&) const noexcept {
    async(DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR, evd.ia.self, DAT_IA_OTHER_ERROR);
  }
  // DAT has reasons for the events of shared queues, and no event number: they have that of an internal error.
  void write(dat::srq_low_watermark& e) const noexcept {
    async(DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR, e.srq().context<handle>(), DAT_SRQ_LOW_WATERMARK_EVENT);
  }
  void write(dat::srq_error& e) const noexcept {
    async(DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR, e.srq().context<handle>(), DAT_SRQ_TRANSFER_TO_ERROR);
  }
  void write(dat::ep_soft_high_watermark& e) const noexcept {
    async(DAT_ASYNC_ERROR_EP_BROKEN, e.ep().context<handle>(), DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT);
  }

  evd_object& evd;
  DAT_EVENT& to;
};

} // namespace provider
