// Attributes, state and counts of a shared receive queue.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/enum_name.hpp>

#include <cstdint>
#include <optional>
#include <string_view>

namespace dat { inline namespace v0 {

/// The parameters with which a shared receive queue is created (DAT_SRQ_ATTR, uDAPL 2.0 §6.5). They have no low
/// watermark, because an empty queue would be below it at once. `srq::set_low_watermark` arms it when the queue has
/// buffers.
struct srq_attributes {
  /// The largest number of buffers that are posted and whose completions are not taken.
  std::uint32_t max_recv_dtos = 64;
  std::uint32_t max_recv_iov = 4; ///< segments of one buffer
};

/// DAT_SRQ_STATE (uDAPL 2.0 §6.5.2).
enum class srq_state : std::uint8_t {
  operational = 0, ///< everything is allowed
  error = 1        ///< the device can no longer read it: close its endpoints, then the queue
};
/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(srq_state value) noexcept {
  return detail::enum_name(value, {"operational", "error"}, "unknown srq_state");
}

/// All parameters of a shared receive queue at one moment (DAT_SRQ_PARAM, uDAPL 2.0 §6.5.6).
struct srq_params {
  srq_state state = srq_state::operational;
  const void* pz = nullptr;        ///< the identity of its zone: `params.pz == pz.identity()`
  std::uint32_t max_recv_dtos = 0; ///< at least the requested number, because devices round up
  std::uint32_t max_recv_iov = 0;  ///< at least the requested number
  std::uint32_t low_watermark = 0; ///< the latest setting, also after its event; 0: none
  /// Buffers that are posted and whose completions are not taken.
  std::uint32_t outstanding = 0;
  std::optional<std::uint32_t> available = std::nullopt; ///< buffers that no message has taken; see srq::query
};

}} // namespace dat::v0
