// Taking events one at a time: dequeue, wait, and wait_for.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/event.hpp>

#include <dat/detail/base/deadline.hpp>
#include <dat/detail/base/utility.hpp>
#include <dat/detail/delivery/drain.hpp>
#include <dat/detail/endpoint/core.hpp>
#include <dat/detail/events/wait_until.hpp>

#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

template <class V, class L>
inline constexpr bool visits_all_noexcept = false;
template <class V, class... T>
inline constexpr bool visits_all_noexcept<V, type_list<T...>> = (std::is_nothrow_invocable_v<V&, T&> && ...);

/// Takes the next event if there is one. The caller takes all events, or triggers the cno.
template <streams S, class Visitor>
std::size_t take_one(evd_core& e, Visitor& visit) {
  if constexpr (is_completions_only(S)) {
    [[maybe_unused]] const auto inside = enter_taking(e, "evd.dequeue");
    if constexpr (checked_build)
      if (!inside.alone()) return 0;
    ibv_wc wc;
    for (;;) {
      const int n = e.poll(1, &wc);
      if (n < 0) [[unlikely]]
        polling_failed(e);
      if (n <= 0) return 0;
      if (take_completion<S>(e.entries(), wc, visit)) return 1;
    }
  } else {
    e.ia().progress(0);
    const std::size_t taken = drain_merged<S>(as_merged<S>(e), visit, 1);
    if (taken == 0 && !e.has_waiter()) e.report_poll_failure(); // else the wait returns it
    return taken;
  }
}

/// The next event as a variant, if there is one.
template <streams S>
[[nodiscard]] std::optional<event<S>> next(evd_core& e) noexcept {
  std::optional<event<S>> out;
  const auto keep = [&]<class E>(E& ev) { out.emplace(std::in_place_type<E>, std::move(ev)); };
  if constexpr (is_completions_only(S)) {
    [[maybe_unused]] const auto inside = enter_taking(e, "evd.dequeue");
    if constexpr (checked_build)
      if (!inside.alone()) return out;
    ibv_wc wc;
    int n = 1;
    while (!out && n > 0)
      if ((n = e.poll(1, &wc)) > 0) (void)take_completion<S>(e.entries(), wc, keep);
    if (n < 0) [[unlikely]]
      e.note_poll_failure();
  } else {
    (void)drain_merged<S>(as_merged<S>(e), keep, 1);
  }
  return out;
}

template <streams S>
[[nodiscard]] expected<event<S>> dequeue(evd_core& e) noexcept {
  static constexpr const char* call = "evd.dequeue";
  if (e.dead()) [[unlikely]]
    return e.closed(call);
  if (e.has_waiter()) [[unlikely]]
    return has_waiter_already(e, e.waking(), call);
  if constexpr (!is_completions_only(S)) e.ia().progress(0);
  if (auto out = next<S>(e)) return std::move(*out);
  if (e.take_poll_failure()) [[unlikely]]
    return e.poll_error(call);
  return e.at(error(return_type::queue_empty), call);
}

/// Waits for a first event, then takes up to `max` queued events.
template <streams S, class Visitor>
[[nodiscard]] expected<std::size_t>
drain_within(evd_core& e, Visitor& visit, timeout limit,
             std::size_t max) noexcept(visits_all_noexcept<Visitor, event_list<S>>) {
  std::size_t taken = 0;
  const auto look = [&]() noexcept(visits_all_noexcept<Visitor, event_list<S>>) {
    taken = drain<S>(e, visit, max);
    return taken != 0;
  };
  if (auto r = wait_until(e, deadline::in(limit), look); !r) return r.assume_error();
  return taken;
}

template <streams S>
[[nodiscard]] expected<event<S>> wait(evd_core& e, timeout limit) noexcept {
  std::optional<event<S>> out;
  auto r = wait_until(e, deadline::in(limit), [&] {
    out = next<S>(e);
    return out.has_value();
  });
  if (!r) return r.assume_error();
  return std::move(*out);
}

template <streams S>
[[nodiscard]] expected<waited<S>> wait_for_count(evd_core& e, timeout limit, std::size_t threshold) noexcept {
  if (threshold == 0 || threshold > e.qlen())
    return e.at({return_type::invalid_parameter, return_subtype::arg3}, "evd.wait")
        .hint("The threshold must be at least 1 and at most the evd's capacity.");
  if (threshold != 1 && e.arming().is_selective())
    return e
        .at({return_type::invalid_state, e.mode() == completion_notification::selective
                                             ? return_subtype::evd_config_notify
                                             : return_subtype::evd_config_solicited},
            "evd.wait")
        .hint("An endpoint that feeds this evd chooses which of its completions wake a waiter. Wait for one event at "
              "a time.");
  std::optional<event<S>> out;
  std::uint32_t count = 0;
  e.awaited.store(static_cast<std::uint32_t>(threshold), std::memory_order_relaxed);
  const auto keep = [&]<class E>(E& ev) { out.emplace(std::in_place_type<E>, std::move(ev)); };
  auto r = wait_until(e, deadline::in(limit), [&] {
    record taken;
    // A completion of an endpoint that is gone is no event: those behind it count without it.
    while (!out && as_merged<S>(e).take_from(taken, static_cast<std::uint32_t>(threshold), count))
      (void)take_record<S>(taken, keep);
    return out.has_value();
  });
  e.awaited.store(1, std::memory_order_relaxed);
  if (!r) return r.assume_error().index(count);
  return waited<S>{std::move(*out), count};
}

