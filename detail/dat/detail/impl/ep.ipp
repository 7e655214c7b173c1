// Definitions of ep.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ep.hpp>

#include <optional>

namespace dat { inline namespace v0 {

DAT_DECL expected<void> ep<rc>::connect(const ia_address& remote, conn_qual qualifier, timeout limit,
                                        std::span<const std::byte> data, const connect_options& options) noexcept {
  if (!usable()) return empty_handle("ep.connect");
  if (auto ok = qualifier.check(); !ok) return ok.assume_error().at("ep.connect", object_kind::ep, number());
  return core_->connect(remote, qualifier.port(), {limit, data, options});
}

DAT_DECL expected<void> ep<rc>::common_connect(const ia_address& remote, timeout limit,
                                               std::span<const std::byte> data) noexcept {
  if (!usable()) return empty_handle("ep.common_connect");
  return core_->common_connect(remote, {limit, data});
}

DAT_DECL expected<void> ep<rc>::dup_connect(const ep& original, timeout limit, std::span<const std::byte> data,
                                            const qos& quality) noexcept {
  if (!usable() || !original.usable()) return empty_handle("ep.dup_connect");
  return core_->dup_connect(*original.core_, {limit, data, {.qos = quality}});
}

DAT_DECL expected<void> ep<rc>::disconnect(close_mode how) noexcept {
  if (!usable()) return empty_handle("ep.disconnect");
  return core_->disconnect(how);
}

DAT_DECL expected<void> ep<rc>::reset() noexcept {
  if (!usable()) return empty_handle("ep.reset");
  return core_->reset();
}

DAT_DECL expected<void> ep<rc>::close() noexcept {
  if (usable())
    if (auto ok = core_->check_free(); !ok) return ok;
  ref_ = {};
  return close_as("ep.close");
}

DAT_DECL expected<ia_address> ep<rc>::address(const char* call, bool remote) const noexcept {
  if (!usable()) return empty_handle(call);
  std::optional<ia_address> found;
  core_->locked([&](detail::ep_core& e) {
    const ep_state now = e.state();
    if (!e.connection() || now == ep_state::disconnected || now == detail::ep_dead) return;
    found = remote ? e.connection()->remote_address() : e.connection()->local_address();
  });
  if (!found) return core_->at(error(return_type::invalid_state, detail::subtype_of(core_->state())), call);
  return *found;
}
DAT_DECL expected<ia_address> ep<rc>::remote_address() const noexcept { return address("ep.remote_address", true); }
DAT_DECL expected<ia_address> ep<rc>::local_address() const noexcept { return address("ep.local_address", false); }

}} // namespace dat::v0
