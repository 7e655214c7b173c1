// Definitions of csp.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/csp.hpp>

namespace dat { inline namespace v0 {

DAT_DECL expected<void> csp::close() noexcept { return close_as("csp.close"); }

DAT_DECL expected<csp_params> csp::query() const noexcept {
  if (!alive()) return empty_handle("csp.query");
  return csp_params{core_->service(), evd_id(core_->evd_number()), core_->comm(), core_->bound()};
}

DAT_DECL expected<csp> ia::create_csp(const communicator& comm, const ia_address& address,
                                      const evd_ref<streams::connection_requests>& requests) noexcept {
  if (!core_) return empty_handle("ia.create_csp");
  auto core = detail::create_csp(core_.shared(), comm, &address, detail::core_access::of(requests));
  if (!core) return core.assume_error();
  return csp(std::move(core).assume_value());
}

DAT_DECL expected<csp> ia::create_csp(const communicator& comm,
                                      const evd_ref<streams::connection_requests>& requests) noexcept {
  if (!core_) return empty_handle("ia.create_csp");
  auto core = detail::create_csp(core_.shared(), comm, nullptr, detail::core_access::of(requests));
  if (!core) return core.assume_error();
  return csp(std::move(core).assume_value());
}

}} // namespace dat::v0
