// Definitions of dat::rmr.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/rmr.hpp>

namespace dat { inline namespace v0 {

DAT_DECL expected<rmr> pz::make_rmr(bool for_ep) noexcept {
  auto core = detail::rmr_core::create(core_.shared(), for_ep);
  if (!core) return core.assume_error();
  return rmr(std::move(core).assume_value());
}

DAT_DECL expected<void> rmr::unbind(const ep<rc>& through, const dat::unbind& how) noexcept {
  if (!core_) return empty_handle("rmr.unbind");
  return core_->unbind(detail::core_access::of(through), detail::request_access::of(how));
}

DAT_DECL expected<rmr_params> rmr::query() const noexcept {
  if (!alive()) return empty_handle("rmr.query");
  rmr_params p;
  p.ia = &core_->ia();
  p.pz = &core_->pz();
  p.scope = core_->for_ep() ? rmr_scope::ep : rmr_scope::pz;
  if (const detail::kept_binding b = core_->binding())
    p.binding = rmr_binding{b.first(), b.length, b.key, b.rights, b.zero_based, b.region->mr()->lkey};
  return p;
}

DAT_DECL bool dto_failure::is_of(const rmr& which) const noexcept { return which && which.identity() == window_; }
DAT_DECL bool bind_done::is_of(const rmr& which) const noexcept { return which && which.identity() == window_; }

}} // namespace dat::v0
