// The notification object behind dat::cno: remembers the latest trigger, wakes waiters, calls the agent.
//
// Its state is one eventfd that holds the number of the evd that triggered last: readable until somebody takes it, by
// read, by wait, or by nobody. So a trigger without a waiter is never lost, and the descriptor works in any event loop.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/evd_id.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/deadline.hpp>
#include <dat/detail/errno.hpp>
#include <dat/detail/ia_core.hpp>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <mutex>
#include <sched.h>
#include <sys/poll.h>

namespace dat::inline v0::detail {

class cno_core final : public ia_child {
public:
  [[nodiscard]] static result<ref<cno_core>> create(const ref<ia_core>& ia, const wait_proxy_agent& agent) noexcept {
    static constexpr const char* call = "ia.create_cno";
    if (ia->closed()) return error(return_type::invalid_handle, return_subtype::handle_ia).at(call, object_kind::ia);
    if (auto ok = check(agent, call); !ok) return ok.assume_error();
    ref<cno_core> cno(new (std::nothrow) cno_core(ia, agent), adopt);
    if (!cno)
      return error(return_type::insufficient_resources, return_subtype::resource_memory).at(call, object_kind::cno);
    int err = cno->trigger_.open();
    if (err == 0) err = cno->released_.open();
    if (err != 0)
      return map_errno(err, return_subtype::resource_device).at(call, object_kind::cno).from("eventfd", err);
    cno->shown_.store(::fcntl(cno->trigger_.get(), F_DUPFD_CLOEXEC, 0), std::memory_order_release);
    if (cno->fd() < 0) {
      err = errno;
      return map_errno(err, return_subtype::resource_device).at(call, object_kind::cno).from("fcntl", err);
    }
    return cno;
  }

  /// The consumer's descriptor of the trigger, or -1.
  [[nodiscard]] int fd() const noexcept { return shown_.load(std::memory_order_acquire); }
  [[nodiscard]] expected<void> close_fd() noexcept {
    static constexpr const char* call = "cno.close_fd";
    const int fd = shown_.exchange(-1, std::memory_order_acq_rel);
    if (fd < 0) return at(return_type::invalid_state, call).hint("it was closed before");
    if (!is_trigger(fd))
      return at(return_type::invalid_state, call)
          .hint("the program has closed it by itself; its number, which may stand for another file now, is left alone");
    ::close(fd);
    return success();
  }
  [[nodiscard]] evd_id latest() const noexcept { return evd_id(latest_.load(std::memory_order_acquire)); }
  [[nodiscard]] wait_proxy_agent agent() noexcept {
    const std::lock_guard lock(mutex_);
    return agent_;
  }

  /// An evd has an event that nobody waits for. May be called with an evd's lock held.
  void trigger(std::uint32_t evd) noexcept {
    const std::lock_guard lock(mutex_);
    latest_.store(evd, std::memory_order_release);
    set(evd);
    if (agent_.call)
      schedule_agent();
    else
      unseen_ = true;
  }

  /// The last evd was freed: all who wait learn that nothing will come.
  void abandoned() noexcept {
    const std::lock_guard lock(mutex_);
    const std::uint32_t waiting = waiters.load(std::memory_order_relaxed); // changed with the mutex held
    if (agent_.call == nullptr && waiting == 0) return;
    latest_.store(0, std::memory_order_release);
    if (waiting != 0) {
      releases_.fetch_add(1, std::memory_order_release);
      leaving_ += waiting;
      released_.raise();
    }
    if (agent_.call) {
      set(no_evd);
      schedule_agent();
    }
  }

  [[nodiscard]] expected<void> modify_agent(const wait_proxy_agent& agent) noexcept {
    static constexpr const char* call = "cno.modify_agent";
    if (auto ok = check(agent, call); !ok) return ok;
    const std::lock_guard lock(mutex_);
    if (dead()) return at(return_type::invalid_handle, call); // looked at with the lock: see teardown
    agent_ = agent;
    // A trigger that no agent has seen is shown to this one: it may have come between looking and re-arming.
    if (agent_.call && unseen_) schedule_agent();
    return success();
  }

  template <class Id>
  [[nodiscard]] expected<Id> wait(timeout limit) noexcept {
    static constexpr const char* call = "cno.wait";
    if (dead() || ia().foreign()) return at(return_type::invalid_handle, call);
    if (limit < timeout::zero())
      return at({return_type::invalid_parameter, return_subtype::arg2}, call).hint("the time-out is negative");
    const deadline until = deadline::in(limit);
    const waiter me(*this);
    const auto taken = [&](std::uint64_t value) {
      return evd_id(value == no_evd ? 0 : static_cast<std::uint32_t>(value));
    };
    for (;;) {
      ia().progress(0);
      if (std::uint64_t value = 0; take(value)) return taken(value);
      if (me.released() || ia().closed() || dead()) return evd_id();
      pollfd fds[4] = {{trigger_.get(), POLLIN, 0},
                       {ia().closing.get(), POLLIN, 0},
                       {released_.get(), POLLIN, 0},
                       {ia().reactor.fd(), POLLIN, 0}};
      const int ready = poll_until(fds, ia().automatic() ? 3 : 4, until);
      const int err = errno;
      if (ready > 0) {
        if ((fds[2].revents & POLLIN) != 0 && !me.released()) ::sched_yield(); // for those who were here before
        continue;
      }
      if (std::uint64_t value = 0; take(value)) return taken(value);
      if (me.released()) return evd_id();
      if (ready < 0) return at(map_errno(err).from("ppoll", err), call);
      return at(return_type::queue_empty, call).hint("no evd of this cno had an event within the time-out");
    }
  }

