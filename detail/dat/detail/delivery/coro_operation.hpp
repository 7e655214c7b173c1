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
  [[nodiscard]] bool done() const noexcept { return !schedule_; }

  [[nodiscard]] bool await_ready() const noexcept { return done(); }
  void await_suspend(std::coroutine_handle<> h) noexcept { waiting.wait(h); }

  /// The endpoint of the operation, only for comparison.
  [[nodiscard]] ep_core* whose() const noexcept { return whose_; }
  /// Ends the operation with an error.
  void fail(const error& e) noexcept;

protected:
  /// An operation that was never started counts as done.
  coro_operation() noexcept;
  /// An operation whose endpoint is set by set_endpoint.
  explicit coro_operation(coro_schedule& s) noexcept : schedule_(&s) {}
  coro_operation(coro_schedule& s, ep_core* whose, stop_function serve_stop) noexcept : schedule_(&s), whose_(whose) {
    on_stop = serve_stop;
  }
  /// Whether the object can be used again: its operation is over, and no coroutine that awaited it has still to be
  /// resumed.
  [[nodiscard]] bool idle() const noexcept { return done() && !(linked() && waiting); }
  /// Begins another operation in this object, which is idle.
  void begin(coro_schedule& s) noexcept;
  void set_endpoint(ep_core* e) noexcept { whose_ = e; }
  ~coro_operation() { unlink(); }

  void set_failed() noexcept { failed_ = true; }
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  [[nodiscard]] const error& why() const noexcept { return error_; }
  [[nodiscard]] bool stopping() const noexcept { return stopping_; }

  void finish() noexcept;
  /// Finishes an operation that is in a list of its driver. Returns the coroutine that waits for the operation, if
  /// there is one. The caller resumes that coroutine.
  [[nodiscard]] std::coroutine_handle<> finish_linked() noexcept {
    leave();
    stop_.reset();
    schedule_ = nullptr;
    return waiting.take();
  }
  /// From now on `on_stop` serves a request to stop. Keeps the endpoint alive, whose handle may be destroyed first.
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
  struct requested_stop {
    coro_operation* of;
    ~requested_stop() { of->schedule_->forget_stop(*of); }
  };
  /// The additional state of an operation that a request to stop can end. Keeps the endpoint alive.
  struct stoppable {
    stoppable(std::stop_token&& token, coro_operation& o) noexcept
        : endpoint(o.whose_), request{&o}, callback(std::move(token), stopper{&o}) {}
    ref<ep_core> endpoint;
    requested_stop request;
    std::stop_callback<stopper> callback; // ends first: its destructor waits for a request that another thread makes
  };

  coro_schedule* schedule_ = nullptr; // null when it is over
  ep_core* whose_;                    // set before the operation is in a list
  bool failed_ = false;
  bool stopping_ = false;
  error error_;
  std::optional<stoppable> stop_;
};

/// Awaits an operation that may be outside of the frame of the coroutine. An operation that the statement of the
/// co_await makes ends with the coroutine, and is its own awaiter. If the coroutine is destroyed while it waits,
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

template <class Operation>
requires(std::is_lvalue_reference_v<Operation>&& std::derived_from<std::remove_reference_t<Operation>, coro_operation>)
    [[nodiscard]] auto
    operator co_await(Operation&& of) noexcept {
  return coro_awaiter<std::remove_reference_t<Operation>>(of);
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
