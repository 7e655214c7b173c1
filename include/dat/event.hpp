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

#include <dat/detail/events/type_list.hpp>
#include <dat/detail/handle/event_key.hpp>
#include <dat/detail/text/event_text.hpp>

#include <cstddef>
#include <string>
#include <string_view>
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
