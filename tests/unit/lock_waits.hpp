// Checks that a call waits for a lock that another thread holds, inside a call of verbs or elsewhere.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

#include <support/asleep.hpp>

#include <atomic>
#include <optional>
#include <thread>
#include <utility>

namespace unit {

/// Whether `other`, in a thread of its own, waits while `action` is inside its first call of `verb`. If `apart` is
/// true, `other` must not call `verb` before it waits.
template <class Action, class Other>
bool waits(fake::call verb, Action action, Other other, bool apart = false) {
  std::atomic<bool> begun{false}, inside{false}, both{false}, done{false};
  std::atomic<pid_t> id{0};
  bool waited = false;
  std::optional<std::jthread> thread;
  fake::intercept(verb, [&] {
    if (begun.exchange(true)) {
      if (inside && apart) both = true;
      return;
    }
    inside = true;
    thread.emplace([&] {
      id = static_cast<pid_t>(::syscall(SYS_gettid));
      other();
      done = true;
    });
    support::until_locked_out(id, 20s, [&] { return done.load(); });
    waited = !done && !both;
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
  std::atomic<bool> done{false};
  std::atomic<pid_t> id{0};
  bool begun = false, waited = false;
  std::jthread thread;
  hold([&] {
    if (std::exchange(begun, true)) return;
    thread = std::jthread([&] {
      id = static_cast<pid_t>(::syscall(SYS_gettid));
      other();
      done = true;
    });
    support::until_locked_out(id, 20s, [&] { return done.load(); });
    waited = !done;
  });
  if (thread.joinable()) thread.join(); // assertions are for one thread at a time
  CHECK(begun);
  return waited;
}

} // namespace unit
