// Draining: turns work completions, or records of a merged evd, into events for the visitor.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/checked.hpp>
#include <dat/event.hpp>

#include <dat/detail/base/utility.hpp>
#include <dat/detail/delivery/visit.hpp>
#include <dat/detail/endpoint/core.hpp>
#include <dat/detail/handle/event_key.hpp>
#include <dat/detail/verbs/wc_status.hpp>
#include <dat/detail/work/call_class.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace dat { inline namespace v0 { namespace detail {

/// The type by which a function that is out of line takes a visitor. A constant visitor is passed by value, so that the
/// common case keeps its captures in registers.
template <class Visitor>
using out_of_line =
    std::conditional_t<std::is_const_v<Visitor> && std::is_trivially_copyable_v<Visitor>, Visitor, Visitor&>;

/// The rare cases: failures, receives from before the connection, binds, and the library's own requests.
template <streams S, class Visitor>
[[gnu::cold, gnu::noinline]] bool take_unusual(work_entry& e, const ibv_wc& wc, out_of_line<Visitor> visit) {
  const posted_work posted = work_ring::read(e);
  ep_core& ep = endpoint_of(e);
  if (has_bits(posted.kind, own_bit)) return ep.own_taken(posted.kind, wc.wr_id, wc.status), false;
  if (posted.is_receive()) e.posted.kind = e.ring().usual();
  if (posted.is_pre_connect() && wc.status == IBV_WC_SUCCESS) ep.arrived(wc.wr_id);
  // The slot of a suppressed bind becomes free with the next completion that is an event, as those of other suppressed
  // requests do.
  if (!posted.is_internal() || wc.status != IBV_WC_SUCCESS) work_ring::retire(e);
  return visit_completion<S>(ep, wc.wr_id, wc, posted, visit);
}

/// A request that is done.
template <class E, class Visitor>
[[gnu::always_inline]] inline bool take_done(work_entry& e, Visitor& visit) {
  const posted_work posted = work_ring::read(e);
  ep_core& ep = endpoint_of(e);
  work_ring::retire(e); // first: the visitor may post
  auto event = event_access::make<E>(&ep, posted.cookie, posted.bytes());
  visit(event);
  return true;
}

/// Takes a completion straight from the device. Returns false when it is no event. All completions of a
/// completions-only evd belong to queues of endpoints: those of shared queues go to merged evds.
template <streams S, class Visitor>
[[gnu::always_inline]] inline bool take_completion(const work_entries& entries, const ibv_wc& wc, Visitor& visit) {
  work_entry* e;
  if (!entries.find(wc.wr_id, e)) [[unlikely]]
    return false; // its endpoint has ended or was reset
  work_ring::tsan_acquire(*e);
  // One comparison for each kind of success: kinds and statuses have no bits in common.
  constexpr auto code = [](dto_operation o) constexpr noexcept { return static_cast<std::int32_t>(kind_of_work(o)); };
  const std::int32_t outcome = static_cast<std::int32_t>(e->posted.kind) | static_cast<std::int32_t>(wc.status);
  if (outcome == code(dto_operation::send)) [[likely]]
    return take_done<send_done>(*e, visit);
  if constexpr (includes(S, streams::datagrams))
    if (outcome == code(dto_operation::send_ud)) return take_datagram_send_done<S>(*e, visit);
  if (outcome < 0) { // a receive
    if (outcome == code(dto_operation::recv) && (wc.wc_flags & relevant_flags) == 0) [[likely]] {
      const posted_work posted = work_ring::read(*e);
      ep_core& ep = endpoint_of(*e);
      work_ring::retire(*e);
      auto event = event_access::make<recv_done>(&ep, posted.cookie, wc.byte_len);
      visit(event);
      return true;
    }
    if constexpr (includes(S, streams::datagrams))
      if (outcome == static_cast<std::int32_t>(recv_ud_work)) return take_datagram_received<S>(*e, wc, visit);
    return take_unusual<S, Visitor>(*e, wc, visit);
  }
  if constexpr (includes(S, streams::rmr_bind))
    if (outcome == code(dto_operation::bind)) {
      const posted_work posted = work_ring::read(*e);
      ep_core& ep = endpoint_of(*e);
      work_ring::retire(*e);
      return visit_bound<S>(ep, posted, visit);
    }
  if (outcome < code(dto_operation::rdma_write_immediate)) { // halves the comparisons of the rarer kinds
    if (outcome == code(dto_operation::rdma_write)) return take_done<rdma_write_done>(*e, visit);
    if (outcome == code(dto_operation::rdma_read)) return take_done<rdma_read_done>(*e, visit);
  } else {
    if (outcome == code(dto_operation::rdma_write_immediate))
      return take_done<ib::rdma_write_immediate_done>(*e, visit);
    if (outcome == code(dto_operation::fetch_and_add)) return take_done<ib::fetch_and_add_done>(*e, visit);
    if (outcome == code(dto_operation::compare_and_swap)) return take_done<ib::compare_and_swap_done>(*e, visit);
  }
  return take_unusual<S, Visitor>(*e, wc, visit);
}

