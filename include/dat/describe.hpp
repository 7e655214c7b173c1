// Events as text, for logs: dat::describe, operator<<, and std::format where the library has it. Not in <dat/dat.hpp>.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/event.hpp>

#include <concepts>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <version>
#ifdef __cpp_lib_format
#include <format>
#endif

namespace dat { inline namespace v0 {

/// Whether a type is one of the events: it has a name and a text.
template <class E>
concept describable = requires(const E& e) {
  { E::name } -> std::convertible_to<std::string_view>;
  { e.message() } -> std::same_as<std::string>;
};

/// The event as text, such as "recv_done on ep (qp 17): 64 bytes, cookie 7". A completion must not be older than its
/// endpoint. Allocates.
template <describable E>
[[nodiscard]] std::string describe(const E& event) {
  return event.message();
}
/// The event that a variant holds. Allocates.
template <describable... E>
[[nodiscard]] std::string describe(const std::variant<E...>& event) {
  return std::visit([](const auto& e) { return e.message(); }, event);
}

/// Writes `describe(event)`.
template <describable E>
std::ostream& operator<<(std::ostream& out, const E& event) {
  return out << event.message();
}
namespace ib {
using v0::operator<<; // for argument-dependent lookup of the events in dat::ib
} // namespace ib

}} // namespace dat::v0

#ifdef __cpp_lib_format
template <dat::describable E>
struct std::formatter<E> : std::formatter<std::string> {
  auto format(const E& event, std::format_context& context) const {
    return std::formatter<std::string>::format(event.message(), context);
  }
};
#endif
