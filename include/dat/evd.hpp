// Event dispatchers: where events are taken.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/cno.hpp>
#include <dat/event.hpp>
#include <dat/expected.hpp>
#include <dat/fwd.hpp>
#include <dat/object.hpp>
#include <dat/streams.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/completion.hpp>
#include <dat/detail/core.hpp>
#include <dat/detail/handle.hpp>
#include <dat/detail/taking.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace dat::inline v0 {

/// DAT_EVD_PARAM: what an evd is like.
struct evd_attributes {
  streams which{};        ///< evd_flags
  std::uint32_t qlen = 0; ///< events that it has room for, at least
  bool enabled = false;   ///< evd_state: whether events notify the cno
  bool waitable = false;  ///< evd_state
  cno_ref cno;            ///< empty: none
  /// Which completions wake, as the endpoints that feed it say: DAT_EVD_STATE_CONFIG_NOTIFY (unsignalled), _SOLICITED,
  /// _THRESHOLD.
  waking config = waking::evd_threshold;
};

/// A queue of the events of one or more streams (uDAPL 2.0 §6.3.4). Made by `ia::create_evd<S>`; given to endpoints and
/// service points, which feed it. The streams are part of the type, so an evd is never given to something whose events
/// it cannot hold, and its events are a std::variant of just what can come.
///
/// An evd of `streams::dto` alone is a completion queue and nothing besides: taking from it is one poll of the device.
/// Other evds merge their streams into one order: a connection's `established` comes before its first completion, and
/// its successful completions before `disconnected`.
///
/// Move-only. Thread safety: several threads may take from a merged evd at once, one of them waiting; from an evd of
/// streams::dto alone, one at a time. Posting, wake, set_unwaitable and clear_unwaitable are safe at any time, and so
/// is resize of a merged evd; resize of one of streams::dto alone must not overlap taking. `close` and destruction must
/// not overlap other uses.
template <streams S>
class evd : public dat::object<evd<S>, object_kind::evd> {
public:
  static constexpr streams held = S;
  static constexpr bool lean = is_lean(S);

  evd() noexcept = default; ///< names no evd
  evd(evd&& o) noexcept : core_(std::move(o.core_)), polling_(std::exchange(o.polling_, &detail::no_evd)) {}
  evd& operator=(evd&& o) noexcept {
    if (this == &o) return *this;
    polling_ = std::exchange(o.polling_, &detail::no_evd);
    core_ = std::move(o.core_);
    return *this;
  }
  ~evd() = default;

  /// Takes up to `max` events that are there and calls `visit` with each, without building the variant; returns how
  /// many. The fast way: a lean evd takes completions from the device in batches. `visit` must take every event of the
  /// evd by reference; a generic lambda takes the rest:
  ///
  ///     evd.drain(dat::overloaded{[&](const dat::received& r) {...}, [](const auto&) {}});
  ///
  /// `visit` may post. If it throws, the other events of its batch are lost. 0 for an empty or closed evd. Allocates:
  /// never. Blocks: never.
  template <class Visitor>
  [[gnu::always_inline]] std::size_t
  drain(Visitor&& visit, std::size_t max = 16) noexcept(detail::visits_all_noexcept<Visitor, detail::event_list<S>>) {
    static_assert(detail::visits_all<Visitor, detail::event_list<S>>,
                  "dat: the visitor must be callable with every event that this evd can deliver; "
                  "add a generic lambda [](const auto&) {} for those that do not matter");
    if constexpr (lean) {
      return detail::drain_polled<S>(*polling_, visit, max);
    } else {
      if (!core_) return 0;
      return detail::drain<S>(*core_, visit, max);
    }
  }

  /// Waits up to `limit` for an event, then takes what is there as the other drain does, up to `max`; returns how many,
  /// at least 1. While `visit` runs the evd counts as waited on: it may post, but not wait on or dequeue from this evd.
  ///
  ///     while (evd.drain(visit, 100ms)) {...}
  ///
  /// Errors: as wait; `invalid_parameter` for a `max` of 0. Allocates: never. Blocks: up to `limit`.
  template <class Visitor, class Count = std::size_t> // so that only who calls it pays for compiling it
  [[nodiscard]] expected<Count>
  drain(Visitor&& visit, timeout limit,
        std::size_t max = 16) noexcept(detail::visits_all_noexcept<Visitor, detail::event_list<S>>) {
    static_assert(detail::visits_all<Visitor, detail::event_list<S>>,
                  "dat: the visitor must be callable with every event that this evd can deliver; "
                  "add a generic lambda [](const auto&) {} for those that do not matter");
    if (!core_) return detail::empty_handle("evd.drain", return_subtype::handle_evd_recv);
    if (max == 0)
      return core_->at({return_type::invalid_parameter, return_subtype::arg3}, "evd.drain")
          .hint("taking no event at all, it would wait for ever");
    return detail::drain_within<S>(*core_, visit, limit, max);
  }

