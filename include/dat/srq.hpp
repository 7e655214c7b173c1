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

#include <dat/detail/core.hpp>
#include <dat/detail/handle.hpp>
#include <dat/detail/srq_impl.hpp>

#include <cstdint>
#include <utility>

namespace dat::inline v0 {

/// Names a shared receive queue without owning it: what its events carry. Copyable, as cheap as a pointer, comparable,
/// hashable. Valid until the queue is closed; one of an event, as long as the event.
class srq_ref : public dat::object<srq_ref, object_kind::srq> {
public:
  constexpr srq_ref() noexcept = default;

  /// Gives buffers to whichever endpoint of the queue has a message next (uDAPL 2.0 §6.5.8), with one doorbell however
  /// many they are. In any state, also before an endpoint exists.
  ///
  ///     srq.post(dat::recv{buffer}.cookie(7));
  ///     srq.post(dat::recv{a}, dat::recv{b});
  ///
  /// The completion comes to the recv evd of the endpoint that took the buffer, with that endpoint and this cookie:
  /// `received` and its kin, or a dto_failure. Buffers are taken, and complete, in any order. They have no completion
  /// flags: each completion is a notification, unless the endpoint's recv_completion says otherwise.
  ///
  /// Errors, each before anything reaches the device, for all buffers of the call together:
  /// - `insufficient_resources`: as many are outstanding as the queue has room for. A buffer is outstanding until its
  ///   completion has been taken from the evd.
  /// - `protection_violation`: memory of another protection zone, or a segment of 4 GiB and more
  /// - `invalid_parameter`: more segments than max_recv_iov; a recv that is `.unsignalled()`
  /// - `invalid_handle`: the queue is closed
  /// If the device refuses a buffer all the same, `error().index()` says how many before it were taken.
  /// Allocates: never. Blocks: never. Thread safety: safe, any number of threads may post.
  template <class... D>
  requires(sizeof...(D) > 0) [[gnu::always_inline]] expected<void> post(const D&... buffers) const noexcept {
    static_assert((detail::is_recv<D> && ...),
                  "dat: a shared receive queue takes dat::recv only; requests go to an endpoint");
    return core_->post(detail::request_access::of(buffers)...);
  }

  /// What names the queue in errors; the number that verbs gave it.
  [[nodiscard]] std::uint32_t number() const noexcept { return core_->number(); }
  /// False for one that names nothing.
  explicit operator bool() const noexcept { return core_ != &detail::no_srq; }

private:
  friend dat::object<srq_ref, object_kind::srq>;
  friend class srq;
  friend class srq_event;
  friend class ep<rc>;
  explicit srq_ref(detail::srq_core* core) noexcept {
    if (core) core_ = core;
  }
  [[nodiscard]] detail::srq_core* entity() const noexcept {
    return *this ? static_cast<detail::srq_core*>(core_) : nullptr;
  }
  detail::shared_queue* core_ = &detail::no_srq; // never null: a post need not ask
};

/// A shared receive queue (uDAPL 2.0 §6.5). Made by `pz::create_srq`; endpoints are given it when they are made:
///
///     auto srq = pz.create_srq({.max_recv_dtos = 1000});
///     for (auto& buffer : buffers) srq->post(dat::recv{buffer}.cookie(&buffer));
///     auto ep = pz.create_ep<dat::rc>(evd, *srq);
///
/// Every message to one of its endpoints takes the next buffer, so all should be large enough for any message: one that
/// is too small breaks the connection of the endpoint that drew it, and no other. While the queue is empty, messages
/// wait at their senders as they do for an endpoint without receives. When an endpoint ends, buffers that it has not
/// taken stay on the queue. The recv evds must have room for what the queue can complete: a lost completion leaves its
/// buffer outstanding.
///
/// Move-only. The queue lives on while an endpoint has it; buffers that nobody took are the consumer's again, without a
/// completion, when it has gone. Thread safety: everything is safe but `close`, moving and destruction, which must not
/// overlap any other use, nor taking completions from an evd of streams::dto alone that an endpoint of it used.
class srq : public dat::object<srq, object_kind::srq> {
public:
  srq() noexcept = default; ///< names no queue; every call answers invalid_handle
  srq(srq&& o) noexcept : core_(std::move(o.core_)), ref_(std::exchange(o.ref_, srq_ref())) {}
  srq& operator=(srq&& o) noexcept {
    if (this == &o) return *this;
    ref_ = std::exchange(o.ref_, srq_ref());
    core_ = std::move(o.core_);
    return *this;
  }
  ~srq() = default;

