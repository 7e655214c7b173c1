// What the tests expect of the device they run on: its row of the device table, which dat-info prints, too.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "support.hpp"

#include "../../examples/tools/dat_info/device_table.hpp"

#include <sys/utsname.h>

namespace device {

using dat_info::device_row;
using dat_info::longest_length;

/// The reason why a case ends on a device that lacks one of these.
inline constexpr const char* no_late_flush = "this device does not flush what is posted after the end of a connection";
inline constexpr const char* no_wait = "this device ends a connection whose message finds no receive";
inline constexpr const char* completes_early = "on this device a request has completed before it has reached its peer";
inline constexpr const char* loses_begun = "this device loses the shared buffer into which a message is arriving";
inline constexpr const char* tcp_repeats = "on this device TCP repeats for minutes before a connection breaks";

/// The row of the first adapter. A device that the table lacks has the first row of its transport.
[[nodiscard]] inline const device_row& this_device() {
  static const device_row& here = []() -> const device_row& {
    const auto ia = must(dat::ia::open(addresses()[0]));
    ::utsname linux_is{};
    ::uname(&linux_is);
    const auto kernel = dat_info::version_of(linux_is.release);
    if (const device_row* found = dat_info::find_device(must(ia.query()).vendor_id, kernel)) return *found;
    const bool iwarp = ia.native_handle()->device->transport_type == IBV_TRANSPORT_IWARP;
    return *dat_info::find_device(iwarp ? dat_info::vendor_of_siw : dat_info::vendor_of_rxe, {});
  }();
  return here;
}

/// Whether a message may be posted behind `sent` others when the peer has posted `receives`. The message has to wait on
/// devices where a message without a receive ends the connection.
[[nodiscard]] inline bool may_send(std::uint64_t sent, std::uint64_t receives) {
  return sent < receives || this_device().waits_for_receives;
}

/// Whether a condition on the peer's data is true. Waits for the condition on devices where data may arrive after its
/// write has completed.
template <class Condition>
[[nodiscard]] bool arrives(Condition condition) {
  return condition() || (!this_device().completes_at_peer && comes_true(condition));
}

/// Takes the event of a message whose send has completed. Waits for the message on devices where it may still be under
/// way.
template <dat::streams S>
[[nodiscard]] dat::expected<dat::event<S>> take_arrived(dat::evd<S>& at) {
  return this_device().completes_at_peer ? at.dequeue() : at.wait(patience);
}

/// Takes the completion of a message that its peer refuses, on a device whose requests complete before they have
/// reached the peer: a success, or a failure when the refusal has arrived first.
template <dat::streams S>
void take_refused_send(dat::evd<S>& at) {
  (void)must(at.template wait_for_any<dat::send_done, dat::dto_failure>(patience));
}

/// The features that some cases need, and that iWARP lacks.
enum class feature { windows, immediate_data, datagrams, descriptors, atomics, zero_based, solicited_waits };
[[nodiscard]] bool has(feature what);
/// Whether each call that asks this device for the feature fails with `model_not_supported`. Defined in needs.cpp.
[[nodiscard]] bool refuses(feature what);

/// Ends a case that needs a feature, on a device that lacks it: checks that dat refuses the feature there.
#define NEEDS_FEATURE(what)                                                                                            \
  do {                                                                                                                 \
    if (!::device::has(::device::feature::what)) {                                                                     \
      CHECK(::device::refuses(::device::feature::what));                                                               \
      SKIP("this device lacks " #what);                                                                                \
    }                                                                                                                  \
  } while (false)

} // namespace device
