// Parts of error texts that other texts use.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>

#include <cstdint>
#include <string>

namespace dat { inline namespace v0 { namespace detail {

/// "ENOMEM (Cannot allocate memory)".
[[nodiscard]] std::string errno_text(int errnum);
/// "ep 17"; without a number for 0.
[[nodiscard]] std::string object_text(object_kind kind, std::uint32_t id);
/// "the object is not in a state that allows this: the endpoint is connected".
[[nodiscard]] std::string meaning_text(return_type type, return_subtype subtype);

}}} // namespace dat::v0::detail
