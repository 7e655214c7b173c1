// Attributes, state and counts of a shared receive queue.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/enum_name.hpp>

#include <cstdint>
#include <optional>
#include <string_view>

namespace dat::inline v0 {

/// What a shared receive queue is created with (DAT_SRQ_ATTR, uDAPL 2.0 §6.5). There is no low watermark: an empty
/// queue would be below it at once. `srq::set_low_watermark` arms it when there are buffers.
struct srq_attributes {
  std::uint32_t max_recv_dtos = 64; ///< buffers that are posted and whose completions are not taken, at a time
  std::uint32_t max_recv_iov = 4;   ///< segments of one buffer
};

/// DAT_SRQ_STATE (uDAPL 2.0 §6.5.2).
enum class srq_state : std::uint8_t {
  operational = 0, ///< everything is allowed
  error = 1        ///< the device cannot read it any more: close its endpoints, then the queue
};
/// The enumerator's name; total: a value outside the enumeration gives "unknown ...". Never allocates.
[[nodiscard]] constexpr std::string_view to_string(srq_state value) noexcept {
  return detail::enum_name(value, {"operational", "error"}, "unknown srq_state");
}

/// Everything about a shared receive queue at one moment (DAT_SRQ_PARAM, uDAPL 2.0 §6.5.6).
struct srq_params {
  srq_state state = srq_state::operational;
  const void* pz = nullptr;        ///< the identity of its zone: `params.pz == pz.identity()`
  std::uint32_t max_recv_dtos = 0; ///< at least what was asked for: devices round up
  std::uint32_t max_recv_iov = 0;  ///< likewise
  std::uint32_t low_watermark = 0; ///< as it was set last, whether its event has come or not; 0: none
  std::uint32_t outstanding = 0;   ///< buffers posted whose completions were not taken
  std::optional<std::uint32_t> available = std::nullopt; ///< of those, still to be had by an endpoint; see srq::query
};

} // namespace dat::inline v0
