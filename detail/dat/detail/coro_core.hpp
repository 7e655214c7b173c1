// What coroutines wait in: operations that live in the coroutine's frame, and the driver's lists of them.
//
// Nothing here allocates: an operation is linked where it stands, and unlinks itself when its coroutine goes. All of it
// belongs to the driver's thread, but for requests to stop, which come from any thread and pass through one atomic
// stack.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/event.hpp>

#include <dat/detail/completion.hpp>
#include <dat/detail/core.hpp>
#include <dat/detail/core_access.hpp>

#include <array>
#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace dat::inline v0::detail {

class coro_driver;

/// One thing that a coroutine waits for, or will wait for.
///
/// Until it is over it stands in a list of its driver; when it is over and a coroutine waits for it, among the ready.
class coro_operation : public list_node {
public:
  coro_operation(const coro_operation&) = delete;
  coro_operation& operator=(const coro_operation&) = delete;

  /// Whether it is over, so that awaiting it does not suspend.
  [[nodiscard]] bool done() const noexcept { return done_; }

  [[nodiscard]] bool await_ready() const noexcept { return done_; }
  void await_suspend(std::coroutine_handle<> who) noexcept { coroutine_ = who; }

protected:
  /// What a request to stop leads to, in the driver's thread.
  using stop_function = void (*)(coro_operation&) noexcept;

  /// Nothing yet, and done.
  coro_operation() noexcept : done_(true), failed_(true), error_(return_type::invalid_handle, return_subtype::none) {
    error_ = error_.hint("nothing was posted with it");
  }
  coro_operation(coro_driver& d, ep_core* whose, stop_function on_stop) noexcept { begin(d, whose, on_stop); }
  /// Starts a new life, when the last one is over and whoever waited for it has been resumed.
  [[nodiscard]] bool idle() const noexcept { return done_ && !linked(); }
  void begin(coro_driver& d, ep_core* whose, stop_function on_stop) noexcept {
    driver_ = &d;
    whose_ = whose;
    on_stop_ = on_stop;
    done_ = failed_ = stopping_ = false;
  }
  ~coro_operation() {
    detach();
    unlink();
  }

  [[nodiscard]] coro_driver& driver() const noexcept { return *driver_; }
  [[nodiscard]] ep_core* whose() const noexcept { return whose_; }
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  [[nodiscard]] const error& why() const noexcept { return error_; }
  [[nodiscard]] bool stopping() const noexcept { return stopping_; }

  inline void finish() noexcept;
  void fail(const error& e) noexcept {
    failed_ = true;
    error_ = e;
    finish();
  }
  /// From now on a request to stop reaches on_stop. The endpoint is kept for it: its handle may go first.
  void watch(std::stop_token&& token) noexcept {
    if (done_ || !token.stop_possible()) return;
    kept_ = ref<ep_core>(whose_);
    stop_.emplace(std::move(token), stopper{this});
  }
  /// Ends the connection, which is what ends operations on it. False when there is none to end.
  [[nodiscard]] bool hang_up() noexcept {
    stopping_ = kept_ && kept_->disconnect(close_flags::abrupt).has_value();
    return stopping_;
  }
  static void end_by_hanging_up(coro_operation& o) noexcept { (void)o.hang_up(); }
  [[nodiscard]] static error stopped(const char* call, const char* hint) noexcept {
    return error(return_type::interrupted_call).at(call, object_kind::ep).hint(hint);
  }

private:
  friend class coro_driver;
  struct stopper {
    coro_operation* self;
    inline void operator()() const noexcept;
  };
  /// Leaves the driver for good, but for the list of the ready.
  inline void detach() noexcept;

  coro_driver* driver_ = nullptr; // null when it is over
  std::coroutine_handle<> coroutine_;
  ep_core* whose_ = nullptr; // only for comparison
  stop_function on_stop_ = nullptr;
  coro_operation* next_stop_ = nullptr;
  bool done_ = false;
  bool failed_ = false;
  bool stopping_ = false;
  error error_;
  ref<ep_core> kept_;
  std::optional<std::stop_callback<stopper>> stop_;
};

