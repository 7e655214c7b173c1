// Waiting on an evd until an event is queued.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/checked.hpp>
#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/base/checked.hpp>
#include <dat/detail/base/config.hpp>
#include <dat/detail/base/deadline.hpp>
#include <dat/detail/events/evd_core.hpp>

#include <cstdint>
#include <type_traits>

namespace dat { inline namespace v0 { namespace detail {

/// Refers to the function by which a waiter takes what it waits for. The function returns whether it took something.
class look_ref {
public:
  template <class Look>
  look_ref(Look&& look) noexcept // NOLINT(bugprone-forwarding-reference-overload): look_ref cannot be copied
      : look_(const_cast<void*>(static_cast<const void*>(&look))),
        call_([](void* f) { return (*static_cast<std::remove_reference_t<Look>*>(f))(); }) {}
  look_ref(const look_ref&) = delete;
  look_ref& operator=(const look_ref&) = delete;
  [[nodiscard]] bool operator()() const { return call_(look_); }

private:
  void* look_;
  bool (*call_)(void* look);
};

/// The error of a call that needs an evd on which a thread waits. In a checked build the error distinguishes another
/// thread from a visitor inside a wait of the calling thread.
template <bool Checked = checked_build>
[[nodiscard]] error has_waiter_already(const evd_core& e, wakeup& w, const char* call) noexcept {
  const error refusal = e.at({return_type::invalid_state, return_subtype::evd_waiter}, call);
  if constexpr (Checked)
    if (w.has_waiter() && !w.has_other_waiter()) {
      report_misuse(
          {checked::finding::waiting_visitor, call, "evd.drain", "evd", e.number(), nullptr, nullptr,
           "A visitor must not wait on the evd that calls it, nor dequeue from it: set a flag, and wait after "
           "the drain."});
      return error(refusal).hint("The visitor of a drain of this thread waits on the evd that calls it, or dequeues "
                                 "from it: wait after the drain.");
    }
  return refusal;
}

/// Sleeps until `look` finds something, the deadline passes, or waiting fails. Arms the device before the look that
/// decides to sleep: an event that comes in between ends the sleep. `count` is the number of events that the thread
/// waits for. Throws only what `look` throws.
[[nodiscard]] expected<void> wait_until(evd_core& e, const deadline& until, look_ref look, std::uint32_t count = 1);

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/events/wait_until.ipp>
#endif
