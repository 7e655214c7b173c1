// The link between a coroutine that waits and what it waits for. Either may be destroyed first.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coroutine>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

class coro_waiter;

/// The side of the awaited object: names the coroutine that waits, if there is one.
class coro_awaited {
public:
  coro_awaited() noexcept = default;
  coro_awaited(const coro_awaited&) = delete;
  coro_awaited& operator=(const coro_awaited&) = delete;
  ~coro_awaited() { forget(); }

  /// Records the waiting coroutine, whose frame must contain this object, so that both end together. A coroutine with
  /// another frame uses a coro_waiter.
  void wait(std::coroutine_handle<> c) noexcept { coroutine_ = c; }
  /// Whether a coroutine waits.
  explicit operator bool() const noexcept { return static_cast<bool>(coroutine_); }
  /// The coroutine, to be resumed at once; null if there is none.
  [[nodiscard]] std::coroutine_handle<> take() noexcept { return std::exchange(coroutine_, {}); }
  /// The coroutine waits no longer.
  void forget() noexcept;

private:
  friend class coro_waiter;
  std::coroutine_handle<> coroutine_;
  coro_waiter* waiter_ = nullptr;
};

/// The side of a coroutine whose awaited object may be outside of its frame. This object is part of an awaiter, and so
/// of the frame: it ends with the coroutine.
class coro_waiter {
public:
  coro_waiter() noexcept = default;
  coro_waiter(const coro_waiter&) = delete;
  coro_waiter& operator=(const coro_waiter&) = delete;
  ~coro_waiter() { leave(); }

  /// The coroutine waits at `where`, in place of one that waited there before.
  void wait_at(coro_awaited& where, std::coroutine_handle<> c) noexcept {
    where.forget();
    where.coroutine_ = c;
    where.waiter_ = this;
    where_ = &where;
  }
  /// The coroutine waits no longer, or was resumed.
  void leave() noexcept {
    if (where_) where_->forget();
  }

private:
  friend class coro_awaited;
  coro_awaited* where_ = nullptr; // null: the coroutine does not wait
};

inline void coro_awaited::forget() noexcept {
  coroutine_ = {};
  if (waiter_) std::exchange(waiter_, nullptr)->where_ = nullptr;
}

}}} // namespace dat::v0::detail
