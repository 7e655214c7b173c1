// The driver's lists of the operations that coroutines await: posted DTOs, and listeners for events.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/event.hpp>

#include <dat/detail/base/config.hpp>
#include <dat/detail/base/intrusive_list.hpp>
#include <dat/detail/delivery/coro_operation.hpp>
#include <dat/detail/delivery/coro_schedule.hpp>
#include <dat/detail/delivery/drain.hpp>
#include <dat/detail/delivery/kept_events.hpp>
#include <dat/detail/endpoint/core.hpp>
#include <dat/detail/handle/core_access.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

/// A DTO that was posted for a coroutine. A key in place of the consumer's cookie identifies its completion.
class coro_dto : public coro_operation {
public:
  /// Its key in the table of the driver.
  [[nodiscard]] std::uint64_t key() const noexcept { return key_; }
  /// The driver has taken its completion. Then the driver finishes it.
  template <class E>
  void set_result(const E& e) noexcept {
    if constexpr (std::is_same_v<E, dto_failure>) {
      set_failed();
      outcome_ = outcome::failure;
      number_ = e.ep().number();
      operation_ = e.operation();
      status_ = e.status();
      bytes_ = e.vendor_code();
      immediate_ = static_cast<std::uint32_t>(e.verbs_status());
    } else {
      if constexpr (requires { e.bytes(); }) bytes_ = static_cast<std::uint32_t>(e.bytes());
      if constexpr (requires { e.immediate(); }) {
        outcome_ = std::is_same_v<E, ib::recv_write_immediate_done> ? outcome::written : outcome::immediate;
        immediate_ = e.immediate();
      }
    }
  }
  /// As set_result, for a success without immediate data.
  void set_bytes(std::uint32_t bytes) noexcept { bytes_ = bytes; }
  using coro_operation::finish_linked;

protected:
  /// `success` until the completion has more to report. `written`: a receive that an RDMA write with immediate data
  /// took.
  enum class outcome : std::uint8_t { success, immediate, written, failure };

  using coro_operation::coro_operation;
  ~coro_dto() = default;
  void forget_result() noexcept { outcome_ = outcome::success; }
  /// Why the operation failed: it was not posted, or its completion was a failure.
  [[nodiscard, gnu::cold, gnu::noinline]] error failure_reason() const noexcept {
    if (outcome_ != outcome::failure) return why();
    const error e = stopping() ? error(return_type::interrupted_call)
                               : error(return_type::invalid_state, return_subtype::ep_disconnected);
    return e.at(post_call, object_kind::ep, number_)
        .hint(stopping() ? "A stop was requested, and only the end of the connection ends a DTO."
                         : usual_cause(status_).data()); // a literal
  }
  static constexpr const char* post_call = "ep.post";

  dat::cookie cookie_; // the consumer's
  outcome outcome_ = outcome::success;
  // Valid when it is over.
  std::uint32_t bytes_;
  std::uint32_t immediate_;
  std::uint32_t number_; // of the endpoint of a failure, which may have ended when the result is read
  dto_operation operation_;
  dto_status status_;
  std::uint64_t key_;
};

class coro_driver : public coro_schedule {
public:
  explicit coro_driver(ref<evd_core> evd) noexcept;
  coro_driver(const coro_driver&) = delete;
  coro_driver& operator=(const coro_driver&) = delete;
  /// Coroutines that still wait are not resumed; their owner may destroy them.
  ~coro_driver();

  /// A key that no operation had before, and that is unlikely to equal a consumer's number or pointer. The address of
  /// the operation is no such key: a new frame may have the address of one whose DTO is still outstanding.
  [[nodiscard]] std::uint64_t next_key() noexcept { return key_ += key_step; }
  /// Whether a cookie is a key of this driver. If `find` does not find it, its coroutine was destroyed.
  [[nodiscard]] bool issued(dat::cookie c) const noexcept { return number_of(c.value()) - 1 < number_of(key_); }
  void expect(coro_dto& o) noexcept { bucket(o.key()).push_back(o); }
  [[nodiscard, gnu::always_inline]] coro_dto* find(dat::cookie c, const ep_core* whose) noexcept {
    return bucket(c.value()).find([&](const coro_dto& o) { return o.key() == c.value() && o.whose() == whose; });
  }
  /// The completion of a DTO was taken, and its result is set. The next resume_ready finishes the DTO, and resumes its
  /// coroutine before all others. That follows at once: no code runs before it that could destroy the coroutine.
  void complete(coro_dto& o) noexcept { completed_ = &o; }
  void resume_ready() {
    if (completed_)
      if (const auto c = std::exchange(completed_, nullptr)->finish_linked()) c.resume();
    coro_schedule::resume_ready();
  }

