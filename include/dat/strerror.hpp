// dat::strerror: the meaning of a DAT_RETURN word as text.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/expected.hpp>

#include <cstdint>
#include <string_view>

namespace dat { inline namespace v0 {

/// The two texts of a return word, both of static storage and never empty.
struct status_text {
  std::string_view major; ///< what the type means
  std::string_view minor; ///< what the subtype means
};

/// dat_strerror (uDAPL 2.0 §7.1): the meaning of a DAT_RETURN word of the C interface or of error::value(), also of
/// success (0) and warnings. A subtype that is defined for another type is described as it is.
/// Errors: `invalid_parameter` if class, type or subtype is undefined.
/// Allocates: never.
/// Blocks: never.
/// Thread safety: safe, also in signal handlers.
[[nodiscard]] constexpr expected<status_text> strerror(std::uint32_t word) noexcept {
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

}} // namespace dat::v0
