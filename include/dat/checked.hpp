// Findings of checked builds (DAT_CHECKED): misuse that the adapter does not report.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/checked.hpp>
#include <dat/detail/base/enum_name.hpp>

#include <atomic>
#include <cstdint>
#include <string_view>

namespace dat { inline namespace v0 { namespace checked {

/// The kinds of misuse that a checked build finds.
enum class finding : std::uint8_t {
  overlapping_calls,   ///< two calls of a class whose calls must not overlap
  closed_region,       ///< an lmr was destroyed while a posted operation names it
  unmapped_memory,     ///< the memory of an operation is not mapped
  freed_memory,        ///< memory was freed that is posted or registered (AddressSanitizer)
  changed_send_buffer, ///< the memory of a request changed between its post and its completion
  wrong_cookie_type,   ///< cookie::as of another type than the cookie was made from
  waiting_visitor,     ///< a visitor waits on the evd whose event it was called with
  evd_overflow,        ///< an evd was too small for what completed
  empty_evd,           ///< drain of an evd that was moved from, closed or never created; drain itself returns no error
};

/// Returns the name of the enumerator, or "unknown finding" for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(finding value) noexcept {
  return detail::enum_name(value,
                           {"overlapping_calls", "closed_region", "unmapped_memory", "freed_memory",
                            "changed_send_buffer", "wrong_cookie_type", "waiting_visitor", "evd_overflow", "empty_evd"},
                           "unknown finding");
}

/// A finding. Its texts are literals, so it may be copied.
struct misuse {
  finding what{};
  std::string_view call;             ///< the call that shows it
  std::string_view other_call = {};  ///< the other call, where two calls conflict
  std::string_view object = {};      ///< the kind of the object: "ep", "evd"
  std::uint32_t object_id = 0;       ///< ep::number, or the number of the evd
  const void* address = nullptr;     ///< the memory, if it concerns memory
  const void* posted_from = nullptr; ///< the place in the program that posted the operation, for addr2line
  std::string_view remedy = {};
};

}}} // namespace dat::v0::checked

namespace dat { inline namespace v0 { namespace detail {

/// The function of on_misuse. One for the whole program, also where its parts are compiled with hidden visibility.
[[gnu::visibility("default")]] inline constinit std::atomic<void (*)(const checked::misuse&) noexcept> misuse_report{
    nullptr};

[[gnu::cold]] inline void report_misuse(const checked::misuse& found) noexcept {
  if (const auto report = misuse_report.load(std::memory_order_acquire)) report(found);
}

}}} // namespace dat::v0::detail

namespace dat { inline namespace v0 { namespace checked {

/// Sets the function that is called with every finding, in the thread of the call that shows it; null removes it. The
/// function must not call dat. A build without DAT_CHECKED never calls it.
/// Errors: none.
/// Allocates: never.
/// Blocks: never.
/// Thread safety: safe.
inline void on_misuse(void (*report)(const misuse&) noexcept) noexcept {
  detail::misuse_report.store(report, std::memory_order_release);
}

}}} // namespace dat::v0::checked