// --- wait_for ------------------------------------------------------------------------------------------------------

/// Kind of a record by the event type it becomes.
template <class E, class... A>
[[nodiscard]] constexpr record::kind kind_by_place(type_list<A...>) noexcept {
  std::uint8_t place = 0;
  return ((std::is_same_v<E, A> || (++place, false)) || ...) ? record::of(static_cast<async_kind>(place))
                                                             : record::kind::completion;
}
template <class E>
inline constexpr record::kind kind_of = kind_by_place<E>(async_events());
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

/// Whether a completion will become an event of type E.
template <class E>
[[nodiscard]] bool becomes(const record& r) noexcept {
  if (r.wc.status != IBV_WC_SUCCESS) return std::is_same_v<E, dto_failure>;
  if (r.posted.is_receive()) {
    const bool imm = (r.wc.wc_flags & IBV_WC_WITH_IMM) != 0;
    if (r.posted.is_datagram())
      return imm ? std::is_same_v<E, ib::datagram_recv_immediate_done> : std::is_same_v<E, ib::datagram_recv_done>;
    if (std::is_same_v<E, recv_done>) return !imm;
    if (std::is_same_v<E, ib::recv_write_immediate_done>) return imm && r.wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    return std::is_same_v<E, ib::recv_immediate_done> && imm && r.wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM;
  }
  switch (r.posted.operation()) {
  case dto_operation::rdma_write:
    return std::is_same_v<E, rdma_write_done>;
  case dto_operation::rdma_read:
    return std::is_same_v<E, rdma_read_done>;
  case dto_operation::rdma_write_immediate:
    return std::is_same_v<E, ib::rdma_write_immediate_done>;
  case dto_operation::fetch_and_add:
    return std::is_same_v<E, ib::fetch_and_add_done>;
  case dto_operation::compare_and_swap:
    return std::is_same_v<E, ib::compare_and_swap_done>;
  case dto_operation::send_ud:
    return std::is_same_v<E, ib::datagram_send_done>;
  case dto_operation::bind:
  case dto_operation::unbind:
    return std::is_same_v<E, bind_done>;
  default:
    return std::is_same_v<E, send_done>;
  }
}

[[nodiscard]] inline bool ends_waiting(const record& r) noexcept {
  switch (r.what) {
  case record::kind::completion:
    return r.wc.status != IBV_WC_SUCCESS;
  case record::kind::software:
  case record::kind::request:
  case record::kind::established:
  case record::kind::datagram_request:
  case record::kind::datagram_established:
  case record::kind::group_joined:
    return false;
  default:
    return r.what < record::kind::first_async;
  }
}

/// The error for an event that came in place of the one waited for. The endpoint is disconnected after each of them.
template <class E>
[[nodiscard]] error instead(const E& e) noexcept {
  return error(return_type::invalid_state, return_subtype::ep_disconnected)
      .at("evd.wait_for", object_kind::ep, e.ep().number())
      .hint(e.cause().data()); // a literal
}

/// Whether a failed operation ends the hope for an E. The end of a connection follows the operations that it flushes.
template <class E>
inline constexpr bool hopes_for_completion = std::is_base_of_v<completion, E>;
/// Whether no E can come after the end of a connection. A request or a software event still can.
template <class E>
inline constexpr bool hopes_for_connection =
    !std::is_same_v<E, cr> && !std::is_same_v<E, software_event> && !std::is_same_v<E, ib::datagram_request>;

/// The next event of one of the types `E`, as `Out`.
template <streams S, class Out, class... E>
[[nodiscard]] expected<Out> wait_for(evd_core& e, ep_ref of, timeout limit) noexcept {
  std::optional<Out> out;
  std::optional<error> other; // what ended the wait
  const auto sort = [&]<class Got>(Got& got) {
    if constexpr ((std::is_same_v<Got, E> || ...))
      out.emplace(std::move(got));
    else if constexpr (ends_hope<Got>)
      other = instead(got);
  };
  const auto matters = [&](const record& r) {
    const bool wanted = ((r.what == kind_of<E> && (kind_of<E> != record::kind::completion || becomes<E>(r))) || ...);
    const bool hopes =
        r.what == record::kind::completion ? (hopes_for_completion<E> || ...) : (hopes_for_connection<E> || ...);
    if (!wanted && !(hopes && ends_waiting(r))) return false;
    if (!of || r.what == record::kind::request || r.what == record::kind::datagram_request ||
        r.what == record::kind::software || r.what >= record::kind::first_async)
      return true;
    if (r.what != record::kind::completion) return r.endpoint.get() == of.native();
    return e.owner_of(r.tag) == of.native();
  };
  auto r = wait_until(e, deadline::in(limit), [&] {
    record taken;
    while (!out && !other && as_merged<S>(e).take_if(taken, matters)) (void)take_record<S>(taken, sort);
    return out || other;
  });
  if (!r) return r.assume_error();
  if (other) return *other;
  return std::move(*out);
}

}}} // namespace dat::v0::detail
