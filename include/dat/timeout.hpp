// Time limits of waiting calls.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>

namespace dat::inline v0 {

/// How long a call may wait, in microseconds (DAT_TIMEOUT, uDAPL 2.0 §A.4). Every std::chrono duration of microseconds
/// or coarser converts to it: `2s`, `100ms`. Zero does not wait. Clocks are monotonic: setting the system time has no
/// effect on a wait.
using timeout = std::chrono::microseconds;

/// Waits for ever (DAT_TIMEOUT_INFINITE).
inline constexpr timeout infinite = timeout::max();

} // namespace dat::inline v0
