// Which event types belong to which streams.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/streams.hpp>

#include <type_traits>
#include <variant>

namespace dat::inline v0 {
class sent;
class received;
class rdma_write_done;
class rdma_read_done;
class dto_failure;
class bind_done;
namespace ib {
class received_immediate;
class received_write_immediate;
class rdma_write_immediate_done;
class fetch_and_add_done;
class compare_and_swap_done;
class datagram_sent;
class received_datagram;
class received_datagram_immediate;
class datagram_established;
class group_joined;
class datagram_request;
} // namespace ib
class established;
class peer_rejected;
class non_peer_rejected;
class accept_completion_error;
class disconnected;
class broken;
class timed_out;
class unreachable;
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
} // namespace dat::inline v0

namespace dat::inline v0::detail {

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

using dto_events = type_list<sent, received, rdma_write_done, rdma_read_done, dto_failure, ib::received_immediate,
                             ib::received_write_immediate, ib::rdma_write_immediate_done, ib::fetch_and_add_done,
                             ib::compare_and_swap_done>;
// What datagram endpoints give besides; defined in <dat/ud.hpp>.
using datagram_completions = type_list<ib::datagram_sent, ib::received_datagram, ib::received_datagram_immediate>;
using datagram_connections = type_list<ib::datagram_established, ib::group_joined>;
using datagram_requests = type_list<ib::datagram_request>;
using bind_events = type_list<bind_done>;
using connection_events = type_list<established, peer_rejected, non_peer_rejected, accept_completion_error,
                                    disconnected, broken, timed_out, unreachable>;
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

/// Ends a wait for something else: nothing of what was waited for can be expected after it.
template <class E>
inline constexpr bool ends_hope =
    contains<E, type_list<dto_failure, peer_rejected, non_peer_rejected, accept_completion_error, disconnected, broken,
                          timed_out, unreachable>>;

/// Whether a visitor can be called with every event of a list.
template <class V, class L>
inline constexpr bool visits_all = false;
template <class V, class... T>
inline constexpr bool visits_all<V, type_list<T...>> = (std::is_invocable_v<V&, T&> && ...);

} // namespace dat::inline v0::detail