  /// Gives buffers; see srq_ref::post.
  template <class... D>
  requires(sizeof...(D) > 0) [[gnu::always_inline]] expected<void> post(const D&... buffers) const noexcept {
    return ref_.post(buffers...);
  }

  /// Arms one `srq_low_watermark` event for when fewer than `low` buffers are on the queue; 0: none (uDAPL 2.0 §6.5.4).
  /// Replaces what was set before. Where there are fewer already, the event comes at once; with an endpoint whose recv
  /// evd is of streams::dto alone only if so many are not even outstanding, since what such an evd holds is not known:
  /// then it comes with the next message.
  /// Errors: `invalid_parameter` for more than the queue has room for; `invalid_state` (srq_error);
  /// `model_not_supported` on a device without; `invalid_handle`. Allocates: no. Blocks: briefly, in the driver.
  expected<void> set_low_watermark(std::uint32_t low) noexcept {
    if (!core_) return detail::empty_handle("srq.set_low_watermark", return_subtype::handle_srq);
    return core_->set_low_watermark(low);
  }

  /// Makes room for at least `max_recv_dtos` outstanding buffers (uDAPL 2.0 §6.5.7). Buffers stay where they are;
  /// evds keep their size. A queue may stay larger than it is asked to be.
  /// Errors, with nothing changed: `invalid_state` (srq_in_use) when more buffers are outstanding, or the low watermark
  /// is higher; (srq_error); `invalid_parameter` for 0 or more than the device can; `insufficient_resources` when the
  /// device cannot grow it; `invalid_handle`. Allocates: yes. Blocks: briefly, in the driver.
  expected<void> resize(std::uint32_t max_recv_dtos) noexcept {
    if (!core_) return detail::empty_handle("srq.resize", return_subtype::handle_srq);
    return core_->resize(max_recv_dtos);
  }

  /// What the queue is like now, in any state (uDAPL 2.0 §6.5.6). `available` is empty when an endpoint of it has a
  /// recv evd of streams::dto alone: only the device knows what such an evd holds. Errors: `invalid_handle`.
  template <class Params = srq_params> // a template, so that only who calls it pays for compiling it
  [[nodiscard]] expected<Params> query() const noexcept {
    if (!core_ || core_->dead()) return detail::empty_handle("srq.query", return_subtype::handle_srq);
    Params p;
    core_->query(p);
    return p;
  }

  /// Frees the queue and the buffers on it (uDAPL 2.0 §6.5.5). Completions that stand on evds are not affected, events
  /// of it can still be taken. Errors: `invalid_state` (srq_in_use) while an endpoint has it, whatever that one's
  /// state: the queue stays usable; `invalid_handle`.
  expected<void> close() noexcept {
    auto r = core_.close("srq.close", return_subtype::handle_srq, return_subtype::srq_in_use);
    if (!core_) ref_ = srq_ref();
    return r;
  }

  [[nodiscard]] std::uint32_t number() const noexcept { return ref_.number(); }
  explicit operator bool() const noexcept { return static_cast<bool>(core_); }
  operator srq_ref() const noexcept { return ref_; } // NOLINT(google-explicit-constructor)
  friend bool operator==(const srq& a, srq_ref b) noexcept { return a.ref_ == b; }

  /// The verbs queue, for what dat does not cover. Null for an empty or closed one.
  [[nodiscard]] ibv_srq* native_handle() const noexcept { return core_ ? core_->native() : nullptr; }

private:
  friend dat::object<srq, object_kind::srq>;
  friend class pz;
  friend class ia;
  explicit srq(detail::ref<detail::srq_core> core) noexcept : core_(std::move(core)), ref_(core_.get()) {}
  [[nodiscard]] auto* entity() const noexcept { return core_.get(); }
  detail::handle<detail::srq_core> core_;
  srq_ref ref_;
};

inline srq_ref srq_event::srq() const noexcept { return srq_ref(queue_.get()); }

template <class Srq>
expected<Srq> pz::create_srq(const srq_attributes& attributes) noexcept {
  if (!core_) return detail::empty_handle("pz.create_srq", return_subtype::handle_pz);
  auto core = detail::srq_core::create(core_.shared(), attributes);
  if (!core) return core.assume_error();
  return Srq(std::move(core).assume_value());
}

} // namespace dat::inline v0

template <>
struct std::hash<dat::srq> : dat::detail::handle_hash<dat::srq> {};
template <>
struct std::hash<dat::srq_ref> : dat::detail::handle_hash<dat::srq_ref> {};
