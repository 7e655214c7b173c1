// The numbers that uDAPL and its InfiniBand extensions give to events, operations and flags.
//
// They serve logs, traces and programs that compare them with those of a C program. dat itself does not use them. Not
// part of <dat/dat.hpp>.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/async_events.hpp>
#include <dat/completions.hpp>
#include <dat/connection_events.hpp>
#include <dat/cr.hpp>
#include <dat/datagram.hpp>
#include <dat/dto.hpp>
#include <dat/event.hpp>
#include <dat/status.hpp>

#include <dat/detail/base/enum_name.hpp>
#include <dat/detail/request/work_request.hpp>

#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <variant>

namespace dat { inline namespace v0 {

/// DAT_EVENT_NUMBER (uDAPL 2.0 §6.3) and, from 0x40000, DAT_IB_EVENT_NUMBER.
enum class event_number : std::uint32_t {
  dto_completion = 0x00001,
  rmr_bind_completion = 0x01001,
  connection_request_event = 0x02001,
  connection_established = 0x04001,
  connection_peer_rejected = 0x04002,
  connection_non_peer_rejected = 0x04003,
  connection_accept_completion_error = 0x04004,
  connection_disconnected = 0x04005,
  connection_broken = 0x04006,
  connection_timed_out = 0x04007,
  connection_unreachable = 0x04008,
  async_error_evd_overflow = 0x08001,
  async_error_ia_catastrophic = 0x08002,
  async_error_ep_broken = 0x08003,
  async_error_timed_out = 0x08004,
  async_error_provider_internal_error = 0x08005,
  ha_down_to_1 = 0x08101,
  ha_up_to_multi_path = 0x08102,
  software_event = 0x10001,
  ib_dto_event = 0x40000, ///< every completion of an operation of the InfiniBand extensions
  ib_ud_connection_request_event = 0x40001,
  ib_ud_connection_event_established = 0x40002
};

/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(event_number value) noexcept {
  switch (value) {
  case event_number::dto_completion:
    return "dto_completion";
  case event_number::rmr_bind_completion:
    return "rmr_bind_completion";
  case event_number::connection_request_event:
    return "connection_request_event";
  case event_number::connection_established:
    return "connection_established";
  case event_number::connection_peer_rejected:
    return "connection_peer_rejected";
  case event_number::connection_non_peer_rejected:
    return "connection_non_peer_rejected";
  case event_number::connection_accept_completion_error:
    return "connection_accept_completion_error";
  case event_number::connection_disconnected:
    return "connection_disconnected";
  case event_number::connection_broken:
    return "connection_broken";
  case event_number::connection_timed_out:
    return "connection_timed_out";
  case event_number::connection_unreachable:
    return "connection_unreachable";
  case event_number::async_error_evd_overflow:
    return "async_error_evd_overflow";
  case event_number::async_error_ia_catastrophic:
    return "async_error_ia_catastrophic";
  case event_number::async_error_ep_broken:
    return "async_error_ep_broken";
  case event_number::async_error_timed_out:
    return "async_error_timed_out";
  case event_number::async_error_provider_internal_error:
    return "async_error_provider_internal_error";
  case event_number::ha_down_to_1:
    return "ha_down_to_1";
  case event_number::ha_up_to_multi_path:
    return "ha_up_to_multi_path";
  case event_number::software_event:
    return "software_event";
  case event_number::ib_dto_event:
    return "ib_dto_event";
  case event_number::ib_ud_connection_request_event:
    return "ib_ud_connection_request_event";
  case event_number::ib_ud_connection_event_established:
    return "ib_ud_connection_event_established";
  }
  return "unknown event_number";
}

/// DAT_IB_EXT_TYPE: the kinds of events of the InfiniBand extensions.
enum class ib_ext_type : std::uint32_t {
  fetch_and_add = 0,
  cmp_and_swap = 1,
  rdma_write_immed = 2,      ///< the completion at the side that wrote
  rdma_write_immed_data = 3, ///< the completion at the side that was written to
  recv_immed_data = 4,
  ud_connect_request = 5,
  ud_remote_ah = 6,         ///< the event at the side that connected
  ud_passive_remote_ah = 7, ///< the event at the side that accepted
  ud_send = 8,
  ud_recv = 9
};

/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(ib_ext_type value) noexcept {
  return detail::enum_name(value,
                           {"fetch_and_add", "cmp_and_swap", "rdma_write_immed", "rdma_write_immed_data",
                            "recv_immed_data", "ud_connect_request", "ud_remote_ah", "ud_passive_remote_ah", "ud_send",
                            "ud_recv"},
                           "unknown ib_ext_type");
}

/// DAT_IB_OP: the InfiniBand extensions' own numbers of their operations. Completions report the numbers of dat_code
/// instead.
enum class ib_op : std::uint32_t { fetch_and_add = 0, cmp_and_swap = 1, rdma_write_immed = 2, ud_send = 3 };

/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(ib_op value) noexcept {
  return detail::enum_name(value, {"fetch_and_add", "cmp_and_swap", "rdma_write_immed", "ud_send"}, "unknown ib_op");
}

/// DAT_COMPLETION_FLAGS (uDAPL 2.0 §6.8.1), as bits.
enum class completion_flag : std::uint32_t {
  default_flag = 0x00,
  suppress = 0x01,
  solicited_wait = 0x02,
  unsignalled = 0x04,
  barrier_fence = 0x08,
  evd_threshold = 0x10,
  lmr_invalidate_fence = 0x20
};
[[nodiscard]] constexpr completion_flag operator|(completion_flag a, completion_flag b) noexcept {
  return static_cast<completion_flag>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}

/// The number of an operation in DAT_IB_OP; empty for operations that are not extensions.
[[nodiscard]] constexpr std::optional<ib_op> ib_op_of(dto_operation operation) noexcept {
  switch (operation) {
  case dto_operation::fetch_and_add:
    return ib_op::fetch_and_add;
  case dto_operation::compare_and_swap:
    return ib_op::cmp_and_swap;
  case dto_operation::rdma_write_immediate:
    return ib_op::rdma_write_immed;
  case dto_operation::send_ud:
    return ib_op::ud_send;
  default:
    return std::nullopt;
  }
}

/// The kind of the completion of an operation in DAT_IB_EXT_TYPE; empty for operations that are not extensions.
[[nodiscard]] constexpr std::optional<ib_ext_type> ib_ext_type_of(dto_operation operation) noexcept {
  switch (operation) {
  case dto_operation::fetch_and_add:
    return ib_ext_type::fetch_and_add;
  case dto_operation::compare_and_swap:
    return ib_ext_type::cmp_and_swap;
  case dto_operation::rdma_write_immediate:
    return ib_ext_type::rdma_write_immed;
  case dto_operation::recv_rdma_immediate:
    return ib_ext_type::rdma_write_immed_data;
  case dto_operation::recv_immediate:
    return ib_ext_type::recv_immed_data;
  case dto_operation::send_ud:
    return ib_ext_type::ud_send;
  case dto_operation::recv_ud:
  case dto_operation::recv_ud_immediate:
    return ib_ext_type::ud_recv;
  default:
    return std::nullopt;
  }
}

namespace detail {

template <class E, class... T>
inline constexpr bool is_one_of = (std::is_same_v<E, T> || ...);

/// The number in DAT_IB_EXT_TYPE of the events of one type. A dto_failure or a datagram_established has one of several
/// numbers: see ib_ext_type_of.
template <class E>
[[nodiscard]] constexpr std::optional<ib_ext_type> ext_type() noexcept {
  using type = ib_ext_type;
  if constexpr (is_one_of<E, ib::datagram_request>) return type::ud_connect_request;
  if constexpr (requires { typename std::integral_constant<dto_operation, E::operation()>; })
    return ib_ext_type_of(E::operation());
  return std::nullopt;
}

} // namespace detail

/// The number of the events of a type of <dat/event.hpp>: `dat::event_number_of<dat::established>()`. Empty for types
/// that DAT does not have, such as `port_down`. A dto_failure has the number of its operation: see the other overload.
template <class Event>
[[nodiscard]] constexpr std::optional<event_number> event_number_of() noexcept {
  using detail::is_one_of;
  using number = event_number;
  using E = Event;
  static_assert(!is_one_of<E, dto_failure>,
                "dat: the number of a dto_failure follows from its operation: give the event");
  if constexpr (is_one_of<E, send_done, recv_done, rdma_write_done, rdma_read_done>) return number::dto_completion;
  if constexpr (is_one_of<E, bind_done>) return number::rmr_bind_completion;
  if constexpr (is_one_of<E, cr>) return number::connection_request_event;
  if constexpr (is_one_of<E, established>) return number::connection_established;
  if constexpr (is_one_of<E, peer_rejected>) return number::connection_peer_rejected;
  if constexpr (is_one_of<E, non_peer_rejected>) return number::connection_non_peer_rejected;
  if constexpr (is_one_of<E, accept_completion_error>) return number::connection_accept_completion_error;
  if constexpr (is_one_of<E, disconnected>) return number::connection_disconnected;
  if constexpr (is_one_of<E, connection_broken>) return number::connection_broken;
  if constexpr (is_one_of<E, connection_timed_out>) return number::connection_timed_out;
  if constexpr (is_one_of<E, connection_unreachable>) return number::connection_unreachable;
  if constexpr (is_one_of<E, evd_overflow>) return number::async_error_evd_overflow;
  if constexpr (is_one_of<E, ia_catastrophic>) return number::async_error_ia_catastrophic;
  if constexpr (is_one_of<E, ep_broken>) return number::async_error_ep_broken;
  if constexpr (is_one_of<E, operation_timed_out>) return number::async_error_timed_out;
  if constexpr (is_one_of<E, provider_internal_error>) return number::async_error_provider_internal_error;
  if constexpr (is_one_of<E, ha_down_to_1>) return number::ha_down_to_1;
  if constexpr (is_one_of<E, ha_up_to_multi_path>) return number::ha_up_to_multi_path;
  if constexpr (is_one_of<E, software_event>) return number::software_event;
  if constexpr (is_one_of<E, ib::datagram_request>) return number::ib_ud_connection_request_event;
  if constexpr (is_one_of<E, ib::datagram_established>) return number::ib_ud_connection_event_established;
  if constexpr (detail::ext_type<E>()) return number::ib_dto_event;
  return std::nullopt;
}

/// The number of an event, or of the event in the variant that an evd returns.
///
///     evd.drain([&](const auto& e) { record(dat::event_number_of(e), dat::ib_ext_type_of(e)); });
///
/// Allocates: never.
/// Blocks: never.
/// Thread safety: safe.
template <class Event>
[[nodiscard]] constexpr std::optional<event_number> event_number_of(const Event& e) noexcept {
  if constexpr (detail::is_one_of<Event, dto_failure>) {
    const dto_operation op = e.operation();
    if (op == dto_operation::bind || op == dto_operation::unbind) return event_number::rmr_bind_completion;
    return ib_ext_type_of(op) ? event_number::ib_dto_event : event_number::dto_completion;
  } else {
    return event_number_of<Event>();
  }
}
template <class... Event>
[[nodiscard]] constexpr std::optional<event_number> event_number_of(const std::variant<Event...>& e) noexcept {
  return std::visit([](const auto& one) { return event_number_of(one); }, e);
}

/// The kind of an event of the InfiniBand extensions; empty for other events.
/// Allocates, Blocks and Thread safety: as event_number_of.
template <class Event>
[[nodiscard]] constexpr std::optional<ib_ext_type> ib_ext_type_of(const Event& e) noexcept {
  if constexpr (detail::is_one_of<Event, dto_failure>)
    return ib_ext_type_of(e.operation());
  else if constexpr (detail::is_one_of<Event, ib::datagram_established>)
    return e.is_passive() ? ib_ext_type::ud_passive_remote_ah : ib_ext_type::ud_remote_ah;
  else
    return detail::ext_type<Event>();
}
template <class... Event>
[[nodiscard]] constexpr std::optional<ib_ext_type> ib_ext_type_of(const std::variant<Event...>& e) noexcept {
  return std::visit([](const auto& one) { return ib_ext_type_of(one); }, e);
}

/// The completion flags of an operation that was built, as `dat_ep_post_*` takes them. `.inlined()` has no flag in DAT.
template <class Operation>
requires(detail::is_recv<Operation> || detail::is_request<Operation>) [[nodiscard]] completion_flag
    completion_flags_of(const Operation& operation) noexcept {
  const auto& r = detail::request_access::of(operation);
  auto flags = r.no_notify ? completion_flag::unsignalled : completion_flag::default_flag;
  if constexpr (detail::is_request<Operation>) {
    const auto has = [&](detail::send_flag f) { return (r.flags & static_cast<unsigned>(f)) != 0; };
    if (!has(detail::send_flag::signaled)) flags = flags | completion_flag::suppress;
    if (has(detail::send_flag::solicited)) flags = flags | completion_flag::solicited_wait;
    if (has(detail::send_flag::fence)) flags = flags | completion_flag::barrier_fence;
  }
  return flags;
}

}} // namespace dat::v0
