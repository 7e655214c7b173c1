// Coroutines: several evds in one thread. Opt-in, not part of dat.hpp.
// SPDX-License-Identifier: BSL-1.0
//
//     dat::coro::driver connections(connection_evd);
//     dat::coro::driver transfers(transfer_evd);
//     auto both = dat::coro::driver_set<...>::create(ia, connections, transfers).value();
//     both.run_until([&] { return finished; }, [](const auto&) {});
#pragma once

#include <dat/cno.hpp>
#include <dat/coro.hpp>
#include <dat/expected.hpp>
#include <dat/ia.hpp>
#include <dat/timeout.hpp>

#include <dat/detail/base/deadline.hpp>

#include <chrono>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace dat { inline namespace v0 { namespace coro {

/// Several drivers in one thread: it takes the events of all their evds, and sleeps until one of them has an event. The
/// evds have the streams `S`, are of one ia, and trigger the cno of the set and no other.
///
/// Each driver passes on its events as usual; the visitor gets the remaining events of all drivers. Coroutines may use
/// all of the drivers.
///
/// Move-only. The destructor detaches the evds from the cno of the set. Destroy it before the drivers.
/// Thread safety: as driver; `stop` is safe.
template <streams... S>
class driver_set {
public:
  /// A set of these drivers.
  /// Errors: as ia::create_cno and evd::modify_cno; `invalid_handle` for a driver of an empty evd.
  /// Allocates: yes.
  /// Blocks: no.
  /// Thread safety: the thread of the drivers.
  [[nodiscard]] static expected<driver_set> create(ia& of, driver<S>&... drivers) noexcept {
    auto notified = of.create_cno();
    if (!notified) return notified.assume_error();
    driver_set made(std::move(notified).assume_value(), drivers...);
    expected<void> ok = success();
    ((ok ? void(ok = drivers.modify_cno(made.cno_)) : void()), ...);
    if (!ok) return ok.assume_error();
    return made;
  }
  driver_set(driver_set&& o) noexcept : cno_(std::move(o.cno_)), drivers_(o.drivers_) {}
  driver_set& operator=(driver_set&&) = delete;
  ~driver_set() {
    if (cno_) each([](auto& d) { (void)d.modify_cno({}); });
  }

  /// Takes all queued events of all drivers, as driver::poll. Never sleeps.
  template <class Visitor>
  std::size_t poll(Visitor&& visit) {
    std::size_t all = 0;
    for (std::size_t n = 1; n != 0; all += n) { // a coroutine may have given work to another driver
      n = 0;
      each([&](auto& d) { n += d.poll(visit); });
    }
    return all;
  }

  /// Takes events as poll, and waits up to `limit` for the first if none is queued.
  /// Errors:
  /// - `timeout_expired`: no event arrived within `limit`
  /// - `interrupted_call`: a signal interrupted the wait, evd::wake was called, or the events of a trigger were taken
  ///   before
  /// - `abort`: the ia was closed; all operations have ended with `abort`, and their coroutines were resumed
  /// Allocates: never.
  /// Blocks: up to `limit`.
  /// Thread safety: one thread at a time.
  template <class Visitor>
  [[nodiscard]] expected<std::size_t> run_once(Visitor&& visit, timeout limit = infinite) {
    return run(visit, detail::deadline::in(limit));
  }

  /// Takes events until `condition()` is true, as driver::run_until.
  /// Errors: `timeout_expired` when the condition was not true within `limit`; otherwise as run_once.
  /// Allocates: never.
  /// Blocks: up to `limit`.
  /// Thread safety: one thread at a time.
  template <class Condition, class Visitor>
  requires std::is_invocable_r_v<bool, Condition&>
  [[nodiscard]] expected<void> run_until(Condition condition, Visitor&& visit, timeout limit = infinite) {
    const auto until = detail::deadline::in(limit);
    while (!condition())
      if (auto ran = run(visit, until); !ran && ran.assume_error().type() != return_type::interrupted_call)
        return ran.assume_error();
    return success();
  }

  /// Stops all drivers, as driver::stop.
  /// Allocates: never.
  /// Blocks: never.
  /// Thread safety: safe, until the set is destroyed.
  void stop() noexcept {
    each([](auto& d) { d.stop(); });
  }

private:
  driver_set(cno&& c, driver<S>&... drivers) noexcept : cno_(std::move(c)), drivers_(&drivers...) {}

  template <class F>
  void each(F f) {
    std::apply([&](auto*... d) { (f(*d), ...); }, drivers_);
  }
  /// The time left until the deadline or the first timer of a driver. Sets `timer` to whether it is that of a timer.
  [[nodiscard]] timeout left(const detail::deadline& until, bool& timer) noexcept {
    timeout soonest = infinite;
    if (!until.never()) {
      const auto rest = std::chrono::ceil<timeout>(until.at - detail::clock::now());
      soonest = rest < timeout::zero() ? timeout::zero() : rest;
    }
    timer = false;
    each([&](auto& d) {
      if (const timeout t = d.until_timer(); t < soonest) soonest = t, timer = true;
    });
    return soonest;
  }
  template <class Visitor>
  expected<std::size_t> run(Visitor& visit, const detail::deadline& until) {
    for (;;) {
      if (const std::size_t n = poll(visit); n != 0) return n;
      bool timer;
      const timeout limit = left(until, timer);
      auto trigger = cno_.wait(limit);
      if (const std::size_t n = poll(visit); n != 0) return n;
      static constexpr const char* call = "driver_set.run";
      if (trigger) {
        if (!trigger.assume_value())
          return error(return_type::abort, return_subtype::interrupted)
              .at(call, object_kind::cno)
              .hint("The ia was closed, or all of the evds.");
        return error(return_type::interrupted_call).at(call, object_kind::cno);
      }
      if (trigger.assume_error().type() != return_type::queue_empty) return trigger.assume_error();
      if (!timer) return error(return_type::timeout_expired).at(call, object_kind::cno);
    }
  }

  cno cno_;
  std::tuple<driver<S>*...> drivers_;
};

}}} // namespace dat::v0::coro
