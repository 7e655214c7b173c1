// Definitions of deadline.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/config.hpp>
#include <dat/detail/base/deadline.hpp>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL bool deadline::passed() const noexcept { return !never() && clock::now() >= at; }

DAT_DECL timespec deadline::left() const noexcept {
  auto d = at - clock::now();
  if (d < clock::duration::zero()) d = clock::duration::zero();
  const auto s = std::chrono::duration_cast<std::chrono::seconds>(d);
  return {.tv_sec = s.count(),
          .tv_nsec = static_cast<long>(std::chrono::duration_cast<std::chrono::nanoseconds>(d - s).count())};
}

DAT_DECL deadline deadline::in(timeout t) noexcept {
  // A century counts as unlimited, and adding a century cannot overflow the clock.
  if (t >= std::chrono::hours(24 * 36525)) return {};
  return {clock::now() + (t < timeout::zero() ? timeout::zero() : t)};
}

DAT_DECL int poll_until(pollfd* fds, nfds_t n, const deadline& d) noexcept {
  if (d.never()) return ::ppoll(fds, n, nullptr, nullptr);
  const timespec ts = d.left();
  return ::ppoll(fds, n, &ts, nullptr);
}

}}} // namespace dat::v0::detail
