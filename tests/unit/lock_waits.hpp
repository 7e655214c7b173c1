// Checks that a call waits for a lock that another thread holds, inside a call of verbs or elsewhere, or that the test
// itself holds. SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

#include <support/asleep.hpp>

#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace unit {

/// A call in a thread of its own, which the end of the object joins.
class other_call {
public:
  template <class Call>
  explicit other_call(Call call)
      : thread_([this, run = std::move(call)]() mutable {
          id_ = static_cast<pid_t>(::syscall(SYS_gettid));
          run();
          done_ = true;
        }) {}

  /// Whether the call waits for a lock. Returns false when the call has ended.
  [[nodiscard]] bool waits() {
    support::until_locked_out(id_, 20s, [this] { return done_.load(); });
    return !done_;
  }
  [[nodiscard]] bool done() const { return done_; }
  void join() { thread_.join(); }

  /// The number of the thread: 0 before it runs.
  [[nodiscard]] const std::atomic<pid_t>& id() const { return id_; }
  [[nodiscard]] auto native_handle() { return thread_.native_handle(); }

private:
  std::atomic<pid_t> id_{0};
  std::atomic<bool> done_{false};
  std::jthread thread_; // last: it uses the other members
};

/// Whether `other`, in a thread of its own, waits while `action` is inside its first call of `verb`. If `apart` is
/// true, `other` must not call `verb` before it waits.
template <class Action, class Other>
bool waits(fake::call verb, Action action, Other other, bool apart = false) {
  std::atomic<bool> begun{false}, inside{false}, both{false};
  bool waited = false;
  std::optional<other_call> thread;
  fake::intercept(verb, [&] {
    if (begun.exchange(true)) {
      if (inside && apart) both = true;
      return;
    }
    inside = true;
    thread.emplace(other);
    waited = thread->waits() && !both;
    inside = false;
  });
  action();
  thread.reset();
  fake::intercept(verb, {});
  CHECK(begun);
  return waited;
}

/// Whether `other`, in a thread of its own, waits for a lock. `hold` gets a function, and calls it with the lock held.
template <class Hold, class Other>
bool waits_while(Hold hold, Other other) {
  bool begun = false, waited = false;
  std::optional<other_call> thread;
  hold([&] {
    if (std::exchange(begun, true)) return;
    thread.emplace(other);
    waited = thread->waits();
  });
  thread.reset(); // Catch2 takes assertions of one thread at a time
  CHECK(begun);
  return waited;
}

/// A private member of a class, which an explicit instantiation may name: with `struct lock_of_x { friend std::mutex
/// x::*member(lock_of_x); };` and `template struct opened_member<lock_of_x, &x::mutex_>;`, `member(lock_of_x())` is the
/// pointer to the member.
template <class Tag, auto Member>
struct opened_member {
  friend auto member(Tag) -> decltype(Member) { return Member; }
};

/// Whether `call`, in a thread of its own, waits while this thread has the lock. `before` is called while the other
/// thread waits.
template <class Mutex, class Call, class Before>
bool locked_out(Mutex& lock, Call call, Before before) {
  std::optional<other_call> thread; // is joined after the lock is released
  const std::unique_lock held(lock);
  thread.emplace(call);
  const bool waited = thread->waits();
  before();
  return waited && !thread->done();
}
template <class Mutex, class Call>
bool locked_out(Mutex& lock, Call call) {
  return locked_out(lock, call, [] {});
}

/// Whether `call`, in a thread of its own, waits for the mutex that `lock()` returns. This thread takes it while `call`
/// is inside its first call of `verb`. `before` is called while the other thread waits.
template <class Lock, class Call, class Before>
bool locked_out_after(fake::call verb, Lock lock, Call call, Before before) {
  std::atomic<bool> inside{false}, held{false};
  fake::intercept(verb, [&] {
    if (inside.exchange(true)) return;
    while (!held) std::this_thread::yield();
  });
  bool waited = false;
  {
    other_call thread(call);
    while (!inside && !thread.done()) std::this_thread::yield();
    if (inside) {
      const std::unique_lock taken(lock());
      held = true;
      waited = thread.waits();
      before();
      waited = waited && !thread.done();
    }
  }
  fake::intercept(verb, {});
  CHECK(inside);
  return waited;
}
template <class Lock, class Call>
bool locked_out_after(fake::call verb, Lock lock, Call call) {
  return locked_out_after(verb, lock, call, [] {});
}

} // namespace unit
