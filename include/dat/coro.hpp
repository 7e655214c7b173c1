// Coroutines: awaiting operations, connections and events of an evd. Opt-in, not part of dat.hpp.
// SPDX-License-Identifier: BSL-1.0
//
//     dat::coro::driver driver(evd);
//
//     task<...> echo(...) {                                              // any coroutine type
//       auto reply = driver.post(ep, dat::recv{in});                     // posted now
//       DAT_CO_TRYV(co_await driver.post(ep, dat::send{out}));           // posted, and awaited at once
//       DAT_CO_TRY(const auto got, co_await reply);                      // got.bytes()
//       ...
//     }
//     driver.run_until([&] { return finished; }, [](const auto&) {});    // takes events, resumes coroutines
//
// The awaitables work in every coroutine type whose promise does not restrict what it awaits: the program's own, or
// dat::task (<dat/task.hpp>). boost::asio::awaitable restricts it: <dat/asio_coro.hpp> has functions for it. Tested
// with g++ 12, and with clang 14 on the standard library of g++ 12.
//
// g++ 12 has a fault. A coroutine without local variables has undefined behaviour if it awaits a temporary in the
// condition of a loop, or of an `if` in a loop. Name the result: `if (const auto got = co_await driver.post(...);
// !got)`.
#pragma once

#include <dat/cno.hpp>
#include <dat/coro_dto.hpp>
#include <dat/coro_events.hpp>
#include <dat/coro_wait.hpp>
#include <dat/cr.hpp>
#include <dat/ep.hpp>
#include <dat/evd.hpp>
#include <dat/expected.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/base/deadline.hpp>
#include <dat/detail/delivery/coro_core.hpp>
#include <dat/detail/delivery/dequeue.hpp>
#include <dat/detail/handle/core_access.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 { namespace coro {

/// Takes the events of an evd and resumes the coroutines that wait for them.
///
/// Each event goes to the first of these receivers that exists, so no event is lost:
/// - for a completion, the `posted` that it belongs to
/// - for a connection event, the `connecting` or `disconnecting` of its endpoint
/// - the `next` that has waited longest among those for one type of event or one endpoint
/// - the `next` that has waited longest among those that take any event
/// - the queue of kept events, for the next wait that asks for the event
/// - the visitor of the call. It also gets the completions of DTOs that the driver did not post, with any cookie.
///
/// **Kept events.** After `next<E>()` has returned an event, the driver keeps each further event of type `E` for which
/// no coroutine waits, so the loop of a server loses no request:
///
///     for (;;) {
///       DAT_CO_TRY(auto request, co_await driver.next<dat::connection_request>());
///       DAT_CO_TRYV(co_await driver.accept(request, ep_for(request))); // others arrive meanwhile
///     }
///
/// The next wait takes the oldest kept event that it asks for. `next()` has the same effect for events of all types.
/// The driver stops keeping a type when a wait for it ends without an event: by a stop, or because its coroutine was
/// destroyed. The driver does not keep completions, nor events beyond the limit of the constructor: the visitor gets
/// them. A wait for the events of one endpoint takes kept events, but causes none to be kept. Closing or resetting an
/// endpoint by the driver drops its kept events; the end of the driver drops all of them, and so refuses requests.
///
/// Coroutines resume in the order of the events, each before the next event is taken. They resume only inside poll,
/// run_once and run_until. There they may call everything that a consumer may call, end other coroutines, and call
/// these functions again, but not destroy the driver. An exception of a coroutine or the visitor leaves through the
/// call, and the driver stays usable.
///
/// The driver works with evds of every kind, and with automatic and manual progress. To use the driver inside another
/// event loop, attach a cno to the evd. When cno::fd is readable, take the trigger, then call poll (see also
/// <dat/asio.hpp>). For several evds use one driver for each, and a driver_set for all (<dat/coro_set.hpp>).
///
/// **Cancellation.** Everything that can be awaited takes a std::stop_token. Any thread may call
/// std::stop_source::request_stop, which also wakes the driver. The request takes effect in the thread of the driver,
/// in the next round of poll or run, and the coroutine resumes when it has nothing left to wait for:
/// - next: the wait ends. No event is lost.
/// - post: only the end of its connection ends a posted DTO, so the driver ends the connection (abrupt ep::disconnect).
///   All outstanding operations of the endpoint are flushed, and this operation resumes with its completion, when its
///   memory is free. It may still be a success. On an unconnected endpoint, a stop has no effect on a receive:
///   driver::close or driver::reset ends it.
/// - connect, accept: the driver ends the attempt (abrupt ep::disconnect), even if it has just succeeded. The coroutine
///   resumes with the end of the connection.
/// - disconnect: a graceful disconnect becomes abrupt.
///
/// If a stop was requested before the call, the driver posts and begins nothing, and co_await does not suspend. The
/// exception is disconnect: the driver still disconnects, abruptly.
///
/// Operations live in the frames of coroutines, so the driver allocates only to keep an event. A coroutine that is
/// destroyed while it waits no longer waits; the operations document what continues. Destroying the driver resumes no
/// coroutine.
///
/// Thread safety: the driver, its operations and the coroutines belong to one thread at a time; stop tokens to any
/// thread. Not movable. The consumer owns the evd and may close it first; then everything ends with `abort` at the next
/// call.
template <streams S>
class driver {
  template <class D>
  using result_of = std::conditional_t<detail::is_recv<D>, receive_result, transfer>;

public:
  static constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();

