// Definitions of coro_operation.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/delivery/coro_operation.hpp>

#include <utility>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL coro_operation::coro_operation() noexcept
    : done_(true), failed_(true), error_(return_type::invalid_handle, return_subtype::none) {
  error_ = error_.hint("Nothing was posted with this operation.");
}

DAT_DECL void coro_operation::begin(coro_schedule& s, ep_core* whose, stop_function serve_stop) noexcept {
  schedule_ = &s;
  whose_ = whose;
  on_stop = serve_stop;
  done_ = failed_ = stopping_ = false;
}

DAT_DECL void coro_operation::fail(const error& e) noexcept {
  failed_ = true;
  error_ = e;
  finish();
}

DAT_DECL void coro_operation::finish() noexcept {
  coro_schedule& s = *schedule_;
  unlink();
  detach();
  done_ = true;
  if (waiting) s.make_ready(*this);
}

DAT_DECL void coro_operation::watch(std::stop_token&& token) noexcept {
  if (done_ || !token.stop_possible()) return;
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

DAT_DECL void coro_operation::forget_stop() noexcept {
  stop_.reset(); // waits for a request that another thread is making
  schedule_->forget_stop(*this);
}

}}} // namespace dat::v0::detail
