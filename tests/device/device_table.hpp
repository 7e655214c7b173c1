// The differences between the devices that the tests have run on. docs/devices.md has the table for readers.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "support.hpp"

#include <sys/utsname.h>

namespace device {

struct device_row {
  std::string_view name;
  std::size_t padded; ///< private data of a request arrives with zeros up to this length; 0: with its own length
  int no_listener;    ///< non_peer_rejected::reason: no service point listens
  int dropped;        ///< the peer's program dropped the request, or its evd was full
  int peer_killed;    ///< the peer's process has ended
  bool immediate_data;
  bool waits_for_receives; ///< a message without a receive waits at its sender
  bool reports_breaks;     ///< an ended peer is distinguished from one that has disconnected
  bool attempts_end_at_once;
  std::size_t longest_message; ///< max_message_size; 0: not the same for all
  bool names_local_faults; ///< a request that the adapter itself refuses fails with its own status; else it is flushed
  bool large_regions;      ///< regions of more than 4 GiB
  bool atomic_writes;
  bool flushes;              ///< memory with the rights of flushes; posts need a library that has them, too
  bool long_datagram_breaks; ///< a datagram longer than its receive breaks the endpoint; else it is dropped
  bool infiniband;           ///< has windows, datagrams, connections by descriptors, and atomics
  bool completes_at_peer; ///< when a send or write completes, the data is at the peer; else it may still be under way
  bool resizes_queues;    ///< evds and shared receive queues
  bool flushes_late;      ///< a request that is posted after the end of its connection completes as flushed
  bool pins_unreadable;   ///< memory that the program may not read can be registered for reading
  bool breaks_in_time;    ///< `ack_timeout` and `retry_count` decide when a connection without a peer breaks
  bool flushes_begun; ///< a shared buffer into which a message arrives when its endpoint disconnects; else it is lost
  bool repeats_binds; ///< a bind behind a request that is sent again is performed again, and fails
};

/// The reason why a case ends on a device that lacks one of these.
inline constexpr const char* no_late_flush = "this device does not flush what is posted after the end of a connection";
inline constexpr const char* no_wait = "this device ends a connection whose message finds no receive";
inline constexpr const char* completes_early = "on this device a request has completed before it has reached its peer";
inline constexpr const char* loses_begun = "this device loses the shared buffer into which a message is arriving";
inline constexpr const char* tcp_repeats = "on this device TCP repeats for minutes before a connection breaks";

/// The most bytes of a request, on any device: dat numbers them with 31 bits.
inline constexpr std::size_t longest_length = 0x7fffffff;

/// The row of the first adapter.
[[nodiscard]] inline const device_row& this_device() {
  static constexpr device_row rows[] = {
      {"rxe", 56,   8,    35,   28,   true, true, true, true, std::size_t{8} << 20, true, true, false, false,
       true,  true, true, true, true, true, true, true, false}, // the driver of Linux 6.1
      {"rxe", 56,   8,     35,   28,   true, true, true,  true, longest_length, false, false,
       true,  true, false, true, true, true, true, false, true, false,          true}, // the driver of Linux 6.12
      {"siw", 0,     ECONNREFUSED, ECONNRESET, ECONNRESET, false, false, false, false, 0,    true, true,
       false, false, true,         false,      false,      false, false, true,  false, true, false},
  };
  static const device_row& here = []() -> const device_row& {
    const auto ia = must(dat::ia::open(addresses()[0]));
    if (ia.native_handle()->device->transport_type == IBV_TRANSPORT_IWARP) return rows[2];
    ::utsname linux_is{};
    ::uname(&linux_is);
    const bool later = in_lab() && !std::string_view(linux_is.release).starts_with("6.1.");
    return rows[later ? 1 : 0];
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
