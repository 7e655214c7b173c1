// Coroutines: a coroutine type, several at once, and groups of tasks. Opt-in; works with <dat/coro.hpp> and without it.
// SPDX-License-Identifier: BSL-1.0
//
//     dat::task<dat::expected<int>> ask(...);                             // a coroutine: it starts when it is awaited
//     const auto one = co_await ask(...);
//     const auto [a, b] = co_await dat::when_all(ask(...), ask(...));     // both at once
//
//     dat::task_group group;
//     group.spawn(serve(...));                                            // runs on its own
//     driver.run_until([&] { return group.empty(); }, [](const auto&) {});
#pragma once

#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/base/coro_waiter.hpp>
#include <dat/detail/base/intrusive_list.hpp>

#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace dat { inline namespace v0 {

template <class T = void>
class task;

namespace detail {

class task_promise_base;

/// The tasks that one coroutine awaits together, for when_all. Either may be destroyed first.
class tasks_awaited {
public:
  tasks_awaited() noexcept = default;
  tasks_awaited(const tasks_awaited&) = delete;
  tasks_awaited& operator=(const tasks_awaited&) = delete;
  ~tasks_awaited();
  void add(task_promise_base& p) noexcept;

  std::coroutine_handle<> coroutine;
  std::size_t missing = 0; // tasks that have not ended

private:
  intrusive_list<task_promise_base> tasks_;
};

/// The end of a task: keeps an exception for the coroutine that gets the result.
class task_promise_base : public list_node {
public:
  task_promise_base() noexcept = default;
  task_promise_base(const task_promise_base&) = delete;
  task_promise_base& operator=(const task_promise_base&) = delete;
  ~task_promise_base() { unlink(); }

  [[nodiscard]] std::suspend_always initial_suspend() const noexcept { return {}; }
  [[nodiscard]] auto final_suspend() noexcept {
    struct pass_on {
      [[nodiscard]] bool await_ready() const noexcept { return false; }
      [[nodiscard]] std::coroutine_handle<> await_suspend(std::coroutine_handle<>) const noexcept { return next; }
      void await_resume() const noexcept {}
      std::coroutine_handle<> next;
    };
    return pass_on{next_coroutine()};
  }
  void unhandled_exception() noexcept { thrown_ = std::current_exception(); }
  void rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

  coro_awaited waiting;           // the coroutine that awaits this task alone
  tasks_awaited* group = nullptr; // the group of a coroutine that awaits this task and others
  bool started = false;
  bool starting = false; // the awaiting coroutine is still in await_suspend, and itself detects the end of the task

private:
  /// The coroutine that the end of this task resumes.
  [[nodiscard]] std::coroutine_handle<> next_coroutine() noexcept {
    std::coroutine_handle<> resumed;
    if (group)
      resumed = --group->missing == 0 ? group->coroutine : nullptr;
    else if (!starting)
      resumed = waiting.take();
    return resumed ? resumed : std::noop_coroutine();
  }
  std::exception_ptr thrown_;
};

inline tasks_awaited::~tasks_awaited() {
  while (task_promise_base* const p = tasks_.pop_front()) p->group = nullptr;
}
inline void tasks_awaited::add(task_promise_base& p) noexcept {
  p.group = this;
  tasks_.push_back(p);
}

template <class T>
class task_promise : public task_promise_base {
public:
  [[nodiscard]] dat::task<T> get_return_object() noexcept;
  template <class U>
  void return_value(U&& value) {
    value_.emplace(std::forward<U>(value));
  }
  [[nodiscard]] T& result() {
    rethrow();
    return *value_;
  }

private:
  std::optional<T> value_;
};
template <>
class task_promise<void> : public task_promise_base {
public:
  [[nodiscard]] dat::task<void> get_return_object() noexcept;
  void return_void() const noexcept {}
  void result() const { rethrow(); }
};

} // namespace detail

/// A coroutine with a result. It starts when it is awaited, or by `start`, and runs in the thread that resumes it: with
/// awaitables of a coro::driver, the thread of the driver. Its end resumes the coroutine that awaits it at once.
///
/// The task owns the coroutine. If it is destroyed before the coroutine has ended, the coroutine is destroyed where it
/// waits, with its variables and the tasks that it awaits. A coroutine must not destroy itself in this way.
///
/// Move-only. Making a coroutine allocates its frame, and throws std::bad_alloc. An exception that leaves the coroutine
/// is thrown again by `co_await` and `result`.
template <class T>
class [[nodiscard]] task {
public:
  using promise_type = detail::task_promise<T>;

