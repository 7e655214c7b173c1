// Definitions of psp.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/psp.hpp>

namespace dat { inline namespace v0 {

DAT_DECL expected<void> psp::close() noexcept { return close_as("psp.close"); }

DAT_DECL expected<psp_params> psp::query() const noexcept {
  if (!alive()) return empty_handle("psp.query");
  return psp_params{core_->service(), evd_id(core_->evd_number()),
                    core_->makes_eps() ? psp_flags::provider : psp_flags::consumer};
}

}} // namespace dat::v0
