// What differs between the devices that the tests have run on. docs/devices.md has the table for readers.
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
  bool reports_breaks;     ///< a peer that is gone is told from one that has disconnected
  bool attempts_end_at_once;
  std::size_t longest_message; ///< max_message_size; 0: not the same for all
  bool names_local_faults; ///< a request that the adapter itself refuses fails with its own status; else it is flushed
  bool large_regions;      ///< of more than 4 GiB
  bool atomic_writes;
  bool long_datagram_breaks; ///< a datagram longer than its receive breaks the endpoint; else it is dropped
};

/// The most bytes of a request, on any device: dat numbers them with 31 bits.
inline constexpr std::size_t longest_length = 0x7fffffff;

/// The row of the first adapter.
[[nodiscard]] inline const device_row& this_device() {
  static constexpr device_row rows[] = {
      {"rxe", 56, 8, 35, 28, true, true, true, true, std::size_t{8} << 20, true, true, false, true}, // of Linux 6.1
      {"rxe", 56, 8, 35, 28, true, true, true, true, longest_length, false, false, true, false},     // of Linux 6.12
      {"siw", 0, ECONNREFUSED, ECONNRESET, ECONNRESET, false, false, false, false, 0, true, true, false, true},
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

} // namespace device