  /// The events that the driver keeps, unless its constructor gets another limit.
  static constexpr std::size_t default_keep = 256;

  /// A driver for the events of `events`, which keeps at most `keep` of them between two waits of a coroutine.
  explicit driver(const evd<S>& events, std::size_t keep = default_keep) noexcept
      : kept_(keep), core_(detail::core_access::of(events)) {}
  driver(const driver&) = delete;
  driver& operator=(const driver&) = delete;
  ~driver() = default;

  /// Posts one send, RDMA write or read, or receive (see ep::post), to be awaited now or later. The DTO is posted when
  /// the call returns. `.suppress_completion()` has no effect. If the post fails, the operation is done at once, and
  /// awaiting it returns the error. The endpoint's evd for such operations must be the evd of the driver.
  /// Allocates: never.
  /// Blocks: never.
  template <class D>
  requires(detail::is_recv<D> || detail::is_request<D>)
      [[gnu::always_inline]] auto post(ep_ref ep, const D& operation) noexcept {
    D own(operation); // outside the coroutine's frame, so that the compiler knows what it contains
    return posted<result_of<D>>(core_, ep, own);
  }
  /// Posts as the overload without a token; a request to stop has the effect that the class describes.
  /// Allocates: never.
  /// Blocks: never.
  template <class D>
  requires(detail::is_recv<D> || detail::is_request<D>) auto post(ep_ref ep, const D& operation,
                                                                  std::stop_token stop) noexcept {
    D own(operation);
    return posted<result_of<D>>(core_, ep, own, std::move(stop));
  }

  /// Posts with a `posted` that is done, or was never used: for receives that are posted ahead, in an array or one
  /// after the other. The error, if any, is also the result of awaiting.
  /// Errors: as ep::post; `invalid_state` while `with` is not done, or the coroutine that awaits it has not been
  /// resumed. This error leaves `with` unchanged.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: the thread of the driver.
  template <class Result, class D>
  expected<void> post(posted<Result>& with, ep_ref ep, D operation, std::stop_token stop = {}) noexcept {
    static_assert(std::is_same_v<Result, result_of<D>>,
                  "dat: post receives with a posted<receive_result>, and requests with a posted<transfer>");
    if (!with.idle())
      return error(return_type::invalid_state)
          .at("driver.post", object_kind::ep, ep.number())
          .hint("The operation is not complete. Await it, or use another one.");
    with.restart(core_, ep, operation, std::move(stop));
    if (with.failed()) return with.why();
    return success();
  }

  /// Begins to connect, as ep::connect, whose errors are the result of awaiting. The endpoint's connect evd must be the
  /// evd of the driver.
  /// Allocates: as ep::connect.
  template <class Service>
  [[nodiscard]] connecting<S> connect(ep<Service>& ep, const ia_address& remote, conn_qual qualifier, timeout limit,
                                      std::span<const std::byte> data = {}, std::stop_token stop = {}) noexcept {
    static_assert(connects,
                  "dat: connections need their stream in the driver's evd: create_evd<dat::stream::connection | ...>");
    return {core_, ep, "ep.connect", std::move(stop), [&] { return ep.connect(remote, qualifier, limit, data); }};
  }

