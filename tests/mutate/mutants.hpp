// Included before every source file of a build with mutants: which mutant runs, and which were reached.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#if defined(__cplusplus) && __cplusplus >= 202002L

#include <atomic>
#include <cstdlib>

namespace mutate {

inline constexpr int most = 1 << 14;

/// The mutant that runs, or 0 for none.
inline const int present = [] {
  const char* const text = std::getenv("DAT_MUTANT");
  return text ? std::atoi(text) : 0;
}();
/// The mutants whose places were reached, since `reached.cpp` cleared them.
inline std::atomic<bool> reached[most];

/// Records that a place was reached. Schedules do not count this as a step, and ThreadSanitizer ignores it.
#ifdef __SANITIZE_THREAD__
[[gnu::no_sanitize("thread"), gnu::noinline]]
#endif
inline void
reach(int number) noexcept {
  reached[number].store(true, std::memory_order_relaxed);
}

} // namespace mutate

/// Whether the fault is active here.
[[nodiscard]] constexpr bool dat_mutant(int number) noexcept {
  if (__builtin_is_constant_evaluated()) return false;
  mutate::reach(number);
  return mutate::present == number;
}

#endif
