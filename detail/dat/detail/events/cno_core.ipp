// Definitions of cno_core: its creation and end, triggers, threads that wait, and the agent.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/deadline.hpp>
#include <dat/detail/base/inside_dat.hpp>
#include <dat/detail/base/no_cancel.hpp>
#include <dat/detail/base/to_read.hpp>
#include <dat/detail/base/utility.hpp>
#include <dat/detail/events/cno_core.hpp>
#include <dat/detail/text/errno.hpp>

#include <array>
#include <cerrno>
#include <new>
#include <poll.h>
#include <sched.h>

namespace dat { inline namespace v0 { namespace detail {

// --- creation and end ------------------------------------------------------------------------------------------------

DAT_DECL cno_core::cno_core(ref<ia_core> ia, const wait_proxy_agent& agent) noexcept
    : ia_child(std::move(ia), table), agent_(agent) {
  task_.self = this;
  task_.run = [](task& t) noexcept {
    const ref<cno_core> self(static_cast<agent_task&>(t).self, adopt); // the task was armed with a reference
    self->call_agent();
  };
}

DAT_DECL result<ref<cno_core>> cno_core::create(const ref<ia_core>& ia, const wait_proxy_agent& agent) noexcept {
  const inside_dat section;
  static constexpr const char* call = "ia.create_cno";
  if (ia->closed()) return error(return_type::invalid_handle, return_subtype::handle_ia).at(call, object_kind::ia);
  if (auto ok = check(agent, call); !ok) return ok.assume_error();
  ref<cno_core> cno(new (std::nothrow) cno_core(ia, agent), adopt);
  if (!cno)
    return error(return_type::insufficient_resources, return_subtype::resource_memory).at(call, object_kind::cno);
  if (const int err = cno->trigger_.open())
    return map_errno(err, return_subtype::resource_device).at(call, object_kind::cno).from("eventfd", err);
  cno->private_.remember(cno->trigger_.get());
  return cno;
}

DAT_DECL expected<void> cno_core::check(const wait_proxy_agent& agent, const char* call) noexcept {
  if (agent.call || !agent.instance) return success();
  return at({return_type::invalid_parameter, return_subtype::arg2}, call)
      .hint("The agent has an instance but no function.");
}

DAT_DECL void cno_core::teardown() noexcept {
  {
    const std::lock_guard lock(mutex_);
    set(no_number); // wakes every thread that polls the descriptor or waits
  }
  // The calling thread may wait itself: a signal handler or an agent that its wait has called closes the ia.
  while (has_other_waiter()) ::sched_yield();
  // A closing ia calls an armed agent with no evd; a closed cno calls none.
  const bool last_call = [&] {
    const std::lock_guard lock(mutex_);
    if (!ia().closed()) agent_ = {};
    return agent_.call != nullptr;
  }();
  // The consumer may free the agent's data when this returns.
  while (running_.load(std::memory_order_acquire) && !ia().reactor.runs_here()) ::sched_yield();
  ref<cno_core> scheduled; // released without the lock
  const std::lock_guard lock(mutex_);
  if (last_call && agent_.call) {
    schedule_agent();
  } else if (scheduled_ && ia().reactor.cancel(task_)) { // no thread may run the reactor again
    scheduled_ = false;
    scheduled = ref<cno_core>(this, adopt);
  }
}

DAT_DECL expected<void> cno_core::close_fd() noexcept {
  if (shown_.exchange(false, std::memory_order_acq_rel)) return success();
  return at(return_type::invalid_state, "cno.close_fd").hint("The descriptor is closed already.");
}

// --- triggers --------------------------------------------------------------------------------------------------------

DAT_DECL void cno_core::set(std::uint64_t value) noexcept {
  if (foreign()) return; // the number may name another file in the child
  std::uint64_t old;
  [[maybe_unused]] auto n = ::read(trigger_.get(), &old, sizeof old); // a write adds to the value, so clear it first
  n = ::write(trigger_.get(), &value, sizeof value);
}

DAT_DECL bool cno_core::take(std::uint64_t& value) noexcept {
  if (::read(trigger_.get(), &value, sizeof value) != sizeof value) return false;
  {
    const std::lock_guard lock(mutex_);
    if (value != no_number || stale_ == 0 || dead()) {
      unseen_ = false;
      return true;
    }
    set(no_number); // wakes the waiters that have to leave
  }
  ::sched_yield();
  return false;
}

DAT_DECL void cno_core::trigger(std::uint32_t evd) noexcept {
  const std::lock_guard lock(mutex_);
  latest_.store(evd, std::memory_order_release);
  set(evd);
  if (agent_.call)
    schedule_agent();
  else
    unseen_ = true;
}

// Of the end of the handle and that of the last evd, the later one ends the cno.
DAT_DECL void cno_core::remove_user(bool freed) noexcept {
  if (users.fetch_sub(1, std::memory_order_seq_cst) != 1) return;
  if (!has_handle_.load(std::memory_order_seq_cst))
    end();
  else if (freed)
    abandoned();
}
DAT_DECL void cno_core::handle_ended() noexcept {
  has_handle_.store(false, std::memory_order_seq_cst);
  if (users.load(std::memory_order_seq_cst) == 0) end();
}

DAT_DECL void cno_core::abandoned() noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint32_t waiting = waiters.load(std::memory_order_relaxed); // only changed with the mutex held
  if (agent_.call == nullptr && waiting == 0) return;
  latest_.store(0, std::memory_order_release);
  if (waiting != 0) {
    era_.fetch_add(1, std::memory_order_release);
    stale_ = waiting;
  }
  set(no_number);
  if (agent_.call) schedule_agent();
}

// --- waiting ---------------------------------------------------------------------------------------------------------

/// A waiting thread, which cannot be cancelled during the wait.
class cno_core::waiter : public list_node {
public:
  explicit waiter(cno_core& c) noexcept : cno_(c) {
    const std::lock_guard lock(cno_.mutex_);
    cno_.waiting_.push_back(*this);
    cno_.waiters.fetch_add(1, std::memory_order_acq_rel);
    era_ = cno_.era_.load(std::memory_order_relaxed);
  }
  waiter(const waiter&) = delete;
  waiter& operator=(const waiter&) = delete;
  ~waiter() {
    const std::lock_guard lock(cno_.mutex_);
    if (is_stale()) pass_on();
    leave();
    cno_.waiters.fetch_sub(1, std::memory_order_release); // the cno may end once the mutex is released
  }
  [[nodiscard]] bool is_of_this_thread() const noexcept { return thread_ == &this_thread(); }
  /// Whether the last evd was freed while the thread waited.
  [[nodiscard]] bool is_stale() const noexcept { return cno_.era_.load(std::memory_order_acquire) != era_; }

private:
  /// The trigger wakes the next stale waiter; the last stale waiter takes the trigger. A trigger of an evd always
  /// stays.
  void pass_on() noexcept {
    std::uint64_t value = 0;
    const bool there = ::read(cno_.trigger_.get(), &value, sizeof value) == sizeof value;
    if (there && value != no_number)
      cno_.set(value);
    else if (cno_.stale_ > 1)
      cno_.set(no_number);
    --cno_.stale_;
  }

