// The reactor of an ia: everything that happens without the consumer asking goes through its epoll set.
//
// It knows descriptors, timers and a wake-up, nothing of RDMA. With automatic progress one thread runs it; with manual
// progress the same `run` is called by whatever the consumer calls.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/deadline.hpp>
#include <dat/detail/fd.hpp>
#include <dat/detail/ref.hpp>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

namespace dat::inline v0::detail {

/// Something whose descriptor the reactor watches. `ready` is called with no lock held and must not block.
struct event_source {
  void (*ready)(event_source&) noexcept;
};

/// A one-shot timer. `fired` is called on the reactor with no lock held.
struct timer : list_node {
  void (*fired)(timer&) noexcept = nullptr;
  clock::time_point at{};
};

/// Something to be done by the reactor when it holds no lock: to wake a thread that would need the lock at once.
struct afterthought : list_node {
  void (*done)(afterthought&) noexcept = nullptr;
};

class reactor {
public:
  reactor() noexcept = default;
  reactor(const reactor&) = delete;
  reactor& operator=(const reactor&) = delete;

  /// Creates the descriptors. Returns 0 or errno.
  [[nodiscard]] int open() noexcept {
    epoll_ = unique_fd(::epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_) return errno;
    timer_fd_ = unique_fd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    if (!timer_fd_) return errno;
    if (const int err = wake_.open()) return err;
    if (const int err = watch(timer_fd_.get(), timers_ready_)) return err;
    return watch(wake_.get(), woken_);
  }

  /// Adds a descriptor; with `once`, `source` is called once, and again when `watch_again` was. Returns 0 or errno.
  [[nodiscard]] int watch(int fd, event_source& source, bool once = false) noexcept {
    return control(EPOLL_CTL_ADD, fd, source, once);
  }
  int watch_again(int fd, event_source& source, bool once) noexcept { return control(EPOLL_CTL_MOD, fd, source, once); }

  /// Takes a descriptor out again. When this returns, `source` is not in use and will not be used.
  void unwatch(int fd, event_source& source) noexcept {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    if (runs_here()) { // called by something that the reactor calls
      for (int i = 0; i < ready_count_; ++i)
        if (ready_[i].data.ptr == &source) ready_[i].data.ptr = &ignored_;
      return;
    }
    const std::uint32_t round = rounds_.load(std::memory_order_acquire);
    wake_.raise(); // a round that sleeps ends
    while (rounds_.load(std::memory_order_acquire) == round) {
      if (const std::unique_lock turn(turn_, std::try_to_lock); turn) return;
      ::sched_yield();
    }
  }

  /// Returns when all that is due now has been done, and nothing of it is still being done.
  void settle() noexcept {
    if (runs_here()) return;
    for (int i = 0; i < 2; ++i) { // a round that is under way may have looked at the timers already
      const std::uint32_t round = rounds_.load(std::memory_order_acquire);
      wake_.raise();
      if (!threaded_) run(0);
      while (threaded_ && rounds_.load(std::memory_order_acquire) == round) ::sched_yield();
    }
  }

  /// Calls `f`, then what it has put off. Only for what calls nothing of the consumer's, who might wait for it.
  template <class F>
  void putting_off(F f) noexcept {
    puts_off_ = true;
    f();
    puts_off_ = false;
    while (afterthought* const a = afterthoughts_.pop_front()) a->done(*a);
  }
  /// Puts `a` off until then; false when there is no such moment, or `a` has been put off already.
  [[nodiscard]] bool put_off(afterthought& a) noexcept {
    if (!runs_here() || !puts_off_ || a.linked()) return false;
    afterthoughts_.push_back(a);
    return true;
  }

  /// Whether the caller is called by something that the reactor calls.
  [[nodiscard]] bool runs_here() const noexcept { return runner_.load(std::memory_order_relaxed) == &here(); }

  /// Readable when `run` has something to do.
  [[nodiscard]] int fd() const noexcept { return epoll_.get(); }

  /// Handles what is ready, waiting up to `wait_ms` (-1: for ever) for the first of it. Calls from several threads
  /// take turns; one that finds another at work returns at once.
  void run(int wait_ms) noexcept {
    std::unique_lock turn(turn_, std::try_to_lock);
    if (!turn) return;
    runner_.store(&here(), std::memory_order_relaxed);
    ready_count_ = ::epoll_wait(epoll_.get(), ready_, 16, wait_ms);
    for (int i = 0; i < ready_count_; ++i) {
      auto& source = *static_cast<event_source*>(ready_[i].data.ptr);
      source.ready(source);
    }
    runner_.store(nullptr, std::memory_order_relaxed);
    rounds_.fetch_add(1, std::memory_order_release);
  }

