// Functions that a test runs at the beginning of a call.
// SPDX-License-Identifier: BSL-1.0
#include "state.hpp"

#include <atomic>

namespace fake {

namespace {
std::mutex& guard() {
  static std::mutex m;
  return m;
}
std::map<call, std::function<void()>>& interceptors() {
  static std::map<call, std::function<void()>> all;
  return all;
}
std::atomic<bool> any{false};
} // namespace

void intercept(call c, std::function<void()> f) {
  const std::lock_guard hold{guard()};
  interceptors()[c] = std::move(f);
  any = true;
}

namespace impl {

void run_interceptor(call c) {
  if (!any.load(std::memory_order_relaxed)) return;
  std::function<void()> f;
  {
    const std::lock_guard hold{guard()};
    if (const auto it = interceptors().find(c); it != interceptors().end()) f = it->second;
  }
  if (f) f();
}

void forget_interceptors() {
  const std::lock_guard hold{guard()};
  interceptors().clear();
  any = false;
}

} // namespace impl

} // namespace fake
