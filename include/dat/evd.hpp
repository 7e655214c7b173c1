// Event dispatchers: queues from which a program takes events.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/cno.hpp>
#include <dat/event.hpp>
#include <dat/expected.hpp>
#include <dat/fwd.hpp>
#include <dat/object.hpp>
#include <dat/streams.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/base/misuse.hpp>
#include <dat/detail/delivery/dequeue.hpp>
#include <dat/detail/delivery/drain.hpp>
#include <dat/detail/delivery/wait_for.hpp>
#include <dat/detail/endpoint/core.hpp>
#include <dat/detail/handle/core_access.hpp>
#include <dat/detail/handle/handle.hpp>
#include <dat/detail/handle/unique_object.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace dat { inline namespace v0 {

/// The parameters of an evd (DAT_EVD_PARAM).
struct evd_attributes {
  dat::streams streams{};              ///< evd_flags
  std::uint32_t qlen = 0;              ///< the number of events that it has room for, at least
  bool enabled = false;                ///< evd_state: whether events notify the cno
  bool waitable = false;               ///< evd_state
  std::uint32_t completion_vector = 0; ///< the vector of the device; 0 for an evd without dat::stream::dto
  cno_ref cno;                         ///< empty: none
  /// The completions that notify, as requested by the endpoints that feed the evd: DAT_EVD_STATE_CONFIG_NOTIFY,
  /// _SOLICITED or _THRESHOLD.
  completion_notification config = completion_notification::evd_threshold;
};

namespace detail {
/// The parameters of an evd; all zero for null.
[[nodiscard]] expected<evd_attributes> query(evd_core* e) noexcept;
} // namespace detail

/// Options of `ia::create_evd`.
struct evd_options {
  /// The completion vector of the device whose interrupt serves the evd; below num_comp_vectors. Without a value, evds
  /// take the vectors in turn.
  std::optional<std::uint32_t> completion_vector{};
};

/// A queue of the events of one or more streams (uDAPL 2.0 §6.3.4). `ia::create_evd<S>` creates it; endpoints and
/// service points feed it. The streams are part of the type: an evd cannot be passed to an object whose events it
/// cannot hold, and its event is a std::variant of exactly the types that can arrive.
///
/// A completions-only evd (dat::stream::dto, perhaps with rmr_bind and datagrams) is a completion queue and nothing
/// else: taking from it is one poll of the device. A broken connection shows in its failed completions only, so the
/// program has to take them. The receives of an srq need a merged evd. A merged evd joins its streams into one order:
/// `established` comes before the first completion of a connection, and the successful completions come before
/// `disconnected`.
///
/// An evd has room for all completions of its endpoints: it grows when an endpoint is attached. Connection events have
/// their own places: `qlen`, or two for each endpoint, whichever is more. Software events, requests and asynchronous
/// events together have `qlen` places. A flood of one kind costs no event of another.
///
/// Move-only.
/// Thread safety: several threads may take from a merged evd at once, and one of them may wait. Only one thread at a
/// time may take from a completions-only evd. `post`, `wake`, `set_unwaitable` and `clear_unwaitable` are safe at any
/// time, and so is `resize` of a merged evd. `resize` of a completions-only evd must not overlap a call that takes
/// events. `close` and destruction must not overlap other uses.
template <streams S>
class evd : public detail::unique_object<evd<S>, detail::evd_core, object_kind::evd> {
public:
  static constexpr streams stream_set = S;
  static constexpr bool completions_only = is_completions_only(S);

  evd() noexcept = default; ///< names no evd

