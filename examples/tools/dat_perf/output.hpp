// The functions that all forms of results share.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "options.hpp"

#include <nlohmann/json.hpp>

#include <string>

namespace perf {

/// Writes text to a file, or with "-" to the standard output. Throws with the reason.
void put(const std::string& where, const std::string& text);
/// The version, the test and its parameters.
[[nodiscard]] nlohmann::ordered_json described(const options& o);

} // namespace perf
