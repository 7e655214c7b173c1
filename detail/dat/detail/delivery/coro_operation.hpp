// An awaited operation: it is in the frame of the coroutine, has a result, and can be ended by a request to stop.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/base/coro_waiter.hpp>
#include <dat/detail/base/ref.hpp>
#include <dat/detail/delivery/coro_schedule.hpp>
#include <dat/detail/endpoint/core.hpp>

#include <concepts>
#include <coroutine>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <version>

#ifndef __cpp_lib_jthread
#error "dat: coroutines need std::stop_token, which libc++ 19 has with -fexperimental-library"
#endif

namespace dat { inline namespace v0 { namespace detail {

/// One thing that a coroutine waits for, or will wait for. It is linked in place, and unlinks itself when it ends;
/// nothing is allocated.
class coro_operation : public coro_entry {
public:
  coro_operation(const coro_operation&) = delete;
  coro_operation& operator=(const coro_operation&) = delete;

  /// Whether the operation is over, so that awaiting it does not suspend.
  [[nodiscard]] bool done() const noexcept { return done_; }

  [[nodiscard]] bool await_ready() const noexcept { return done_; }
  void await_suspend(std::coroutine_handle<> h) noexcept { waiting.wait(h); }

  /// The endpoint of the operation, only for comparison.
  [[nodiscard]] ep_core* whose() const noexcept { return whose_; }
  /// Ends the operation with an error.
  void fail(const error& e) noexcept;

protected:
  /// An operation that was never started counts as done.
  coro_operation() noexcept;
  coro_operation(coro_schedule& s, ep_core* whose, stop_function serve_stop) noexcept { begin(s, whose, serve_stop); }
  /// Whether the object can be used again: its operation is over, and no coroutine that awaited it has still to be
  /// resumed.
  [[nodiscard]] bool idle() const noexcept { return done_ && !(linked() && waiting); }
  void begin(coro_schedule& s, ep_core* whose, stop_function serve_stop) noexcept;
  ~coro_operation() {
    detach();
    unlink();
  }

  [[nodiscard]] bool failed() const noexcept { return failed_; }
  [[nodiscard]] const error& why() const noexcept { return error_; }
  [[nodiscard]] bool stopping() const noexcept { return stopping_; }

  void finish() noexcept;
  /// As finish, for an event that the driver has just taken: the coroutine is the next one that it resumes.
  void finish_first() noexcept {
    coro_schedule& s = *schedule_;
    unlink();
    detach();
    done_ = true;
    s.resume_first(waiting.take());
  }
  /// From now on a request to stop is served by `on_stop`. Keeps the endpoint alive, whose handle may be destroyed
  /// first.
  void watch(std::stop_token&& token) noexcept;
  /// Ends the connection, and with it the operations on it. Returns false without a connection.
  [[nodiscard]] bool hang_up() noexcept;
  static void end_by_hanging_up(coro_entry& o) noexcept { (void)static_cast<coro_operation&>(o).hang_up(); }
  [[nodiscard]] static error stopped(const char* call, const char* hint) noexcept {
    return error(return_type::interrupted_call).at(call, object_kind::ep).hint(hint);
  }
  /// Refuses an endpoint whose connection events go to another evd than the driver's.
  [[nodiscard]] expected<void> check_connect_evd(const char* call) const noexcept;

private:
  struct stopper {
    coro_operation* self;
    void operator()() const noexcept { self->schedule_->request_stop(*self); }
  };
  /// The additional state of an operation that a request to stop can end. Keeps the endpoint alive.
  struct stoppable {
    stoppable(std::stop_token&& token, coro_operation& o) noexcept
        : endpoint(o.whose_), callback(std::move(token), stopper{&o}) {}
    ref<ep_core> endpoint;
    std::stop_callback<stopper> callback;
  };
  /// Leaves the schedule, and stays in its list.
  void detach() noexcept {
    if (stop_) [[unlikely]]
      forget_stop();
    schedule_ = nullptr;
  }
  void forget_stop() noexcept;

  coro_schedule* schedule_ = nullptr; // null when it is over
  ep_core* whose_ = nullptr;
  bool done_ = false;
  bool failed_ = false;
  bool stopping_ = false;
  error error_;
  std::optional<stoppable> stop_;
};

/// Awaits an operation that may be outside of the frame of the coroutine. If the coroutine is destroyed while it waits,
/// the operation is detached from it and continues.
template <class Operation>
class coro_awaiter {
public:
  explicit coro_awaiter(Operation& of) noexcept : of_(of) {}

  [[nodiscard]] bool await_ready() const noexcept { return of_.done(); }
  auto await_suspend(std::coroutine_handle<> h) noexcept(noexcept(of_.await_suspend(h))) {
    waiter_.wait_at(of_.waiting, h);
    return of_.await_suspend(h);
  }
  [[nodiscard]] decltype(auto) await_resume() {
    waiter_.leave();
    return of_.await_resume();
  }
  /// Detaches the coroutine; the operation continues.
  void await_cancel() noexcept { waiter_.leave(); }

private:
  Operation& of_;
  coro_waiter waiter_;
};

/// Awaits an operation that the statement of the co_await makes. It ends with the coroutine.
template <class Operation>
class coro_own_awaiter {
public:
  explicit coro_own_awaiter(Operation& of) noexcept : of_(of) {}
  [[nodiscard]] bool await_ready() const noexcept { return of_.await_ready(); }
  auto await_suspend(std::coroutine_handle<> h) noexcept(noexcept(of_.await_suspend(h))) {
    return of_.await_suspend(h);
  }
  [[nodiscard]] decltype(auto) await_resume() { return of_.await_resume(); }

private:
  Operation& of_;
};

template <std::derived_from<coro_operation> Operation>
[[nodiscard]] coro_awaiter<Operation> operator co_await(Operation& of) noexcept {
  return coro_awaiter<Operation>(of);
}
template <std::derived_from<coro_operation> Operation>
[[nodiscard]] coro_own_awaiter<Operation> operator co_await(Operation&& of) noexcept {
  return coro_own_awaiter<Operation>(of);
}

/// The awaiter of an operation or of a task.
template <class A>
[[nodiscard]] auto awaiter_of(A& what) noexcept {
  if constexpr (requires { what.operator co_await(); })
    return what.operator co_await();
  else
    return operator co_await(what);
}

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/delivery/coro_operation.ipp>
#endif