  /// The rank of a listener, by the events that it takes: the outcome of its operation, some events, any event. Others
  /// wait for a time or for another coroutine, or limit the time of another wait, and take no events.
  enum rank { outcome, some, any, asleep, idle, limited };
  [[nodiscard]] intrusive_list<coro_operation>& listeners(rank r) noexcept { return listeners_[r]; }

  /// Ends the waits for events and times, present and future ones. Any thread may call it.
  void stop_waits() noexcept;
  /// Any thread.
  [[nodiscard]] bool stopping() const noexcept { return stopping_.load(std::memory_order_acquire); }
  /// Serves requests to stop and expired timers. After stop_waits it also ends all waits. Returns the number of waits
  /// that it has ended.
  std::size_t take_due() noexcept;

  /// Ends the operations of an endpoint, or all operations, for which no event will arrive.
  void abandon(const ep_core* whose, const error& why) noexcept;

private:
  static constexpr unsigned bucket_bits = 7;
  static constexpr std::uint64_t key_step = 0x9e3779b97f4a7c15u;
  static constexpr std::uint64_t key_step_inverse = 0xf1de83e19937733du;
  static_assert(key_step * key_step_inverse == 1);

  // The keys are multiples of an odd number near 2^64 / golden ratio: their upper bits are spread evenly.
  [[nodiscard]] intrusive_list<coro_dto>& bucket(std::uint64_t key) noexcept {
    return buckets_[key >> (64 - bucket_bits)];
  }

  [[nodiscard]] std::uint64_t number_of(std::uint64_t key) const noexcept { return (key - before_) * key_step_inverse; }

  const std::uint64_t before_;  // the first key follows it
  std::uint64_t key_ = before_; // the last one
  std::atomic<bool> stopping_{false};
  bool stopped_ = false; // the request was served
  coro_dto* completed_ = nullptr;
  std::array<intrusive_list<coro_dto>, 1u << bucket_bits> buckets_;
  std::array<intrusive_list<coro_operation>, limited + 1> listeners_;
};

/// The ends of a connection, or of an attempt at one.
template <class L>
inline constexpr event_set event_ends =
    event_bit<peer_rejected, L> | event_bit<non_peer_rejected, L> | event_bit<accept_completion_error, L> |
    event_bit<disconnected, L> | event_bit<connection_broken, L> | event_bit<connection_timed_out, L> |
    event_bit<connection_unreachable, L>;

/// Waits for one of some events of an evd.
template <streams S>
class coro_listener : public coro_operation {
public:
  /// Takes the event if it is one of those. Returns false when the event is for another listener.
  template <class E>
  [[nodiscard]] bool offer(E& e) noexcept {
    if ((wanted_ & event_bit<E, events>) == 0) return false;
    if (whose()) {
      if constexpr (requires { e.ep(); }) {
        if (core_access::of(e.ep()) != whose()) return false;
      } else {
        return false;
      }
    }
    if constexpr (std::is_same_v<E, established>)
      if (stopping()) return true; // the event arrived before the stop took effect; the event of the end follows
    event_.emplace(std::in_place_type<E>, std::move(e));
    if (repeated_) repeated_->expect_wait(wanted_);
    finish();
    return true;
  }

protected:
  using events = event_list<S>;

  coro_listener(coro_driver& d, ep_core* whose, stop_function serve_stop, event_set wanted) noexcept
      : coro_operation(d, whose, serve_stop), wanted_(wanted) {}
  ~coro_listener() {
    if (!done()) expect_no_wait();
  }

  void listen(coro_driver& d, coro_driver::rank rank, std::stop_token&& stop) noexcept {
    d.listeners(rank).push_back(*this);
    watch(std::move(stop));
  }
  /// Takes the first kept event that this wait accepts, or else listens. A wait for any endpoint is likely to be
  /// repeated: events that arrive until then are kept.
  void take_or_listen(coro_driver& d, kept_events<S>& kept, coro_driver::rank rank, std::stop_token&& stop) noexcept {
    if (!whose()) repeated_ = &kept;
    if (!kept.take_if([this](auto& e) { return this->offer(e); })) listen(d, rank, std::move(stop));
  }
  /// The wait ends without an event.
  void expect_no_wait() noexcept {
    if (repeated_) repeated_->expect_no_wait(wanted_);
  }

  std::optional<event<S>> event_;

private:
  event_set wanted_;
  kept_events<S>* repeated_ = nullptr;
};

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/delivery/coro_core.ipp>
#endif
