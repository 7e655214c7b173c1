// Detects broken connections of a merged evd from which no thread takes completions.
//
// A failed completion is the only sign of some breaks. The device is armed for one completion at a time, and the queue
// is polled 20 ms after its notification. So a busy evd costs the reactor at most fifty polls a second, and an idle one
// no poll. A completions-only evd has no such watch: the consumer polls it, and breaks show in the completions.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/config.hpp>
#include <dat/detail/base/ref.hpp>
#include <dat/detail/progress/reactor.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace dat { inline namespace v0 { namespace detail {

class break_watch {
public:
  /// Called on the reactor, with no lock held and a reference to the owner: polls the queue and arms the device again.
  using look_function = void (*)(counted& owner) noexcept;
  static constexpr std::chrono::milliseconds pause{20};

  break_watch(counted& owner, reactor& r, look_function look) noexcept;
  break_watch(const break_watch&) = delete;
  break_watch& operator=(const break_watch&) = delete;

  /// From now on the evd gets the completions of a connection. Returns true for the first connection: the caller then
  /// arms the device.
  [[nodiscard]] bool add_connection() noexcept { return connections_.fetch_add(1, std::memory_order_seq_cst) == 0; }
  void remove_connection() noexcept { connections_.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] bool has_connections() const noexcept { return connections_.load(std::memory_order_seq_cst) != 0; }
  /// The device has notified: a check follows after the pause, unless one is due already.
  void look_later() noexcept;
  /// When the call returns, no check is under way in another thread and none follows.
  void stop() noexcept;

private:
  struct look_task : task {
    break_watch* self = nullptr;
  };
  void look_now() noexcept;

  counted& owner_;
  reactor& reactor_;
  look_function look_;
  std::atomic<std::uint32_t> connections_{0};
  std::atomic<bool> due_{false};     // the task is armed
  std::atomic<bool> looking_{false}; // the task runs
  std::atomic<bool> stopped_{false};
  look_task task_;
};

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/events/break_watch.ipp>
#endif
