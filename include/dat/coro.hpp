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
// dat brings awaitables and what resumes them, but no coroutine type: they work in every one. Tested with g++ 12, and
// with clang 14 on the standard library of g++ 12.
//
// g++ 12 has a fault: a coroutine without any variable of its own that awaits a temporary in the condition of a loop,
// or of an `if` in a loop, runs into undefined behaviour, whatever it awaits. Name the result: `if (const auto got =
// co_await driver.post(...); !got)`.
#pragma once

#include <dat/cr.hpp>
#include <dat/ep.hpp>
#include <dat/evd.hpp>
#include <dat/expected.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/coro_core.hpp>
#include <dat/detail/deadline.hpp>
#include <dat/detail/taking.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <variant>

namespace dat::inline v0::coro {

template <streams S>
class driver;

/// What arrived in a receive.
class arrival : public transfer {
public:
  /// The 32 bits that came along, if the peer gave any (IB extensions §2).
  [[nodiscard]] std::optional<std::uint32_t> immediate() const noexcept { return immediate_; }
  /// True when the peer wrote the data elsewhere by RDMA, and this receive, whose buffer is untouched, says so.
  [[nodiscard]] bool written() const noexcept { return written_; }

private:
  friend struct detail::event_access;
  arrival(detail::ep_core* ep, dat::cookie c, std::uint32_t bytes, std::optional<std::uint32_t> immediate,
          bool written) noexcept
      : transfer(ep, c, bytes), immediate_(immediate), written_(written) {}
  std::optional<std::uint32_t> immediate_;
  bool written_;
};

/// A DTO that has been posted: what driver::post gives. `co_await` gives an expected<transfer> for requests and an
/// expected<arrival> for receives, with the cookie that the DTO was given. It may be awaited later than it was posted,
/// or never; several may be on their way at once.
///
/// Not movable: its place is the coroutine's frame. One that is done can be used again, by `driver.post(it, ...)`: for
/// receives that are posted ahead, in an array. (g++ 12 awaits elements of an array by a name: `auto& it = all[i];
/// co_await it;`.) When it goes before it is done, the DTO stays posted, its memory must stay until it completes, and
/// its completion goes to the visitor (with a cookie that means nothing): an adapter takes no DTO back.
template <class Result>
class [[nodiscard]] posted : public detail::coro_dto {
public:
  posted() noexcept = default; ///< nothing was posted yet; awaiting gives `invalid_handle` at once

  /// The result, when the operation is done.
  /// Errors: as ep::post, when it was not posted; `invalid_state` (ep_disconnected) when it failed: failure() says how,
  /// the error's hint what usually causes it; `interrupted_call` when it was flushed because a stop was requested;
  /// `abort` when the endpoint was closed or reset by the driver, or the ia was closed.
  [[nodiscard]] expected<Result> await_resume() const noexcept {
    using access = detail::event_access;
    if (failed()) return why();
    if (broken_) return failure_error();
    if constexpr (std::is_same_v<Result, arrival>)
      return access::make<arrival>(whose(), cookie_, bytes_, has_immediate_ ? std::optional(immediate_) : std::nullopt,
                                   written_);
    else
      return access::make<transfer>(whose(), cookie_, bytes_);
  }
  /// The failed completion, if that is how it ended.
  [[nodiscard]] std::optional<dto_failure> failure() const noexcept {
    if (!broken_) return std::nullopt;
    return detail::event_access::make<dto_failure>(whose(), cookie_, operation_, status_, bytes_,
                                                   static_cast<std::uint8_t>(immediate_));
  }

private:
  template <streams>
  friend class driver;
  static constexpr const char* call = "ep.post";

