// The endpoint as work rings and evds see it: its present life, what holds its completions back, and its deferred work.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ep_attributes.hpp>

#include <dat/detail/base/ref.hpp>
#include <dat/detail/work/watermarks.hpp>
#include <dat/detail/work/work_arena.hpp>

#include <atomic>
#include <cstdint>

namespace dat { inline namespace v0 { namespace detail {

/// The state of an endpoint that has ended. It is no DAT state: every call answers invalid_handle.
inline constexpr ep_state ep_dead = static_cast<ep_state>(255);

/// The base of every endpoint. An evd reads it for each completion, so its functions on that path are neither virtual
/// nor in a table. Only higher layers know the type of the endpoint.
class completion_owner {
public:
  completion_owner(const completion_owner&) = delete;
  completion_owner& operator=(const completion_owner&) = delete;

  [[nodiscard]] ep_state state() const noexcept { return state_.load(std::memory_order_acquire); }
  /// The present life. Any wr_id of a life names it.
  [[nodiscard]] ep_generation tag() const noexcept { return generation_.load(std::memory_order_relaxed); }
  /// True for a generation, or the wr_id of a completion, of the present life.
  [[nodiscard]] bool is_life(ep_generation whose) const noexcept { return same_life(tag(), whose); }
  /// The counted object that it is part of. Must not be called for the endpoint of empty handles.
  [[nodiscard]] counted& object() const noexcept { return *object_; }

  /// False while completions on `evd` wait for ESTABLISHED, which goes to the same evd.
  [[nodiscard]] bool announced_on(const counted* evd) const noexcept {
    return announced_.load(std::memory_order_relaxed) || evd != connect_evd_;
  }
  /// Called with the evd's lock held when a connection event is appended.
  void announce(bool done) noexcept { announced_.store(done, std::memory_order_relaxed); }
  /// True when completions of the endpoint may bypass the ring of `evd`: no event of the connection has to come first,
  /// and no watermark counts them.
  [[nodiscard]] bool may_bypass_ring(const counted* evd) const noexcept {
    return announced_on(evd) && watermarks_.off();
  }
  /// A message has arrived and is queued in the recv evd, or was taken from that evd. The lock of the evd is held.
  void hold_receive() noexcept {
    if (watermarks_.add()) [[unlikely]]
      defer(deferred_watermark, tag());
  }
  void release_receive() noexcept { watermarks_.remove(); }

  /// The probe of an idle connection has completed.
  void probe_ended() noexcept { probing_.store(false, std::memory_order_release); }

  // For callers that must not lock the endpoint: the reactor does the remaining work.
  void defer_break(ep_generation whose) noexcept { defer(deferred_break, whose); }
  void defer_arrival(ep_generation whose) noexcept { defer(deferred_arrival, whose); }
  void defer_drained(ep_generation whose) noexcept { defer(deferred_marker, whose); }

protected:
  enum : std::uint32_t {
    deferred_break = 1,
    deferred_marker = 2,
    deferred_tick = 4,
    deferred_arrival = 8,
    deferred_watermark = 16
  };
  using defer_function = void (*)(completion_owner&, std::uint32_t what, ep_generation whose) noexcept;

  constexpr completion_owner() noexcept = default;
  ~completion_owner() = default;
  /// Called once by the endpoint that this is part of.
  void set_object(counted& object, defer_function deferring) noexcept {
    object_ = &object;
    defer_ = deferring;
  }
  /// Does `what` on the reactor, because its cause appeared where the endpoint may not be locked. No effect unless
  /// `whose` is the present life when it runs.
  void defer(std::uint32_t what, ep_generation whose) noexcept { defer_(*this, what, whose); }

  std::atomic<ep_state> state_{ep_dead};
  std::atomic<bool> announced_{false}; // written with the connect evd's lock held
  std::atomic<bool> probing_{false};
  std::atomic<ep_generation> generation_{0};
  const counted* connect_evd_ = nullptr; // the evd of the connection events
  watermarks watermarks_;

private:
  counted* object_ = nullptr;
  defer_function defer_ = nullptr;
};

}}} // namespace dat::v0::detail
