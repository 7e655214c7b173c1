// Definitions of the reactor.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/inside_dat.hpp>
#include <dat/detail/progress/reactor.hpp>

#include <cerrno>
#include <csignal>
#include <sched.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL int reactor::open() noexcept {
  epoll_ = unique_fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return errno;
  timer_fd_ = unique_fd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer_fd_) return errno;
  if (const int err = wake_.open()) return err;
  if (const int err = watch(timer_fd_.get(), timer_source_)) return err;
  return watch(wake_.get(), wake_source_);
}

// --- descriptors -----------------------------------------------------------------------------------------------------

DAT_DECL int reactor::control(int what, int fd, event_source& source, bool once) noexcept {
  epoll_event e{};
  e.events = once ? EPOLLIN | EPOLLONESHOT : EPOLLIN;
  e.data.ptr = &source;
  return ::epoll_ctl(epoll_.get(), what, fd, &e) == 0 ? 0 : errno;
}

DAT_DECL int reactor::watch(int fd, event_source& source, bool once) noexcept {
  return control(EPOLL_CTL_ADD, fd, source, once);
}
DAT_DECL int reactor::watch_again(int fd, event_source& source, bool once) noexcept {
  return control(EPOLL_CTL_MOD, fd, source, once);
}

DAT_DECL void reactor::unwatch(int fd, event_source& source) noexcept {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  if (runs_here()) { // the rest of this round must not call the source
    for (int i = 0; i < ready_count_; ++i)
      if (ready_[i].data.ptr == &source) ready_[i].data.ptr = &ignored_;
    return;
  }
  const std::uint32_t round = rounds_.load(std::memory_order_acquire);
  wake_.raise(); // ends a sleeping round
  while (rounds_.load(std::memory_order_acquire) == round) {
    if (const std::unique_lock turn(turn_, std::try_to_lock); turn) return;
    ::sched_yield();
  }
}

// --- tasks -----------------------------------------------------------------------------------------------------------

DAT_DECL bool reactor::defer(task& t, clock::time_point at) noexcept {
  const std::lock_guard lock(mutex_);
  const bool idle = !t.linked();
  if (!idle) {
    if (t.at_ <= at) return false;
    t.unlink();
  }
  t.at_ = at;
  if (at == at_once) {
    due_now_.push_back(t);
    if (!batches_tasks()) wake_.raise(); // a timer that is set to a past time would fire with a delay
    return idle;
  }
  // Most tasks are deferred to a later time than all others, so the search begins at the end.
  task* before = scheduled_.back();
  while (before && before->at_ > at) before = scheduled_.before(*before);
  scheduled_.insert_after(before, t);
  // A cancelled task leaves the timer set: most tasks are cancelled, and the next one is mostly due later.
  if (at < timer_at_) set_timer_fd(at);
  return idle;
}

DAT_DECL bool reactor::cancel(task& t) noexcept {
  const std::lock_guard lock(mutex_);
  if (!t.linked()) return false;
  t.unlink();
  return true;
}

/// Runs the tasks that are due at once. A task that these tasks defer runs in a later round, so that a task which
/// always defers itself does not block the reactor's other work.
DAT_DECL void reactor::run_ready_tasks() noexcept {
  const task* last = nullptr;
  {
    const std::lock_guard lock(mutex_);
    last = due_now_.back();
  }
  for (bool more = last != nullptr; more;) {
    task* t;
    {
      const std::lock_guard lock(mutex_);
      t = due_now_.pop_front();
      if (!t) return;
      more = t != last;
    }
    t->run(*t);
  }
}

DAT_DECL void reactor::run_due_tasks() noexcept {
  const auto now = clock::now();
  for (;;) {
    task* t;
    {
      const std::lock_guard lock(mutex_);
      t = scheduled_.pop_front_if([&](const task& first) { return first.at_ <= now; });
      if (!t) {
        const task* const next = scheduled_.front();
        if (next) return set_timer_fd(next->at_);
        timer_at_ = clock::time_point::max();
        return;
      }
    }
    t->run(*t);
  }
}

DAT_DECL void reactor::set_timer_fd(clock::time_point at) noexcept {
  timer_at_ = at;
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
  itimerspec spec{};
  spec.it_value.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
  spec.it_value.tv_nsec = static_cast<long>(ns % 1'000'000'000);
  ::timerfd_settime(timer_fd_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

DAT_DECL void reactor::on_timer_fd(event_source& s) noexcept {
  reactor& self = *static_cast<member_source&>(s).self;
  std::uint64_t expirations;
  [[maybe_unused]] const auto n = ::read(self.timer_fd_.get(), &expirations, sizeof expirations);
  self.run_due_tasks();
}
DAT_DECL void reactor::on_wake(event_source& s) noexcept {
  reactor& self = *static_cast<member_source&>(s).self;
  self.wake_.clear();
  self.run_ready_tasks();
}

// --- running ---------------------------------------------------------------------------------------------------------

DAT_DECL void reactor::run(int wait_ms) noexcept {
  if (runs_here()) return; // called by code that the reactor runs: the thread owns the turn
  std::unique_lock turn(turn_, std::try_to_lock);
  if (!turn) return;
  const inside_dat round;
  runner_.store(&this_thread(), std::memory_order_relaxed);
  ready_count_ = ::epoll_wait(epoll_.get(), ready_, 16, wait_ms);
  for (int i = 0; i < ready_count_; ++i) {
    auto& source = *static_cast<event_source*>(ready_[i].data.ptr);
    source.ready(source);
  }
  if (std::exchange(settling_, false)) run_ready_tasks();
  runner_.store(nullptr, std::memory_order_relaxed);
  rounds_.fetch_add(1, std::memory_order_release);
}

DAT_DECL void reactor::settle() noexcept {
  if (runs_here()) { // with manual progress, no other round may follow
    settling_ = true;
    return;
  }
  for (int i = 0; i < 2; ++i) { // a round in progress may have checked the tasks already
    const std::uint32_t round = rounds_.load(std::memory_order_acquire);
    wake_.raise();
    for (;;) {
      if (!threaded_) run(0);
      if (rounds_.load(std::memory_order_acquire) != round) break;
      ::sched_yield();
    }
  }
}

DAT_DECL int reactor::start(void* (*body)(void*), void* context) noexcept {
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  const int err = pthread_create(&thread_, nullptr, body, context);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  threaded_ = err == 0;
  return err;
}

DAT_DECL void reactor::loop() noexcept {
  while (!stopping_.load(std::memory_order_acquire)) run(-1);
}

DAT_DECL void reactor::stop() noexcept {
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

}}} // namespace dat::v0::detail