  /// Takes the next event if there is one (uDAPL 2.0 §6.3.4.11).
  /// Errors: `queue_empty`; `invalid_state` (evd_waiter) while a thread waits on it; `invalid_handle`.
  /// Allocates: never. Blocks: never.
  [[nodiscard]] expected<event<S>> dequeue() noexcept {
    if (!core_) return detail::empty_handle("evd.dequeue", return_subtype::handle_evd_recv);
    return detail::dequeue<S>(*core_);
  }

  /// Takes the next event, waiting up to `limit` for one (uDAPL 2.0 §6.3.4.10).
  /// Errors: `timeout_expired`; `interrupted_call` when a signal came or `wake` was called; `abort` when the ia was
  /// closed; `invalid_state` (evd_waiter) when another thread waits on this evd, (evd_unwaitable) after set_unwaitable;
  /// `invalid_handle`. Allocates: never. Blocks: up to `limit`.
  [[nodiscard]] expected<event<S>> wait(timeout limit = infinite) noexcept {
    if (!core_) return detail::empty_handle("evd.wait", return_subtype::handle_evd_recv);
    return detail::wait<S>(*core_, limit);
  }

  /// Takes the next event once at least `threshold` events of any kind are queued, waiting up to `limit` for that
  /// (uDAPL 2.0 §6.3.4.10). `more` of the result says how many are left. Not on an evd of streams::dto alone, which
  /// cannot count what the device holds: add `dat::software`.
  /// Errors: as wait, with `error().index()` events queued; `invalid_parameter` for a threshold of 0 or beyond the
  /// capacity. Nothing is taken then. Allocates: never. Blocks: up to `limit`.
  [[nodiscard]] expected<waited<S>> wait(timeout limit, std::size_t threshold) noexcept {
    static_assert(!lean,
                  "dat: an evd of streams::dto alone cannot count what the device holds; for a threshold, create "
                  "it with dat::dto | dat::software");
    if (!core_) return detail::empty_handle("evd.wait", return_subtype::handle_evd_recv);
    return detail::wait_for_count<S>(*core_, limit, threshold);
  }

  /// Takes the next event of type `E`, waiting for it up to `limit`, and leaves others in their order. For programs
  /// that expect one thing at a time, such as set-up. Ends early with an error that names what happened when, instead,
  /// an operation fails or a connection attempt or connection ends; that event is taken. (A wait for requests or
  /// software events does not end so.) With `of`, only the events of that endpoint count.
  ///
  ///     auto request = evd.wait_for<dat::connection_request>(2s);
  ///     auto up = evd.wait_for<dat::established>(ep, 2s);
  ///
  /// Not on an evd of streams::dto alone, which has no place to leave the others.
  /// Errors: as wait; and `invalid_state` (ep_disconnected), whose message says what came instead.
  /// Allocates: never. Blocks: up to `limit`.
  template <class E>
  [[nodiscard]] expected<E> wait_for(timeout limit = infinite) noexcept {
    return wait_for<E>(ep_ref(), limit);
  }
  template <class E>
  [[nodiscard]] expected<E> wait_for(ep_ref of, timeout limit = infinite) noexcept {
    static_assert(!lean, "dat: wait_for leaves other events in the queue, and an evd of streams::dto alone has none to "
                         "leave them in; use wait, dequeue or drain");
    static_assert(detail::contains<E, detail::event_list<S>>, "dat: this evd never delivers that event: its streams do "
                                                              "not include the event's");
    if (!core_) return detail::empty_handle("evd.wait_for", return_subtype::handle_evd_recv);
    return detail::wait_for<S, E, E>(*core_, of, limit);
  }
  /// The same for the first of several types, with all that this event has to say:
  ///
  ///     auto answer = evd.wait_for_any<dat::established, dat::peer_rejected>(ep, 2s);
  ///     if (auto* no = std::get_if<dat::peer_rejected>(&answer.value())) show(no->private_data());
  template <class... E>
  [[nodiscard]] expected<std::variant<E...>> wait_for_any(ep_ref of, timeout limit = infinite) noexcept {
    static_assert(!lean, "dat: wait_for_any leaves other events in the queue, and an evd of streams::dto alone has "
                         "none to leave them in; use wait, dequeue or drain");
    static_assert((detail::contains<E, detail::event_list<S>> && ...),
                  "dat: this evd never delivers one of the events: "
                  "its streams do not include the event's");
    if (!core_) return detail::empty_handle("evd.wait_for_any", return_subtype::handle_evd_recv);
    return detail::wait_for<S, std::variant<E...>, E...>(*core_, of, limit);
  }
  template <class... E>
  [[nodiscard]] expected<std::variant<E...>> wait_for_any(timeout limit = infinite) noexcept {
    return wait_for_any<E...>(ep_ref(), limit);
  }

