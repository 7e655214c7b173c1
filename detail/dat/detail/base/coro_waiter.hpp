// The link between a coroutine that waits and what it waits for. Either may be destroyed first.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coroutine>

namespace dat { inline namespace v0 { namespace detail {

class coro_waiter;

/// The side of what is awaited: the coroutine that waits, if there is one.
class coro_awaited {
public:
  coro_awaited() noexcept = default;
  coro_awaited(const coro_awaited&) = delete;
  coro_awaited& operator=(const coro_awaited&) = delete;
  ~coro_awaited() { forget(); }

  /// Whether a coroutine waits.
  explicit operator bool() const noexcept { return waiter_ != nullptr; }
  /// The coroutine, which waits no longer; null if there is none.
  [[nodiscard]] std::coroutine_handle<> take() noexcept;
  void forget() noexcept;

private:
  friend class coro_waiter;
  coro_waiter* waiter_ = nullptr;
};

/// The side of the coroutine. It is in an awaiter, and so in the frame of the coroutine: it ends with the frame.
class coro_waiter {
public:
  coro_waiter() noexcept = default;
  coro_waiter(const coro_waiter&) = delete;
  coro_waiter& operator=(const coro_waiter&) = delete;
  ~coro_waiter() { leave(); }

  /// The coroutine waits at `where`, in place of one that waited there before.
  void wait_at(coro_awaited& where, std::coroutine_handle<> coroutine) noexcept {
    where.forget();
    where.waiter_ = this;
    where_ = &where;
    coroutine_ = coroutine;
  }
  /// The coroutine waits no longer.
  void leave() noexcept {
    if (where_) where_->forget();
  }

private:
  friend class coro_awaited;
  coro_awaited* where_ = nullptr; // null: the coroutine does not wait
  std::coroutine_handle<> coroutine_;
};

inline std::coroutine_handle<> coro_awaited::take() noexcept {
  coro_waiter* const w = waiter_;
  if (!w) return {};
  forget();
  return w->coroutine_;
}

inline void coro_awaited::forget() noexcept {
  if (!waiter_) return;
  waiter_->where_ = nullptr;
  waiter_ = nullptr;
}

}}} // namespace dat::v0::detail
