// From C to dat and back: return words, times, addresses, flags and attributes.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "objects.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <dat/dat_code.hpp>
#include <optional>
#include <span>

namespace provider {

inline constexpr DAT_RETURN success = DAT_SUCCESS;

/// The return word of an error. With DAT_PROVIDER_LOG set, writes the full message to stderr.
[[nodiscard]] DAT_RETURN word(const dat::error& e) noexcept;
/// The return word of a result.
template <class T>
[[nodiscard]] DAT_RETURN word(const dat::expected<T>& result) noexcept {
  return result ? DAT_RETURN{DAT_SUCCESS} : word(result.assume_error());
}
[[nodiscard]] inline DAT_RETURN word(DAT_RETURN result) noexcept { return result; }
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
    to.event_number = static_cast<DAT_EVENT_NUMBER>(dat::event_number_of(e).value_or(dat::event_number()));
    to.evd_handle = evd.self;
    if constexpr (requires { write(e); }) write(e);
  }

private:
  template <class E>
  static constexpr bool is_in_c = dat::event_number_of<E>().has_value();

  template <std::derived_from<dat::transfer> E>
  requires is_in_c<E>
  void write(E& e) const noexcept {
    std::uint32_t immediate = 0, rmr_context = 0;
    if constexpr (requires { e.immediate(); }) immediate = e.immediate();
    if constexpr (requires { e.invalidated(); }) rmr_context = e.invalidated().value_or(0);
    completion(e, e.operation(), dat::dto_status::success, e.bytes(), immediate, rmr_context);
  }
  void write(dat::dto_failure& e) const noexcept {
    if (to.event_number == DAT_RMR_BIND_COMPLETION_EVENT)
      bind(e, e.status());
    else
      completion(e, e.operation(), e.status());
  }
  void write(dat::bind_done& e) const noexcept { bind(e, dat::dto_status::success); }
  template <std::derived_from<dat::connection_event> E>
  requires is_in_c<E>
  void write(E& e) const noexcept {
    if constexpr (requires { e.private_data(); })
      connection(e, e.private_data());
    else
      connection(e, {});
  }
  void write(dat::ib::datagram_established& e) const noexcept;
  void write(dat::cr& e) const noexcept;
  void write(dat::ib::datagram_request& e) const noexcept;
  void write(dat::software_event& e) const noexcept {
    to.event_data.software_event_data.pointer = e.cookie().as<void*>();
  }
  void write(dat::evd_overflow& e) const noexcept { async(evd.ia.evd_of(e.evd()), DAT_EVD_OVERFLOW_ERROR); }
  void write(dat::ia_catastrophic&) const noexcept { async(evd.ia.self, DAT_IA_CATASTROPHIC_ERROR); }
  void write(dat::ep_broken& e) const noexcept { async(e.ep().context<handle>(), DAT_EP_TRANSFER_TO_ERROR); }
  void write(dat::provider_internal_error&) const noexcept { async(evd.ia.self, DAT_IA_OTHER_ERROR); }
  // DAT has reasons for the following events, and no numbers. They have those of errors.
  void write(dat::srq_low_watermark& e) const noexcept {
    to.event_number = DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR;
    async(e.srq().context<handle>(), DAT_SRQ_LOW_WATERMARK_EVENT);
  }
  void write(dat::srq_error& e) const noexcept {
    to.event_number = DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR;
    async(e.srq().context<handle>(), DAT_SRQ_TRANSFER_TO_ERROR);
  }
  void write(dat::ep_soft_high_watermark& e) const noexcept {
    to.event_number = DAT_ASYNC_ERROR_EP_BROKEN;
    async(e.ep().context<handle>(), DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT);
  }

  void completion(const dat::completion& e, dat::dto_operation what, dat::dto_status status, std::size_t bytes = 0,
                  std::uint32_t immediate = 0, std::uint32_t rmr_context = 0) const noexcept;
  template <class E>
  void bind(const E& e, dat::dto_status status) const noexcept;
  void connection(const dat::connection_event& e, std::span<const std::byte> data) const noexcept;
  template <class Request, class Take>
  void arrived(Request& e, DAT_HANDLE service, std::uint16_t port, Take take) const noexcept;
  void async(DAT_HANDLE about, DAT_COUNT reason) const noexcept;
  DAT_IB_EXTENSION_EVENT_DATA& extend(dat::ib_ext_type kind) const noexcept;

  evd_object& evd;
  DAT_EVENT& to;
};

} // namespace provider
