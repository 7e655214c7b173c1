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
  [[nodiscard]] bool passed() const noexcept;

  /// Time left as a timespec, not negative; must not be called when never().
  [[nodiscard]] timespec left() const noexcept;

  [[nodiscard]] static deadline in(timeout t) noexcept;
};

/// Calls ppoll with the deadline. Returns as ppoll: the number of ready descriptors, 0 at the deadline, -1 with errno.
int poll_until(pollfd* fds, nfds_t n, const deadline& d) noexcept;

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/base/deadline.ipp>
#endif
