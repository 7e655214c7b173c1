// Definitions of srq.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/srq.hpp>

namespace dat { inline namespace v0 {

DAT_DECL expected<void> srq::set_low_watermark(std::uint32_t low) noexcept {
  if (!core_) return empty_handle("srq.set_low_watermark");
  return core_->set_low_watermark(low);
}

DAT_DECL expected<void> srq::resize(std::uint32_t max_recv_dtos) noexcept {
  if (!core_) return empty_handle("srq.resize");
  return core_->resize(max_recv_dtos);
}

DAT_DECL expected<srq_params> srq::query() const noexcept {
  if (!alive()) return empty_handle("srq.query");
  srq_params p;
  core_->query(p);
  return p;
}

DAT_DECL expected<void> srq::close() noexcept {
  auto r = close_as("srq.close", return_subtype::srq_in_use);
  if (!core_) ref_ = {};
  return r;
}

DAT_DECL srq_ref srq_event::srq() const noexcept { return srq_ref(queue_.get()); }

DAT_DECL expected<srq> pz::make_srq(const srq_attributes& attributes) noexcept {
  if (!core_) return empty_handle("pz.create_srq");
  auto core = detail::srq_core::create(core_.shared(), attributes);
  if (!core) return core.assume_error();
  return srq(std::move(core).assume_value());
}

}} // namespace dat::v0
