// Sentences about failed operations.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/status.hpp>

#include <cstdint>
#include <string>

namespace dat::inline v0::detail {

inline std::string failure_text(dto_operation operation, dto_status status, std::uint32_t qp, int verbs,
                                std::uint32_t vendor) {
  std::string text(to_string(operation));
  text += " on ep (qp ";
  text += std::to_string(qp);
  text += "): ";
  text += to_string(status);
  text += " (verbs status ";
  text += std::to_string(verbs);
  if (vendor != 0) {
    text += ", vendor code ";
    text += std::to_string(vendor);
  }
  text += "): ";
  text += usual_cause(status);
  return text;
}

} // namespace dat::inline v0::detail
