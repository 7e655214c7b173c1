// Runs the threads of a test one at a time, in an order that a seed chooses. README.md has the method.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>

namespace schedule {

namespace impl {
class search;
}

/// While the object exists, the calling thread and all threads that start run one at a time. Outside `together` they
/// switch only where a thread has to wait, so that a test reaches its interesting part by the same path each time. The
/// clock is virtual: when all threads wait, it moves to the earliest time limit. A deadlock ends the program with the
/// threads, the calls in which they wait, and the seed.
class session {
public:
  explicit session(std::uint64_t seed);
  ~session();
  session(const session&) = delete;
  session& operator=(const session&) = delete;

  /// Runs the functions at once, each in a thread of its own, and joins them. At each operation on a mutex, a condition
  /// variable, an atomic or a descriptor the seed chooses the thread that continues.
  void together(std::initializer_list<std::function<void()>> all);
  /// The next schedules follow this seed.
  void reseed(std::uint64_t seed);

  /// The number of points since the session began at which another thread could have continued.
  [[nodiscard]] std::uint64_t points() const noexcept;

  /// The orders in `together` follow this search, not the seed.
  void follow(impl::search& all_orders);
};

/// The schedules that a test usually explores.
inline constexpr unsigned usual = 200;
/// The number of schedules that a test explores: `few`, or the number in DAT_SCHEDULES if it is set.
[[nodiscard]] unsigned runs(unsigned few);
/// Calls `body(s)` in a session of its own for each seed: 1, 2, ... `runs(few)`, or the seed in DAT_SCHEDULE alone. A
/// failed assertion shows the seed. One call without a schedule comes first, so that objects which are made only once
/// already exist.
void explore(unsigned few, const std::function<void(session&)>& body);

/// The number of preemptions with which a test runs: `few`, or the number in DAT_PREEMPTIONS if it is set.
[[nodiscard]] unsigned most_preemptions(unsigned few);
/// Calls `body(s)` once for each order of the threads in `together` with at most so many preemptions, and returns the
/// number of orders. A preemption switches to another thread although the present one could continue. When a thread
/// waits or ends, each of the others may continue, which does not count as a preemption. Points are operations on
/// mutexes, condition variables, atomics and descriptors. A failed assertion shows the choices; DAT_SCHEDULE_CHOICES
/// replays them.
std::size_t explore_all(unsigned preemptions, const std::function<void(session&)>& body);
/// Whether DAT_SCHEDULE_CHOICES requests one order.
[[nodiscard]] bool replays();

} // namespace schedule
