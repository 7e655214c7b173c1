// A check that a call waits for a lock which the test itself holds.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

#include <support/asleep.hpp>

#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

namespace unit {

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
  std::atomic<bool> done{false};
  std::atomic<pid_t> id{0};
  std::optional<std::jthread> thread;
  const std::unique_lock held(lock);
  thread.emplace([&] {
    id = static_cast<pid_t>(::syscall(SYS_gettid));
    call();
    done = true;
  });
  support::until_locked_out(id, 20s, [&] { return done.load(); });
  before();
  return !done;
}
template <class Mutex, class Call>
bool locked_out(Mutex& lock, Call call) {
  return locked_out(lock, call, [] {});
}

} // namespace unit
