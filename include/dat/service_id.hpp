// The name of a service point in the requests that it delivers.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/enum_name.hpp>

#include <cstdint>
#include <string_view>

namespace dat { inline namespace v0 {

/// The kinds of service points: public, reserved, common (uDAPL 2.0 §6.4.4).
enum class service_kind : std::uint8_t { psp, rsp, csp };
/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(service_kind value) noexcept {
  return detail::enum_name(value, {"psp", "rsp", "csp"}, "unknown service_kind");
}

/// Names a service point without owning it. `cr::service()` is the service point that a request arrived at, and
/// `psp::id()`, `rsp::id()` and `csp::id()` are those of handles. An id can still be compared when its service point is
/// closed, and no later id equals it. Ids of different ias are not comparable. Copyable.
class service_id {
public:
  constexpr service_id() noexcept = default; ///< names no service point
  constexpr service_id(service_kind kind, std::uint16_t port, std::uint32_t number) noexcept
      : number_(number), port_(port), kind_(kind) {}

  [[nodiscard]] constexpr service_kind kind() const noexcept { return kind_; }
  /// The connection qualifier, which is the port in host byte order.
  [[nodiscard]] constexpr std::uint16_t port() const noexcept { return port_; }
  /// A number that no other service point of its ia has.
  [[nodiscard]] constexpr std::uint32_t number() const noexcept { return number_; }
  explicit constexpr operator bool() const noexcept { return number_ != 0; }
  friend constexpr bool operator==(const service_id&, const service_id&) noexcept = default;

private:
  std::uint32_t number_ = 0;
  std::uint16_t port_ = 0;
  service_kind kind_ = service_kind::psp;
};

}} // namespace dat::v0
