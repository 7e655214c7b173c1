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
  template <class E>
  void complete(const E& e) noexcept {
    if constexpr (std::is_same_v<E, dto_failure>) {
      broken_ = true;
      operation_ = e.operation();
      status_ = e.status();
      bytes_ = e.vendor_code();
      immediate_ = static_cast<std::uint32_t>(e.verbs_status());
    } else {
      if constexpr (requires { e.bytes(); }) bytes_ = static_cast<std::uint32_t>(e.bytes());
      if constexpr (requires { e.immediate(); }) {
        has_immediate_ = true;
        immediate_ = e.immediate();
      }
      written_ = std::is_same_v<E, ib::recv_write_immediate_done>;
    }
    finish_first();
  }

protected:
  using coro_operation::coro_operation;
  ~coro_dto() = default;
  void forget_result() noexcept { broken_ = has_immediate_ = written_ = false; }

  dat::cookie cookie_; // the consumer's
  std::uint32_t bytes_ = 0;
  std::uint32_t immediate_ = 0;
  bool broken_ = false;
  bool has_immediate_ = false;
  bool written_ = false;
  dto_operation operation_{};
  dto_status status_{};
  std::uint64_t key_ = 0;
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
  [[nodiscard]] std::uint64_t next_key() noexcept {
    ++issued_;
    return key_ += key_step;
  }
  /// Whether a cookie is a key of this driver. If `find` does not find it, its coroutine was destroyed.
  [[nodiscard]] bool issued(dat::cookie c) const noexcept { return (key_ - c.value()) * key_step_inverse < issued_; }
  void expect(coro_dto& o) noexcept { bucket(o.key()).push_back(o); }
  [[nodiscard]] coro_dto* find(dat::cookie c, const ep_core* whose) noexcept {
    intrusive_list<coro_dto>& list = bucket(c.value());
    for (coro_dto* o = list.front(); o; o = list.after(*o))
      if (o->key() == c.value() && o->whose() == whose) return o;
    return nullptr;
  }

  /// The rank of a listener, by the events that it takes: the outcome of its operation, some events, any event. Others
  /// wait for a time or for another coroutine, or limit the time of another wait, and take no events.
  enum rank { outcome, some, any, asleep, idle, limited };
  [[nodiscard]] intrusive_list<coro_operation>& listeners(rank r) noexcept { return listeners_[r]; }

  /// Any thread: ends the waits for events and times, the present ones and those to come.
  void stop_waits() noexcept;
  /// Any thread.
  [[nodiscard]] bool stopping() const noexcept { return stopping_.load(std::memory_order_acquire); }
  /// Whether there may be a request to stop, or a timer that has expired.
  [[nodiscard]] bool has_due() const noexcept { return stopping() || stop_requested() || timers().any(); }
  /// Serves requests to stop and timers that have expired. Returns their number.
  std::size_t take_due() noexcept;

  /// Ends the operations of an endpoint, or all of them, for which no event will come.
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

  std::uint64_t key_; // the last one
  std::uint64_t issued_ = 0;
  std::atomic<bool> stopping_{false};
  bool stopped_ = false; // the request was served
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
      if (stopping()) return true; // the event came before the stop took effect; the event of the end follows
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
  /// repeated: events that come until then are kept.
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