  template <class D>
  posted(detail::coro_driver& d, ep_ref ep, const D& operation, std::stop_token&& stop) noexcept {
    start(d, ep, operation, std::move(stop));
  }
  template <class D>
  void start(detail::coro_driver& d, ep_ref ep, const D& operation, std::stop_token&& stop) noexcept {
    using access = detail::request_access;
    begin(d, detail::core_access::of(ep), &posted::end_by_hanging_up);
    forget_result();
    number_ = ep.number();
    cookie_ = access::of(operation).cookie;
    if (stop.stop_requested()) return fail(stopped(call, "a stop was requested before: nothing was posted"));
    if (const detail::ep_core* e = whose(); e && !e->dead()) {
      const auto& feeds = detail::is_recv<D> ? e->evds().recv : e->evds().request;
      if (feeds.get() != driver().evd())
        return fail(e->at({return_type::invalid_handle,
                           detail::is_recv<D> ? return_subtype::handle_evd_recv : return_subtype::handle_evd_request},
                          call)
                        .hint("the endpoint's completions of this kind go to another evd than the driver's"));
    }
    D mine = operation;
    mine.cookie(key_ = driver().next_key());
    if constexpr (!detail::is_recv<D>) access::change(mine).set(detail::send_flag::signaled);
    if (auto ok = ep.post(mine); !ok) return fail(ok.assume_error());
    driver().expect(*this);
    watch(std::move(stop));
  }
  [[nodiscard]] error failure_error() const noexcept {
    const error e = stopping() ? error(return_type::interrupted_call)
                               : error(return_type::invalid_state, return_subtype::ep_disconnected);
    return e.at(call, object_kind::ep, number_)
        .hint(stopping() ? "a stop was requested, and only the end of the connection ends a DTO"
                         : usual_cause(status_).data()); // a literal
  }
  std::uint32_t number_ = 0; // of the endpoint, which may be gone when the result is asked for
};

/// The next event of an evd that no awaited operation owns: what driver::next() gives. `co_await` gives an
/// expected<event<S>>.
template <streams S>
class [[nodiscard]] next_event : public detail::coro_listener<S> {
public:
  /// Errors: `interrupted_call` when a stop was requested; `abort` when the ia was closed or the driver ended it.
  [[nodiscard]] expected<event<S>> await_resume() noexcept {
    if (this->failed()) return this->why();
    return std::move(*this->event_);
  }

private:
  friend class driver<S>;
  next_event(detail::coro_driver& d, ep_ref of, std::stop_token&& stop) noexcept
      : detail::coro_listener<S>(d, detail::core_access::of(of), &next_event::give_up, detail::every_event) {
    if (stop.stop_requested())
      give_up(*this);
    else
      this->listen(of ? detail::coro_driver::some : detail::coro_driver::any, std::move(stop));
  }
  static void give_up(detail::coro_operation& o) noexcept {
    auto& self = static_cast<next_event&>(o);
    self.fail(self.stopped("driver.next", "a stop was requested"));
  }
};

/// The next event of one type: what driver::next<E>() gives. `co_await` gives an expected<E>.
template <streams S, class E>
class [[nodiscard]] next_of : public detail::coro_listener<S> {
public:
  /// Errors: as next_event; and `invalid_state` (ep_disconnected), whose hint says what came instead, when an endpoint
  /// was named and cannot give such an event any more. That event is taken.
  [[nodiscard]] expected<E> await_resume() noexcept {
    if (this->failed()) return this->why();
    if (E* wanted = std::get_if<E>(&*this->event_)) return std::move(*wanted);
    return std::visit(
        []<class Other>(const Other& other) -> error {
          if constexpr (detail::ends_hope<Other>)
            return detail::instead(other);
          else
            return error(return_type::internal_error); // offer() takes no others
        },
        *this->event_);
  }

private:
  friend class driver<S>;
  using events = detail::event_list<S>;
  // An endpoint's failed completion ends the hope for its other completions; its connection's end, that for all.
  static constexpr detail::event_set endings =
      detail::event_ends<events> |
      (std::is_base_of_v<completion, E> ? detail::event_bit<dto_failure, events> : detail::event_set{0});

