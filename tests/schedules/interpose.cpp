// The functions of the C library at which the threads of a session may switch. Outside a session they do what they
// always do. SPDX-License-Identifier: BSL-1.0
#include "agents.hpp"

#include <cerrno>
#include <ctime>
#include <utility>

#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

using namespace schedule::impl;

namespace {

template <class F>
F next(const char* name, const char* version = nullptr) {
  void* const found = version ? ::dlvsym(RTLD_NEXT, name, version) : ::dlsym(RTLD_NEXT, name);
  return reinterpret_cast<F>(found);
}

constexpr nanoseconds second = 1'000'000'000;
nanoseconds in_ns(const timespec& t) { return t.tv_sec * second + t.tv_nsec; }
timespec in_timespec(nanoseconds n) { return {n / second, n % second}; }

int real_lock(pthread_mutex_t* m) {
  static const auto f = next<int (*)(pthread_mutex_t*)>("pthread_mutex_lock");
  return f(m);
}
int real_trylock(pthread_mutex_t* m) {
  static const auto f = next<int (*)(pthread_mutex_t*)>("pthread_mutex_trylock");
  return f(m);
}
int real_unlock(pthread_mutex_t* m) {
  static const auto f = next<int (*)(pthread_mutex_t*)>("pthread_mutex_unlock");
  return f(m);
}

int lock(pthread_mutex_t* m) {
  for (;;) {
    const int r = real_trylock(m);
    if (r != EBUSY) return r;
    block(m, "pthread_mutex_lock");
  }
}
void unlock(pthread_mutex_t* m) {
  real_unlock(m);
  wake(m);
}

int wait(pthread_cond_t* c, pthread_mutex_t* m, nanoseconds deadline) {
  unlock(m);
  const bool woken = block(c, "pthread_cond_wait", deadline);
  (void)lock(m);
  return woken ? 0 : ETIMEDOUT;
}

/// Calls `attempt`, which never sleeps, until it finds something or `limit` has passed; negative: no limit.
template <class Attempt>
int until_ready(Attempt attempt, nanoseconds limit, const char* call) {
  point();
  const nanoseconds deadline = limit < 0 ? forever : now() + limit;
  for (;;) {
    const int r = attempt();
    if (r != 0 || limit == 0) return r;
    if (!wait_for_change(call, deadline)) return attempt();
  }
}
nanoseconds of_milliseconds(int ms) { return ms < 0 ? -1 : nanoseconds(ms) * 1'000'000; }

} // namespace

namespace schedule::impl {

int real_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) noexcept {
  static const auto f = next<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  return f(thread, attributes, body, argument);
}

nanoseconds real_now() noexcept {
  timespec t{};
  ::syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
  return in_ns(t);
}

void fire(int fd) noexcept {
  const itimerspec soon{{}, {0, 1}};
  if (::syscall(SYS_timerfd_settime, fd, 0, &soon, nullptr) != 0) return; // closed meanwhile
  pollfd p{fd, POLLIN, 0};
  ::syscall(SYS_poll, &p, 1, 1000);
}

} // namespace schedule::impl

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* m) noexcept {
  if (!self()) return real_lock(m);
  point();
  return lock(m);
}
int pthread_mutex_trylock(pthread_mutex_t* m) noexcept {
  point();
  return real_trylock(m);
}
int pthread_mutex_unlock(pthread_mutex_t* m) noexcept {
  if (!self()) return real_unlock(m);
  unlock(m);
  point();
  return 0;
}