  /// Takes up to `max` queued events and calls `visit` with each, without building the variant. Returns their number. A
  /// completions-only evd takes them from the device in batches. `visit` must take every event of the evd by reference;
  /// a generic lambda takes the rest:
  ///
  ///     evd.drain(dat::overloaded{[&](const dat::recv_done& r) {...}, [](const auto&) {}});
  ///
  /// `visit` may post. If it throws, the other events of its batch are lost. When `max` ends the drain, the evd
  /// triggers its cno again, so that a program that drains once for each trigger takes everything.
  ///
  /// Errors: none; the result is 0 for an empty or closed evd, and a checked build reports the call (`empty_evd`).
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe on a merged evd; one thread at a time on a completions-only evd.
  template <class Visitor>
  [[gnu::always_inline]] std::size_t
  drain(Visitor&& visit, std::size_t max = 256) noexcept(detail::visits_all_noexcept<Visitor, detail::event_list<S>>) {
    if constexpr (!detail::visits_all<Visitor, detail::event_list<S>>) {
      detail::refuse_visitor<Visitor, detail::event_list<S>>();
      return 0;
    } else {
      if constexpr (detail::checked_build)
        if (!core_) detail::report_empty_drain();
      if constexpr (completions_only)
        return detail::drain_polled<S>(*polling_, visit, max);
      else
        return core_ ? detail::drain<S>(*core_, visit, max) : 0;
    }
  }

  template <class Visitor, class Rep, class Period>
  void drain(Visitor&&, std::chrono::duration<Rep, Period>, std::size_t = 0) noexcept {
    static_assert(detail::never<Rep>, "dat: drain takes what is there and never waits; with a time limit, call "
                                      "wait_and_drain(visitor, limit)");
  }

  /// Waits up to `limit` for an event, then takes up to `max` queued events as `drain` does. Returns their
  /// number, at least 1. While `visit` runs, the evd counts as waited on: `visit` may post, but must not wait on this
  /// evd or dequeue from it.
  ///
  ///     while (evd.wait_and_drain(visit, 100ms)) {...}
  ///
  /// Errors: as wait; `invalid_parameter` for a `max` of 0.
  /// Allocates: never.
  /// Blocks: up to `limit`.
  /// Thread safety: one thread at a time waits; see wait.
  template <class Visitor>
  [[nodiscard]] expected<std::size_t>
  wait_and_drain(Visitor&& visit, timeout limit,
                 std::size_t max = 256) noexcept(detail::visits_all_noexcept<Visitor, detail::event_list<S>>) {
    if (!core_) return empty_handle("evd.wait_and_drain");
    if (max == 0)
      return core_->at({return_type::invalid_parameter, return_subtype::arg3}, "evd.wait_and_drain")
          .hint("`max` must be at least 1: a drain of 0 events would wait indefinitely.");
    if constexpr (detail::visits_all<Visitor, detail::event_list<S>>)
      return detail::drain_within<S>(*core_, visit, limit, max);
    else
      detail::refuse_visitor<Visitor, detail::event_list<S>>();
  }

  /// Takes the next event if one is queued (uDAPL 2.0 §6.3.4.11).
  /// Errors: `queue_empty`; `invalid_state` (evd_waiter) while another thread waits on the evd; `invalid_handle`.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe on a merged evd; one thread at a time on a completions-only evd.
  [[nodiscard, gnu::always_inline]] expected<event<S>> dequeue() noexcept {
    if (!core_) return empty_handle("evd.dequeue");
    return detail::dequeue<S>(*core_);
  }

  /// Takes the next event, and waits up to `limit` for it (uDAPL 2.0 §6.3.4.10).
  /// Errors:
  /// - `timeout_expired`: no event arrived within `limit`
  /// - `interrupted_call`: a signal interrupted the wait, or `wake` was called
  /// - `abort`: the ia was closed
  /// - `invalid_state`: (evd_waiter) another thread waits on this evd; (evd_unwaitable) `set_unwaitable` was called
  /// - `invalid_handle`: the evd is empty or closed
  /// Allocates: never.
  /// Blocks: up to `limit`.
  /// Thread safety: a second wait fails with evd_waiter. On a completions-only evd it must not overlap a call that
  /// takes events.
  [[nodiscard]] expected<event<S>> wait(timeout limit = infinite) noexcept {
    if (!core_) return empty_handle("evd.wait");
    return detail::wait<S>(*core_, limit);
  }
  template <detail::no_time_limit Limit>
  void wait(Limit) noexcept {
    static_assert(detail::never<Limit>,
                  "dat: a time limit is a whole number with a unit of microseconds or more, such as 5ms or 2s");
  }

