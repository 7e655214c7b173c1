// Shared receive queues: one pool of buffers for the messages of many endpoints. Not part of <dat/dat.hpp>.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/dto.hpp>
#include <dat/error.hpp>
#include <dat/event.hpp>
#include <dat/expected.hpp>
#include <dat/object.hpp>
#include <dat/pz.hpp>
#include <dat/srq_attributes.hpp>

#include <dat/detail/endpoint/core.hpp>
#include <dat/detail/handle/core_access.hpp>
#include <dat/detail/handle/handle.hpp>
#include <dat/detail/handle/unique_object.hpp>
#include <dat/detail/posting/post_path.hpp>

#include <cstdint>
#include <utility>

namespace dat { inline namespace v0 {

/// An srq_ref names a shared receive queue without owning it. Events carry it. It is copyable, as cheap as a pointer,
/// comparable and hashable. It is valid until the queue is closed; the one of an event, as long as the event.
class srq_ref : public dat::object<srq_ref, object_kind::srq> {
public:
  constexpr srq_ref() noexcept = default;

  /// Posts buffers to the queue, with one doorbell for all of them (uDAPL 2.0 §6.5.8). The next message of any endpoint
  /// of the queue takes the next buffer. Buffers may be posted in any state, also before an endpoint exists.
  ///
  ///     srq.post(dat::recv{buffer}.cookie(7));
  ///     srq.post(dat::recv{a}, dat::recv{b});
  ///
  /// The completion goes to the recv evd of the endpoint that took the buffer, with that endpoint and this cookie: a
  /// `recv_done` or one of its variants, or a dto_failure. Messages take buffers, and buffers complete, in any order.
  /// Each completion notifies, unless the endpoint's recv_completion excludes it.
  ///
  /// Errors: the checks come before anything reaches the device, and they cover all buffers of the call together:
  /// - `insufficient_resources`: as many buffers are outstanding as the queue has room for. A buffer is outstanding
  ///   until its completion has been taken from the evd.
  /// - `protection_violation`: memory of another protection zone, or a segment of 4 GiB and more
  /// - `invalid_parameter`: more segments than max_recv_iov; a recv with `.suppress_notification()`
  /// - `privileges_violation` (privileges_write): a segment is of an lmr that is empty or closed
  /// - `invalid_handle`: the queue is closed
  /// - the device's errno: the device refused a buffer. `error().index()` is the number of buffers before it, which are
  ///   posted.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe; any number of threads may post.
  template <class... D>
  requires(sizeof...(D) > 0) [[gnu::always_inline]] expected<void> post(const D&... buffers) const noexcept {
    static_assert((detail::is_recv<D> && ...),
                  "dat: a shared receive queue takes dat::recv only; requests go to an endpoint");
    if constexpr ((detail::is_recv<D> && ...))
      return detail::post(detail::shared_recv_queue(*core_), detail::request_access::of(buffers)...);
  }

  /// The number of the queue in errors, which verbs has assigned.
  [[nodiscard]] std::uint32_t number() const noexcept { return core_->number(); }
  /// False for an srq_ref that names nothing.
  explicit operator bool() const noexcept { return core_ != &detail::null_srq; }

  explicit srq_ref(detail::srq_core* core) noexcept {
    if (core) core_ = core;
  }
  [[nodiscard]] detail::srq_core* entity() const noexcept {
    return *this ? static_cast<detail::srq_core*>(core_) : nullptr;
  }
  detail::shared_queue* core_ = &detail::null_srq; // never null, so a post does not check it
};

/// A shared receive queue (uDAPL 2.0 §6.5). `pz::create_srq` creates it, and endpoints are created with it:
///
///     auto srq = pz.create_srq({.max_recv_dtos = 1000});
///     for (auto& buffer : buffers) srq->post(dat::recv{buffer}.cookie(&buffer));
///     auto ep = pz.create_ep<dat::rc>(evd, *srq);
///
/// Every message to one of its endpoints takes the next buffer, so all buffers should be large enough for any message.
/// A buffer that is too small breaks the connection of the endpoint that took it, and no other connection. While the
/// queue is empty, messages wait at their senders, as they do for an endpoint without receives. When an endpoint ends,
/// the buffers that it has not taken stay in the queue. The recv evds have room for every buffer of the queue.
///
/// Move-only. The queue lives as long as an endpoint uses it. Then the buffers that no message took belong to the
/// consumer again, without a completion.
/// Thread safety: all calls are safe except `close`, moving and destruction. These must not overlap any other use, nor
/// a call that takes completions from a completions-only evd that an endpoint of the queue used.
class srq : public detail::unique_object<srq, detail::srq_core, object_kind::srq> {
public:
  srq() noexcept = default; ///< names no queue; every call returns invalid_handle