  /// Accepts a request, as cr::accept, whose errors are the result of awaiting and leave the request open. Post
  /// receives before. The endpoint's connect evd must be the evd of the driver.
  /// Allocates: no.
  template <class Service>
  [[nodiscard]] connecting<S> accept(cr& request, ep<Service>& ep, std::span<const std::byte> data = {},
                                     std::stop_token stop = {}) noexcept {
    static_assert(connects,
                  "dat: connections need their stream in the driver's evd: create_evd<dat::stream::connection | ...>");
    return {core_, ep, "cr.accept", std::move(stop), [&] { return request.accept(ep, data); }};
  }

  /// Ends a connection or an attempt at one, as ep::disconnect. The operation is done when the event of the end has
  /// arrived; on a disconnected endpoint at once.
  template <class Service>
  [[nodiscard]] disconnecting<S> disconnect(ep<Service>& ep, close_mode how = close_mode::abrupt,
                                            std::stop_token stop = {}) noexcept {
    static_assert(connects,
                  "dat: connections need their stream in the driver's evd: create_evd<dat::stream::connection | ...>");
    return {core_, ep, how, std::move(stop)};
  }

  /// Awaits the next event that belongs to no operation; with `of`, of one endpoint.
  [[nodiscard]] next_event<S> next(std::stop_token stop = {}) noexcept {
    return {core_, kept_, ep_ref(), std::move(stop)};
  }
  [[nodiscard]] next_event<S> next(ep_ref of, std::stop_token stop = {}) noexcept {
    return {core_, kept_, of, std::move(stop)};
  }

  /// The number of events that were kept and not taken.
  [[nodiscard]] std::size_t kept() const noexcept { return kept_.size(); }

  /// Awaits the next event of type `E` that belongs to no operation. With `of`, only events of that endpoint count, and
  /// the end of its connection ends the wait with an error, unless `E` is the type of that event. Without `of`, only
  /// the event ends the wait: for a server, `co_await driver.next<dat::connection_request>()`.
  template <class E>
  [[nodiscard]] next_of<S, E> next(std::stop_token stop = {}) noexcept {
    return next<E>(ep_ref(), std::move(stop));
  }
  template <class E>
  [[nodiscard]] next_of<S, E> next(ep_ref of, std::stop_token stop = {}) noexcept {
    static_assert(detail::contains<E, detail::event_list<S>>, "dat: this evd never delivers that event: its streams do "
                                                              "not include the event's");
    return {core_, kept_, of, std::move(stop)};
  }

  /// Suspends the coroutine for at least `limit`; with zero, it does not suspend. The time passes only inside poll,
  /// run_once and run_until.
  [[nodiscard]] sleeping sleep_for(timeout limit, std::stop_token stop = {}) noexcept {
    return {core_, limit, std::move(stop)};
  }

  /// Awaits an operation of this driver or a dat::task, for at most `limit`; await the result at once:
  ///
  ///     const auto got = co_await driver.within(100ms, reply);              // `reply` can be awaited again
  ///     const auto answer = co_await driver.within(100ms, call(...), stop); // the task ends with the statement
  ///
  /// The end of the limit, or a stop, ends only the wait: a posted DTO stays posted, and its connection does not
  /// change. A temporary operation or task is destroyed by the statement as usual. So this abandons a call, and the
  /// driver drops late completions of its DTOs. Keep memory that is posted outside of the task.
  template <class A>
  auto within(timeout limit, A&& what, std::stop_token stop = {}) noexcept {
    return timed<decltype(detail::awaiter_of(what))>(core_, limit, what, std::move(stop));
  }

  /// A place for a value that a coroutine awaits and another one sets.
  template <class T>
  [[nodiscard]] slot<T> make_slot() noexcept {
    return slot<T>(core_);
  }

  /// Ends every present and later `next` and `sleep_for` with `interrupted_call`, so that coroutines can finish. The
  /// driver drops its kept events, which refuses the requests among them. Operations that were posted or begun continue
  /// until they are done. To stop gracefully, call this from any thread, and run the driver until its coroutines have
  /// ended.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe, until the driver is destroyed.
  void stop() noexcept { core_.stop_waits(); }
  /// True when `stop` was called.
  [[nodiscard]] bool stopping() const noexcept { return core_.stopping(); }
  /// The time until a `sleep_for` or `within` expires; `infinite` when there is none. Another event loop calls poll at
  /// that time.
  [[nodiscard]] timeout until_timer() noexcept {
    const detail::deadline first = core_.timers().first();
    if (first.never()) return infinite;
    const auto left = std::chrono::ceil<timeout>(first.at - detail::clock::now());
    return left < timeout::zero() ? timeout::zero() : left;
  }