  /// Takes the next event when at least `threshold` events of any kind are queued, and waits up to `limit` for that
  /// (uDAPL 2.0 §6.3.4.10). `more` of the result is the number of events that are left. A completions-only evd cannot
  /// count the completions in the device: add `dat::stream::software`.
  /// Errors: as wait, with the number of queued events in `error().index()`; `invalid_parameter` for a threshold of 0
  /// or beyond the capacity. A call that fails takes no event.
  /// Allocates: never.
  /// Blocks: up to `limit`.
  /// Thread safety: as wait.
  [[nodiscard]] expected<waited<S>> wait(timeout limit, std::size_t threshold) noexcept {
    static_assert(!completions_only,
                  "dat: a completions-only evd cannot count the completions in the device; for a threshold, create "
                  "it with dat::stream::dto | dat::stream::software");
    if (!core_) return empty_handle("evd.wait");
    return detail::wait_for_count<S>(*core_, limit, threshold);
  }

  /// Takes the next event of type `E`, waits for it up to `limit`, and leaves other events in their order. It serves
  /// programs that expect one event at a time, for example during set-up. With `of`, only the events of that endpoint
  /// count. The wait ends early when a connection attempt or connection ends, and a wait for completions also when an
  /// operation fails; the call takes that event, and its error names it. These events do not end a wait for connection
  /// requests or software events.
  ///
  ///     auto request = evd.wait_for<dat::connection_request>(2s);
  ///     auto up = evd.wait_for<dat::established>(ep, 2s);
  ///
  /// A completions-only evd does not compile here, because it has no queue to leave the other events in.
  /// Errors: as wait; `invalid_state` (ep_disconnected) when another event ended the wait, which the message names.
  /// Allocates: never.
  /// Blocks: up to `limit`.
  /// Thread safety: as wait.
  template <class E>
  [[nodiscard]] expected<E> wait_for(timeout limit = infinite) noexcept {
    return wait_for<E>(ep_ref(), limit);
  }
  template <class E, detail::no_time_limit Limit>
  void wait_for(Limit) noexcept {
    static_assert(detail::never<Limit>,
                  "dat: a time limit is a whole number with a unit of microseconds or more, such as 5ms or 2s");
  }
  /// Takes the next event of type `E` of the endpoint `of`.
  /// Errors, Allocates, Blocks and Thread safety: as above.
  template <class E>
  [[nodiscard]] expected<E> wait_for(ep_ref of, timeout limit = infinite) noexcept {
    static_assert(!completions_only,
                  "dat: wait_for leaves other events in the queue, and a completions-only evd has no queue to "
                  "leave them in; use wait, dequeue or drain");
    static_assert(detail::contains<E, detail::event_list<S>>, "dat: this evd never delivers that event: its streams do "
                                                              "not include the event's");
    if (!core_) return empty_handle("evd.wait_for");
    return detail::wait_for<E, E>(*core_, of, limit);
  }
  template <class E, detail::no_time_limit Limit>
  void wait_for(ep_ref, Limit) noexcept {
    static_assert(detail::never<Limit>,
                  "dat: a time limit is a whole number with a unit of microseconds or more, such as 5ms or 2s");
  }
  /// Takes the first event of several types, and waits for it as wait_for does:
  ///
  ///     auto answer = evd.wait_for_any<dat::established, dat::peer_rejected>(ep, 2s);
  ///     if (auto* no = std::get_if<dat::peer_rejected>(&answer.value())) show(no->private_data());
  /// Errors, Allocates, Blocks and Thread safety: as wait_for.
  template <class... E>
  [[nodiscard]] expected<std::variant<E...>> wait_for_any(ep_ref of, timeout limit = infinite) noexcept {
    static_assert(!completions_only,
                  "dat: wait_for_any leaves other events in the queue, and a completions-only evd has no queue to "
                  "leave them in; use wait, dequeue or drain");
    static_assert((detail::contains<E, detail::event_list<S>> && ...),
                  "dat: this evd never delivers one of the events: "
                  "its streams do not include the event's");
    if (!core_) return empty_handle("evd.wait_for_any");
    return detail::wait_for<std::variant<E...>, E...>(*core_, of, limit);
  }
  /// Takes the first event of several types of any endpoint.
  /// Errors, Allocates, Blocks and Thread safety: as wait_for.
  template <class... E>
  [[nodiscard]] expected<std::variant<E...>> wait_for_any(timeout limit = infinite) noexcept {
    return wait_for_any<E...>(ep_ref(), limit);
  }