  next_of(detail::coro_driver& d, ep_ref of, std::stop_token&& stop) noexcept
      : detail::coro_listener<S>(d, detail::core_access::of(of), &next_of::give_up,
                                 detail::event_bit<E, events> | (of ? endings : detail::event_set{0})) {
    if (stop.stop_requested())
      give_up(*this);
    else
      this->listen(detail::coro_driver::some, std::move(stop));
  }
  static void give_up(detail::coro_operation& o) noexcept {
    auto& self = static_cast<next_of&>(o);
    self.fail(self.stopped("driver.next", "a stop was requested"));
  }
};

/// A connection that is coming up: what driver::connect and driver::accept give. `co_await` gives an
/// expected<established>. When it goes before it is done, the attempt goes on and its outcome goes to the visitor.
template <streams S>
class [[nodiscard]] connecting : public detail::coro_listener<S> {
public:
  /// Errors: as ep::connect or cr::accept, when it did not begin; `invalid_state` (ep_disconnected) when there is no
  /// connection: its hint says why, outcome() is the event; `interrupted_call` when a stop was requested; `abort` when
  /// the endpoint was closed by the driver, or the ia was closed.
  [[nodiscard]] expected<established> await_resume() const noexcept {
    if (this->failed()) return this->why();
    if (const established* up = std::get_if<established>(&*this->event_)) return *up;
    if (this->stopping()) return this->stopped(call_, "a stop was requested");
    return std::visit(
        [this]<class Other>(const Other& other) -> error {
          if constexpr (detail::ends_hope<Other>)
            return detail::instead(other).at(call_, object_kind::ep, other.ep().number());
          else
            return error(return_type::internal_error); // offer() takes no others
        },
        *this->event_);
  }
  /// The event that decided it, null when there is none: a `peer_rejected` has the peer's private data. As long as
  /// this.
  [[nodiscard]] const event<S>* outcome() const noexcept { return this->event_ ? &*this->event_ : nullptr; }

private:
  friend class driver<S>;
  using events = detail::event_list<S>;
  template <class Begin>
  connecting(detail::coro_driver& d, ep_ref ep, const char* call, std::stop_token&& stop, Begin begin) noexcept
      : detail::coro_listener<S>(d, detail::core_access::of(ep), &connecting::call_off,
                                 detail::event_bit<established, events> | detail::event_ends<events>),
        call_(call) {
    start(std::move(stop), begin);
  }
  template <class Begin>
  void start(std::stop_token&& stop, Begin begin) noexcept {
    if (stop.stop_requested()) return this->fail(this->stopped(call_, "a stop was requested before: nothing was done"));
    if (auto ok = this->check_connect_evd(call_); !ok) return this->fail(ok.assume_error());
    if (auto ok = begin(); !ok) return this->fail(ok.assume_error());
    this->listen(detail::coro_driver::outcome, std::move(stop));
  }
  static void call_off(detail::coro_operation& o) noexcept {
    auto& self = static_cast<connecting&>(o);
    if (!self.hang_up()) self.fail(self.stopped(self.call_, "a stop was requested"));
  }
  const char* call_;
};

/// A connection that is being ended: what driver::disconnect gives. `co_await` gives an expected<void>.
template <streams S>
class [[nodiscard]] disconnecting : public detail::coro_listener<S> {
public:
  /// Success when the connection has ended as it should.
  /// Errors: as ep::disconnect; `invalid_state` (ep_disconnected) when it broke before all that was posted was done;
  /// `interrupted_call` when a stop was requested, which made it abrupt; `abort` as for connecting.
  [[nodiscard]] expected<void> await_resume() const noexcept {
    if (this->failed()) return this->why();
    if (this->stopping()) return this->stopped(call, "a stop was requested: the connection was ended abruptly");
    if (how_ == close_flags::graceful && this->event_)
      if (const broken* b = std::get_if<broken>(&*this->event_))
        return detail::instead(*b).at(call, object_kind::ep, b->ep().number());
    return success();
  }

private:
  friend class driver<S>;
  static constexpr const char* call = "ep.disconnect";
  template <class Service>
  disconnecting(detail::coro_driver& d, ep<Service>& which, close_flags how, std::stop_token&& stop) noexcept
      : detail::coro_listener<S>(d, detail::core_access::of(ep_ref(which)), &disconnecting::end_by_hanging_up,
                                 detail::event_ends<detail::event_list<S>>),
        how_(how) {
    start(which, std::move(stop));
  }
  template <class Service>
  void start(ep<Service>& which, std::stop_token&& stop) noexcept {
    if (auto ok = this->check_connect_evd(call); !ok) return this->fail(ok.assume_error());
    const bool over = which && which.state() == ep_state::disconnected; // its event may have been taken
    if (auto ok = which.disconnect(stop.stop_requested() ? close_flags::abrupt : how_); !ok)
      return this->fail(ok.assume_error());
    if (over) return this->finish();
    this->listen(detail::coro_driver::outcome, std::move(stop));
  }
  close_flags how_;
};

/// Takes the events of an evd and resumes the coroutines that wait for them.
///
/// Who gets an event: a completion, the `posted` that it belongs to; a connection event, the `connecting` or
/// `disconnecting` of its endpoint; else the longest waiting `next` that asked for something like it; else the longest
/// waiting `next` that takes anything; and if none of these, the visitor that was given to the call. So no event is
/// ever lost, and DTOs that were posted past the driver, with any cookies, are the visitor's.
///
/// Coroutines resume in the order of the events, each before the next event is taken: a loop over `next` misses
/// nothing. They resume inside poll, run_once and run_until only, and may do there whatever a consumer may, also end
/// other coroutines, or call these functions again, but not destroy the driver. What a coroutine or the visitor throws
/// leaves through the call; all else is as it was.
///
/// Works with evds of every kind, with automatic and manual progress. As a part of another event loop: attach a cno to
/// the evd, and call poll when cno::fd is readable and the trigger has been taken (see also <dat/asio.hpp>). For
/// several evds: one driver for each, one cno for all.
///
/// **Cancellation.** Whatever can be awaited takes a std::stop_token; std::stop_source::request_stop may be called from
/// any thread, and also wakes the driver. What it does happens in the driver's thread, the next time that poll or run
/// comes round, and the coroutine resumes when there is nothing left to wait for:
/// - next: it waits no longer. No event is lost.
/// - post: nothing but the end of its connection ends a posted DTO. So the connection is ended (ep::disconnect,
/// abrupt),
///   everything outstanding on the endpoint is flushed, and this operation resumes with its completion, when its memory
///   is free; it may still be a success. On an unconnected endpoint, where receives can be posted but nothing can be
///   disconnected, a stop has no effect: driver::close or driver::reset ends such a receive.
/// - connect, accept: the attempt is called off (ep::disconnect, abrupt), also one that has just succeeded; resumes
/// with
///   the end of the connection.
/// - disconnect: what is left of a graceful disconnect becomes abrupt.
/// When a stop was requested before: nothing is posted or begun, and co_await does not suspend; only a disconnect is
/// made all the same, abruptly.
///
/// Nothing here allocates: operations live in the coroutines' frames. A coroutine that is destroyed while it waits
/// waits no longer, see the operations for what goes on. Destroying the driver resumes nobody.
///
/// Thread safety: driver, its operations and the coroutines belong to one thread at a time; stop tokens to any. Not
/// movable. The evd stays the consumer's: it may be closed first, everything then ends with `abort` at the next call.
template <streams S>
class driver {
public:
  static constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();