  /// Closes an endpoint for which coroutines wait, as ep::close. Its outstanding operations never complete, so they end
  /// with `abort` at the next poll or run. Their memory is free when the call returns.
  /// Errors, Allocates, Blocks and Thread safety: as ep::close.
  template <class Service>
  expected<void> close(ep<Service>& ep) noexcept {
    const detail::ep_core* const whose = detail::core_access::of(ep_ref(ep));
    auto closed = ep.close();
    if (whose) forget(whose, "The endpoint was closed.");
    return closed;
  }
  /// Resets an endpoint, as ep::reset. Its completions may be lost, so its operations end with `abort`, as with close.
  /// An error changes nothing.
  /// Errors, Allocates, Blocks and Thread safety: as ep::reset.
  template <class Service>
  expected<void> reset(ep<Service>& ep) noexcept {
    auto done = ep.reset();
    if (done) forget(detail::core_access::of(ep_ref(ep)), "The endpoint was reset.");
    return done;
  }

  /// Makes the events of the driver and requests to stop trigger `notified`, as evd::modify_cno does for an evd.
  /// Errors, Allocates, Blocks and Thread safety: as evd::modify_cno.
  expected<void> modify_cno(const cno& notified) noexcept {
    if (!core_.evd()) return detail::empty_handle("driver.modify_cno", return_subtype::handle_evd_recv);
    return core_.evd()->set_cno(detail::core_access::of(notified));
  }

  /// Takes up to `max` queued events, resumes coroutines and calls `visit` with the other events, as evd::drain.
  /// Returns the number of events, requests to stop, and timers. Never sleeps. Without `max`, the cno triggers again
  /// for every event that the call leaves.
  template <class Visitor>
  std::size_t poll(Visitor&& visit, std::size_t max = no_limit) {
    check<Visitor>();
    rest left(core_);
    std::size_t n = begin();
    if (!core_.evd()) return n + end_all();
    while (n < max) {
      const std::size_t taken = take(visit);
      core_.resume_ready();
      const std::size_t due = serve();
      n += taken + due;
      if (taken + due == 0) {
        left.none = true;
        return core_.evd()->dead() ? n + end_all() : n;
      }
    }
    return n;
  }

  /// Takes events as poll, and waits up to `limit` for the first if none is queued.
  /// Errors: as evd::wait; `interrupted_call` also for evd::wake. Before `abort` and `invalid_handle` (the ia or the
  /// evd was closed) all operations end with `abort`, and their coroutines are resumed.
  /// Allocates: never.
  /// Blocks: up to `limit`.
  /// Thread safety: one thread at a time.
  template <class Visitor>
  [[nodiscard]] expected<std::size_t> run_once(Visitor&& visit, timeout limit = infinite) {
    return run(visit, detail::deadline::in(limit));
  }

  /// Takes events until `condition()` is true. It calls `condition` first, then after every event, and after a signal
  /// or evd::wake.
  /// Errors: `timeout_expired` when the condition was not true within `limit`; otherwise as run_once.
  /// Allocates: never.
  /// Blocks: up to `limit`.
  /// Thread safety: one thread at a time.
  template <class Condition, class Visitor>
  requires std::is_invocable_r_v<bool, Condition&>
  [[nodiscard]] expected<void> run_until(Condition condition, Visitor&& visit, timeout limit = infinite) {
    const auto until = detail::deadline::in(limit);
    while (!condition())
      if (auto ran = run(visit, until); !ran && ran.assume_error().type() != return_type::interrupted_call)
        return ran.assume_error();
    return success();
  }
  /// Takes events until a stop is requested, by any thread: for a driver with its own thread. Operations continue; to
  /// end them, pass them the same token, and run until they have ended.
  /// Errors: as run_once.
  /// Allocates: never.
  /// Blocks: until the stop.
  /// Thread safety: one thread at a time.
  template <class Visitor>
  [[nodiscard]] expected<void> run_until(std::stop_token stop, Visitor&& visit) {
    const std::stop_callback wake(stop, [this]() noexcept {
      if (core_.evd()) core_.evd()->interrupt();
    });
    return run_until([&] { return stop.stop_requested(); }, visit);
  }

private:
  static constexpr bool connects = includes(S, streams::connection);
  static_assert(S != streams{});