template <streams S>
[[nodiscard]] merged_evd& as_merged(evd_core& e) noexcept {
  static_assert(!is_completions_only(S));
  return static_cast<merged_evd&>(e);
}

/// Records that a poll of the device has failed.
[[gnu::cold, gnu::noinline]] inline void polling_failed(const evd_polling& e) noexcept {
  auto& core = static_cast<evd_core&>(const_cast<evd_polling&>(e)); // null_evd does not fail
  core.note_poll_failure();
  if (!core.has_waiter()) core.report_poll_failure(); // otherwise the present wait returns the failure
}
/// Called when a drain has taken its maximum of events, and more may be queued: triggers the cno of the evd again.
[[gnu::cold, gnu::noinline]] inline void notify_of_rest(const evd_polling& e) noexcept {
  static_cast<evd_core&>(const_cast<evd_polling&>(e)).notify(); // null_evd has no cno
}

/// In a checked build, records the call that takes from a completions-only evd, for its duration. In other builds it
/// has no effect. A visitor may take from the evd itself.
template <bool Checked = checked_build>
[[nodiscard, gnu::always_inline]] inline auto enter_taking([[maybe_unused]] const evd_polling& e,
                                                           [[maybe_unused]] const char* call) noexcept {
  if constexpr (Checked) {
    const bool none = &e == &null_evd;
    return class_member(none ? nullptr : e.taking_calls(), call, "evd",
                        none ? 0 : static_cast<const evd_core&>(e).number(), true);
  } else {
    return unwatched_call();
  }
}

/// A checked build reports the drain of an empty evd, because its result, 0, looks like an evd without events.
[[gnu::cold, gnu::noinline]] inline void report_empty_drain() noexcept {
  report_misuse({checked::finding::empty_evd, "evd.drain", "", "evd", 0, nullptr, nullptr,
                 "The evd was moved from, closed, or never made by a create call: no event will ever come from it."});
}

/// Completions that are polled at a time.
inline constexpr std::size_t at_once = ready_completions::most;

/// Drains a completions-only evd of any number of completions, where drain_polled did not take `max`.
template <streams S, class Visitor>
[[gnu::noinline]] std::size_t drain_rest(const evd_polling& e, Visitor& visit, std::size_t max) {
  std::array<ibv_wc, at_once> wc;
  std::size_t taken = 0;
  while (taken < max) {
    const int want = static_cast<int>(min(max - taken, at_once));
    const int n = e.poll(want, wc.data());
    if (n < 0) [[unlikely]]
      polling_failed(e);
    for (int i = 0; i < n; ++i)
      if (take_completion<S>(e.entries(), wc[static_cast<std::size_t>(i)], visit)) ++taken;
    if (n < want) return taken;
  }
  if (e.notifies_cno()) [[unlikely]]
    notify_of_rest(e);
  return taken;
}

/// Takes one completion, when the previous completion was no event.
template <streams S, class Visitor>
[[gnu::cold, gnu::noinline]] std::size_t drain_one_more(const evd_polling& e, Visitor& visit) {
  return drain_rest<S>(e, visit, 1);
}