  explicit driver(const evd<S>& events) noexcept : core_(detail::core_access::of(events)) {}
  driver(const driver&) = delete;
  driver& operator=(const driver&) = delete;
  ~driver() = default;

  /// Posts one send, RDMA write or read, or receive (see ep::post), to be awaited now or later. The DTO is posted when
  /// this returns. `.suppress()` has no effect. An error is the result of awaiting: the operation is done at once then.
  /// The endpoint's evd for such operations must be the driver's. Allocates: never. Blocks: never.
  template <class D>
  requires(detail::is_recv<D> || detail::is_request<D>) auto post(ep_ref ep, const D& operation,
                                                                  std::stop_token stop = {}) noexcept {
    using result = std::conditional_t<detail::is_recv<D>, arrival, transfer>;
    return posted<result>(core_, ep, operation, std::move(stop));
  }

  /// The same with an operation that is done, or was not used yet: for receives that are posted ahead, in an array or
  /// one after the other. Returns the error, if there is one, that awaiting gives, too.
  /// Errors: as ep::post; and `invalid_state`, with nothing changed, while `with` is not done, or whoever waits for it
  /// has not been resumed.
  template <class Result, class D>
  requires(std::is_same_v<Result, std::conditional_t<detail::is_recv<D>, arrival, transfer>>) //
      expected<void> post(posted<Result>& with, ep_ref ep, const D& operation, std::stop_token stop = {})
  noexcept {
    if (!with.idle())
      return error(return_type::invalid_state)
          .at("driver.post", object_kind::ep, ep.number())
          .hint("the operation is not done yet: await it, or use another one");
    with.start(core_, ep, operation, std::move(stop));
    if (with.failed()) return with.why();
    return success();
  }

