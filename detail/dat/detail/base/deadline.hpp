// Deadlines on the monotonic clock, with "never" as a value.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/timeout.hpp>

#include <chrono>
#include <ctime>
#include <poll.h>

namespace dat { inline namespace v0 { namespace detail {

using clock = std::chrono::steady_clock;

struct deadline {
  clock::time_point at = clock::time_point::max();

  [[nodiscard]] bool never() const noexcept { return at == clock::time_point::max(); }
  [[nodiscard]] bool passed() const noexcept { return !never() && clock::now() >= at; }

  /// Time left as a timespec, not negative; must not be called when never().
  [[nodiscard]] timespec left() const noexcept {
    auto d = at - clock::now();
    if (d < clock::duration::zero()) d = clock::duration::zero();
    const auto s = std::chrono::duration_cast<std::chrono::seconds>(d);
    return {.tv_sec = s.count(),
            .tv_nsec = static_cast<long>(std::chrono::duration_cast<std::chrono::nanoseconds>(d - s).count())};
  }

  [[nodiscard]] static deadline in(timeout t) noexcept {
    // A century counts as unlimited, and adding a century cannot overflow the clock.
    if (t >= std::chrono::hours(24 * 36525)) return {};
    return {clock::now() + (t < timeout::zero() ? timeout::zero() : t)};
  }
};

/// Calls ppoll with the deadline. Returns as ppoll: the number of ready descriptors, 0 at the deadline, -1 with errno.
inline int poll_until(pollfd* fds, nfds_t n, const deadline& d) noexcept {
  if (d.never()) return ::ppoll(fds, n, nullptr, nullptr);
  const timespec ts = d.left();
  return ::ppoll(fds, n, &ts, nullptr);
}

}}} // namespace dat::v0::detail
