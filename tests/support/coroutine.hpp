// A coroutine for tests: starts at once, belongs to its object, keeps its result.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace support {

/// Runs until it first waits. Destroying it destroys the coroutine, wherever that is.
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
    void unhandled_exception() { throw; } // into whoever resumed it
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
  /// What it returned; it must be done.
  [[nodiscard]] T& result() { return coroutine_.promise().result.value(); }

private:
  explicit task(std::coroutine_handle<promise_type> h) noexcept : coroutine_(h) {}
  std::coroutine_handle<promise_type> coroutine_;
};

} // namespace support