/// A DTO that was posted for a coroutine: found again by a key that stands in the place of the consumer's cookie.
class coro_dto : public coro_operation {
public:
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
      written_ = std::is_same_v<E, ib::received_write_immediate>;
    }
    finish();
  }

protected:
  using coro_operation::coro_operation;
  ~coro_dto() = default;
  void forget_result() noexcept {
    bytes_ = immediate_ = 0;
    broken_ = has_immediate_ = written_ = false;
  }

  dat::cookie cookie_; // the consumer's
  std::uint32_t bytes_ = 0;
  std::uint32_t immediate_ = 0;
  bool broken_ = false;
  bool has_immediate_ = false;
  bool written_ = false;
  dto_operation operation_{};
  dto_status status_{};
  std::uint64_t key_ = 0;

private:
  friend class coro_driver;
};

class coro_driver {
public:
  explicit coro_driver(ref<evd_core> evd) noexcept
      : evd_(std::move(evd)), key_(reinterpret_cast<std::uintptr_t>(this) * 0xd6e8feb86659fd93u) {}
  coro_driver(const coro_driver&) = delete;
  coro_driver& operator=(const coro_driver&) = delete;
  /// Coroutines that still wait are not resumed: whoever owns them may destroy them.
  ~coro_driver() {
    abandon(nullptr, error(return_type::abort));
    while (ready_.pop_front()) {
    }
  }

  [[nodiscard]] evd_core* evd() const noexcept { return evd_.get(); }

  /// A key that no operation had before, and that looks like none of a consumer's numbers or pointers. Not the address
  /// of the operation: a frame may stand where another one stood whose DTO is still on its way.
  [[nodiscard]] std::uint64_t next_key() noexcept { return key_ += 0x9e3779b97f4a7c15u; }
  void expect(coro_dto& o) noexcept { bucket(o.key_).push_back(o); }
  [[nodiscard]] coro_dto* find(dat::cookie c, const ep_core* whose) noexcept {
    intrusive_list<coro_operation>& list = bucket(c.value());
    for (coro_operation* o = list.front(); o; o = list.after(*o))
      if (auto* dto = static_cast<coro_dto*>(o); dto->key_ == c.value() && o->whose_ == whose) return dto;
    return nullptr;
  }

  /// Who waits for events, by how much they ask for: the outcome of something that was begun, some events, any event.
  enum rank { outcome, some, any };
  [[nodiscard]] intrusive_list<coro_operation>& listeners(rank r) noexcept { return listeners_[r]; }

  /// Resumes the coroutines whose operations are over, in the order in which these ended.
  void resume_ready() {
    while (coro_operation* o = ready_.pop_front()) std::exchange(o->coroutine_, {}).resume();
  }
  /// Acts upon requests to stop. Returns how many there were.
  std::size_t take_stops() noexcept {
    std::size_t n = 0;
    for (collect_stops(); stops_; ++n) {
      coro_operation* o = std::exchange(stops_, stops_->next_stop_);
      o->on_stop_(*o);
    }
    return n;
  }
  /// Ends the operations of an endpoint, or all: nothing of them will come any more.
  void abandon(const ep_core* whose, const error& why) noexcept {
    const auto sweep = [&](intrusive_list<coro_operation>& list) {
      for (coro_operation* o = list.front(); o;) {
        coro_operation* const next = list.after(*o);
        if (!whose || o->whose_ == whose) o->fail(why);
        o = next;
      }
    };
    for (auto& list : buckets_) sweep(list);
    for (auto& list : listeners_) sweep(list);
  }

private:
  friend class coro_operation;
  static constexpr unsigned bucket_bits = 7;