  std::atomic<std::uint32_t> users{0}; ///< evds that notify it
  std::atomic<std::uint32_t> waiters{0};

private:
  friend class ia_child;
  static constexpr child_kind kind_of_child = child_kind::notification;
  static const child_type table;
  static constexpr std::uint64_t no_evd = std::uint64_t{1} << 32; // eventfd cannot hold 0

  struct agent_timer : timer {
    cno_core* self = nullptr;
  };
  /// A thread that waits.
  class waiter {
  public:
    explicit waiter(cno_core& c) noexcept : cno_(c) {
      const std::lock_guard lock(cno_.mutex_);
      cno_.waiters.fetch_add(1, std::memory_order_acq_rel);
      before_ = cno_.releases_.load(std::memory_order_relaxed);
    }
    waiter(const waiter&) = delete;
    waiter& operator=(const waiter&) = delete;
    ~waiter() {
      const std::lock_guard lock(cno_.mutex_);
      const std::uint32_t missed = cno_.releases_.load(std::memory_order_relaxed) - before_;
      cno_.leaving_ -= missed;
      if (missed != 0 && cno_.leaving_ == 0) cno_.released_.clear();
      cno_.waiters.fetch_sub(1, std::memory_order_release); // the cno may go when this has let go of the mutex
    }
    /// The last evd was freed while it waited.
    [[nodiscard]] bool released() const noexcept { return cno_.releases_.load(std::memory_order_acquire) != before_; }

  private:
    cno_core& cno_;
    std::uint32_t before_;
  };

  cno_core(ref<ia_core> ia, const wait_proxy_agent& agent) noexcept : ia_child(std::move(ia), table), agent_(agent) {
    timer_.self = this;
    timer_.fired = [](timer& t) noexcept {
      const ref<cno_core> self(static_cast<agent_timer&>(t).self, adopt); // armed with a reference
      self->call_agent();
    };
  }
  ~cno_core() {
    if (const int fd = shown_.load(std::memory_order_acquire); fd >= 0 && is_trigger(fd)) ::close(fd);
  }
  /// Whether `fd` still is what was shown to the consumer, who may have closed it. Two descriptors of one open file
  /// have one signal number; as nobody asked for signals, it can be anything.
  [[nodiscard]] bool is_trigger(int fd) const noexcept {
    ::fcntl(trigger_.get(), F_SETSIG, SIGURG);
    const bool same = ::fcntl(fd, F_GETSIG) == SIGURG;
    ::fcntl(trigger_.get(), F_SETSIG, 0);
    return same && ::fcntl(fd, F_GETSIG) == 0;
  }

  [[nodiscard]] static error at(error e, const char* call) noexcept { return e.at(call, object_kind::cno); }
  [[nodiscard]] static expected<void> check(const wait_proxy_agent& agent, const char* call) noexcept {
    if (agent.call || !agent.instance) return success();
    return at({return_type::invalid_parameter, return_subtype::arg2}, call).hint("the agent has data but no function");
  }

  void set(std::uint64_t value) noexcept {
    std::uint64_t old;
    [[maybe_unused]] auto n = ::read(trigger_.get(), &old, sizeof old); // writing adds: take out what is there
    n = ::write(trigger_.get(), &value, sizeof value);
  }
  [[nodiscard]] bool take(std::uint64_t& value) noexcept {
    if (::read(trigger_.get(), &value, sizeof value) != sizeof value) return false;
    const std::lock_guard lock(mutex_);
    unseen_ = false;
    return true;
  }
  // The agent runs on the reactor, where no lock is held.
  void schedule_agent() noexcept {
    if (std::exchange(scheduled_, true)) return;
    add_ref();
    ia().reactor.arm(timer_, reactor::at_once);
  }
  void call_agent() noexcept {
    wait_proxy_agent agent;
    {
      const std::lock_guard lock(mutex_);
      scheduled_ = false;
      unseen_ = unseen_ && !agent_.call;
      agent = std::exchange(agent_, {}); // one call for each arming
      if (!agent.call) return;
      running_.store(true, std::memory_order_release); // under the lock: a close either takes the agent away, or waits
    }
    agent.call(agent.instance, dead() ? evd_id() : latest());
    running_.store(false, std::memory_order_release);
  }

  void teardown() noexcept {
    set(no_evd); // wakes whoever polls the descriptor or waits
    while (waiters.load(std::memory_order_acquire) != 0) ::sched_yield();
    // A closing ia shows an armed agent that nothing will come any more; a closed cno calls nobody.
    const bool last_call = [&] {
      const std::lock_guard lock(mutex_);
      if (!ia().closed()) agent_ = {};
      return agent_.call != nullptr;
    }();
    // The agent's data may go when this returns.
    while (running_.load(std::memory_order_acquire) && !ia().reactor.runs_here()) ::sched_yield();
    const std::lock_guard lock(mutex_);
    if (last_call && agent_.call) schedule_agent();
  }

  wake_fd trigger_;
  wake_fd released_;           // while threads are to leave
  std::atomic<int> shown_{-1}; // the consumer's own descriptor of it, which the consumer may close
  std::mutex mutex_;           // a leaf, but for the reactor's timers
  wait_proxy_agent agent_;
  std::atomic<bool> running_{false};
  bool scheduled_ = false;
  bool unseen_ = false;
  std::uint32_t leaving_ = 0;              // waiters that are to leave, once for each release
  std::atomic<std::uint32_t> releases_{0}; // how often the last evd was freed while threads waited
  std::atomic<std::uint32_t> latest_{0};
  agent_timer timer_;
};

inline constexpr child_type cno_core::table = type_for<cno_core>();

} // namespace dat::inline v0::detail
