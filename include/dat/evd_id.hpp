// The contents of a notification: the number of an evd, and the agent that gets it.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view> // std::hash

namespace dat { inline namespace v0 {

/// Names an evd of an ia without referring to it. Numbers are not used again.
/// Thread safety: a value.
class evd_id {
public:
  constexpr evd_id() noexcept = default; ///< no evd
  constexpr explicit evd_id(std::uint32_t number) noexcept : number_(number) {}
  [[nodiscard]] constexpr std::uint32_t number() const noexcept { return number_; }
  constexpr explicit operator bool() const noexcept { return number_ != 0; }
  friend constexpr bool operator==(evd_id, evd_id) noexcept = default;
  friend constexpr std::strong_ordering operator<=>(evd_id, evd_id) noexcept = default;

private:
  std::uint32_t number_ = 0;
};

/// A function that a cno calls when it is triggered, once for each time that it is set (DAT_OS_WAIT_PROXY_AGENT, uDAPL
/// 2.0 §6.3.3). The service thread of the ia calls it or, with manual progress, the call that makes progress. No lock
/// is held, so it may post, take events, and set the agent again. It must not throw, wait, or close the ia. The evd is
/// a hint: take events from all evds that notify the cno. An empty id means that the evds, or the ia, have ended.
struct wait_proxy_agent {
  void (*call)(void* instance, evd_id evd) noexcept = nullptr;
  void* instance = nullptr;
};

}} // namespace dat::v0

template <>
struct std::hash<dat::evd_id> {
  [[nodiscard]] std::size_t operator()(dat::evd_id id) const noexcept { return id.number(); }
};
