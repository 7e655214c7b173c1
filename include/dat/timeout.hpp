// Time limits of waiting calls.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>

namespace dat { inline namespace v0 {

/// The time that a call may wait, in microseconds (DAT_TIMEOUT, uDAPL 2.0 §A.4). Every std::chrono duration of
/// microseconds or coarser converts to it: `2s`, `100ms`. With zero the call does not wait. Clocks are monotonic:
/// setting the system time has no effect on a wait.
using timeout = std::chrono::microseconds;

/// Waits indefinitely (DAT_TIMEOUT_INFINITE).
inline constexpr timeout infinite = timeout::max();

}} // namespace dat::v0
