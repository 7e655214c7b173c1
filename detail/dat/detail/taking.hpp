// Taking events from an evd, lean or merged: what drain, dequeue, wait and wait_for are made of.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/event.hpp>

#include <dat/detail/basics.hpp>
#include <dat/detail/completion.hpp>
#include <dat/detail/core.hpp>
#include <dat/detail/deadline.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>

namespace dat::inline v0::detail {

template <class V, class L>
inline constexpr bool visits_all_noexcept = false;
template <class V, class... T>
inline constexpr bool visits_all_noexcept<V, type_list<T...>> = (std::is_nothrow_invocable_v<V&, T&> && ...);

template <streams S>
[[nodiscard]] merged_evd& as_merged(evd_core& e) noexcept {
  static_assert(!is_lean(S));
  return static_cast<merged_evd&>(e);
}

/// The device was asked for completions, and could not tell.
[[gnu::cold, gnu::noinline]] inline void polling_failed(const evd_polling& e) noexcept {
  auto& core = static_cast<evd_core&>(const_cast<evd_polling&>(e)); // what stands in for no evd does not fail
  core.poll_failed();
  if (!core.waited.load(std::memory_order_acquire)) core.tell_poll_failure(); // else the wait does
}

/// The lean way: straight from the device.
template <streams S, class Visitor>
[[gnu::always_inline]] inline std::size_t drain_polled(const evd_polling& e, Visitor& visit, std::size_t max) {
  if (max == 1) { // usually known when compiling: no loops then
    ibv_wc one;
    for (;;) {
      const int n = e.poll(1, &one);
      if (n <= 0) {
        if (n < 0) [[unlikely]]
          polling_failed(e);
        return 0;
      }
      if (take_completion<S>(e, one, visit)) return 1;
    }
  }
  std::size_t taken = 0;
  std::array<ibv_wc, 16> wc;
  do {
    const int want = static_cast<int>(smaller(max - taken, wc.size()));
    const int n = e.poll(want, wc.data());
    if (n <= 0) {
      if (n < 0) [[unlikely]]
        polling_failed(e);
      break;
    }
    taken += static_cast<std::size_t>(n);
    for (int i = 0; i < n; ++i)
      if (!take_completion<S>(e, wc[static_cast<std::size_t>(i)], visit)) [[unlikely]]
        --taken;
    if (n < want) break;
  } while (taken < max);
  return taken;
}

/// What stands in the ring, until `taken` is `max` or the ring is empty: then completions may come straight from the
/// device again. False when nothing was there.
template <streams S, class Visitor>
[[gnu::noinline]] bool drain_ring(merged_evd& e, Visitor& visit, std::size_t max, std::size_t& taken) {
  record r;
  std::uint32_t left = 0;
  if (!e.take(r, left)) return false;
  do taken += take_record<S>(r, visit) ? 1 : 0;
  while (taken < max && left != 0 && e.take(r, left));
  return true;
}

/// The merged way: from the ring, or, when nothing stands there, straight from the device.
template <streams S, class Visitor>
[[gnu::always_inline]] inline std::size_t drain_merged(merged_evd& e, Visitor& visit, std::size_t max) {
  std::size_t taken = 0;
  if constexpr (!includes(S, streams::dto)) {
    while (taken < max && drain_ring<S>(e, visit, max, taken)) {
    }
  } else {
    while (taken < max) {
      ready_completions ready;
      const auto want = static_cast<std::uint32_t>(smaller<std::size_t>(max - taken, ready_completions::most));
      const merged_evd::found what = e.take_ready(ready, want);
      if (what == merged_evd::found::none) break;
      if (what == merged_evd::found::queued && !drain_ring<S>(e, visit, max, taken)) break;
      for (const ready_completions::item& i : ready)
        if (e.find(*i.wc)) [[likely]] // else the visitor has ended its endpoint meanwhile
          taken += visit_completion<S>(*i.ep, *i.wc, i.posted, visit) ? 1 : 0;
    }
  }
  return taken;
}

template <streams S, class Visitor>
[[gnu::always_inline]] inline std::size_t drain(evd_core& e, Visitor& visit, std::size_t max) {
  if constexpr (is_lean(S)) {
    return drain_polled<S>(e, visit, max);
  } else {
    e.ia().progress(0);
    const std::size_t taken = drain_merged<S>(as_merged<S>(e), visit, max);
    if (taken == 0 && !e.waited.load(std::memory_order_relaxed)) e.tell_poll_failure(); // else the wait does
    return taken;
  }
}

/// The next event as a variant, if there is one.
template <streams S>
[[nodiscard]] std::optional<event<S>> next(evd_core& e) noexcept {
  std::optional<event<S>> out;
  const auto keep = [&]<class E>(E& ev) { out.emplace(std::in_place_type<E>, std::move(ev)); };
  if constexpr (is_lean(S)) {
    ibv_wc wc;
    int n = 1;
    while (!out && n > 0)
      if ((n = e.poll(1, &wc)) > 0) (void)take_completion<S>(e, wc, keep);
    if (n < 0) [[unlikely]]
      e.poll_failed();
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
  if (e.waited.load(std::memory_order_acquire)) [[unlikely]]
    return e.at({return_type::invalid_state, return_subtype::evd_waiter}, call);
  if constexpr (!is_lean(S)) e.ia().progress(0);
  if (auto out = next<S>(e)) return std::move(*out);
  if (e.take_poll_failure()) [[unlikely]]
    return e.poll_error(call);
  return e.at(error(return_type::queue_empty), call);
}

/// The one waiter of an evd.
class waiter {
public:
  explicit waiter(evd_core& e) noexcept : evd_(e), mine_(!e.waited.exchange(true, std::memory_order_seq_cst)) {}
  waiter(const waiter&) = delete;
  waiter& operator=(const waiter&) = delete;
  ~waiter() {
    if (!mine_) return;
    evd_.asleep.store(false, std::memory_order_relaxed);
    evd_.waited.store(false, std::memory_order_release);
  }
  explicit operator bool() const noexcept { return mine_; }

private:
  evd_core& evd_;
  bool mine_;
};

/// Whether something has come that wakes, to an evd where not all does.
[[nodiscard]] inline bool notified(evd_core& e) noexcept {
  if (merged_evd* m = merged(&e)) m->drain();
  return e.take_notice();
}

/// Sleeps until `look` finds something, the deadline passes, or waiting fails. Arms the device before the look that
/// decides to sleep: an event that comes in between wakes it.
template <class Look>
[[nodiscard]] expected<void> wait_until(evd_core& e, const deadline& until, Look look) noexcept(noexcept(look())) {
  static constexpr const char* call = "evd.wait";
  if (e.dead() || e.ia().foreign()) return e.closed(call);
  const auto unwaitable = [&] { return e.at({return_type::invalid_state, return_subtype::evd_unwaitable}, call); };
  if (!e.waitable()) return unwaitable();
  const std::uint32_t allowed = e.forbidden();
  const waiter me(e);
  if (!me) return e.at({return_type::invalid_state, return_subtype::evd_waiter}, call);
  if (const int err = e.open_kick())
    return e.at(map_errno(err, return_subtype::resource_tevd).from("eventfd", err), call);
  const auto woken = [&] { return e.at(error(return_type::interrupted_call), call).hint("evd.wake was called"); };
  e.ia().progress_now_and_then();
  if (e.take_interrupt()) return woken();
  (void)e.take_notice();
  if (look()) return success();
  bool armed = false;
  for (;;) {
    // Before all that is looked at from here on: who writes any of it later kicks.
    e.asleep.store(true, std::memory_order_seq_cst);
    if (e.take_poll_failure()) [[unlikely]]
      return e.poll_error(call);
    if (e.forbidden() != allowed) return unwaitable();
    if (e.take_interrupt()) return woken();
    // Where some events wake and others do not, the device is not armed again before it has told of one: what it tells
    // is all that is known of solicited completions. What came before it was armed may have been one.
    if (e.take_fired() || !e.is_choosy()) armed = false;
    if (!armed) {
      e.read_channel();
      if (const int err = e.arm()) return e.at(map_errno(err).from("ibv_req_notify_cq", err), call);
      armed = true;
      if (e.mode() != waking::unsignalled && look()) return success();
    }
    if (e.is_choosy() && notified(e) && look()) return success();
    if (e.overflowed())
      return e.at(error(return_type::invalid_state), call)
          .hint("completions were lost because the evd was full: its endpoints are disconnected, and nothing more "
                "comes; create it anew, with room for all that they can have outstanding");
    if (e.take_poll_failure()) [[unlikely]]
      return e.poll_error(call);
    if (auto slept = e.sleep(until); !slept) {
      // What came at the last moment counts: a time-out or a signal is about having nothing.
      const return_type why = slept.assume_error().type();
      if ((why == return_type::timeout_expired || why == return_type::interrupted_call) && look()) return success();
      return slept;
    }
    if (e.forbidden() != allowed) return unwaitable();
    if (e.take_interrupt()) return woken();
    if (!e.is_choosy() && look()) return success();
  }
}

/// Waits for a first event, then takes up to `max` of what is there.
template <streams S, class Visitor, class Count = std::size_t>
[[nodiscard]] expected<Count> drain_within(evd_core& e, Visitor& visit, timeout limit,
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
        .hint("the threshold must be at least 1 and at most the evd's capacity");
  if (threshold != 1 && e.is_choosy())
    return e
        .at({return_type::invalid_state, e.mode() == waking::unsignalled ? return_subtype::evd_config_notify
                                                                         : return_subtype::evd_config_solicited},
            "evd.wait")
        .hint("an endpoint that feeds this evd chooses which of its completions wake: only a wait for one event is "
              "possible then");
  std::optional<event<S>> out;
  std::uint32_t count = 0;
  e.awaited.store(static_cast<std::uint32_t>(threshold), std::memory_order_relaxed);
  const auto keep = [&]<class E>(E& ev) { out.emplace(std::in_place_type<E>, std::move(ev)); };
  auto r = wait_until(e, deadline::in(limit), [&] {
    record taken;
    // An event of an endpoint that is gone is none: what is behind it counts without it.
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
inline constexpr record::kind kind_of<broken> = record::kind::broken;
template <>
inline constexpr record::kind kind_of<timed_out> = record::kind::timed_out;
template <>
inline constexpr record::kind kind_of<unreachable> = record::kind::unreachable;

/// Whether a completion will become an event of type E.
template <class E>
[[nodiscard]] bool becomes(const record& r) noexcept {
  if (r.wc.status != IBV_WC_SUCCESS) return std::is_same_v<E, dto_failure>;
  if (r.posted.is_receive()) {
    const bool imm = (r.wc.wc_flags & IBV_WC_WITH_IMM) != 0;
    if (r.posted.is_datagram())
      return imm ? std::is_same_v<E, ib::received_datagram_immediate> : std::is_same_v<E, ib::received_datagram>;
    if (std::is_same_v<E, received>) return !imm;
    if (std::is_same_v<E, ib::received_write_immediate>) return imm && r.wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    return std::is_same_v<E, ib::received_immediate> && imm && r.wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM;
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
    return std::is_same_v<E, ib::datagram_sent>;
  default:
    return std::is_same_v<E, sent>;
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

/// The error that stands for an event which came instead of the one waited for. Whatever it was, the endpoint is
/// disconnected after it.
template <class E>
[[nodiscard]] error instead(const E& e) noexcept {
  const char* what;
  if constexpr (std::is_same_v<E, dto_failure>)
    what = usual_cause(e.status()).data(); // a literal
  else if constexpr (std::is_same_v<E, peer_rejected>)
    what = "the peer rejected the connection request";
  else if constexpr (std::is_same_v<E, non_peer_rejected>)
    what = "the connection was refused: nobody listens there, the listener's queue is full, or its process is gone";
  else if constexpr (std::is_same_v<E, accept_completion_error>)
    what = "the peer gave up before the connection was complete";
  else if constexpr (std::is_same_v<E, unreachable>)
    what = "no answer from that address: is the host up, the address right, UDP port 4791 open?";
  else if constexpr (std::is_same_v<E, timed_out>)
    what = "the peer did not answer the connection request in time: its program is busy or does not accept, or a "
           "firewall drops UDP port 4791 (RoCE v2)";
  else if constexpr (std::is_same_v<E, disconnected>)
    what = "the connection was ended";
  else
    what = "the connection broke: the operation that failed says why";
  return error(return_type::invalid_state, return_subtype::ep_disconnected)
      .at("evd.wait_for", object_kind::ep, e.ep().number())
      .hint(what);
}

/// Whether the end of a connection, or an operation that fails, is the end of the hope for an E: a request or an event
/// of the consumer's own may come all the same.
template <class E>
inline constexpr bool hopes_for_connection =
    !std::is_same_v<E, cr> && !std::is_same_v<E, software_event> && !std::is_same_v<E, ib::datagram_request>;

/// The next event of one of the types `E`, as `Out`.
template <streams S, class Out, class... E>
[[nodiscard]] expected<Out> wait_for(evd_core& e, ep_ref of, timeout limit) noexcept {
  std::optional<Out> out;
  error other;
  bool ended = false;
  const auto sort = [&]<class Got>(Got& got) {
    if constexpr ((std::is_same_v<Got, E> || ...))
      out.emplace(std::move(got));
    else if constexpr (ends_hope<Got>)
      other = instead(got), ended = true;
  };
  const auto matters = [&](const record& r) {
    const bool wanted = ((r.what == kind_of<E> && (kind_of<E> != record::kind::completion || becomes<E>(r))) || ...);
    if (!wanted && !((hopes_for_connection<E> || ...) && ends_waiting(r))) return false;
    if (!of || r.what == record::kind::request || r.what == record::kind::datagram_request ||
        r.what == record::kind::software || r.what >= record::kind::first_async)
      return true;
    if (r.what != record::kind::completion) return static_cast<const ep_core*>(r.endpoint.get()) == of.native();
    return e.owner_of(r.tag) == of.native();
  };
  auto r = wait_until(e, deadline::in(limit), [&] {
    record taken;
    while (!out && !ended && as_merged<S>(e).take_if(taken, matters)) (void)take_record<S>(taken, sort);
    return out || ended;
  });
  if (!r) return r.assume_error();
  if (ended) return other;
  return std::move(*out);
}

} // namespace dat::inline v0::detail