  /// Posts buffers; see srq_ref::post.
  /// Errors, Allocates, Blocks and Thread safety: as srq_ref::post.
  template <class... D>
  requires(sizeof...(D) > 0) [[gnu::always_inline]] expected<void> post(const D&... buffers) const noexcept {
    return ref_.post(buffers...);
  }

  /// Arms one `srq_low_watermark` event, which dat queues when fewer than `low` buffers are in the queue; 0 disarms it
  /// (uDAPL 2.0 §6.5.4). The new watermark replaces the previous one. If the queue already has fewer buffers, the event
  /// is queued at once.
  /// Errors: `invalid_parameter` for more than the queue has room for; `invalid_state` (srq_error) after a failure of
  /// the queue; the errno of a device without such a limit; `invalid_handle`.
  /// Allocates: no.
  /// Blocks: briefly, in the driver.
  /// Thread safety: safe.
  expected<void> set_low_watermark(std::uint32_t low) noexcept;

  /// Makes room for at least `max_recv_dtos` outstanding buffers (uDAPL 2.0 §6.5.7). Buffers stay in the queue, and the
  /// recv evds grow with it. A queue may stay larger than requested.
  /// Errors: all of them leave the queue unchanged:
  /// - `invalid_state`: (srq_in_use) more buffers are outstanding, or the low watermark is higher; (srq_error) the
  ///   queue has failed
  /// - `invalid_parameter`: 0, or more than the device's max_srq_wr
  /// - `insufficient_resources`: the device cannot enlarge the queue, or a recv evd
  /// - `invalid_handle`: the queue is empty or closed
  /// Allocates: yes.
  /// Blocks: briefly, in the driver.
  /// Thread safety: safe.
  expected<void> resize(std::uint32_t max_recv_dtos) noexcept;

  /// The parameters and counts of the queue, in any state (uDAPL 2.0 §6.5.6). `available` is empty when the count is
  /// unknown.
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: no.
  /// Thread safety: safe.
  [[nodiscard]] expected<srq_params> query() const noexcept;

  /// Frees the queue and the buffers in it (uDAPL 2.0 §6.5.5). Completions that are queued in evds are not affected,
  /// and can still be taken.
  /// Errors: `invalid_state` (srq_in_use) while an endpoint uses the queue, whatever the state of the endpoint: the
  /// queue stays usable; `invalid_handle`.
  /// Allocates: no.
  /// Blocks: briefly, in the driver.
  /// Thread safety: must not overlap any other use; see the class.
  expected<void> close() noexcept;

  [[nodiscard]] std::uint32_t number() const noexcept { return ref_.number(); }
  operator srq_ref() const noexcept { return ref_; } // NOLINT(google-explicit-constructor)
  friend bool operator==(const srq& a, srq_ref b) noexcept { return a.ref_ == b; }

  /// The verbs queue, for verbs calls that dat does not cover. Null for an empty or closed queue.
  [[nodiscard]] ibv_srq* native_handle() const noexcept { return core_ ? core_->native() : nullptr; }

  explicit srq(detail::ref<detail::srq_core> core) noexcept : unique_object(std::move(core)), ref_(core_.get()) {}

private:
  detail::emptied_by_move<srq_ref> ref_;
};

}} // namespace dat::v0

template <>
struct std::hash<dat::srq_ref> : dat::detail::handle_hash<dat::srq_ref> {};

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/endpoint/srq_core.ipp>
#include <dat/detail/impl/srq.ipp>
#endif
