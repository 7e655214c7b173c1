// The reactor of an ia: one epoll set for all work that no call of the consumer does.
//
// The reactor handles descriptors, tasks and a wake-up, and nothing of RDMA. With automatic progress one thread runs
// it. With manual progress the calls of the consumer run it.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/config.hpp>
#include <dat/detail/base/control_mutex.hpp>
#include <dat/detail/base/deadline.hpp>
#include <dat/detail/base/fd.hpp>
#include <dat/detail/base/intrusive_list.hpp>
#include <dat/detail/base/ref.hpp>
#include <dat/detail/base/utility.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <pthread.h>
#include <sys/epoll.h>

namespace dat { inline namespace v0 { namespace detail {

/// The owner of a descriptor. The reactor calls `ready` when the descriptor is readable, with no lock held. `ready`
/// must not block.
struct event_source {
  void (*ready)(event_source&) noexcept;
};

/// Work that an object defers to the reactor, for now or for a later time: see reactor::defer. The object embeds the
/// task and keeps a reference to itself while the task is armed.
struct task : list_node {
  /// Called once on the reactor, with no lock held, however often the task was deferred since the last call.
  void (*run)(task&) noexcept = nullptr;

private:
  friend class reactor;
  clock::time_point at_{}; // guarded by the reactor's lock
};

class reactor {
public:
  reactor() noexcept = default;
  reactor(const reactor&) = delete;
  reactor& operator=(const reactor&) = delete;

  /// Creates the descriptors. Returns 0 or errno.
  [[nodiscard]] int open() noexcept;

  // --- descriptors ---------------------------------------------------------------------------------------------------

  /// Adds a descriptor. With `once`, the reactor calls `source` once, and again after `watch_again`. Returns 0 or
  /// errno.
  [[nodiscard]] int watch(int fd, event_source& source, bool once = false) noexcept;
  int watch_again(int fd, event_source& source, bool once) noexcept;
  /// Removes a descriptor. When the call has returned, the reactor no longer uses `source`.
  void unwatch(int fd, event_source& source) noexcept;

  // --- tasks ---------------------------------------------------------------------------------------------------------

  /// The time for tasks that are due at once.
  static constexpr clock::time_point at_once{};

  /// Arms the task for `at` unless it is armed for an earlier time. Returns true when the task was idle. The next call
  /// of `run` then results from this call, and the caller provides the reference that keeps the owner. Thread safety:
  /// safe.
  bool defer(task& t, clock::time_point at = at_once) noexcept;
  /// Cancels the task. Returns true when the task was armed, so that `run` is not called for it. Returns
  /// false when the task is idle; its `run` may be in progress then. Thread safety: safe.
  bool cancel(task& t) noexcept;

  /// Calls `f`. Tasks that are due at once and that `f` defers run after it, without the wake-up of the reactor. Used
  /// on the reactor only, for code that holds locks which a woken thread needs at once, and that calls no consumer
  /// code.
  template <class F>
  void batching_tasks(F f) noexcept {
    batching_ = true;
    f();
    batching_ = false;
    run_ready_tasks();
  }
  /// True while the reactor is inside batching_tasks in the calling thread.
  [[nodiscard]] bool batches_tasks() const noexcept { return runs_here() && batching_; }

  // --- running -------------------------------------------------------------------------------------------------------

  /// Handles all due work, and waits up to `wait_ms` (-1: without a limit) if there is none. Calls from several threads
  /// take turns: a call that finds another one in progress returns at once.
  void run(int wait_ms) noexcept;
  /// Returns when everything that is due now has been handled. On the reactor, the call returns at once, and the
  /// present round ends with it.
  void settle() noexcept;
  /// True when the calling code runs on the reactor.
  [[nodiscard]] bool runs_here() const noexcept { return runner_.load(std::memory_order_relaxed) == &this_thread(); }
  /// Readable when `run` has work to do.
  [[nodiscard]] int fd() const noexcept { return epoll_.get(); }

  /// Starts the service thread, which calls `body(context)`; `body` must call `loop`. The thread blocks all signals:
  /// handlers belong to the consumer's threads. Returns 0 or errno.
  [[nodiscard]] int start(void* (*body)(void*), void* context) noexcept;
  void loop() noexcept;
  [[nodiscard]] bool on_service_thread() const noexcept {
    return threaded_ && pthread_equal(pthread_self(), thread_) != 0;
  }
  /// Ends the service thread. On the service thread itself, the call only requests the end: the thread leaves `loop`,
  /// and no thread joins it.
  void stop() noexcept;

private:
  struct member_source : event_source {
    reactor* self;
    member_source(reactor* r, void (*f)(event_source&) noexcept) noexcept : event_source{f}, self(r) {}
  };

  [[nodiscard]] int control(int what, int fd, event_source& source, bool once) noexcept;
  static void on_timer_fd(event_source& s) noexcept;
  static void on_wake(event_source& s) noexcept;
  void run_ready_tasks() noexcept;
  void run_due_tasks() noexcept;
  void set_timer_fd(clock::time_point at) noexcept; // called with mutex_ held

  unique_fd epoll_;
  unique_fd timer_fd_;
  wake_fd wake_;
  member_source timer_source_{this, &on_timer_fd};
  member_source wake_source_{this, &on_wake};
  event_source ignored_{[](event_source&) noexcept {}};
  std::mutex turn_; // guards the four members that follow
  epoll_event ready_[16];
  int ready_count_ = 0;
  bool batching_ = false;
  bool settling_ = false; // settle was called in this round
  std::atomic<const char*> runner_{nullptr};
  std::atomic<std::uint32_t> rounds_{0};
  control_mutex mutex_;                                   // a leaf; guards the following members
  intrusive_list<task> due_now_;                          // in the order in which they were deferred
  intrusive_list<task> scheduled_;                        // in the order of their times
  clock::time_point timer_at_ = clock::time_point::max(); // the time that the timer descriptor is set to
  std::atomic<bool> stopping_{false};
  bool threaded_ = false;
  pthread_t thread_{};
};

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/progress/reactor.ipp>
#endif