  /// Begins to connect, as ep::connect, whose errors are the result of awaiting. The endpoint's connect evd must be the
  /// driver's. Allocates: as ep::connect.
  template <class Service>
  [[nodiscard]] connecting<S> connect(ep<Service>& ep, const ia_address& remote, conn_qual qualifier, timeout limit,
                                      std::span<const std::byte> data = {}, std::stop_token stop = {}) noexcept {
    static_assert(connects,
                  "dat: connections need their stream in the driver's evd: create_evd<dat::connection | ...>");
    return {core_, ep, "ep.connect", std::move(stop), [&] { return ep.connect(remote, qualifier, limit, data); }};
  }

  /// Accepts a request, as cr::accept, whose errors are the result of awaiting; the request is open after them. Post
  /// receives before. The endpoint's connect evd must be the driver's. Allocates: no.
  template <class Service>
  [[nodiscard]] connecting<S> accept(cr& request, ep<Service>& ep, std::span<const std::byte> data = {},
                                     std::stop_token stop = {}) noexcept {
    static_assert(connects,
                  "dat: connections need their stream in the driver's evd: create_evd<dat::connection | ...>");
    return {core_, ep, "cr.accept", std::move(stop), [&] { return request.accept(ep, data); }};
  }

  /// Ends a connection or an attempt at one, as ep::disconnect; done when the event has come that says so. On an
  /// endpoint that is disconnected already: done at once.
  template <class Service>
  [[nodiscard]] disconnecting<S> disconnect(ep<Service>& ep, close_flags how = close_flags::abrupt,
                                            std::stop_token stop = {}) noexcept {
    static_assert(connects,
                  "dat: connections need their stream in the driver's evd: create_evd<dat::connection | ...>");
    return {core_, ep, how, std::move(stop)};
  }

  /// Awaits the next event that belongs to no operation: any, or any of one endpoint.
  [[nodiscard]] next_event<S> next(std::stop_token stop = {}) noexcept { return {core_, ep_ref(), std::move(stop)}; }
  [[nodiscard]] next_event<S> next(ep_ref of, std::stop_token stop = {}) noexcept {
    return {core_, of, std::move(stop)};
  }

  /// Awaits the next event of type `E` that belongs to no operation. With `of`, only events of that endpoint count, and
  /// the end of its connection ends the wait with an error, unless it is what is waited for. Without, nothing but the
  /// event does: for a server, `co_await driver.next<dat::connection_request>()`.
  template <class E>
  [[nodiscard]] next_of<S, E> next(std::stop_token stop = {}) noexcept {
    return next<E>(ep_ref(), std::move(stop));
  }
  template <class E>
  [[nodiscard]] next_of<S, E> next(ep_ref of, std::stop_token stop = {}) noexcept {
    static_assert(detail::contains<E, detail::event_list<S>>, "dat: this evd never delivers that event: its streams do "
                                                              "not include the event's");
    return {core_, of, std::move(stop)};
  }

  /// Closes an endpoint, as ep::close: what is outstanding on it never completes. So its operations end with `abort`,
  /// at the next poll or run; their memory is free already. The one way to close an endpoint that coroutines wait for.
  template <class Service>
  expected<void> close(ep<Service>& ep) noexcept {
    const detail::ep_core* const whose = detail::core_access::of(ep_ref(ep));
    auto closed = ep.close();
    if (whose) core_.abandon(whose, gone("the endpoint was closed"));
    return closed;
  }
  /// Resets an endpoint, as ep::reset, whose completions may get lost: its operations end with `abort`, as with close.
  /// With an error nothing changes.
  template <class Service>
  expected<void> reset(ep<Service>& ep) noexcept {
    auto done = ep.reset();
    if (done) core_.abandon(detail::core_access::of(ep_ref(ep)), gone("the endpoint was reset"));
    return done;
  }

