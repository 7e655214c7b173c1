// Definitions of drain.hpp: what rare completions mean.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/delivery/drain.hpp>
#include <dat/detail/verbs/wc_status.hpp>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL dto_failure failure_of(ep_core& ep, ep_generation life, const ibv_wc& wc, const posted_work& posted,
                                dto_operation reported) noexcept {
  ep.broke(life);
  return event_access::make<dto_failure>(&ep, posted.cookie, reported, to_dto_status(wc.status, posted.operation()),
                                         wc.vendor_err, static_cast<std::uint8_t>(wc.status));
}

DAT_DECL std::uint32_t invalidated_key(ep_core& ep, const ibv_wc& wc) noexcept {
  // rxe sets the kernel's bit for it, which libibverbs reads as that of a checksum: there, a window must know the key.
  const bool known = ep.ia().invalidated(wc.invalidated_rkey);
  return known || (wc.wc_flags & IBV_WC_WITH_INV) != 0 ? wc.invalidated_rkey : 0;
}

}}} // namespace dat::v0::detail
