// Events: what an evd delivers, one type for each thing that can happen.
//
// A type has only the members that are valid for it: a success has the results of the operation, a failure the cause.
// Each type has a `name`, and `message()` is a text for logs; <dat/describe.hpp> prints events of any type.
// `dat::event<S>` is the std::variant of what an evd with the streams `S` can deliver.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/async_events.hpp>
#include <dat/completions.hpp>
#include <dat/connection_events.hpp>
#include <dat/cookie.hpp>
#include <dat/cr.hpp>
#include <dat/streams.hpp>

#include <dat/detail/events/event_access.hpp>
#include <dat/detail/events/type_list.hpp>
#include <dat/detail/handle/event_key.hpp>
#include <dat/detail/text/event_text.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace dat { inline namespace v0 {

/// A request has arrived at a service point. The event is the request; see cr.hpp. If the request is not moved out of
/// the event, the end of the event refuses it.
using connection_request = cr;

// --- software events (dat::stream::software) ------------------------------------------------------------------------

/// A software event that `evd::post` appended (DAT_SOFTWARE_EVENT). Copyable.
class software_event {
public:
  static constexpr std::string_view name = "software_event";
  [[nodiscard]] std::string message() const { return detail::software_text(name, cookie_.value()); }
  /// The posted number or pointer, which dat neither reads nor owns.
  [[nodiscard]] dat::cookie cookie() const noexcept { return cookie_; }

  software_event(detail::event_key, dat::cookie c) noexcept : cookie_(c) {}

private:
  dat::cookie cookie_;
};

/// The events that an evd with the streams `S` can deliver.
template <streams S>
using event = detail::variant_of<detail::event_list<S>>;

/// The event as an `E`; null when it is another one.
template <class E, class... Events>
requires(detail::is_event<Events>&&...)
    [[nodiscard]] constexpr const E* get_if(const std::variant<Events...>* event) noexcept {
  if constexpr (detail::may_be<E, Events...>()) return std::get_if<E>(event);
}
template <class E, class... Events>
requires(detail::is_event<Events>&&...) [[nodiscard]] constexpr E* get_if(std::variant<Events...>* event) noexcept {
  if constexpr (detail::may_be<E, Events...>()) return std::get_if<E>(event);
}

/// The event as an `E`, where it can be no other. Otherwise throws dat::failure, which names the event, or ends the
/// program by std::terminate when exceptions are disabled, as expected::value does.
///
/// `std::get` and `std::get_if` do the same. These functions have better messages when the type is wrong.
template <class E, class... Events>
requires(detail::is_event<Events>&&...) [[nodiscard]] constexpr const E& get(const std::variant<Events...>& event) {
  if constexpr (detail::may_be<E, Events...>()) {
    if (const E* const it = std::get_if<E>(&event)) [[likely]]
      return *it;
    detail::other_event(std::visit([](const auto& e) { return std::remove_cvref_t<decltype(e)>::name; }, event));
  }
}
template <class E, class... Events>
requires(detail::is_event<Events>&&...) [[nodiscard]] constexpr E& get(std::variant<Events...>& event) {
  return const_cast<E&>(get<E>(std::as_const(event)));
}
template <class E, class... Events>
requires(detail::is_event<Events>&&...) [[nodiscard]] constexpr E get(std::variant<Events...>&& event) {
  return std::move(get<E>(event));
}

/// The result of a wait for several events.
template <streams S>
struct waited {
  event<S> first;   ///< the first event of the queue
  std::size_t more; ///< events that are left there
};

/// Combines several lambdas into one visitor: `evd.drain(dat::overloaded{[](const dat::recv_done&) {...}, ...})`.
template <class... F>
struct overloaded : F... {
  using F::operator()...;
};
template <class... F>
overloaded(F...) -> overloaded<F...>;

}} // namespace dat::v0
