// Checked builds: an ordinary post tracks its operations, as the policy `tracked` does.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/expected.hpp>

#include <dat/detail/base/checked.hpp>
#include <dat/detail/endpoint/core.hpp>

#ifdef DAT_CHECKED
#include <dat/detail/posting/tracked_posts.hpp>
#endif

namespace dat { inline namespace v0 { namespace detail {

/// Records requests that are about to be posted, or refuses them. Defined in checked builds only.
template <class... R>
[[nodiscard]] expected<void> track(ep_posting& ep, const R&... requests) noexcept;

#ifdef DAT_CHECKED
template <class... R>
expected<void> track(ep_posting& ep, const R&... requests) noexcept {
  if (ep.state() == ep_dead) return success(); // the post refuses such a request
  return tracked_posts::remember(static_cast<ep_core&>(ep).ia(), ep, requests...);
}
#endif

}}} // namespace dat::v0::detail
