// The names of enumerators that count from 0.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string_view>

namespace dat { inline namespace v0 { namespace detail {

template <class E, std::size_t N>
[[nodiscard]] constexpr std::string_view enum_name(E value, const std::string_view (&names)[N],
                                                   std::string_view otherwise) noexcept {
  const auto i = static_cast<std::size_t>(value);
  return i < N ? names[i] : otherwise;
}

}}} // namespace dat::v0::detail
