// Waiting for events of chosen types, without the types: a template adds only how a record becomes its event.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/event.hpp>
#include <dat/expected.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/delivery/drain.hpp>
#include <dat/detail/endpoint/core.hpp>

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

/// The place of a type in a list; the length of the list when the list lacks the type.
template <class E, class... A>
[[nodiscard]] constexpr std::uint8_t place_in(type_list<A...>) noexcept {
  std::uint8_t place = 0;
  (void)((std::is_same_v<E, A> || (++place, false)) || ...);
  return place;
}

/// The kind of the records that become an event of type `E`.
template <class E>
inline constexpr record::kind kind_of = contains<E, async_events>
                                            ? record::of(static_cast<async_kind>(place_in<E>(async_events())))
                                            : record::kind::completion;
template <>
inline constexpr record::kind kind_of<cr> = record::kind::request;
template <>
inline constexpr record::kind kind_of<ib::datagram_request> = record::kind::datagram_request;
template <>
inline constexpr record::kind kind_of<ib::datagram_established> = record::kind::datagram_established;
template <>
inline constexpr record::kind kind_of<ib::group_joined> = record::kind::group_joined;
template <>
inline constexpr record::kind kind_of<software_event> = record::kind::software;
template <>
inline constexpr record::kind kind_of<established> = record::kind::established;
template <>
inline constexpr record::kind kind_of<peer_rejected> = record::kind::peer_rejected;
template <>
inline constexpr record::kind kind_of<non_peer_rejected> = record::kind::non_peer_rejected;
template <>
inline constexpr record::kind kind_of<accept_completion_error> = record::kind::accept_completion_error;
template <>
inline constexpr record::kind kind_of<disconnected> = record::kind::disconnected;
template <>
inline constexpr record::kind kind_of<connection_broken> = record::kind::broken;
template <>
inline constexpr record::kind kind_of<connection_timed_out> = record::kind::timed_out;
template <>
inline constexpr record::kind kind_of<connection_unreachable> = record::kind::unreachable;

/// The bit of a completion's event type.
template <class E>
inline constexpr std::uint32_t completion_bit =
    std::uint32_t{1} << place_in<E>(concat<dto_events, bind_events, datagram_completions>::type());
/// The bit of the event type that a completion will become.
[[nodiscard]] std::uint32_t becomes(const record& r) noexcept;

/// Types of events, as sets of bits.
struct wanted_events {
  std::uint32_t kinds = 0;       ///< 1 << record::kind
  std::uint32_t completions = 0; ///< completion_bit
  bool completion_hoped = false; ///< a failed operation ends the wait, because one of the types is a completion
  bool connection_hoped = false; ///< the end of a connection ends the wait

  [[nodiscard]] constexpr bool contain(const record& r) const noexcept {
    if (r.what == record::kind::completion) return completions != 0 && (completions & becomes(r)) != 0;
    return (kinds >> static_cast<unsigned>(r.what) & 1) != 0;
  }
};
template <class... E>
inline constexpr wanted_events wanted = {
    (0 | ... | (kind_of<E> != record::kind::completion ? std::uint32_t{1} << static_cast<unsigned>(kind_of<E>) : 0)),
    (0 | ... | (kind_of<E> == record::kind::completion ? completion_bit<E> : 0)),
    // The failure comes first: the end of a connection follows the operations that it flushes.
    (std::is_base_of_v<completion, E> || ...),
    // A request or a software event can still arrive after the end of a connection.
    ((!std::is_same_v<E, cr> && !std::is_same_v<E, software_event> && !std::is_same_v<E, ib::datagram_request>) ||
     ...)};

/// The error when another event arrives in place of the awaited one. The endpoint is disconnected after each of them.
[[nodiscard]] error instead(std::uint32_t ep_number, std::string_view cause) noexcept;
template <class E>
[[nodiscard]] error instead(const E& e) noexcept {
  return instead(e.ep().number(), e.cause());
}

/// A record that a wait has taken, and what ended with it.
struct taken_record {
  record of;
  bind_outcome bind{};          ///< the outcome of a bind
  std::uint32_t invalidated{0}; ///< the key that a message has invalidated
};

/// The event of an operation that failed; `bind`: if it was one.
[[nodiscard]] dto_failure failure_of(ep_core& ep, const record& r, const bind_outcome& bind) noexcept;

