// Counts the asynchronous events of one kind that an ia has reported.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/dat.hpp>

#include <cstddef>
#include <type_traits>

namespace unit {

/// Takes all queued asynchronous events of an ia, and returns how many of them have the type `Event`.
template <class Event>
std::size_t take_async(dat::ia& ia) {
  std::size_t n = 0;
  ia.async_evd().drain([&]<class E>(const E&) { n += std::is_same_v<E, Event> ? 1 : 0; });
  return n;
}

} // namespace unit
