// The parts of overloads that compile only to report what is wrong with a call.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <concepts>
#include <type_traits>

namespace dat { inline namespace v0 { namespace detail {

/// Whether the header that defines `T` was included.
template <class T>
concept complete = requires {
  sizeof(T);
};
/// Takes the place of an object whose header was not included.
struct missing_header {};
template <class T>
using if_complete = std::conditional_t<complete<T>, T, missing_header>;

/// Returns the object itself. The compiler checks a call on it only where a template is compiled for `T`.
template <class T, class Object>
[[nodiscard]] Object& dependent(Object& object) noexcept {
  return object;
}

/// False. The compiler evaluates it only where a template is compiled for `T`.
template <class T>
inline constexpr bool never = false;

/// True for a time limit without a unit, with a unit finer than microseconds, or with a fraction.
template <class T>
concept no_time_limit = std::integral<T> || std::floating_point<T> ||
    (requires { typename T::period; } && !std::is_convertible_v<T, std::chrono::microseconds>);

}}} // namespace dat::v0::detail
