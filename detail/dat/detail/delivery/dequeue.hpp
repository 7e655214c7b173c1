// Taking events one at a time: dequeue and wait.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/event.hpp>

#include <dat/detail/base/deadline.hpp>
#include <dat/detail/base/utility.hpp>
#include <dat/detail/delivery/drain.hpp>
#include <dat/detail/endpoint/core.hpp>
#include <dat/detail/events/wait_until.hpp>

#include <cstddef>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

template <class V, class L>
inline constexpr bool visits_all_noexcept = false;
template <class V, class... T>
inline constexpr bool visits_all_noexcept<V, type_list<T...>> = (std::is_nothrow_invocable_v<V&, T&> && ...);

/// Takes the next event if there is one. The caller takes all events, or triggers the cno. On a merged evd, `copy` may
/// take a completion in place of the visitor: see take_merged.
template <streams S, class Visitor, class Copy>
[[gnu::always_inline]] inline std::size_t take_one(evd_core& e, Visitor& visit, [[maybe_unused]] Copy& copy) {
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
    const std::size_t taken = take_merged<S>(as_merged<S>(e), visit, taking::drain, copy);
    if (taken == 0 && !e.has_waiter()) e.report_poll_failure(); // otherwise the present wait returns the failure
    return taken;
  }
}

/// Replaces an error in `out`, which needs no destruction. So the event is built directly in the object that the call
/// returns.
template <class T, class... A>
[[gnu::always_inline]] inline void replace_error(expected<T>& out, A&&... with) noexcept {
  ::new (static_cast<void*>(&out)) expected<T>(std::forward<A>(with)...);
}

/// Takes the next event, if there is one, as a variant in place of the error in `out`. `by` is a wait or a dequeue.
template <streams S>
[[nodiscard, gnu::always_inline]] inline bool take_next(evd_core& e, expected<event<S>>& out, taking by) noexcept {
  const auto keep = [&]<class E>(E& ev) noexcept {
    replace_error(out, std::in_place_type<event<S>>, std::in_place_type<E>, std::move(ev));
  };
  if constexpr (is_completions_only(S)) {
    [[maybe_unused]] const auto inside = enter_taking(e, "evd.dequeue");
    if constexpr (checked_build)
      if (!inside.alone()) return false;
    if (by == taking::dequeue && e.has_waiter()) [[unlikely]]
      return false;
    for (;;) {
      ibv_wc wc;
      const int n = e.poll(1, &wc);
      if (n < 0) [[unlikely]]
        e.note_poll_failure();
      if (n <= 0) return false;
      if (take_completion<S>(e.entries(), wc, keep)) return true;
    }
  } else {
    return take_merged<S>(as_merged<S>(e), keep, by) != 0;
  }
}

/// The reason why a dequeue has no event.
[[nodiscard]] error no_event(evd_core& e, const char* call) noexcept;

/// A closed evd has no events: `no_event` names the reason.
template <streams S>
[[nodiscard, gnu::always_inline]] inline expected<event<S>> dequeue(evd_core& e) noexcept {
  expected<event<S>> out(std::in_place_type<error>);
  if (!take_next<S>(e, out, taking::dequeue)) [[unlikely]]
    replace_error(out, no_event(e, "evd.dequeue"));
  return out;
}

/// Takes the next event of a merged evd, without a variant. An evd that has ended has none. `copy`: see take_merged.
template <streams S, class Visitor, class... Copy>
[[nodiscard, gnu::always_inline]] inline expected<void>
dequeue_one(evd_core& e, Visitor& visit, Copy&... copy) noexcept(visits_all_noexcept<Visitor, event_list<S>>) {
  if (take_merged<S>(as_merged<S>(e), visit, taking::dequeue, copy...) != 0) [[likely]]
    return success();
  return no_event(e, "evd.dequeue");
}

/// Takes the next event of a merged evd for a wait, if it is a completion and the wait may take it without becoming the
/// waiter. Returns the number of events that are left; none when no event was taken. `copy`: see take_merged.
template <streams S, class Visitor, class Copy>
[[nodiscard]] std::optional<std::size_t> take_queued(evd_core& e, Visitor& visit,
                                                     Copy& copy) noexcept(visits_all_noexcept<Visitor, event_list<S>>) {
  if (e.foreign() || !e.waking().undisturbed()) return std::nullopt;
  e.ia().progress_now_and_then();
  ready_completion one;
  std::uint32_t left = 0;
  const auto what =
      as_merged<S>(e).take_and_count(one, left, [&](const posted_work& posted, const ibv_wc& wc, completion_owner& of) {
        return copy_common(posted, wc, of, copy);
      });
  if (what == merged_evd::found::copied) return left;
  if (what == merged_evd::found::one && visit_only<S>(one, one.wc, visit)) return left;
  return std::nullopt;
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
  expected<event<S>> out(std::in_place_type<error>);
  auto r = wait_until(e, deadline::in(limit), [&] { return take_next<S>(e, out, taking::in_wait); });
  if (!r) replace_error(out, r.assume_error());
  return out;
}

/// Waits until at least `threshold` events are queued, then takes the next one. Returns the number of events that are
/// left.
template <streams S, class Visitor>
[[nodiscard]] expected<std::size_t> take_when(evd_core& e, timeout limit, std::size_t threshold,
                                              Visitor& visit) noexcept(visits_all_noexcept<Visitor, event_list<S>>) {
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
  bool out = false;
  std::uint32_t count = 0;
  const auto needed = static_cast<std::uint32_t>(threshold);
  const auto look = [&] {
    record taken;
    // A completion of an endpoint that has ended is no event, and the threshold does not count it.
    while (!out && as_merged<S>(e).take_from(taken, needed, count)) out = take_record<S>(taken, visit);
    return out;
  };
  auto r = wait_until(e, deadline::in(limit), look, needed);
  if (!r) return r.assume_error().index(count);
  return std::size_t{count};
}

template <streams S>
[[nodiscard]] expected<waited<S>> wait_for_count(evd_core& e, timeout limit, std::size_t threshold) noexcept {
  std::optional<event<S>> out;
  const auto keep = [&]<class E>(E& ev) { out.emplace(std::in_place_type<E>, std::move(ev)); };
  auto left = take_when<S>(e, limit, threshold, keep);
  if (!left) return left.assume_error();
  return waited<S>{std::move(*out), left.assume_value()};
}

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/delivery/dequeue.ipp>
#endif