  /// Appends a software event, which carries a number or a pointer of the consumer (uDAPL 2.0 §6.3.4.12). It wakes a
  /// waiting thread as any other event does.
  /// Errors: `queue_full` when its places are taken, see the class; `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  expected<void> post(cookie posted) noexcept {
    static_assert(includes(S, streams::software),
                  "dat: software events need their stream: create_evd<dat::stream::software | ...>");
    static constexpr const char* call = "evd.post";
    if (!core_) return empty_handle(call);
    if (detail::as_merged<S>(*core_).push_software(posted)) return success();
    if (core_->dead()) return core_->closed(call); // after the push, because a dead evd also refuses it
    return core_->at(error(return_type::queue_full), call).hint("Take events first, or resize the evd.");
  }

  /// Ends the wait of another thread or, if no thread waits, the next wait. That wait returns `interrupted_call` and
  /// takes no event, whatever is queued. Several calls before a wait count as one. If no thread waits, the call also
  /// triggers the cno of the evd, so that an event loop that sleeps there runs. The evd needs no stream for it, and the
  /// call never fails for a full queue. (uDAPL has no such call; there a program posts a software event.)
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  expected<void> wake() noexcept {
    if (!core_) return empty_handle("evd.wake");
    if (core_->dead()) return core_->closed("evd.wake");
    core_->interrupt();
    return success();
  }

  /// Makes waits fail, also the wait of another thread that is under way: they return `invalid_state` (evd_unwaitable)
  /// and take no event (uDAPL 2.0 §6.3.4.7). Events are still queued, and drain and dequeue still take them.
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  expected<void> set_unwaitable() noexcept { return set_waitable("evd.set_unwaitable", false); }
  /// Allows waits again (uDAPL 2.0 §6.3.4.8).
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  expected<void> clear_unwaitable() noexcept { return set_waitable("evd.clear_unwaitable", true); }
  /// Whether waiting is allowed.
  [[nodiscard]] bool waitable() const noexcept { return core_ && core_->waitable(); }

  /// From now on the evd notifies `notified` of events, and no other cno (uDAPL 2.0 §6.3.4.4). Events that are already
  /// queued notify it at once. `evd.modify_cno({})` detaches the cno; a cno that was closed is empty, too. A cno
  /// reports the `id()` of the evd that triggered it.
  /// Errors: `invalid_handle` for a cno of another ia, or of an ia that was closed; `insufficient_resources` when the
  /// kernel cannot watch the completion channel.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  expected<void> modify_cno(const cno& notified) noexcept {
    if (!core_) return empty_handle("evd.modify_cno");
    return core_->set_cno(detail::core_access::of(notified));
  }
  /// Events notify the cno, as they do after creation (uDAPL 2.0 §6.3.4.5). Events that were queued while the evd was
  /// disabled notify it now.
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  expected<void> enable() noexcept { return set_enabled("evd.enable", true); }
  /// Events no longer notify the cno, and are still queued (uDAPL 2.0 §6.3.4.6).
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  expected<void> disable() noexcept { return set_enabled("evd.disable", false); }
  [[nodiscard]] bool enabled() const noexcept { return core_ && core_->enabled(); }
  /// The id by which a cno names this evd.
  [[nodiscard]] evd_id id() const noexcept { return core_ ? evd_id(core_->number()) : evd_id(); }

  /// Resizes the evd to at least `qlen` events, and keeps the queued ones (uDAPL 2.0 §6.3.4.9).
  /// Errors: all of them leave the evd unchanged:
  /// - `invalid_state`: more events are queued than `qlen`
  /// - `invalid_parameter`: `qlen` is 0 or above the device's max_cqe
  /// - `insufficient_resources`: no memory
  /// - `model_not_supported`: the device cannot resize completion queues
  /// - `invalid_handle`: the evd is empty or closed
  /// Allocates: yes.
  /// Blocks: briefly, in the driver.
  /// Thread safety: safe on a merged evd; on a completions-only evd it must not overlap a call that takes events.
  expected<void> resize(std::uint32_t qlen) noexcept {
    if (!core_) return empty_handle("evd.resize");
    return core_->resize(qlen);
  }

  /// Frees the evd (uDAPL 2.0 §6.3.4.2). Events that were not taken are lost, and connection requests among them are
  /// refused.
  /// Errors: `invalid_state`: (evd_in_use) while an endpoint or service point feeds it, (evd_waiter) while a thread
  /// waits on it; `invalid_handle`.
  /// Allocates: no.
  /// Blocks: briefly, in the driver.
  /// Thread safety: must not overlap other uses.
  expected<void> close() noexcept {
    if (core_ && !core_->dead() && core_->has_waiter())
      return core_->at({return_type::invalid_state, return_subtype::evd_waiter}, "evd.close")
          .hint("A thread waits on the evd. Release it first, by set_unwaitable or wake.");
    auto r = this->close_as("evd.close", return_subtype::evd_in_use);
    if (!core_) polling_ = {};
    return r;
  }

  /// The parameters of the evd (uDAPL 2.0 §6.3.4.3 dat_evd_query); all zero for an empty handle.
  /// Errors: `invalid_handle` when its ia was closed.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] expected<evd_attributes> query() const noexcept { return detail::query(core_.get()); }

  /// The number of events that the evd was created for or resized to.
  [[nodiscard]] std::size_t capacity() const noexcept { return core_ ? core_->qlen() : 0; }

  /// The completion queue; null for an evd without streams::dto.
  [[nodiscard]] ibv_cq* native_handle() const noexcept { return core_ ? core_->cq() : nullptr; }

  explicit evd(detail::ref<detail::evd_core> core) noexcept
      : evd::unique_object(std::move(core)), polling_(core_.get()) {}

