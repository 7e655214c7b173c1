// Consumer notification objects: one place to wait for many evds.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/evd_id.hpp>
#include <dat/expected.hpp>
#include <dat/fwd.hpp>
#include <dat/object.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/base/misuse.hpp>
#include <dat/detail/endpoint/core.hpp>
#include <dat/detail/handle/core_access.hpp>
#include <dat/detail/handle/unique_object.hpp>

namespace dat { inline namespace v0 {

/// The parameters of a cno (DAT_CNO_PARAM). Its ia is `cno::owner()`.
struct cno_params {
  wait_proxy_agent agent; ///< the agent that the next trigger calls; empty after it was called
  evd_id latest;          ///< the evd that triggered last; empty before the first trigger
};

/// A notification object for any number of evds (uDAPL 2.0 §6.3.2). An evd that was attached by `evd::modify_cno`
/// triggers it when an event arrives and no thread waits on the evd. The cno names the evd that triggered last, never
/// the event: after waking, take the events of all its evds. There are three ways to get a trigger, in any combination:
/// `wait`, a descriptor for the consumer's own event loop, and an agent that is called.
///
/// A trigger is kept until it is taken; several may become one. Move-only. The end of the handle closes a cno that has
/// no evds, and no agent is called afterwards; a cno with evds ends with the last of them.
/// Thread safety: safe, any number of threads may wait; `close` and destruction must not overlap other uses.
class cno : public detail::unique_object<cno, detail::cno_core, object_kind::cno> {
public:
  cno() noexcept = default; ///< names no cno: detaches an evd

  /// Waits up to `limit` for a trigger and takes it (uDAPL 2.0 §6.3.2.4). Returns the evd that triggered last; an empty
  /// id if meanwhile all evds of this cno were freed, or the ia was closed.
  /// Errors: `queue_empty` when `limit` has passed; `interrupted_call` when a signal interrupted the wait;
  /// `invalid_parameter` for a negative time; `invalid_handle`.
  /// Allocates: never.
  /// Blocks: up to `limit`.
  /// Thread safety: safe; any number of threads may wait.
  [[nodiscard]] expected<evd_id> wait(timeout limit = infinite) noexcept;
  template <detail::no_time_limit Limit>
  void wait(Limit) noexcept {
    static_assert(detail::never<Limit>,
                  "dat: a time limit is a whole number with a unit of microseconds or more, such as 5ms or 2s");
  }

  /// The evd that triggered last, without taking the trigger (uDAPL 2.0 §6.3.2.5). Empty before the first trigger.
  [[nodiscard]] evd_id latest() const noexcept { return core_ ? core_->latest() : evd_id(); }

  /// Sets the agent of the cno, or removes it if `agent` is empty (uDAPL 2.0 §6.3.2.6). The next trigger calls the
  /// agent, once. To be called again, set it again, also from inside the agent. A trigger that no agent and no waiting
  /// thread has taken calls it at once. The previous agent may still run when modify_agent returns; when `close`
  /// returns, no agent runs.
  /// Errors: `invalid_parameter` for an agent with data and no function; `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  expected<void> modify_agent(const wait_proxy_agent& agent) noexcept;
  /// The agent and the evd that triggered last, at one time (uDAPL 2.0 §6.3.2.7, §6.3.2.5).
  /// Errors: `invalid_handle`.
  /// Allocates: never.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] expected<cno_params> query() const noexcept;
  /// The agent that the next trigger calls; empty for an empty handle.
  [[nodiscard]] wait_proxy_agent agent() const noexcept { return core_ ? core_->agent() : wait_proxy_agent(); }

  /// A descriptor that is readable while a trigger is not taken: for poll, select, epoll (level and edge) and Asio
  /// (uDAPL 2.0 §6.3.2.2). Reading 8 bytes takes the trigger, as `wait(0us)` does. The descriptor belongs to the cno,
  /// which closes it when it ends; a program must not close it. A forked child does not inherit it. With manual
  /// progress, watch `ia::fd` as well. The result is -1 for an empty handle, and after close_fd.
  [[nodiscard]] int fd() const noexcept { return core_ ? core_->fd() : -1; }
  /// Releases the descriptor; remove it from epoll sets first. From now on `fd` returns -1, and the cno works as
  /// before.
  ///
  /// Errors: `invalid_state` when the descriptor was released before; `invalid_handle`.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe.
  expected<void> close_fd() noexcept;

  /// Frees the cno (uDAPL 2.0 §6.3.2.3).
  /// Errors: `invalid_state` (cno_in_use) while an evd notifies it or a thread waits on it; `invalid_handle`.
  /// Allocates: no.
  /// Blocks: until a running agent has returned, unless the agent itself calls.
  /// Thread safety: must not overlap other uses.
  expected<void> close() noexcept;

  using unique_object::unique_object;
};

/// Names the cno that an evd notifies. Copyable; it keeps nothing alive.
class cno_ref {
public:
  constexpr cno_ref() noexcept = default;
  explicit constexpr cno_ref(const detail::cno_core* core) noexcept : core_(core) {}
  constexpr explicit operator bool() const noexcept { return core_ != nullptr; }
  friend bool operator==(cno_ref, cno_ref) noexcept = default;
  [[nodiscard]] bool operator==(const cno& c) const noexcept { return core_ == detail::core_access::of(c).get(); }

private:
  const detail::cno_core* core_ = nullptr;
};

}} // namespace dat::v0

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/impl/cno.ipp>
#endif
