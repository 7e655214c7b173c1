// Coroutines: events and connections that a coroutine awaits. Part of coro.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ep.hpp>
#include <dat/event.hpp>
#include <dat/expected.hpp>

#include <dat/detail/delivery/coro_core.hpp>
#include <dat/detail/delivery/dequeue.hpp>
#include <dat/detail/delivery/wait_for.hpp>
#include <dat/detail/handle/core_access.hpp>

#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <variant>

namespace dat { inline namespace v0 { namespace coro {

template <streams S>
class driver;

/// The next event of an evd that belongs to no awaited operation: the result of driver::next. `co_await` returns an
/// expected<event<S>>.
template <streams S>
class [[nodiscard]] next_event : public detail::coro_listener<S> {
public:
  /// The event.
  /// Errors: `interrupted_call` when a stop was requested; `abort` when the ia was closed or the driver ended the wait.
  /// Allocates: never.
  /// Blocks: no; `co_await` suspends the coroutine.
  /// Thread safety: the thread of the driver.
  [[nodiscard]] expected<event<S>> await_resume() noexcept {
    if (this->failed()) return this->why();
    return std::move(*this->event_);
  }

private:
  friend class driver<S>;
  next_event(detail::coro_driver& d, detail::kept_events<S>& kept, ep_ref of, std::stop_token&& stop) noexcept
      : detail::coro_listener<S>(d, detail::core_access::of(of), &next_event::give_up, detail::every_event) {
    if (stop.stop_requested() || d.stopping())
      give_up(*this);
    else
      this->take_or_listen(d, kept, of ? detail::coro_driver::some : detail::coro_driver::any, std::move(stop));
  }
  static void give_up(detail::coro_entry& o) noexcept {
    auto& self = static_cast<next_event&>(o);
    self.expect_no_wait();
    self.fail(self.stopped("driver.next", "A stop was requested."));
  }
};

/// The next event of one type: the result of driver::next<E>(). `co_await` returns an expected<E>.
template <streams S, class E>
class [[nodiscard]] next_of : public detail::coro_listener<S> {
public:
  /// The event.
  /// Errors: as next_event; `invalid_state` (ep_disconnected) when the named endpoint can no longer deliver such an
  /// event. The hint names the event that arrived instead; the wait has taken that event.
  /// Allocates: never.
  /// Blocks: no; `co_await` suspends the coroutine.
  /// Thread safety: the thread of the driver.
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
  // After a failed completion, no successful one of its endpoint can follow. After the end of the connection, no event
  // can.
  static constexpr detail::event_set endings =
      detail::event_ends<events> |
      (std::is_base_of_v<completion, E> ? detail::event_bit<dto_failure, events> : detail::event_set{0});

