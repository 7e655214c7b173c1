// Definitions of coro_operation.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/delivery/coro_operation.hpp>

#include <utility>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL coro_operation::coro_operation() noexcept
    : failed_(true), error_(return_type::invalid_handle, return_subtype::none) {
  error_ = error_.hint("Nothing was posted with this operation.");
}

DAT_DECL void coro_operation::begin(coro_schedule& s) noexcept {
  unlink(); // if its coroutine was destroyed, it may still be in the list of ready operations
  schedule_ = &s;
  failed_ = stopping_ = false;
}

DAT_DECL void coro_operation::fail(const error& e) noexcept {
  failed_ = true;
  error_ = e;
  finish();
}

DAT_DECL void coro_operation::finish() noexcept {
  coro_schedule& s = *schedule_;
  unlink();
  stop_.reset();
  schedule_ = nullptr;
  if (waiting) s.make_ready(*this);
}

DAT_DECL void coro_operation::watch(std::stop_token&& token) noexcept {
  if (done() || !token.stop_possible()) return;
  stop_.emplace(std::move(token), *this);
}

DAT_DECL bool coro_operation::hang_up() noexcept {
  stopping_ = stop_ && stop_->endpoint && stop_->endpoint->disconnect(close_mode::abrupt).has_value();
  return stopping_;
}

DAT_DECL expected<void> coro_operation::check_connect_evd(const char* call) const noexcept {
  if (!whose_ || whose_->dead() || whose_->evds().connect.get() == schedule_->evd()) return success();
  return whose_->at({return_type::invalid_handle, return_subtype::handle_evd_conn}, call)
      .hint("The endpoint's connection events go to another evd than the driver's.");
}

}}} // namespace dat::v0::detail
