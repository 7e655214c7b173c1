// dat::strerror: a DAT_RETURN word in words.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/expected.hpp>

#include <cstdint>
#include <string_view>

namespace dat::inline v0 {

/// The two texts of a return word, both of static storage and never empty.
struct status_text {
  std::string_view major; ///< what the type means
  std::string_view minor; ///< what the subtype means
};

/// dat_strerror (uDAPL 2.0 §7.1) for a DAT_RETURN word as the C interface and error::value() have it; success (0) and
/// warnings, too. Errors: invalid_parameter if class, type or subtype is undefined; a defined subtype of another type
/// is described as it stands. Never allocates or blocks; safe in threads and signal handlers.
template <class Text = status_text> // a template, so that only who calls it pays for compiling it
[[nodiscard]] constexpr expected<Text> strerror(std::uint32_t word) noexcept {
  const auto type = detail::describe(type_of(word));
  const auto subtype = static_cast<std::uint32_t>(subtype_of(word));
  const bool known_class = (word & return_class_mask) != return_class_mask;
  const bool known_type = valid_pair(type_of(word), return_subtype::none);
  if (!known_class || !known_type || subtype >= detail::subtype_table.size())
    return error(return_type::invalid_parameter, return_subtype::arg1)
        .at("strerror")
        .hint("The word is no DAT_RETURN value of uDAPL 2.0.");
  return status_text{type.meaning, detail::describe(subtype_of(word)).meaning};
}

} // namespace dat::inline v0