  task() noexcept = default; ///< no coroutine; only assignment and destruction are allowed
  task(task&& o) noexcept : coroutine_(std::exchange(o.coroutine_, {})) {}
  task& operator=(task&& o) noexcept {
    if (this != &o) {
      if (coroutine_) coroutine_.destroy();
      coroutine_ = std::exchange(o.coroutine_, {});
    }
    return *this;
  }
  ~task() {
    if (coroutine_) coroutine_.destroy();
  }

  explicit operator bool() const noexcept { return static_cast<bool>(coroutine_); }

  /// Starts the coroutine, unless it was started: it runs until it first waits. No other coroutine has to await it.
  void start() {
    if (!std::exchange(coroutine_.promise().started, true)) coroutine_.resume();
  }
  /// True when the coroutine has ended.
  [[nodiscard]] bool done() const noexcept { return coroutine_.done(); }
  /// The result of a coroutine that has ended. Throws what has left the coroutine.
  decltype(auto) result() { return coroutine_.promise().result(); }

  /// The awaiter of `co_await`. Starts the coroutine unless it was started, and returns the result by a move.
  class awaiter {
  public:
    explicit awaiter(std::coroutine_handle<promise_type> c) noexcept : coroutine_(c) {}
    [[nodiscard]] bool await_ready() const noexcept { return coroutine_.done(); }
    /// A task that ends at once does not suspend its caller, so a loop of such tasks needs no stack.
    [[nodiscard]] bool await_suspend(std::coroutine_handle<> h) {
      promise_type& p = coroutine_.promise();
      waiter_.wait_at(p.waiting, h);
      if (std::exchange(p.started, true)) return true;
      p.starting = true;
      coroutine_.resume();
      p.starting = false;
      return !coroutine_.done();
    }
    T await_resume() {
      waiter_.leave();
      if constexpr (std::is_void_v<T>)
        coroutine_.promise().result();
      else
        return std::move(coroutine_.promise().result());
    }
    /// Detaches the awaiting coroutine; the task continues.
    void await_cancel() noexcept { waiter_.leave(); }

  private:
    std::coroutine_handle<promise_type> coroutine_;
    detail::coro_waiter waiter_;
  };
  [[nodiscard]] awaiter operator co_await() const noexcept { return awaiter(coroutine_); }

  // For when_all.
  void start_as_one_of(detail::tasks_awaited& all) {
    if (done()) return static_cast<void>(--all.missing);
    all.add(coroutine_.promise());
    start();
  }

private:
  friend promise_type;
  explicit task(std::coroutine_handle<promise_type> c) noexcept : coroutine_(c) {}
  std::coroutine_handle<promise_type> coroutine_;
};

namespace detail {

template <class T>
dat::task<T> task_promise<T>::get_return_object() noexcept {
  return dat::task<T>(std::coroutine_handle<task_promise>::from_promise(*this));
}
inline dat::task<void> task_promise<void>::get_return_object() noexcept {
  return dat::task<void>(std::coroutine_handle<task_promise>::from_promise(*this));
}

/// Starts tasks, and resumes the coroutine that awaits it when all have ended. `Each` calls a function with every task.
template <class Each>
class all_started {
public:
  explicit all_started(Each each) noexcept : each_(std::move(each)) {}
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  [[nodiscard]] bool await_suspend(std::coroutine_handle<> h) {
    awaited_.coroutine = h;
    awaited_.missing = 1; // counts this function, so that no task resumes the coroutine before all were started
    each_([&](auto&) { ++awaited_.missing; });
    each_([&](auto& t) { t.start_as_one_of(awaited_); });
    return --awaited_.missing != 0;
  }

protected:
  Each each_;

private:
  tasks_awaited awaited_;
};

template <class... T>
struct each_of_tuple {
  template <class F>
  void operator()(F f) {
    std::apply([&](auto&... t) { (f(t), ...); }, tasks);
  }
  std::tuple<dat::task<T>...> tasks;
};
template <class Range>
struct each_of_range {
  template <class F>
  void operator()(F f) {
    for (auto& t : *tasks) f(t);
  }
  Range* tasks;
};

template <class T>
[[nodiscard]] auto value_of(dat::task<T>& t) {
  if constexpr (std::is_void_v<T>) {
    t.result();
    return std::monostate();
  } else {
    return T(std::move(t.result()));
  }
}

template <class... T>
class all_of : public all_started<each_of_tuple<T...>> {
public:
  explicit all_of(dat::task<T>&&... t) noexcept
      : all_started<each_of_tuple<T...>>({std::tuple<dat::task<T>...>(std::move(t)...)}) {}
  [[nodiscard]] auto await_resume() {
    return std::apply([](auto&... t) { return std::tuple{value_of(t)...}; }, this->each_.tasks);
  }
};
template <class Range>
class all_of_range : public all_started<each_of_range<Range>> {
public:
  explicit all_of_range(Range& tasks) noexcept : all_started<each_of_range<Range>>({&tasks}) {}
  void await_resume() const noexcept {}
};

} // namespace detail