int pthread_cond_wait(pthread_cond_t* c, pthread_mutex_t* m) {
  if (self()) return wait(c, m, forever);
  static const auto f = next<int (*)(pthread_cond_t*, pthread_mutex_t*)>("pthread_cond_wait", "GLIBC_2.3.2");
  return f(c, m);
}
int pthread_cond_clockwait(pthread_cond_t* c, pthread_mutex_t* m, clockid_t clock, const timespec* until) {
  if (self() && clock == CLOCK_MONOTONIC) return wait(c, m, in_ns(*until));
  if (self()) {
    timespec t{};
    ::syscall(SYS_clock_gettime, clock, &t);
    return wait(c, m, now() + in_ns(*until) - in_ns(t));
  }
  static const auto f =
      next<int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>("pthread_cond_clockwait");
  return f(c, m, clock, until);
}
int pthread_cond_timedwait(pthread_cond_t* c, pthread_mutex_t* m, const timespec* until) {
  if (self()) return pthread_cond_clockwait(c, m, CLOCK_REALTIME, until);
  static const auto f =
      next<int (*)(pthread_cond_t*, pthread_mutex_t*, const timespec*)>("pthread_cond_timedwait", "GLIBC_2.3.2");
  return f(c, m, until);
}
int pthread_cond_signal(pthread_cond_t* c) noexcept {
  wake(c, false);
  static const auto f = next<int (*)(pthread_cond_t*)>("pthread_cond_signal", "GLIBC_2.3.2");
  const int r = f(c);
  point();
  return r;
}
int pthread_cond_broadcast(pthread_cond_t* c) noexcept {
  wake(c);
  static const auto f = next<int (*)(pthread_cond_t*)>("pthread_cond_broadcast", "GLIBC_2.3.2");
  const int r = f(c);
  point();
  return r;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) noexcept {
  if (!self()) return real_create(thread, attributes, body, argument);
  const int r = start(thread, attributes, body, argument);
  point();
  return r;
}
int pthread_join(pthread_t thread, void** result) {
  if (self()) (void)await_end(thread);
  static const auto f = next<int (*)(pthread_t, void**)>("pthread_join");
  return f(thread, result);
}

int sched_yield() noexcept {
  if (self())
    yield();
  else
    ::syscall(SYS_sched_yield);
  return 0;
}

int poll(pollfd* all, nfds_t n, int limit) {
  if (!self()) return static_cast<int>(::syscall(SYS_poll, all, n, limit));
  return until_ready([&] { return static_cast<int>(::syscall(SYS_poll, all, n, 0)); }, of_milliseconds(limit), "poll");
}
int ppoll(pollfd* all, nfds_t n, const timespec* limit, const sigset_t* signals) {
  if (!self()) {
    timespec rest = limit ? *limit : timespec{};
    return static_cast<int>(::syscall(SYS_ppoll, all, n, limit ? &rest : nullptr, signals, 8));
  }
  return until_ready([&] { return static_cast<int>(::syscall(SYS_poll, all, n, 0)); }, limit ? in_ns(*limit) : -1,
                     "ppoll");
}
int epoll_wait(int fd, epoll_event* all, int most, int limit) {
  const auto attempt = [&](int ms) { return static_cast<int>(::syscall(SYS_epoll_wait, fd, all, most, ms)); };
  if (!self()) return attempt(limit);
  return until_ready([&] { return attempt(0); }, of_milliseconds(limit), "epoll_wait");
}
ssize_t write(int fd, const void* data, size_t n) {
  const auto r = ::syscall(SYS_write, fd, data, n);
  changed();
  point();
  return r;
}
int eventfd_write(int fd, std::uint64_t value) { return ::write(fd, &value, sizeof value) == sizeof value ? 0 : -1; }

int timerfd_settime(int fd, int flags, const itimerspec* to, itimerspec* old) noexcept {
  if (!self() || old || to->it_interval.tv_sec != 0 || to->it_interval.tv_nsec != 0)
    return static_cast<int>(::syscall(SYS_timerfd_settime, fd, flags, to, old));
  const nanoseconds when = in_ns(to->it_value);
  const itimerspec none{};
  ::syscall(SYS_timerfd_settime, fd, 0, &none, nullptr);
  set_timer(fd, when == 0 ? forever : when + ((flags & TFD_TIMER_ABSTIME) != 0 ? 0 : now()));
  return 0;
}
int clock_gettime(clockid_t clock, timespec* t) noexcept {
  if (clock != CLOCK_MONOTONIC) return static_cast<int>(::syscall(SYS_clock_gettime, clock, t));
  *t = in_timespec(now());
  return 0;
}
int clock_nanosleep(clockid_t clock, int flags, const timespec* how_long, timespec* rest) {
  if (!self()) return static_cast<int>(::syscall(SYS_clock_nanosleep, clock, flags, how_long, rest)) == 0 ? 0 : errno;
  if (clock == CLOCK_MONOTONIC || (flags & TIMER_ABSTIME) == 0)
    (void)block(how_long, "clock_nanosleep", in_ns(*how_long) + ((flags & TIMER_ABSTIME) != 0 ? 0 : now()));
  return 0;
}
int nanosleep(const timespec* how_long, timespec* rest) {
  if (!self()) return static_cast<int>(::syscall(SYS_nanosleep, how_long, rest));
  return clock_nanosleep(CLOCK_MONOTONIC, 0, how_long, rest);
}

} // extern "C"
