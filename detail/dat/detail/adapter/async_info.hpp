// The contents of an asynchronous event of any kind.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/log.hpp>

#include <dat/detail/base/config.hpp>

#include <cstdint>
#include <string>
#include <string_view>

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
  const ibv_context* context = nullptr; ///< the context of the ia where the event happened
  const char* verb = nullptr;           ///< the name of the call that failed
  std::uint32_t number = 0;             ///< the number of the evd or endpoint that the event concerns, or 0
  int reason = 0;                       ///< depends on the kind: errno, cause, change
};

inline constexpr std::string_view evd_overflow_cause =
    "The evd was full and lost events. Take events more often, or create it with a larger qlen.";
/// The name of the type of the event.
[[nodiscard]] std::string_view name_of(async_kind what) noexcept;
/// The severity of the event in the log.
[[nodiscard]] constexpr log_level level_of(async_kind what) noexcept {
  switch (what) {
  case async_kind::port_active:
  case async_kind::ha_up_to_multi_path:
    return log_level::info;
  case async_kind::port_down:
  case async_kind::port_changed:
  case async_kind::ha_down_to_1:
  case async_kind::srq_low_watermark:
  case async_kind::ep_soft_high_watermark:
    return log_level::warning;
  default:
    return log_level::error;
  }
}
/// The message() of the event.
[[nodiscard]] std::string async_message(async_kind what, const async_info& info);

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/adapter/async_info.ipp>
#endif