/// Makes an event of type `E` from a taken record whose type `wanted<E>` contains.
template <class E>
[[nodiscard]] E take_as(taken_record& taken) noexcept {
  using access = event_access;
  record& r = taken.of;
  if constexpr (std::is_same_v<E, cr> || std::is_same_v<E, ib::datagram_request>) {
    return access::make<E>(std::move(r.request));
  } else if constexpr (std::is_same_v<E, software_event>) {
    return access::make<E>(r.posted.cookie);
  } else if constexpr (contains<E, async_events>) {
    return make_async<E>(r);
  } else {
    ref<ep_core> ep(static_cast<ep_core*>(r.endpoint.detach()), adopt);
    if constexpr (kind_of<E> != record::kind::completion)
      return access::make<E>(std::move(ep), std::move(r.source), r.reason);
    else if constexpr (std::is_same_v<E, dto_failure>)
      return failure_of(*ep, r, taken.bind);
    else if constexpr (std::is_same_v<E, bind_done>)
      return access::make<E>(ep.get(), r.posted.cookie, taken.bind.operation, taken.bind.window);
    else if constexpr (std::is_same_v<E, recv_done>)
      return access::make<E>(ep.get(), r.posted.cookie, r.wc.byte_len, taken.invalidated);
    else if constexpr (contains<E, type_list<ib::recv_immediate_done, ib::recv_write_immediate_done>>)
      return access::make<E>(ep.get(), r.posted.cookie, r.wc.byte_len, r.wc.imm_data);
    else if constexpr (contains<E, type_list<ib::datagram_recv_done, ib::datagram_recv_immediate_done>>)
      return access::make<E>(ep.get(), r.posted.cookie, r.wc);
    else
      return access::make<E>(ep.get(), r.posted.cookie, r.posted.bytes());
  }
}
/// The event of a taken record that is one of several types.
template <class Out, class E, class... Rest>
[[nodiscard]] Out take_as_one_of(taken_record& taken) noexcept {
  if constexpr (sizeof...(Rest) != 0)
    if (!wanted<E>.contain(taken.of)) return take_as_one_of<Out, Rest...>(taken);
  return take_as<E>(taken);
}

/// The kind of work whose event has type `E` and no data but a number of bytes; marker_work when there is no such kind.
template <class E>
inline constexpr work_kind work_of = marker_work;
template <>
inline constexpr work_kind work_of<send_done> = kind_of_work(dto_operation::send);
template <>
inline constexpr work_kind work_of<recv_done> = kind_of_work(dto_operation::recv);
template <>
inline constexpr work_kind work_of<rdma_write_done> = kind_of_work(dto_operation::rdma_write);
template <>
inline constexpr work_kind work_of<rdma_read_done> = kind_of_work(dto_operation::rdma_read);
template <>
inline constexpr work_kind work_of<ib::rdma_write_immediate_done> = kind_of_work(dto_operation::rdma_write_immediate);
template <>
inline constexpr work_kind work_of<ib::fetch_and_add_done> = kind_of_work(dto_operation::fetch_and_add);
template <>
inline constexpr work_kind work_of<ib::compare_and_swap_done> = kind_of_work(dto_operation::compare_and_swap);
template <>
inline constexpr work_kind work_of<ib::atomic_write_done> = kind_of_work(dto_operation::atomic_write);
template <>
inline constexpr work_kind work_of<ib::flush_done> = kind_of_work(dto_operation::flush);

/// The event of a completion of the kind `work_of<E>`.
template <class E>
[[nodiscard]] E done_as(const ready_completion& done) noexcept {
  const std::uint32_t bytes = std::is_same_v<E, recv_done> ? done.wc.byte_len : done.posted.bytes();
  return event_access::make<E>(&endpoint_of(*done.ep), done.posted.cookie, bytes);
}

/// Waits for a record that `what` contains and that is an event.
[[nodiscard]] expected<void> wait_for_record(evd_core& e, ep_ref of, timeout limit, const wanted_events& what,
                                             taken_record& taken) noexcept;

/// The next event of one of the types `E`, as `Out`. A wait for one type often finds it, and then needs no record.
template <class Out, class... E>
[[nodiscard]] expected<Out> wait_for(evd_core& e, ep_ref of, timeout limit) noexcept {
  if constexpr (sizeof...(E) == 1 && ((work_of<E> != marker_work) && ...)) {
    ready_completion done;
    if (static_cast<merged_evd&>(e).take_at_once((work_of<E>, ...), of.native(), done)) return Out(done_as<E>(done)...);
  }
  taken_record taken;
  if (auto r = wait_for_record(e, of, limit, wanted<E...>, taken); !r) return r.assume_error();
  return take_as_one_of<Out, E...>(taken);
}

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/delivery/wait_for.ipp>
#endif
