// What differs between the devices that the tests have run on. docs/devices.md has the table for readers.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "support.hpp"

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
};

/// The row of the first adapter.
[[nodiscard]] inline const device_row& this_device() {
  static constexpr device_row rows[] = {
      {"rxe", 56, 8, 35, 28, true, true, true, true},
      {"siw", 0, ECONNREFUSED, ECONNRESET, ECONNRESET, false, false, false, false},
  };
  static const bool iwarp = [] {
    const auto ia = must(dat::ia::open(addresses()[0]));
    return ia.native_handle()->device->transport_type == IBV_TRANSPORT_IWARP;
  }();
  return rows[iwarp ? 1 : 0];
}

} // namespace device
