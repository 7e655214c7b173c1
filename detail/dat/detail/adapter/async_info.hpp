// The contents of an asynchronous event of any kind.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

struct ibv_context;

namespace dat { inline namespace v0 { namespace detail {

/// Kinds of asynchronous events, in the order of the types in async_events.
enum class async_kind : std::uint8_t {
  evd_overflow,
  ia_catastrophic,
  ep_broken,
  operation_timed_out,
  provider_internal_error,
  ha_down_to_1,
  ha_up_to_multi_path,
  port_down,
  port_active,
  port_changed,
  srq_low_watermark,
  srq_error,
  ep_soft_high_watermark
};

struct async_info {
  const ibv_context* context = nullptr; ///< of the ia where the event happened
  const char* verb = nullptr;           ///< the name of the call that failed
  std::uint32_t number = 0;             ///< of the evd that the event concerns, or 0
  int reason = 0;                       ///< depends on the kind: errno, cause, change
};

}}} // namespace dat::v0::detail
