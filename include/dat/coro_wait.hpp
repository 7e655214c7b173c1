// Coroutines: waiting for a time, with a time limit, and for a value of another coroutine. Part of coro.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/expected.hpp>
#include <dat/fwd.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/base/deadline.hpp>
#include <dat/detail/delivery/coro_core.hpp>
#include <dat/detail/delivery/coro_timer.hpp>

#include <coroutine>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 { namespace coro {

/// A time that a coroutine waits for: the result of driver::sleep_for. `co_await` returns an expected<void>.
class [[nodiscard]] sleeping : public detail::coro_operation, private detail::timer_node {
public:
  /// Success when the time has passed.
  /// Errors: `interrupted_call` when a stop was requested; `abort` when the ia was closed or the driver ended.
  /// Allocates: never.
  /// Blocks: no; `co_await` suspends the coroutine.
  /// Thread safety: the thread of the driver.
  [[nodiscard]] expected<void> await_resume() const noexcept {
    if (failed()) return why();
    return success();
  }

  sleeping(detail::coro_driver& d, timeout limit, std::stop_token&& stop) noexcept
      : coro_operation(d, nullptr, &sleeping::give_up), timer_node(&sleeping::wake) {
    start(d, limit, std::move(stop));
  }

private:
  void start(detail::coro_driver& d, timeout limit, std::stop_token&& stop) noexcept {
    if (stop.stop_requested() || d.stopping()) return give_up(*this);
    if (limit <= timeout::zero()) return finish();
    if (const auto until = detail::deadline::in(limit); !until.never()) d.start_timer(*this, until);
    d.listeners(detail::coro_driver::asleep).push_back(*this);
    watch(std::move(stop));
  }
  static void give_up(detail::coro_entry& o) noexcept {
    static_cast<sleeping&>(o).fail(stopped("driver.sleep_for", "A stop was requested."));
  }
  static void wake(detail::timer_node& t) noexcept {
    if (auto& self = static_cast<sleeping&>(t); !self.done()) self.finish();
  }
};

/// Something that is awaited with a time limit: the result of driver::within. Await it at once.
template <class Awaited>
class [[nodiscard]] timed : public detail::coro_operation, private detail::timer_node {
  using result = decltype(std::declval<Awaited&>().await_resume());
  static_assert(std::is_constructible_v<result, error>,
                "dat: driver.within returns timeout_expired as an error: it needs an operation or a task whose result "
                "is an expected");

public:
  auto await_suspend(std::coroutine_handle<> h) {
    waiting.wait(h);
    return what_.await_suspend(h); // a task starts now
  }
  /// The result of what was awaited.
  /// Errors: those of what was awaited; `timeout_expired` when it was not done within the limit; `interrupted_call`
  /// when a stop was requested; `abort` when the ia was closed or the driver ended.
  /// Allocates: never.
  /// Blocks: no; `co_await` suspends the coroutine.
  /// Thread safety: the thread of the driver.
  [[nodiscard]] result await_resume() {
    if (what_.await_ready()) return what_.await_resume();
    what_.await_cancel();
    return result(why());
  }

  template <class A>
  timed(detail::coro_driver& d, timeout limit, A& what, std::stop_token&& stop) noexcept
      : coro_operation(d, nullptr, &timed::give_up), timer_node(&timed::expire), what_(detail::awaiter_of(what)) {
    start(d, limit, std::move(stop));
  }

private:
  void start(detail::coro_driver& d, timeout limit, std::stop_token&& stop) noexcept {
    if (what_.await_ready()) return finish();
    if (stop.stop_requested()) return give_up(*this);
    if (limit <= timeout::zero()) return expire(*this);
    if (const auto until = detail::deadline::in(limit); !until.never()) d.start_timer(*this, until);
    d.listeners(detail::coro_driver::limited).push_back(*this);
    watch(std::move(stop));
  }
  /// The limit has no effect if the awaited operation is already done and its coroutine is ready to resume.
  void end(const error& e) noexcept {
    if (done()) return;
    if (what_.await_ready()) {
      waiting.forget();
      return finish();
    }
    what_.await_cancel();
    fail(e);
  }
  static void give_up(detail::coro_entry& o) noexcept {
    static_cast<timed&>(o).end(stopped("driver.within", "A stop was requested. The operation continues."));
  }
  static void expire(detail::timer_node& t) noexcept {
    static_cast<timed&>(t).end(
        error(return_type::timeout_expired).at("driver.within", object_kind::evd).hint("The operation continues."));
  }
  Awaited what_; // the awaiter of an operation or of a task
};

/// A value that one coroutine awaits, and that another coroutine or the visitor sets, such as the answer to a request.
/// `co_await` returns an expected<T>. driver::make_slot makes it. Not movable.
template <class T>
class [[nodiscard]] slot : public detail::coro_operation {
public:
  /// Sets the value, unless the slot has one or has ended. The coroutine that awaits it resumes before the driver takes
  /// its next event.
  ///
  /// Errors: none; false when the value was not taken.
  /// Allocates: as the move of `T`.
  /// Blocks: never.
  /// Thread safety: the thread of the driver.
  bool set(T value) noexcept(std::is_nothrow_move_constructible_v<T>) {
    if (done()) return false;
    value_.emplace(std::move(value));
    finish();
    return true;
  }
  /// The value.
  /// Errors: `abort` when the ia was closed or the driver ended; `invalid_state` when the value was taken before.
  /// Allocates: as the move of `T`.
  /// Blocks: no; `co_await` suspends the coroutine.
  /// Thread safety: the thread of the driver.
  [[nodiscard]] expected<T> await_resume() {
    if (failed()) return why();
    if (!value_)
      return error(return_type::invalid_state).at("slot", object_kind::evd).hint("The value was taken before.");
    expected<T> out(std::move(*value_));
    value_.reset();
    return out;
  }

  explicit slot(detail::coro_driver& d) noexcept : coro_operation(d, nullptr, nullptr) {
    d.listeners(detail::coro_driver::idle).push_back(*this);
  }

private:
  std::optional<T> value_;
};

}}} // namespace dat::v0::coro