  /// Takes up to `max` events that are there, resumes coroutines and gives the other events to `visit`, which is as for
  /// evd::drain. Returns how many events and requests to stop there were. Never sleeps. With a cno, and no `max`,
  /// nothing is left behind that the cno would not trigger for again.
  template <class Visitor>
  std::size_t poll(Visitor&& visit, std::size_t max = no_limit) {
    check<Visitor>();
    std::size_t n = begin();
    while (n < max) {
      if (!core_.evd() || core_.evd()->dead()) return n + end_all();
      const std::size_t taken = take(visit);
      core_.resume_ready();
      const std::size_t stops = stop();
      if (taken + stops == 0) break;
      n += taken + stops;
    }
    return n;
  }

  /// The same, but when nothing is there it waits up to `limit` for the first.
  /// Errors: as evd::wait; `interrupted_call` also for evd::wake. Before `abort` and `invalid_handle` (the ia or the
  /// evd was closed) all operations end with `abort`, and their coroutines are resumed.
  template <class Visitor>
  [[nodiscard]] expected<std::size_t> run_once(Visitor&& visit, timeout limit = infinite) {
    return run(visit, detail::deadline::in(limit));
  }

  /// Runs until `condition()` is true: it is asked first, and whenever something has happened. A signal or evd::wake
  /// makes it look again.
  /// Errors: `timeout_expired` when it was not true within `limit`; otherwise as run_once.
  template <class Condition, class Visitor>
  requires std::is_invocable_r_v<bool, Condition&>
  [[nodiscard]] expected<void> run_until(Condition condition, Visitor&& visit, timeout limit = infinite) {
    const auto until = detail::deadline::in(limit);
    while (!condition())
      if (auto ran = run(visit, until); !ran && ran.assume_error().type() != return_type::interrupted_call)
        return ran.assume_error();
    return success();
  }
  /// Runs until a stop is requested, by any thread: for a driver that has a thread of its own. Operations go on; give
  /// them the same token to end them, and run until they have ended.
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
    static_assert(detail::visits_all<Visitor, detail::event_list<S>>,
                  "dat: the visitor must be callable with every event that this evd can deliver; "
                  "add a generic lambda [](const auto&) {} for those that do not matter");
  }
  [[nodiscard]] static error gone(const char* hint) noexcept { return error(return_type::abort).hint(hint); }

  /// Coroutines that became ready since the last call, and requests to stop.
  std::size_t begin() {
    core_.resume_ready();
    return stop();
  }
  std::size_t stop() {
    const std::size_t n = core_.take_stops();
    if (n != 0) core_.resume_ready();
    return n;
  }
  std::size_t end_all() {
    core_.abandon(nullptr, gone("the evd or its ia was closed"));
    core_.resume_ready();
    return 0;
  }
  template <class Visitor>
  std::size_t take(Visitor& visit) {
    const auto sort = [&]<class E>(E& e) {
      if constexpr (std::is_base_of_v<completion, E>) {
        if (detail::coro_dto* mine = core_.find(e.cookie(), detail::core_access::of(e.ep()))) return mine->complete(e);
      }
      for (const auto rank : {detail::coro_driver::outcome, detail::coro_driver::some, detail::coro_driver::any}) {
        auto& list = core_.listeners(rank);
        for (detail::coro_operation* o = list.front(); o; o = list.after(*o))
          if (static_cast<detail::coro_listener<S>*>(o)->offer(e)) return;
      }
      visit(e);
    };
    // One at a time: whom this event resumes may be waiting for the next one.
    return detail::drain<S>(*core_.evd(), sort, 1);
  }
  template <class Visitor>
  expected<std::size_t> run(Visitor& visit, const detail::deadline& until) {
    if (const std::size_t n = poll(visit); n != 0) return n;
    if (!core_.evd()) return detail::empty_handle("driver.run", return_subtype::handle_evd_recv);
    auto waited = detail::wait_until(*core_.evd(), until, [&] { return take(visit) != 0; });
    if (waited) {
      core_.resume_ready();
      return 1 + poll(visit);
    }
    const error& why = waited.assume_error();
    if (why.type() == return_type::abort || why.type() == return_type::invalid_handle) end_all();
    if (const std::size_t n = stop(); n != 0) return n;
    return why;
  }

  detail::coro_driver core_;
};

template <streams S>
driver(const evd<S>&) -> driver<S>;

} // namespace dat::inline v0::coro