  /// Appends a software event, which carries a number or a pointer of the consumer's (uDAPL 2.0 §6.3.4.12). It counts
  /// like any other event: it wakes a waiter. May be called from any thread.
  /// Errors: `queue_full` when as many events besides completions are queued as the evd's capacity; `invalid_handle`.
  /// Allocates: no. Blocks: no.
  expected<void> post(cookie posted) noexcept {
    static_assert(includes(S, streams::software),
                  "dat: software events need their stream: create_evd<dat::software | ...>");
    static constexpr const char* call = "evd.post";
    if (!core_) return detail::empty_handle(call, return_subtype::handle_evd_recv);
    if (core_->dead()) return core_->closed(call);
    if (!detail::as_merged<S>(*core_).push_software(posted))
      return core_->at(error(return_type::queue_full), call).hint("take events first, or resize the evd");
    return success();
  }

  /// Ends the wait that is under way in another thread or, when there is none, the next one: it returns
  /// `interrupted_call` and takes nothing, whatever is queued. Several calls before a wait sees them count as one. An
  /// evd that nobody waits on also triggers its cno, so that an event loop that sleeps there runs. For telling a thread
  /// to look at something else than events: it needs no stream and is never refused for a full queue. (No call of
  /// uDAPL; there it takes a software event.) May be called from any thread. Errors: `invalid_handle`. Allocates: no.
  /// Blocks: no.
  expected<void> wake() noexcept {
    if (!core_) return detail::empty_handle("evd.wake", return_subtype::handle_evd_recv);
    if (core_->dead()) return core_->closed("evd.wake");
    core_->interrupt();
    return success();
  }

  /// Makes waiting fail, also the wait that is under way in another thread: it returns `invalid_state`
  /// (evd_unwaitable) and takes nothing (uDAPL 2.0 §6.3.4.7). Events still come and can be taken by drain and dequeue.
  /// `clear_unwaitable` allows waiting again (§6.3.4.8). May be called from any thread. Errors: `invalid_handle`.
  expected<void> set_unwaitable() noexcept { return set_waitable("evd.set_unwaitable", false); }
  expected<void> clear_unwaitable() noexcept { return set_waitable("evd.clear_unwaitable", true); }
  /// Whether waiting is allowed.
  [[nodiscard]] bool waitable() const noexcept { return core_ && core_->waitable(); }

  /// Notifies `notified` of events from now on, and no other cno (uDAPL 2.0 §6.3.4.4). Events that are there already
  /// notify it at once. `evd.modify_cno({})` detaches. A cno that fires says which evd to look at: `id()`.
  /// Errors: `invalid_handle` for a cno that is closed or of another ia; `insufficient_resources`.
  expected<void> modify_cno(const cno& notified) noexcept {
    if (!core_) return detail::empty_handle("evd.modify_cno", return_subtype::handle_evd_recv);
    return core_->set_cno(notified.core_.shared());
  }
  /// Whether events notify the cno: they do from the start. A disabled evd still queues them, and gives notice of them
  /// when it is enabled (uDAPL 2.0 §6.3.4.5, §6.3.4.6). May be called from any thread. Errors: `invalid_handle`.
  expected<void> enable() noexcept { return set_enabled("evd.enable", true); }
  expected<void> disable() noexcept { return set_enabled("evd.disable", false); }
  [[nodiscard]] bool enabled() const noexcept { return core_ && core_->enabled(); }
  /// What a cno calls this evd.
  [[nodiscard]] evd_id id() const noexcept { return core_ ? evd_id(core_->number()) : evd_id(); }

  /// Gives the evd room for at least `qlen` events, keeping those that are queued (uDAPL 2.0 §6.3.4.9).
  /// Errors, with nothing changed: `invalid_state` when more are queued than that; `invalid_parameter` for 0 or more
  /// than the device can; `insufficient_resources`; `model_not_supported` when the device cannot resize;
  /// `invalid_handle`. Allocates: yes. Blocks: briefly, in the driver.
  expected<void> resize(std::uint32_t qlen) noexcept {
    if (!core_) return detail::empty_handle("evd.resize", return_subtype::handle_evd_recv);
    return core_->resize(qlen);
  }

