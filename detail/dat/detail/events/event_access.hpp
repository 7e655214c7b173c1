// Parts of dat::get and dat::get_if: the check that a type is an event, and their refusals.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <concepts>
#include <string_view>
#include <type_traits>

namespace dat { inline namespace v0 { namespace detail {

template <class E>
concept is_event = requires {
  { E::name } -> std::convertible_to<std::string_view>;
};

/// Does not compile for an event that an evd, which delivers `Events`, never delivers.
template <class E, class... Events>
[[nodiscard]] consteval bool may_be() noexcept {
  constexpr bool found = (std::is_same_v<E, Events> || ...);
  static_assert(found, "dat: this event is never of that type: the streams of the evd that delivers it do not contain "
                       "that type; create the evd with the stream, such as create_evd<dat::stream::connection | ...>");
  return found;
}

/// Ends a dat::get of another event than the one that the variant holds.
[[noreturn, gnu::cold]] inline void other_event(std::string_view name) {
  no_value(error(return_type::invalid_parameter)
               .at("dat::get")
               .quote(name)
               .hint("The event is of another type, whose name is quoted: call dat::get_if, a visitor, or "
                     "evd.wait_for<E>, which leaves other events in the queue."));
}

}}} // namespace dat::v0::detail
