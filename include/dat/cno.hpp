// Consumer notification objects: one place to wait for many evds.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/evd_id.hpp>
#include <dat/expected.hpp>
#include <dat/fwd.hpp>
#include <dat/object.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/core.hpp>
#include <dat/detail/handle.hpp>

#include <utility>

namespace dat::inline v0 {

/// Is triggered by the evds that were given it (`evd::modify_cno`) when an event comes that nobody waits for there
/// (uDAPL 2.0 §6.3.2). It tells which evd triggered last, never the event; after waking, take the events of all its
/// evds. Three ways to learn of it, in any combination: `wait`, a descriptor for the consumer's own event loop, and an
/// agent that is called.
///
/// A trigger is remembered until it is taken; several may become one. Move-only. Thread safety: safe, any number of
/// threads may wait; `close` and destruction must not overlap other uses.
class cno : public dat::object<cno, object_kind::cno> {
public:
  cno() noexcept = default; ///< names no cno: what detaches an evd
  cno(cno&&) noexcept = default;
  cno& operator=(cno&&) noexcept = default;
  ~cno() = default;

  /// Waits up to `limit` for a trigger and takes it (uDAPL 2.0 §6.3.2.4). Gives the evd that triggered last; an empty
  /// id when the evds of this cno were all freed, or the ia was closed, meanwhile. Errors: `queue_empty` when the time
  /// is over; `interrupted_call` when a signal came; `invalid_parameter` for a negative time; `invalid_handle`.
  /// Allocates: never. Blocks: up to `limit`.
  template <class Id = evd_id> // a template, so that only who calls it pays for compiling it
  [[nodiscard]] expected<Id> wait(timeout limit = infinite) noexcept {
    if (!core_) return detail::empty_handle("cno.wait", return_subtype::handle_cno);
    return core_->wait<Id>(limit);
  }

  /// The evd that triggered last; does not take the trigger (uDAPL 2.0 §6.3.2.5). Empty before the first.
  [[nodiscard]] evd_id latest() const noexcept { return core_ ? core_->latest() : evd_id(); }

  /// Gives the cno an agent, or, with none, takes it away (uDAPL 2.0 §6.3.2.6). It is called once, by the next trigger;
  /// give it again to be called again, also from inside the agent. A trigger that no agent and no waiter has seen yet
  /// calls it at once.
  /// The old agent may still be running when this returns; when `close` returns, none is.
  /// Errors: `invalid_parameter` for an agent with data and no function; `invalid_handle`. Blocks: no.
  expected<void> modify_agent(const wait_proxy_agent& agent) noexcept {
    if (!core_) return detail::empty_handle("cno.modify_agent", return_subtype::handle_cno);
    return core_->modify_agent(agent);
  }
  /// The agent that the next trigger calls (uDAPL 2.0 §6.3.2.7).
  [[nodiscard]] wait_proxy_agent agent() const noexcept { return core_ ? core_->agent() : wait_proxy_agent(); }

  /// A descriptor that is readable while a trigger is not taken: for poll, select, epoll (level and edge), Asio (uDAPL
  /// 2.0 §6.3.2.2). Reading 8 bytes takes the trigger, as `wait(0us)` does. Goes with the cno; closed on exec. With
  /// manual progress, watch `ia::fd` as well. -1 for an empty handle, and after close_fd.
  [[nodiscard]] int fd() const noexcept { return core_ ? core_->fd() : -1; }
  /// Closes the descriptor; take it out of epoll sets first. All else goes on. A program that closes the descriptor by
  /// itself harms nothing, either: the cno has another one.
  /// Errors: `invalid_state` when it is closed already; `invalid_handle`.
  expected<void> close_fd() noexcept {
    if (!core_) return detail::empty_handle("cno.close_fd", return_subtype::handle_cno);
    return core_->close_fd();
  }

  /// Frees the cno (uDAPL 2.0 §6.3.2.3). Waits until a running agent has returned, unless called by it.
  /// Errors: `invalid_state` (cno_in_use) while an evd notifies it or a thread waits on it; `invalid_handle`.
  expected<void> close() noexcept {
    if (core_ && !core_->dead() && core_->waiters.load(std::memory_order_acquire) != 0)
      return error(return_type::invalid_state, return_subtype::cno_in_use)
          .at("cno.close", object_kind::cno)
          .hint("a thread waits on it");
    return core_.close("cno.close", return_subtype::handle_cno, return_subtype::cno_in_use);
  }

  explicit operator bool() const noexcept { return static_cast<bool>(core_); }

private:
  friend dat::object<cno, object_kind::cno>;
  friend class ia;
  friend class cno_ref;
  friend struct detail::core_access;
  template <streams>
  friend class evd;
  explicit cno(detail::ref<detail::cno_core> core) noexcept : core_(std::move(core)) {}
  [[nodiscard]] auto* entity() const noexcept { return core_.get(); }
  detail::handle<detail::cno_core> core_;
};

/// Tells which cno an evd notifies. Copyable; refers to nothing.
class cno_ref {
public:
  constexpr cno_ref() noexcept = default;
  explicit constexpr cno_ref(const detail::cno_core* core) noexcept : core_(core) {}
  constexpr explicit operator bool() const noexcept { return core_ != nullptr; }
  friend bool operator==(cno_ref, cno_ref) noexcept = default;
  [[nodiscard]] bool operator==(const cno& c) const noexcept { return core_ == c.core_.get(); }

private:
  const detail::cno_core* core_ = nullptr;
};

} // namespace dat::inline v0

template <>
struct std::hash<dat::cno> : dat::detail::handle_hash<dat::cno> {};