  // The keys are multiples of an odd number near 2^64 / golden ratio: their upper bits are spread evenly.
  [[nodiscard]] intrusive_list<coro_operation>& bucket(std::uint64_t key) noexcept {
    return buckets_[key >> (64 - bucket_bits)];
  }
  /// Any thread.
  void request_stop(coro_operation& o) noexcept {
    coro_operation* head = requested_.load(std::memory_order_relaxed);
    do {
      o.next_stop_ = head;
    } while (!requested_.compare_exchange_weak(head, &o, std::memory_order_release, std::memory_order_relaxed));
    evd_->interrupt();
  }
  void collect_stops() noexcept {
    coro_operation* newest = requested_.exchange(nullptr, std::memory_order_acquire);
    coro_operation** end = &stops_;
    while (*end) end = &(*end)->next_stop_;
    while (newest) { // they come newest first: turn them round behind those that were there
      coro_operation* const o = std::exchange(newest, newest->next_stop_);
      o->next_stop_ = *end;
      *end = o;
    }
  }
  /// No request to stop this operation is on its way here any more.
  void forget_stop(const coro_operation& o) noexcept {
    collect_stops();
    for (coro_operation** p = &stops_; *p; p = &(*p)->next_stop_)
      if (*p == &o) {
        *p = o.next_stop_;
        return;
      }
  }

  ref<evd_core> evd_;
  std::uint64_t key_;
  std::array<intrusive_list<coro_operation>, 1u << bucket_bits> buckets_;
  std::array<intrusive_list<coro_operation>, 3> listeners_;
  intrusive_list<coro_operation> ready_;
  std::atomic<coro_operation*> requested_{nullptr};
  coro_operation* stops_ = nullptr;
};

inline void coro_operation::stopper::operator()() const noexcept { self->driver_->request_stop(*self); }

inline void coro_operation::detach() noexcept {
  if (!driver_) return;
  if (stop_) {
    stop_.reset(); // waits for a request that another thread is making
    driver_->forget_stop(*this);
  }
  kept_ = {};
  driver_ = nullptr;
}

inline void coro_operation::finish() noexcept {
  coro_driver& d = *driver_;
  unlink();
  detach();
  done_ = true;
  if (coroutine_) d.ready_.push_back(*this);
}

/// Sets of the events of an evd, by their places in its list.
using event_set = std::uint64_t;
inline constexpr event_set every_event = ~event_set{0};
template <class E, class L>
inline constexpr event_set event_bit = 0;
template <class E, class... T>
inline constexpr event_set event_bit<E, type_list<T...>> = [] {
  event_set found = 0;
  event_set next = 1;
  ((found |= std::is_same_v<E, T> ? next : 0, next <<= 1), ...);
  return found;
}();
/// The ends of a connection, or of an attempt at one.
template <class L>
inline constexpr event_set event_ends =
    event_bit<peer_rejected, L> | event_bit<non_peer_rejected, L> | event_bit<accept_completion_error, L> |
    event_bit<disconnected, L> | event_bit<broken, L> | event_bit<timed_out, L> | event_bit<unreachable, L>;

/// Waits for one of some events of an evd.
template <streams S>
class coro_listener : public coro_operation {
public:
  /// Takes the event if it is one of those. False: it is somebody else's.
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
      if (stopping()) return true; // it was faster than the request to stop; the end follows
    event_.emplace(std::in_place_type<E>, std::move(e));
    finish();
    return true;
  }

protected:
  using events = event_list<S>;

  coro_listener(coro_driver& d, ep_core* whose, stop_function on_stop, event_set wanted) noexcept
      : coro_operation(d, whose, on_stop), wanted_(wanted) {}
  ~coro_listener() = default;

  void listen(coro_driver::rank rank, std::stop_token&& stop) noexcept {
    driver().listeners(rank).push_back(*this);
    watch(std::move(stop));
  }
  [[nodiscard]] expected<void> check_connect_evd(const char* call) const noexcept {
    if (!whose() || whose()->dead() || whose()->evds().connect.get() == driver().evd()) return success();
    return whose()
        ->at({return_type::invalid_handle, return_subtype::handle_evd_conn}, call)
        .hint("the endpoint's connection events go to another evd than the driver's");
  }

  std::optional<event<S>> event_;

private:
  event_set wanted_;
};

} // namespace dat::inline v0::detail