protected:
  using evd::unique_object::core_;
  using evd::unique_object::empty_handle;

private:
  expected<void> set_enabled(const char* call, bool enabled) noexcept {
    if (!core_) return empty_handle(call);
    if (core_->dead()) return core_->closed(call);
    core_->set_enabled(enabled);
    return success();
  }
  expected<void> set_waitable(const char* call, bool allowed) noexcept {
    if (!core_) return empty_handle(call);
    if (core_->dead()) return core_->closed(call);
    core_->set_waitable(allowed);
    return success();
  }
  detail::emptied_by_move<detail::polling_ref> polling_;
};

/// Takes the place of an evd of an endpoint whose events the consumer does not want: they are dropped (DAT_HANDLE_NULL,
/// uDAPL 2.0 §6.3.1). A dropped completion still frees its place in the endpoint's queue, a moment later, and a failed
/// operation still breaks the connection.
struct drop_events_t {};
inline constexpr drop_events_t drop_events; ///< passed in the place of an evd

/// Names an evd that has at least the streams `Needed`. Objects that feed an evd are created with it. It converts from
/// every such evd, and from no other.
template <streams Needed>
class evd_ref {
public:
  evd_ref() noexcept = default;                       ///< no evd
  evd_ref(drop_events_t) noexcept : dropped_(true) {} // NOLINT(google-explicit-constructor)
  template <streams S>
  evd_ref(const evd<S>& e) noexcept // NOLINT(google-explicit-constructor)
      : core_(detail::core_access::of(e)), given_(true) {
    (void)detail::has_streams<S, Needed>();
  }
  template <streams S>
  evd_ref(const expected<evd<S>>&) noexcept { // NOLINT(google-explicit-constructor)
    static_assert(S == streams{}, "dat: the result of create_evd is an expected: unwrap it, by .value() or DAT_TRY");
  }

  /// False if it names no evd, or was made from an empty handle.
  explicit operator bool() const noexcept { return static_cast<bool>(core_); }

  /// True when it was made from an empty handle.
  [[nodiscard]] bool lost() const noexcept { return given_ && !core_; }
  /// True when it was made from `drop_events`.
  [[nodiscard]] bool dropped() const noexcept { return dropped_; }

private:
  friend struct detail::core_access;
  [[nodiscard]] const detail::ref<detail::evd_core>& shared() const noexcept { return core_; }
  detail::ref<detail::evd_core> core_;
  bool given_ = false;
  bool dropped_ = false;
};

}} // namespace dat::v0

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/impl/evd.ipp>
#endif