  /// Starts the service thread. `body` is called there with `context` and must call `loop`. All signals are blocked in
  /// it: handlers belong to the consumer's threads. Returns 0 or errno.
  [[nodiscard]] int start(void* (*body)(void*), void* context) noexcept {
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int err = pthread_create(&thread_, nullptr, body, context);
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    threaded_ = err == 0;
    return err;
  }
  void loop() noexcept {
    while (!stopping_.load(std::memory_order_acquire)) run(-1);
  }
  [[nodiscard]] bool on_service_thread() const noexcept {
    return threaded_ && pthread_equal(pthread_self(), thread_) != 0;
  }
  /// Ends the service thread. Called on the thread itself it only asks: the thread leaves `loop` and nobody joins it.
  void stop() noexcept {
    stopping_.store(true, std::memory_order_release);
    if (!threaded_) return;
    if (on_service_thread()) {
      pthread_detach(thread_);
      return;
    }
    wake_.raise();
    pthread_join(thread_, nullptr);
    threaded_ = false;
  }

  /// Due when it is armed.
  static constexpr clock::time_point at_once{};
  /// Arms a timer that is not armed.
  void arm(timer& t, clock::time_point at) noexcept {
    const std::lock_guard lock(mutex_);
    t.at = at;
    timer* where = timers_.back(); // later timers mostly end later: look from the back
    while (where && where->at > at) where = timers_.before(*where);
    timers_.insert_after(where, t);
    // What was cancelled leaves the descriptor set: most timers are, and the one that follows mostly ends later.
    if (at == at_once)
      wake_.raise(); // nobody need wait for the kernel's timers then, nor find that they have not gone off yet
    else if (at < set_for_)
      set_timer_fd(at);
  }
  /// True when the timer was armed and will not fire; false when it is not armed or its `fired` runs or has run.
  bool cancel(timer& t) noexcept {
    const std::lock_guard lock(mutex_);
    if (!t.linked()) return false;
    t.unlink();
    return true;
  }

private:
  struct member_source : event_source {
    reactor* self;
    member_source(reactor* r, void (*f)(event_source&) noexcept) noexcept : event_source{f}, self(r) {}
  };

  [[nodiscard]] int control(int what, int fd, event_source& source, bool once) noexcept {
    epoll_event e{};
    e.events = once ? EPOLLIN | EPOLLONESHOT : EPOLLIN;
    e.data.ptr = &source;
    return ::epoll_ctl(epoll_.get(), what, fd, &e) == 0 ? 0 : errno;
  }
  /// An address of the calling thread's own.
  static const char& here() noexcept {
    thread_local const char place = 0;
    return place;
  }
  static void on_timers(event_source& s) noexcept {
    reactor& self = *static_cast<member_source&>(s).self;
    std::uint64_t expirations;
    [[maybe_unused]] const auto n = ::read(self.timer_fd_.get(), &expirations, sizeof expirations);
    self.fire_due(true);
  }
  static void on_wake(event_source& s) noexcept {
    reactor& self = *static_cast<member_source&>(s).self;
    self.wake_.clear();
    self.fire_due(false);
  }

  /// `timed`: the descriptor of the timers has gone off, and is to be set for the next one.
  void fire_due(bool timed) noexcept {
    for (;;) {
      timer* due;
      {
        const std::lock_guard lock(mutex_);
        due = timers_.front();
        if (!due || due->at > clock::now()) {
          if (!timed) return;
          if (due) return set_timer_fd(due->at);
          set_for_ = clock::time_point::max();
          return;
        }
        timers_.pop_front();
      }
      due->fired(*due);
    }
  }

  void set_timer_fd(clock::time_point at) noexcept { // with mutex_ held
    set_for_ = at;
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
    itimerspec spec{};
    spec.it_value.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
    spec.it_value.tv_nsec = static_cast<long>(ns % 1'000'000'000);
    ::timerfd_settime(timer_fd_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
  }

  unique_fd epoll_;
  unique_fd timer_fd_;
  wake_fd wake_;
  member_source timers_ready_{this, &on_timers};
  member_source woken_{this, &on_wake};
  event_source ignored_{[](event_source&) noexcept {}};
  std::mutex turn_; // guards ready_ and what follows
  epoll_event ready_[16];
  int ready_count_ = 0;
  bool puts_off_ = false;
  intrusive_list<afterthought> afterthoughts_;
  std::atomic<const char*> runner_{nullptr};
  std::atomic<std::uint32_t> rounds_{0};
  std::mutex mutex_; // guards timers_ and set_for_
  intrusive_list<timer> timers_;
  clock::time_point set_for_ = clock::time_point::max(); // when the timers are looked at next
  std::atomic<bool> stopping_{false};
  bool threaded_ = false;
  pthread_t thread_{};
};

} // namespace dat::inline v0::detail
