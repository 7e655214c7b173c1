// The notification object behind dat::cno: stores the latest trigger, wakes waiters, calls the agent.
//
// Its state is one eventfd with the number of the evd that triggered last. The eventfd is readable until a thread takes
// the trigger, by read or by wait. So a trigger without a waiter is not lost, and the descriptor works in any event
// loop.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/evd_id.hpp>
#include <dat/expected.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/adapter/ia_core.hpp>
#include <dat/detail/base/closed_on_fork.hpp>
#include <dat/detail/base/config.hpp>
#include <dat/detail/base/control_mutex.hpp>
#include <dat/detail/base/fd.hpp>
#include <dat/detail/base/intrusive_list.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace dat { inline namespace v0 { namespace detail {

class cno_core final : public ia_child {
public:
  [[nodiscard]] static result<ref<cno_core>> create(const ref<ia_core>& ia, const wait_proxy_agent& agent) noexcept;

  /// The descriptor of the trigger, or -1 after close_fd and in a forked child.
  [[nodiscard]] int fd() const noexcept {
    return shown_.load(std::memory_order_acquire) && !foreign() ? trigger_.get() : -1;
  }
  [[nodiscard]] expected<void> close_fd() noexcept;
  [[nodiscard]] evd_id latest() const noexcept { return evd_id(latest_.load(std::memory_order_acquire)); }
  [[nodiscard]] wait_proxy_agent agent() noexcept;
  /// Returns the agent, and sets `last` to the evd that triggered the cno last.
  [[nodiscard]] wait_proxy_agent agent(evd_id& last) noexcept;

  /// An evd has an event that no thread waits for. The lock of an evd may be held.
  void trigger(std::uint32_t evd) noexcept;

  [[nodiscard]] expected<void> modify_agent(const wait_proxy_agent& agent) noexcept;
  [[nodiscard]] expected<evd_id> wait(timeout limit) noexcept;

  std::atomic<std::uint32_t> users{0}; ///< number of evds that notify the cno
  /// An evd no longer notifies the cno; `freed`: because it has ended.
  void remove_user(bool freed) noexcept;
  /// The cno has no handle. It ends now, or with its last evd: a reference that the reactor holds for the agent must
  /// not keep it.
  void handle_ended() noexcept;
  std::atomic<std::uint32_t> waiters{0};

  // Used by the table that ia_child::type_for makes.
  ~cno_core() = default;
  void teardown() noexcept;
  static constexpr child_kind kind_of_child = child_kind::notification;

private:
  static const child_type table;
  static constexpr std::uint64_t no_number = std::uint64_t{1} << 32; // in place of 0, which an eventfd cannot hold

  struct agent_task : task {
    cno_core* self = nullptr;
  };
  class waiter;

  cno_core(ref<ia_core> ia, const wait_proxy_agent& agent) noexcept;
  /// The last evd was freed: all waiters return, with an empty id.
  void abandoned() noexcept;

  [[nodiscard]] static error at(error e, const char* call) noexcept { return e.at(call, object_kind::cno); }
  [[nodiscard]] static expected<void> check(const wait_proxy_agent& agent, const char* call) noexcept;

  /// True when a thread other than the calling one waits.
  [[nodiscard]] bool has_other_waiter() noexcept;
  void set(std::uint64_t value) noexcept; // called with mutex_ held
  /// Takes the trigger, unless it is only there for waiters from before the cno was abandoned.
  [[nodiscard]] bool take(std::uint64_t& value) noexcept;
  // The agent runs on the reactor, where no lock is held.
  void schedule_agent() noexcept; // called with mutex_ held
  void call_agent() noexcept;

  wake_fd trigger_;
  closed_on_fork private_;        // a child must not take triggers of its parent
  std::atomic<bool> shown_{true}; // the consumer has not closed the descriptor
  control_mutex mutex_;           // a leaf, except for the lock of the reactor
  wait_proxy_agent agent_;
  std::atomic<bool> running_{false};
  std::atomic<bool> has_handle_{true};
  intrusive_list<waiter> waiting_;
  bool scheduled_ = false;
  bool unseen_ = false;               // a trigger that neither an agent nor a waiter has seen
  std::atomic<std::uint32_t> era_{0}; // incremented when the cno is abandoned while threads wait
  std::uint32_t stale_ = 0;           // waiters of earlier eras, which are leaving
  std::atomic<std::uint32_t> latest_{0};
  agent_task task_;
};

inline constexpr child_type cno_core::table = type_for<cno_core>();

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/events/cno_core.ipp>
#endif
