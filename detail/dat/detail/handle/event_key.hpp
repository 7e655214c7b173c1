// The key to the constructors of events, and the class that has it.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <utility>

namespace dat { inline namespace v0 { namespace detail {

/// The first argument of the constructors that are public in form only: a program cannot make one.
class event_key {
  friend struct event_access;
  constexpr event_key() noexcept = default;
};

/// Makes events, and finds the core objects of events.
struct event_access {
  template <class E, class... A>
  [[nodiscard, gnu::always_inline]] static E make(A&&... a) noexcept {
    return E(event_key{}, std::forward<A>(a)...);
  }
  /// The endpoint of a completion.
  template <class E>
  [[nodiscard]] static auto* endpoint_of(const E& completion) noexcept {
    return completion.ep_;
  }
};

}}} // namespace dat::v0::detail