/// Starts several tasks and awaits all of them. `co_await` returns a std::tuple of the results, with std::monostate for
/// a task<void>. It throws the first exception in the order of the arguments, when all tasks have ended.
template <class... T>
[[nodiscard]] detail::all_of<T...> when_all(task<T>&&... tasks) noexcept {
  return detail::all_of<T...>(std::move(tasks)...);
}
/// Starts the tasks of a range and awaits all of them. The range, such as a std::vector<task<T>>, keeps them and their
/// results; `co_await` returns nothing.
template <class Range>
requires requires(Range& r) { r.begin()->done(); }
[[nodiscard]] detail::all_of_range<Range> when_all(Range& tasks) noexcept { return detail::all_of_range<Range>(tasks); }

/// Tasks that run on their own. The group frees each one when it has ended. The end of the group destroys the tasks
/// that have not ended, where they wait. So destroy the group before the objects that its tasks use, and not inside one
/// of its tasks.
///
/// Not movable.
/// Thread safety: one thread at a time, the one that resumes the tasks.
class task_group {
public:
  task_group() noexcept = default;
  task_group(const task_group&) = delete;
  task_group& operator=(const task_group&) = delete;
  ~task_group() {
    for (auto* list : {&running_, &thrown_})
      while (member* const m = list->front()) m->destroy();
  }

  /// Starts a task, which runs until it first waits. An exception of the task leaves the call that has resumed the
  /// task: `spawn`, or a call of the driver. Allocates, and throws std::bad_alloc.
  template <class T>
  void spawn(task<T> which) {
    run(*this, std::move(which));
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; } ///< tasks that have not ended
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  /// The error of the first task that has returned one. A task whose result is no expected returns none.
  [[nodiscard]] const std::optional<error>& failure() const noexcept { return failure_; }

private:
  struct member;
  /// The coroutine that awaits one task. Its promise owns it.
  struct running {
    using promise_type = member;
  };
  struct member : detail::list_node {
    template <class T>
    member(task_group& g, task<T>&) noexcept : group(g) {
      group.running_.push_back(*this);
      ++group.size_;
    }
    member(const member&) = delete;
    member& operator=(const member&) = delete;
    ~member() {
      if (!ended) --group.size_;
      unlink();
    }
    void destroy() noexcept { std::coroutine_handle<member>::from_promise(*this).destroy(); }
    [[nodiscard]] running get_return_object() const noexcept { return {}; }
    [[nodiscard]] std::suspend_never initial_suspend() const noexcept { return {}; }
    [[nodiscard]] std::suspend_never final_suspend() const noexcept { return {}; } // frees the frame
    void return_void() const noexcept {}
    void unhandled_exception() {
      unlink();
      group.thrown_.push_back(*this); // the frame stays: the group frees it
      ended = true;
      --group.size_;
      std::rethrow_exception(std::current_exception());
    }
    task_group& group;
    bool ended = false;
  };
  template <class T>
  static running run(task_group& group, task<T> which) {
    if constexpr (requires { std::declval<std::add_lvalue_reference_t<T>>().assume_error(); }) {
      const T result = co_await which;
      if (!result && !group.failure_) group.failure_ = result.assume_error();
    } else {
      co_await which;
    }
  }

  detail::intrusive_list<member> running_;
  detail::intrusive_list<member> thrown_;
  std::size_t size_ = 0;
  std::optional<error> failure_;
};

}} // namespace dat::v0
