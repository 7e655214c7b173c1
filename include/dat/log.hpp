// The log: errors and notable events as text, for a program that is built with DAT_TRACE. dat itself never prints.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>

#include <dat/detail/base/config.hpp>
#include <dat/detail/base/enum_name.hpp>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace dat { inline namespace v0 {

/// The severity of an entry of the log.
enum class log_level : std::uint8_t {
  error,   ///< a call that failed, a failed operation, a broken connection, a lost event, a failed device
  warning, ///< a condition that a program can handle: a refused request, a port that is down
  info,    ///< a connection that is up, or was ended by one of its sides; a port that is up again
};
/// Returns the name of the enumerator, or "unknown log_level" for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(log_level value) noexcept {
  return detail::enum_name(value, {"error", "warning", "info"}, "unknown log_level");
}

/// An entry of the log. Valid during the call of the function that gets it.
class log_entry {
public:
  [[nodiscard]] log_level level() const noexcept { return level_; }
  /// The message() of the error or event: one line, with the remedy. Allocates.
  [[nodiscard]] std::string message() const { return text_(what_); }
  /// The error of a call; null for an event.
  [[nodiscard]] const dat::error* error() const noexcept { return error_; }

  /// The function `text(what)` returns the message.
  log_entry(log_level level, const void* what, std::string (*text)(const void* what),
            const dat::error* error = nullptr) noexcept
      : level_(level), what_(what), text_(text), error_(error) {}

private:
  log_level level_;
  const void* what_;
  std::string (*text_)(const void* what);
  const dat::error* error_;
};

}} // namespace dat::v0

namespace dat { inline namespace v0 { namespace detail {

/// The function of on_log. One for the whole program, also where its parts are compiled with hidden visibility.
[[gnu::visibility("default")]] inline constinit std::atomic<void (*)(const log_entry&) noexcept> log_report{nullptr};

/// Passes an entry to the log of a build with DAT_TRACE. `text()` makes its message.
template <class Text>
[[gnu::cold]] void log_event([[maybe_unused]] log_level level, [[maybe_unused]] const Text& text) noexcept {
  if constexpr (trace_build)
    if (const auto report = log_report.load(std::memory_order_acquire))
      report(log_entry(level, &text, [](const void* what) { return (*static_cast<const Text*>(what))(); }));
}

/// Passes the error of a call to the log, once: the copies of a logged error are marked, too. Expired time limits,
/// empty queues and interrupted calls are ordinary results, and not logged.
[[gnu::cold]] inline void log_error(error& e) noexcept {
  const auto report = log_report.load(std::memory_order_acquire);
  if (!report || e.call().empty() || e.type() == return_type::timeout_expired || e.type() == return_type::queue_empty ||
      e.type() == return_type::interrupted_call || e.is_logged())
    return;
  e.object_ = error::logged(e.object_);
  report(log_entry(
      log_level::error, &e, [](const void* what) { return static_cast<const error*>(what)->message(); }, &e));
}

}}} // namespace dat::v0::detail

namespace dat { inline namespace v0 {

/// Sets the function that gets the log of the program; null removes it. dat calls it in the thread in which the error
/// or event occurs, so several threads may call it at the same time. The thread may hold locks of dat: the function
/// must not call dat, nor wait for a thread that does. A build without DAT_TRACE never calls it.
///
///     dat::on_log([](const dat::log_entry& e) noexcept {
///       std::clog << to_string(e.level()) << ": " << e.message() << '\n';
///     });
///
/// The log has every error that a call returns, once, except `timeout_expired`, `queue_empty` and `interrupted_call`;
/// operations that failed and were taken, without those that a disconnect flushes; the events of connections; requests
/// that were refused for lack of room; and asynchronous events.
/// Errors: none.
/// Allocates: never.
/// Blocks: never.
/// Thread safety: safe.
inline void on_log(void (*report)(const log_entry&) noexcept) noexcept {
  detail::log_report.store(report, std::memory_order_release);
}

}} // namespace dat::v0