  /// Frees the evd (uDAPL 2.0 §6.3.4.2). Events that were not taken are lost, requests among them refused.
  /// Errors: `invalid_state` (evd_in_use) while an endpoint or service point feeds it, (evd_waiter) while a thread
  /// waits on it; `invalid_handle`.
  expected<void> close() noexcept {
    if (core_ && !core_->dead() && core_->waited.load(std::memory_order_acquire))
      return core_->at({return_type::invalid_state, return_subtype::evd_waiter}, "evd.close")
          .hint("release the thread that waits first: set_unwaitable does, and wake");
    auto r = core_.close("evd.close", return_subtype::handle_evd_recv, return_subtype::evd_in_use);
    if (!core_) polling_ = &detail::no_evd;
    return r;
  }

  /// What the evd is like now (uDAPL 2.0 §6.3.4.3 dat_evd_query); all zero for an empty handle.
  /// Errors: `invalid_handle` when its ia was closed.
  template <class Attributes = evd_attributes> // a template, so that only who calls it pays for compiling it
  [[nodiscard]] expected<Attributes> query() const noexcept {
    evd_attributes a;
    if (!core_) return a;
    if (core_->dead()) return core_->closed("evd.query");
    a.which = S;
    a.qlen = core_->qlen();
    a.enabled = core_->enabled();
    a.waitable = core_->waitable();
    a.cno = cno_ref(core_->cno());
    a.config = core_->mode();
    return a;
  }

  /// The number of events that it was created for, or resized to.
  [[nodiscard]] std::size_t capacity() const noexcept { return core_ ? core_->qlen() : 0; }

  explicit operator bool() const noexcept { return static_cast<bool>(core_); }

  /// The completion queue; null for an evd without streams::dto.
  [[nodiscard]] ibv_cq* native_handle() const noexcept { return core_ ? core_->cq() : nullptr; }

private:
  friend dat::object<evd, object_kind::evd>;
  friend class ia;
  friend struct detail::core_access;
  friend class async_target;
  template <streams>
  friend class evd_ref;
  explicit evd(detail::ref<detail::evd_core> core) noexcept : core_(std::move(core)), polling_(core_.get()) {}
  expected<void> set_enabled(const char* call, bool enabled) noexcept {
    if (!core_) return detail::empty_handle(call, return_subtype::handle_evd_recv);
    if (core_->dead()) return core_->closed(call);
    core_->set_enabled(enabled);
    return success();
  }
  expected<void> set_waitable(const char* call, bool allowed) noexcept {
    if (!core_) return detail::empty_handle(call, return_subtype::handle_evd_recv);
    if (core_->dead()) return core_->closed(call);
    core_->set_waitable(allowed);
    return success();
  }
  [[nodiscard]] auto* entity() const noexcept { return core_.get(); }
  detail::handle<detail::evd_core> core_;
  detail::evd_polling* polling_ = &detail::no_evd; // never null: a drain need not ask
};

/// In the place of an evd of an endpoint: nobody wants those events, they are dropped as they come (DAT_HANDLE_NULL,
/// uDAPL 2.0 §6.3.1). The places of completions in the endpoint's queues become free by that, a moment later, and a
/// failed operation breaks the connection as ever.
struct drop_events_t {};
inline constexpr drop_events_t drop_events;

/// Names an evd that has at least the streams `Needed`; what objects that feed an evd are created with. Converts from
/// every evd that does, and from no other.
template <streams Needed>
class evd_ref {
public:
  evd_ref() noexcept = default;                       ///< no evd
  evd_ref(drop_events_t) noexcept : dropped_(true) {} // NOLINT(google-explicit-constructor)
  template <streams S>
  evd_ref(const evd<S>& e) noexcept // NOLINT(google-explicit-constructor)
      : core_(e.core_.shared()), given_(true) {
    static_assert(includes(S, Needed),
                  "dat: this evd lacks a stream that the object feeds; create it with that stream: "
                  "create_evd<dat::dto>, create_evd<dat::connection | ...>");
  }

  /// False for one that names no evd, or named an empty handle.
  explicit operator bool() const noexcept { return static_cast<bool>(core_); }

private:
  friend class pz;
  friend class ia;
  friend struct ep_evds;
  friend struct ib::datagram_evds;
  friend struct detail::core_access;
  [[nodiscard]] const detail::ref<detail::evd_core>& shared() const noexcept { return core_; }
  /// It was to name an evd, but the handle was empty.
  [[nodiscard]] bool lost() const noexcept { return given_ && !core_; }
  detail::ref<detail::evd_core> core_;
  [[nodiscard]] bool dropped() const noexcept { return dropped_; }
  bool given_ = false;
  bool dropped_ = false;
};

} // namespace dat::inline v0

template <dat::streams S>
struct std::hash<dat::evd<S>> : dat::detail::handle_hash<dat::evd<S>> {};
