// The threads of a session. One of them has the turn, and only that thread calls the functions here, except `point`.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include <pthread.h>
#include <semaphore.h>

namespace schedule::impl {

using nanoseconds = std::int64_t;
inline constexpr nanoseconds forever = std::numeric_limits<nanoseconds>::max();

struct agent {
  enum class state : std::uint8_t {
    ready,
    blocked, ///< until `wake` names what it waits for: a mutex, a condition variable, an agent that ends
    polling, ///< until something is written to a descriptor, or a timer expires
    done,
  };
  state is = state::ready;
  const void* on = nullptr;
  const char* call = "";
  nanoseconds deadline = forever;
  bool expired = false;
  std::uint64_t seen = 0; ///< the number of writes when it last found nothing
  std::uint64_t priority = 0;
  std::size_t number = 0; ///< in the order of starts
  pthread_t thread{};
  sem_t turn{};
};

/// The calling thread, while it belongs to a session; otherwise null.
[[nodiscard]] agent* self() noexcept;
/// Another thread may continue here.
void point() noexcept;
/// An access to memory: a point in the schedules of some seeds.
void access() noexcept;
/// The calling thread lets others go first, because it can do nothing: a spinning loop.
void yield() noexcept;
/// The calling thread waits until `wake(on)`. Returns false when the deadline has passed.
bool block(const void* on, const char* call, nanoseconds deadline = forever) noexcept;
/// Wakes the threads that wait for `on`: all, or one that the seed chooses.
void wake(const void* on, bool all = true) noexcept;
/// The calling thread waits until a descriptor may have changed. Returns false when the deadline has passed.
bool wait_for_change(const char* call, nanoseconds deadline) noexcept;
/// A descriptor has changed.
void changed() noexcept;
/// The virtual time.
[[nodiscard]] nanoseconds now() noexcept;
/// Sets the timer of a descriptor; `forever` stops it.
void set_timer(int fd, nanoseconds when) noexcept;
/// Starts a thread that belongs to the session.
int start(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) noexcept;
/// Waits for the end of a thread of the session. Returns false if the thread does not belong to the session.
bool await_end(pthread_t thread) noexcept;

/// Fires the timer of a descriptor at once.
void fire(int fd) noexcept;
/// The functions of the C library that this program replaces.
int real_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) noexcept;
/// The monotonic clock of the kernel.
[[nodiscard]] nanoseconds real_now() noexcept;
/// The time to add to the kernel's clock outside sessions, so that time never runs backwards.
[[nodiscard]] nanoseconds skipped() noexcept;

} // namespace schedule::impl