/// Drains a completions-only evd, straight from the device.
template <streams S, class Visitor>
[[gnu::always_inline]] inline std::size_t drain_polled(const evd_polling& e, Visitor& visit, std::size_t max) {
  [[maybe_unused]] const auto inside = enter_taking(e, "evd.drain");
  if constexpr (checked_build)
    if (!inside.alone()) return 0;
  if (max == 1) { // usually a constant, and then without a loop
    ibv_wc one;
    const int n = e.poll(1, &one);
    if (n <= 0) {
      if (n < 0) [[unlikely]]
        polling_failed(e);
      return 0;
    }
    if (!take_completion<S>(e.entries(), one, visit)) [[unlikely]]
      return drain_one_more<S>(e, visit);
    if (e.notifies_cno()) [[unlikely]]
      notify_of_rest(e);
    return 1;
  }
  std::array<ibv_wc, at_once> wc;
  std::size_t taken = 0;
  for (std::size_t left = max / at_once; left != 0; --left) {
    const int n = e.poll(at_once, wc.data());
    if (n <= 0) {
      if (n < 0) [[unlikely]]
        polling_failed(e);
      return taken;
    }
    taken += static_cast<std::size_t>(n);
    const work_entries entries = e.entries();
    for (int i = 0; i < n; ++i)
      if (!take_completion<S>(entries, wc[static_cast<std::size_t>(i)], visit)) --taken;
    if (n < static_cast<int>(at_once)) return taken;
  }
  if (taken < max) return taken + drain_rest<S>(e, visit, max - taken);
  if (e.notifies_cno()) [[unlikely]]
    notify_of_rest(e);
  return taken;
}

/// Takes from the ring until `taken` is `max` or the ring is empty; then completions may come straight from the device
/// again. Returns false when the ring was empty.
template <streams S, class Visitor>
[[gnu::noinline]] bool drain_ring(merged_evd& e, Visitor& visit, std::size_t max, std::size_t& taken) {
  record r;
  std::uint32_t left = 0;
  if (!e.take(r, left)) return false;
  do taken += take_record<S>(r, visit) ? 1 : 0;
  while (taken < max && left != 0 && e.take(r, left));
  return true;
}

/// Calls `visit` with the event of a completion that bypassed the ring. Returns false when the completion is no event.
template <streams S, class Visitor>
[[gnu::always_inline]] inline bool visit_ready(ep_core& ep, const ibv_wc& wc, const posted_work& posted,
                                               Visitor& visit) {
  if (posted.kind == kind_of_work(dto_operation::send)) [[likely]] {
    auto e = event_access::make<send_done>(&ep, posted.cookie, posted.bytes());
    visit(e);
    return true;
  }
  if ((posted.kind == kind_of_work(dto_operation::recv) || posted.is_shared()) && (wc.wc_flags & relevant_flags) == 0) {
    auto e = event_access::make<recv_done>(&ep, posted.cookie, wc.byte_len);
    visit(e);
    return true;
  }
  if (posted.kind == kind_of_work(dto_operation::rdma_write)) {
    auto e = event_access::make<rdma_write_done>(&ep, posted.cookie, posted.bytes());
    visit(e);
    return true;
  }
  return visit_completion<S>(ep, wc.wr_id, wc, posted, visit);
}