  no_cancel no_cancel_;
  cno_core& cno_;
  const char* const thread_ = &this_thread();
  std::uint32_t era_;
};

DAT_DECL bool cno_core::has_other_waiter() noexcept {
  const std::lock_guard lock(mutex_);
  return waiting_.find([](const waiter& w) { return !w.is_of_this_thread(); }) != nullptr;
}

DAT_DECL expected<evd_id> cno_core::wait(timeout limit) noexcept {
  static constexpr const char* call = "cno.wait";
  if (dead()) return at(return_type::invalid_handle, call);
  if (limit < timeout::zero())
    return at({return_type::invalid_parameter, return_subtype::arg2}, call).hint("The limit must not be negative.");
  const deadline until = deadline::in(limit);
  const waiter me(*this);
  const auto taken = [](std::uint64_t value) {
    return evd_id(value == no_number ? 0 : static_cast<std::uint32_t>(value));
  };
  for (;;) {
    ia().progress(0);
    if (me.is_stale() || ia().closed() || dead()) return evd_id();
    if (std::uint64_t value = 0; take(value)) return taken(value);
    std::array fds{to_read(trigger_.get()), to_read(ia().closing.get()),
                   to_read(ia().automatic() ? -1 : ia().reactor.fd())};
    const int ready = poll_until(fds.data(), fds.size(), until);
    const int err = errno;
    if (ready > 0 && ((fds[0].revents | fds[1].revents) & (POLLERR | POLLHUP | POLLNVAL)) != 0)
      return at(map_errno(EIO).from("ppoll", EIO), call)
          .hint("A descriptor of the cno was closed by the program. Close it with the cno only.");
    // Checked here, too: work of the reactor that another thread does, or an agent that calls this function, ends
    // every sleep at once.
    if (ready > 0 && !until.passed()) continue;
    if (me.is_stale()) return evd_id();
    if (std::uint64_t value = 0; take(value)) return taken(value);
    if (ready < 0)
      return at((err == EINTR ? error(return_type::interrupted_call) : map_errno(err)).from("ppoll", err), call);
    return at(return_type::queue_empty, call).hint("No evd of this cno had a new event within the limit.");
  }
}

// --- the agent -------------------------------------------------------------------------------------------------------

DAT_DECL wait_proxy_agent cno_core::agent() noexcept {
  evd_id last;
  return agent(last);
}

DAT_DECL wait_proxy_agent cno_core::agent(evd_id& last) noexcept {
  const std::lock_guard lock(mutex_);
  last = latest();
  return agent_;
}

DAT_DECL expected<void> cno_core::modify_agent(const wait_proxy_agent& agent) noexcept {
  static constexpr const char* call = "cno.modify_agent";
  if (auto ok = check(agent, call); !ok) return ok;
  const std::lock_guard lock(mutex_);
  if (dead()) return at(return_type::invalid_handle, call); // checked with the lock: see teardown
  agent_ = agent;
  // A trigger that no agent has seen calls the new one: it may have arrived between the consumer's last check and this
  // call.
  if (agent_.call && unseen_) schedule_agent();
  return success();
}

DAT_DECL void cno_core::schedule_agent() noexcept {
  if (std::exchange(scheduled_, true)) return;
  add_ref();
  ia().reactor.defer(task_);
}

DAT_DECL void cno_core::call_agent() noexcept {
  wait_proxy_agent agent;
  {
    const std::lock_guard lock(mutex_);
    scheduled_ = false;
    unseen_ = unseen_ && !agent_.call;
    agent = std::exchange(agent_, {}); // each agent is called once
    if (!agent.call) return;
    // Under the lock, so that a close either removes the agent or waits for it.
    running_.store(true, std::memory_order_release);
  }
  {
    const outside_dat consumer; // the agent may close the ia
    agent.call(agent.instance, dead() ? evd_id() : latest());
  }
  running_.store(false, std::memory_order_release);
}

}}} // namespace dat::v0::detail
