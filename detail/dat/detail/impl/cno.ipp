// Definitions of cno.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/cno.hpp>

#include <atomic>

namespace dat { inline namespace v0 {

DAT_DECL expected<evd_id> cno::wait(timeout limit) noexcept {
  if (!core_) return empty_handle("cno.wait");
  return core_->wait(limit);
}

DAT_DECL expected<void> cno::modify_agent(const wait_proxy_agent& agent) noexcept {
  if (!core_) return empty_handle("cno.modify_agent");
  return core_->modify_agent(agent);
}

DAT_DECL expected<cno_params> cno::query() const noexcept {
  if (!alive()) return empty_handle("cno.query");
  cno_params now;
  now.agent = core_->agent(now.latest);
  return now;
}

DAT_DECL expected<void> cno::close_fd() noexcept {
  if (!core_) return empty_handle("cno.close_fd");
  return core_->close_fd();
}

DAT_DECL expected<void> cno::close() noexcept {
  if (alive() && core_->waiters.load(std::memory_order_acquire) != 0)
    return error(return_type::invalid_state, return_subtype::cno_in_use)
        .at("cno.close", object_kind::cno)
        .hint("A thread waits on the cno.");
  return close_as("cno.close", return_subtype::cno_in_use);
}

}} // namespace dat::v0
