// Fills in the attributes of an ia.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/attributes.hpp>
#include <dat/expected.hpp>

#include <dat/detail/adapter/ia_core.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace dat { inline namespace v0 { namespace detail {

[[nodiscard]] constexpr port_state port_state_of(ibv_port_state s) noexcept {
  switch (s) {
  case IBV_PORT_DOWN:
    return port_state::down;
  case IBV_PORT_INIT:
    return port_state::initialising;
  case IBV_PORT_ARMED:
    return port_state::armed;
  case IBV_PORT_ACTIVE:
    return port_state::active;
  case IBV_PORT_ACTIVE_DEFER:
    return port_state::active_deferred;
  default:
    return port_state::unknown;
  }
}
[[nodiscard]] constexpr link_layer link_layer_of(std::uint8_t l) noexcept {
  return l == IBV_LINK_LAYER_ETHERNET     ? link_layer::ethernet
         : l == IBV_LINK_LAYER_INFINIBAND ? link_layer::infiniband
                                          : link_layer::unspecified;
}

/// Bits per second of one lane, as the kernel counts them in the file `rate` of a port; 0 for another number.
[[nodiscard]] constexpr std::uint64_t lane_speed_of(unsigned active_speed) noexcept {
  switch (active_speed) {
  case 1: // SDR
    return 2'500'000'000;
  case 2: // DDR
    return 5'000'000'000;
  case 4: // QDR
  case 8: // FDR10
    return 10'000'000'000;
  case 16: // FDR
    return 14'000'000'000;
  case 32: // EDR
    return 25'000'000'000;
  case 64: // HDR
    return 50'000'000'000;
  case 128: // NDR
    return 100'000'000'000;
  default:
    return 0;
  }
}
[[nodiscard]] constexpr std::uint32_t lanes_of(unsigned active_width) noexcept {
  switch (active_width) {
  case 1:
    return 1;
  case 2:
    return 4;
  case 4:
    return 8;
  case 8:
    return 12;
  case 16:
    return 2;
  default:
    return 0;
  }
}
/// The first two numbers of "20.31.1014"; text that is no number counts as 0.
struct firmware_number {
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
};
[[nodiscard]] constexpr firmware_number firmware_of(std::string_view text) noexcept {
  std::uint32_t parts[2] = {};
  std::size_t i = 0;
  for (std::uint32_t& part : parts) {
    const std::size_t begin = i;
    for (; i < text.size() && i - begin < 9 && text[i] >= '0' && text[i] <= '9'; ++i)
      part = 10 * part + static_cast<std::uint32_t>(text[i] - '0');
    if (i == begin || i == text.size() || text[i] != '.') break;
    ++i;
  }
  return {parts[0], parts[1]};
}

/// Returns whether a device with `total` reads can guarantee `each` of them to every endpoint, or the endpoints share
/// them.
[[nodiscard]] constexpr read_resources reads_for_all(std::uint64_t total, std::uint64_t endpoints,
                                                     std::uint64_t each) noexcept {
  return total >= endpoints * each ? read_resources::guaranteed : read_resources::shared;
}

/// A number as text: hexadecimal with `digits` digits; decimal if `digits` is 0.
[[nodiscard]] short_text number_text(std::uint64_t n, unsigned digits = 0) noexcept;

[[nodiscard]] expected<void> query(const ia_core& core, ia_attributes& a) noexcept;
[[nodiscard]] expected<void> query(const ia_core& core, provider_attributes& a) noexcept;
/// With a processor, the adapters are in the order of their distance from that processor.
[[nodiscard]] expected<adapter_list> list_adapters(const char* call, std::optional<std::uint32_t> cpu = {}) noexcept;

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/adapter/attributes_query.ipp>
#endif