  next_of(detail::coro_driver& d, detail::kept_events<S>& kept, ep_ref of, std::stop_token&& stop) noexcept
      : detail::coro_listener<S>(d, detail::core_access::of(of), &next_of::give_up,
                                 detail::event_bit<E, events> | (of ? endings : detail::event_set{0})) {
    if (stop.stop_requested() || d.stopping())
      give_up(*this);
    else
      this->take_or_listen(d, kept, detail::coro_driver::some, std::move(stop));
  }
  static void give_up(detail::coro_entry& o) noexcept {
    auto& self = static_cast<next_of&>(o);
    self.expect_no_wait();
    self.fail(self.stopped("driver.next", "A stop was requested."));
  }
};

/// A connection that is being established: the result of driver::connect and driver::accept. `co_await` returns an
/// expected<established>. If it is destroyed before it is done, the attempt continues and its outcome goes to the
/// visitor.
template <streams S>
class [[nodiscard]] connecting : public detail::coro_listener<S> {
public:
  /// The event of the new connection.
  /// Errors:
  /// - as ep::connect or cr::accept, when the attempt did not begin
  /// - `invalid_state` (ep_disconnected): the attempt failed. The hint names the cause, and outcome() is the event.
  /// - `interrupted_call`: a stop was requested
  /// - `abort`: the driver closed the endpoint, or the ia was closed
  /// Allocates: never.
  /// Blocks: no; `co_await` suspends the coroutine.
  /// Thread safety: the thread of the driver.
  [[nodiscard]] expected<established> await_resume() const noexcept {
    if (this->failed()) return this->why();
    if (const established* up = std::get_if<established>(&*this->event_)) return *up;
    if (this->stopping()) return this->stopped(call_, "A stop was requested.");
    return std::visit(
        [this]<class Other>(const Other& other) -> error {
          if constexpr (detail::ends_hope<Other>)
            return detail::instead(other).at(call_, object_kind::ep, other.ep().number());
          else
            return error(return_type::internal_error); // offer() takes no others
        },
        *this->event_);
  }
  /// The event that decided the attempt, null if there is none: a `peer_rejected` has the private data of the peer.
  /// Valid as long as this object.
  [[nodiscard]] const event<S>* outcome() const noexcept { return this->event_ ? &*this->event_ : nullptr; }

private:
  friend class driver<S>;
  using events = detail::event_list<S>;
  template <class Begin>
  connecting(detail::coro_driver& d, ep_ref ep, const char* call, std::stop_token&& stop, Begin begin) noexcept
      : detail::coro_listener<S>(d, detail::core_access::of(ep), &connecting::call_off,
                                 detail::event_bit<established, events> | detail::event_ends<events>),
        call_(call) {
    start(d, std::move(stop), begin);
  }
  template <class Begin>
  void start(detail::coro_driver& d, std::stop_token&& stop, Begin begin) noexcept {
    if (stop.stop_requested())
      return this->fail(this->stopped(call_, "A stop was requested before, so nothing was done."));
    if (auto ok = this->check_connect_evd(call_); !ok) return this->fail(ok.assume_error());
    if (auto ok = begin(); !ok) return this->fail(ok.assume_error());
    this->listen(d, detail::coro_driver::outcome, std::move(stop));
  }
  static void call_off(detail::coro_entry& o) noexcept {
    auto& self = static_cast<connecting&>(o);
    if (!self.hang_up()) self.fail(self.stopped(self.call_, "A stop was requested."));
  }
  const char* call_;
};

/// A connection that is being ended: the result of driver::disconnect. `co_await` returns an expected<void>.
template <streams S>
class [[nodiscard]] disconnecting : public detail::coro_listener<S> {
public:
  /// Success when the connection has ended as requested.
  /// Errors: as ep::disconnect; `invalid_state` (ep_disconnected) when the connection broke before all posted
  /// operations were done; `interrupted_call` when a stop was requested, which made the disconnect abrupt; `abort` as
  /// for connecting.
  /// Allocates: never.
  /// Blocks: no; `co_await` suspends the coroutine.
  /// Thread safety: the thread of the driver.
  [[nodiscard]] expected<void> await_resume() const noexcept {
    if (this->failed()) return this->why();
    if (this->stopping()) return this->stopped(call, "A stop was requested, so the connection was ended abruptly.");
    if (how_ == close_mode::graceful && this->event_)
      if (const connection_broken* b = std::get_if<connection_broken>(&*this->event_))
        return detail::instead(*b).at(call, object_kind::ep, b->ep().number());
    return success();
  }

private:
  friend class driver<S>;
  static constexpr const char* call = "ep.disconnect";
  template <class Service>
  disconnecting(detail::coro_driver& d, ep<Service>& which, close_mode how, std::stop_token&& stop) noexcept
      : detail::coro_listener<S>(d, detail::core_access::of(ep_ref(which)), &disconnecting::end_by_hanging_up,
                                 detail::event_ends<detail::event_list<S>>),
        how_(how) {
    start(d, which, std::move(stop));
  }
  template <class Service>
  void start(detail::coro_driver& d, ep<Service>& which, std::stop_token&& stop) noexcept {
    if (auto ok = this->check_connect_evd(call); !ok) return this->fail(ok.assume_error());
    const bool over = which && which.state() == ep_state::disconnected; // its event may have been taken
    if (auto ok = which.disconnect(stop.stop_requested() ? close_mode::abrupt : how_); !ok)
      return this->fail(ok.assume_error());
    if (over) return this->finish();
    this->listen(d, detail::coro_driver::outcome, std::move(stop));
  }
  close_mode how_;
};

}}} // namespace dat::v0::coro
