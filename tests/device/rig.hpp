// What the tests in tests/events stand on, here: the first adapter that is under test.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "support.hpp"

namespace rig {

using device::must;
using device::patience;
inline constexpr dat::ia_options manual{.progress = dat::progress::manual};
inline constexpr dat::ia_options automatic{.progress = dat::progress::automatic};

inline void begin() {}
inline dat::ia open(const dat::ia_options& options = automatic) {
  return must(dat::ia::open(device::addresses()[0], options));
}
inline dat::conn_qual port() { return device::next_port(); }

// How much the stress is made of: on emulated processors sanitizers take ten times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool instrumented = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool instrumented = true;
#else
inline constexpr bool instrumented = false;
#endif
#else
inline constexpr bool instrumented = false;
#endif
inline constexpr std::uint64_t stress_events = instrumented ? 25'000 : 1'000'000;
inline constexpr std::uint64_t stress_messages = instrumented ? 200 : 1'000; ///< of each of four connections

} // namespace rig
