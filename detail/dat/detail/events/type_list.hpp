// The event types of each stream.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/streams.hpp>

#include <cstdint>
#include <type_traits>
#include <variant>

namespace dat { inline namespace v0 {
class send_done;
class recv_done;
class rdma_write_done;
class rdma_read_done;
class dto_failure;
class bind_done;
namespace ib {
class recv_immediate_done;
class recv_write_immediate_done;
class rdma_write_immediate_done;
class fetch_and_add_done;
class compare_and_swap_done;
class atomic_write_done;
class flush_done;
class datagram_send_done;
class datagram_recv_done;
class datagram_recv_immediate_done;
class datagram_established;
class group_joined;
class datagram_request;
} // namespace ib
class established;
class peer_rejected;
class non_peer_rejected;
class accept_completion_error;
class disconnected;
class connection_broken;
class connection_timed_out;
class connection_unreachable;
class cr;
class software_event;
class evd_overflow;
class ia_catastrophic;
class ep_broken;
class operation_timed_out;
class provider_internal_error;
class ha_down_to_1;
class ha_up_to_multi_path;
class port_down;
class port_active;
class port_changed;
class srq_low_watermark;
class srq_error;
class ep_soft_high_watermark;
}} // namespace dat::v0

namespace dat { inline namespace v0 { namespace detail {

template <class... T>
struct type_list {};

template <class... L>
struct concat;
template <class... T>
struct concat<type_list<T...>> {
  using type = type_list<T...>;
};
template <class... A, class... B, class... Rest>
struct concat<type_list<A...>, type_list<B...>, Rest...> : concat<type_list<A..., B...>, Rest...> {};

template <class L>
struct to_variant;
template <class... T>
struct to_variant<type_list<T...>> {
  using type = std::variant<T...>;
};
template <class L>
using variant_of = typename to_variant<L>::type;

template <class T, class L>
inline constexpr bool contains = false;
template <class T, class... U>
inline constexpr bool contains<T, type_list<U...>> = (std::is_same_v<T, U> || ...);

using dto_events = type_list<send_done, recv_done, rdma_write_done, rdma_read_done, dto_failure,
                             ib::recv_immediate_done, ib::recv_write_immediate_done, ib::rdma_write_immediate_done,
                             ib::fetch_and_add_done, ib::compare_and_swap_done, ib::atomic_write_done, ib::flush_done>;
// The additional events of datagram endpoints; defined in <dat/ud.hpp>.
using datagram_completions =
    type_list<ib::datagram_send_done, ib::datagram_recv_done, ib::datagram_recv_immediate_done>;
using datagram_connections = type_list<ib::datagram_established, ib::group_joined>;
using datagram_requests = type_list<ib::datagram_request>;
using bind_events = type_list<bind_done>;
using connection_events = type_list<established, peer_rejected, non_peer_rejected, accept_completion_error,
                                    disconnected, connection_broken, connection_timed_out, connection_unreachable>;
using request_events = type_list<cr>;
using software_events = type_list<software_event>;
using async_events = type_list<evd_overflow, ia_catastrophic, ep_broken, operation_timed_out, provider_internal_error,
                               ha_down_to_1, ha_up_to_multi_path, port_down, port_active, port_changed,
                               srq_low_watermark, srq_error, ep_soft_high_watermark>;

template <streams S, streams Bit, class L>
using if_stream = std::conditional_t<includes(S, Bit), L, type_list<>>;

template <streams S>
using event_list =
    typename concat<if_stream<S, streams::dto, dto_events>, if_stream<S, streams::rmr_bind, bind_events>,
                    if_stream<S, streams::connection, connection_events>,
                    if_stream<S, streams::connection_requests, request_events>,
                    if_stream<S, streams::software, software_events>, if_stream<S, streams::async, async_events>,
                    if_stream<S, streams::dto | streams::datagrams, datagram_completions>,
                    if_stream<S, streams::connection | streams::datagrams, datagram_connections>,
                    if_stream<S, streams::connection_requests | streams::datagrams, datagram_requests>>::type;

/// Events that end a wait for another event of the endpoint, because no event of the endpoint follows them.
template <class E>
inline constexpr bool ends_hope =
    contains<E, type_list<dto_failure, peer_rejected, non_peer_rejected, accept_completion_error, disconnected,
                          connection_broken, connection_timed_out, connection_unreachable>>;

/// The first event of a list that a visitor cannot be called with; void when there is none.
template <class V, class L>
struct first_missed {
  using type = void;
};
template <class V, class E, class... Rest>
struct first_missed<V, type_list<E, Rest...>>
    : std::conditional_t<std::is_invocable_v<V&, E&>, first_missed<V, type_list<Rest...>>, std::type_identity<E>> {};

/// Whether a visitor can be called with every event of a list.
template <class V, class L>
inline constexpr bool visits_all = std::is_void_v<typename first_missed<V, L>::type>;

/// Does not compile, because the visitor cannot be called with `Event`, which the compiler names.
template <class V, class Event>
struct visitor_misses {
  static constexpr bool by_value = std::is_invocable_v<V&, Event>;
  static_assert(!by_value, "dat: the visitor takes this event by value: take events by reference, "
                           "[](const auto& e) {...} or [](auto& e) {...}");
  static_assert(by_value, "dat: the visitor must be callable with every event that this evd can deliver, and this one "
                          "is missing; add a generic lambda [](const auto&) {} for those that do not matter");
};
/// Called where a visitor misses an event of a list, so that this is the only error.
template <class V, class L>
constexpr void refuse_visitor() noexcept {
  (void)sizeof(visitor_misses<V, typename first_missed<V, L>::type>);
}

/// Does not compile when the streams `S` of an evd lack one of the streams `Needed` that an object feeds.
template <streams S, streams Needed>
[[nodiscard]] consteval bool has_streams() noexcept {
  constexpr streams missing = static_cast<streams>(static_cast<std::uint32_t>(Needed) & ~static_cast<std::uint32_t>(S));
  static_assert(!includes(missing, streams::dto), "dat: this evd lacks dat::stream::dto, which the object feeds: "
                                                  "create it with create_evd<dat::stream::dto | ...>");
  static_assert(!includes(missing, streams::connection),
                "dat: this evd lacks dat::stream::connection, which the object feeds: "
                "create it with create_evd<dat::stream::connection | ...>");
  static_assert(!includes(missing, streams::connection_requests),
                "dat: this evd lacks dat::stream::connection_requests, which the object feeds: "
                "create it with create_evd<dat::stream::connection_requests | ...>");
  static_assert(!includes(missing, streams::rmr_bind),
                "dat: this evd lacks dat::stream::rmr_bind, which the object feeds: "
                "create it with create_evd<dat::stream::rmr_bind | ...>");
  static_assert(!includes(missing, streams::software),
                "dat: this evd lacks dat::stream::software, which the object feeds: "
                "create it with create_evd<dat::stream::software | ...>");
  static_assert(!includes(missing, streams::async), "dat: this evd lacks dat::stream::async, which the object feeds: "
                                                    "create it with create_evd<dat::stream::async | ...>");
  static_assert(!includes(missing, streams::datagrams),
                "dat: this evd lacks dat::stream::datagrams, which the object feeds: "
                "create it with create_evd<dat::stream::datagrams | ...>");
  return missing == streams{};
}

}}} // namespace dat::v0::detail