/// Calls `visit` with the event of a completion that was taken alone. Returns false when the completion is no event.
template <streams S, class Visitor>
[[gnu::always_inline]] inline bool visit_only(const ready_completion& one, const ibv_wc& wc, Visitor& visit) {
  ep_core& ep = endpoint_of(*one.ep);
  const ref<ep_core> keep(&ep, adopt);
  return visit_ready<S>(ep, wc, one.posted, visit);
}
/// Calls `visit` with the events of several completions. Returns the number of events.
template <streams S, class Visitor>
[[gnu::always_inline]] inline std::size_t visit_several(const work_entries& entries, const ready_completions& ready,
                                                        Visitor& visit) {
  std::size_t taken = 0;
  for (const ready_completions::run& r : ready) {
    ep_core& ep = endpoint_of(*r.ep);
    const posted_work* posted = r.posted;
    // All entries of the endpoint lose their names when the visitor ends it.
    const std::uint64_t name = r.first->wr_id;
    work_entry* named;
    if (!entries.find(name, named)) continue;
    const ibv_wc* c = r.first;
    int left = r.count;
    do {
      if (!visit_ready<S>(ep, *c, *posted, visit)) --taken;
      ++posted;
      ++c;
    } while (--left != 0 && load_plain(named->wr_id) == name);
    taken += static_cast<std::size_t>(r.count - left);
  }
  return taken;
}

/// Gives a completion to `copy`: to a function of the consumer with the context of the endpoint, and to one of dat with
/// the endpoint. Returns false when the latter did not take it.
template <class Copy>
[[nodiscard, gnu::always_inline]] inline bool copy_to(Copy& copy, dto_operation what, dat::cookie posted,
                                                      std::uint32_t bytes, const ep_core& ep) noexcept {
  if constexpr (std::is_invocable_v<Copy&, dto_operation, dat::cookie, std::size_t, dat::cookie>) {
    copy(what, posted, bytes, dat::cookie(ep.consumer_context.load(std::memory_order_acquire)));
    return true;
  } else {
    return copy(what, posted, bytes, ep);
  }
}
/// Calls `copy` as copy_to does if the completion is a success of a common operation. Otherwise returns false. The
/// endpoint must not end during the call.
template <class Copy>
[[nodiscard, gnu::always_inline]] inline bool copy_common(const posted_work& posted, const ibv_wc& wc,
                                                          completion_owner& owner, Copy& copy) noexcept {
  if (posted.is_receive()) {
    if (posted.kind != kind_of_work(dto_operation::recv) || (wc.wc_flags & relevant_flags) != 0) return false;
    return copy_to(copy, dto_operation::recv, posted.cookie, wc.byte_len, endpoint_of(owner));
  }
  if (posted.kind > kind_of_work(dto_operation::rdma_read)) return false;
  return copy_to(copy, posted.request(), posted.cookie, posted.bytes(), endpoint_of(owner));
}

/// The call that takes an event of a merged evd.
enum class taking : std::uint8_t { in_wait, drain, dequeue };

/// The rest of take_merged, which is out of line. `what` was found so far.
template <streams S, class Visitor, class... Copy>
[[gnu::noinline]] std::size_t take_rest(merged_evd& e, out_of_line<Visitor> visit, taking by, merged_evd::found what,
                                        ready_completion& one, out_of_line<Copy>... copy) {
  if (what == merged_evd::found::marked) {
    if (by != taking::in_wait) e.ia().progress(0);
    if (by == taking::dequeue && e.has_waiter()) return 0;
    if constexpr (sizeof...(Copy) != 0) {
      what = e.take_marked(one, [&](const posted_work& posted, const ibv_wc& wc, completion_owner& owner) {
        return copy_common(posted, wc, owner, copy...);
      });
      if (what == merged_evd::found::copied) return 1;
    } else {
      what = e.take_marked(one);
    }
  }
  for (;; what = e.take_marked(one)) {
    if (what == merged_evd::found::one) {
      const ref<ep_core> ep(&endpoint_of(*one.ep), adopt);
      if constexpr (includes(S, streams::dto)) // other evds have no completions
        if (visit_completion<S>(*ep, one.wc.wr_id, one.wc, one.posted, visit)) return 1;
    } else {
      std::size_t taken = 0;
      if (what == merged_evd::found::none || !drain_ring<S>(e, visit, 1, taken)) return 0;
      if (taken != 0) return 1;
    }
  }
}
/// Takes an event of a merged evd: from the ring, or, while that is empty, straight from the device. A dequeue takes
/// none while a thread waits. `copy` gets the common completions that the device returns (see copy_common). It runs
/// with the lock of the evd held. If it returns false, the visitor gets the event.
template <streams S, class Visitor, class... Copy>
[[gnu::always_inline]] inline std::size_t take_merged(merged_evd& e, Visitor& visit, taking by, Copy&... copy) {
  using found = merged_evd::found;
  ready_completion one;
  found what = found::marked;
  if constexpr (sizeof...(Copy) != 0) {
    what = e.take_ready(one, [&](const posted_work& posted, const ibv_wc& wc, completion_owner& owner) {
      return copy_common(posted, wc, owner, copy...);
    });
    if (what == found::copied) [[likely]]
      return 1;
  } else if constexpr (includes(S, streams::dto)) {
    what = e.take_ready(one, merged_evd::copies_none{});
    if (what == found::one) [[likely]] {
      if (visit_only<S>(one, one.wc, visit)) [[likely]]
        return 1;
      what = found::marked;
    } else if (what == found::none) {
      return 0;
    }
  }
  return take_rest<S, Visitor, Copy...>(e, visit, by, what, one, copy...);
}

