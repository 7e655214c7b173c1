// A coroutine type for tests: it starts at once, its object owns it, and it keeps its result.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace support {

/// Runs until it first suspends. Destroying the object destroys the coroutine, wherever it is suspended.
template <class T>
class task {
public:
  struct promise_type {
    std::optional<T> result;
    task get_return_object() { return task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    template <class U>
    void return_value(U&& value) {
      result.emplace(std::forward<U>(value));
    }
    void unhandled_exception() { throw; } // passes the exception to the code that resumed the coroutine
  };

  task() noexcept = default;
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

  [[nodiscard]] bool done() const { return coroutine_.done(); }
  /// The returned value; the coroutine must be done.
  [[nodiscard]] T& result() { return coroutine_.promise().result.value(); }

private:
  explicit task(std::coroutine_handle<promise_type> h) noexcept : coroutine_(h) {}
  std::coroutine_handle<promise_type> coroutine_;
};

} // namespace support