  template <class Visitor>
  static constexpr void check() noexcept {
    if constexpr (!detail::visits_all<Visitor, detail::event_list<S>>)
      detail::refuse_visitor<Visitor, detail::event_list<S>>();
  }
  [[nodiscard]] static error gone(const char* hint) noexcept {
    return error(return_type::abort, return_subtype::interrupted).hint(hint);
  }

  /// Resumes the coroutines that became ready since the last call, and serves requests to stop and timers.
  std::size_t begin() {
    core_.resume_ready();
    return serve();
  }
  std::size_t serve() { return core_.has_due() ? serve_due() : 0; }
  [[gnu::noinline]] std::size_t serve_due() {
    const std::size_t n = core_.take_due();
    if (n != 0) core_.resume_ready();
    if (core_.stopping()) kept_.clear();
    return n;
  }
  /// When a poll ends before the evd is empty, by its `max` or by an exception, triggers the cno again.
  struct rest {
    explicit rest(detail::coro_driver& d) noexcept : core(d) {}
    rest(const rest&) = delete;
    rest& operator=(const rest&) = delete;
    ~rest() {
      if (!none && core.evd() && core.evd()->notifies_cno()) detail::notify_of_rest(*core.evd());
    }
    detail::coro_driver& core;
    bool none = false;
  };

  void forget(const detail::ep_core* whose, const char* hint) noexcept {
    kept_.drop(whose);
    core_.abandon(whose, gone(hint));
  }
  std::size_t end_all() {
    kept_.clear();
    core_.abandon(nullptr, gone("The evd or its ia was closed."));
    core_.resume_ready();
    return 0;
  }
  template <class Visitor>
  [[gnu::always_inline]] std::size_t take(Visitor& visit) {
    // A common completion of a DTO of the driver needs no event.
    const auto copy = [this](dto_operation, cookie posted, std::uint32_t bytes, const detail::ep_core& ep) noexcept {
      detail::coro_dto* const mine = core_.find(posted, &ep);
      if (!mine) return false;
      mine->set_bytes(bytes);
      core_.complete(*mine);
      return true;
    };
    const auto sort = [&]<class E>(E& e) {
      if constexpr (std::is_base_of_v<completion, E>) {
        if (detail::coro_dto* mine = core_.find(e.cookie(), detail::event_access::endpoint_of(e))) {
          mine->set_result(e);
          return core_.complete(*mine);
        }
        if (core_.issued(e.cookie())) return; // its coroutine no longer waits
      }
      for (const auto rank : {detail::coro_driver::outcome, detail::coro_driver::some, detail::coro_driver::any}) {
        auto& list = core_.listeners(rank);
        for (detail::coro_operation* o = list.front(); o; o = list.after(*o))
          if (static_cast<detail::coro_listener<S>*>(o)->offer(e)) return;
      }
      if (kept_.keep(e)) return;
      if constexpr (std::is_invocable_v<Visitor&, E&>) visit(e); // otherwise `check` has refused the visitor
    };
    // One at a time: the coroutine that this event resumes may wait for the next one.
    return detail::take_one<S>(*core_.evd(), sort, copy);
  }
  template <class Visitor>
  expected<std::size_t> run(Visitor& visit, const detail::deadline& until) {
    for (;;) {
      if (const std::size_t n = poll(visit); n != 0) return n;
      if (!core_.evd()) return detail::empty_handle("driver.run", return_subtype::handle_evd_recv);
      const detail::deadline timer = core_.timers().first();
      const bool timer_first = timer.at < until.at;
      auto waited = detail::wait_until(*core_.evd(), timer_first ? timer : until, [&] { return take(visit) != 0; });
      if (waited) {
        core_.resume_ready();
        return 1 + poll(visit);
      }
      const error& why = waited.assume_error();
      if (why.type() == return_type::abort || why.type() == return_type::invalid_handle) end_all();
      if (const std::size_t n = serve(); n != 0) return n;
      if (why.type() != return_type::timeout_expired || !timer_first) return why;
    }
  }

  detail::kept_events<S> kept_;
  detail::coro_driver core_;
};

template <streams S>
driver(const evd<S>&) -> driver<S>;

}}} // namespace dat::v0::coro