/// The rest of drain_many: visits what was found so far, and takes more while there may be more.
template <streams S, class Visitor>
[[gnu::noinline]] std::size_t drain_found(merged_evd& e, Visitor& visit, std::size_t max, merged_evd::found what,
                                          ready_completion& one, ready_completions& several) {
  using found = merged_evd::found;
  std::size_t taken = 0;
  for (auto want = static_cast<int>(min(max, at_once));;) {
    if (what == found::marked) {
      if (taken == 0) e.ia().progress(0);
      what = e.take_marked(one, several, want);
    }
    if (what == found::one) {
      taken += visit_only<S>(one, *several.wc(), visit) ? 1 : 0;
      if (want != 1) return taken;
    } else if (what == found::queued) {
      if (!drain_ring<S>(e, visit, max, taken)) return taken;
    } else {
      if (what != found::none) taken += visit_several<S>(e.entries(), several, visit);
      if (what != found::some) return taken;
    }
    if (taken >= max) return taken;
    several.clear();
    want = static_cast<int>(min(max - taken, at_once));
    what = e.take_ready(one, several, want);
  }
}

/// Takes up to `max` events of a merged evd as take_merged does, but several at a time.
template <streams S, class Visitor>
[[gnu::noinline]] std::size_t drain_many(merged_evd& e, Visitor& visit, std::size_t max) {
  using found = merged_evd::found;
  if (max == 0) return 0;
  ready_completion one;
  ready_completions several;
  const found what = e.take_ready(one, several, static_cast<int>(min(max, at_once)));
  if (what == found::one) [[likely]] // a maximum of 1 is for take_merged, so the device has no second completion
    return visit_only<S>(one, *several.wc(), visit) ? 1 : 0;
  if (what == found::last) return visit_several<S>(e.entries(), several, visit);
  return drain_found<S>(e, visit, max, what, one, several);
}

/// Drains a merged evd.
template <streams S, class Visitor>
[[gnu::always_inline]] inline std::size_t drain_merged(merged_evd& e, Visitor& visit, std::size_t max) {
  if constexpr (!includes(S, streams::dto)) {
    e.ia().progress(0);
    std::size_t taken = 0;
    while (taken < max && drain_ring<S>(e, visit, max, taken)) {
    }
    return taken;
  } else {
    return max == 1 ? take_merged<S>(e, visit, taking::drain) : drain_many<S>(e, visit, max);
  }
}

template <streams S, class Visitor>
[[gnu::always_inline]] inline std::size_t drain(evd_core& e, Visitor& visit, std::size_t max) {
  if constexpr (is_completions_only(S)) {
    return drain_polled<S>(e, visit, max);
  } else {
    const std::size_t taken = drain_merged<S>(as_merged<S>(e), visit, max);
    if (taken == 0 && !e.has_waiter()) e.report_poll_failure(); // otherwise the present wait returns the failure
    if (taken == max && e.notifies_cno()) [[unlikely]]
      notify_of_rest(e);
    return taken;
  }
}

}}} // namespace dat::v0::detail
