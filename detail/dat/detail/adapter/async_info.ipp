// Definitions of async_info.hpp: the names and messages of asynchronous events.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/async.hpp>

#include <dat/detail/adapter/async_info.hpp>
#include <dat/detail/base/enum_name.hpp>
#include <dat/detail/text/event_text.hpp>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL std::string_view name_of(async_kind what) noexcept {
  return enum_name(what,
                   {"evd_overflow", "ia_catastrophic", "ep_broken", "operation_timed_out", "provider_internal_error",
                    "ha_down_to_1", "ha_up_to_multi_path", "port_down", "port_active", "port_changed",
                    "srq_low_watermark", "srq_error", "ep_soft_high_watermark"},
                   "unknown async_event");
}

DAT_DECL std::string async_message(async_kind what, const async_info& info) {
  const std::string_view name = name_of(what);
  switch (what) {
  case async_kind::evd_overflow:
    return async_text(name, "evd", info.number, evd_overflow_cause);
  case async_kind::ep_broken:
    return async_text(name, "ep", info.number, to_string(static_cast<ep_error>(info.reason)));
  case async_kind::provider_internal_error:
    return verb_text(name, info.number, info.verb ? info.verb : "", info.reason);
  case async_kind::port_changed:
    return async_text(name, {}, 0, to_string(static_cast<port_change>(info.reason)));
  case async_kind::ep_soft_high_watermark:
    return async_text(name, "ep", info.number, {});
  default:
    return std::string(name);
  }
}

}}} // namespace dat::v0::detail
