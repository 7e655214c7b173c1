// The differences between the devices that dat's tests have run on. dat-info prints them, and the tests expect them.
// docs/devices.md describes them for readers. SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <system_error>

namespace dat_info {

/// The first two numbers of a version of Linux.
struct linux_version {
  unsigned major_part = 0;
  unsigned minor_part = 0;
  // clang-tidy 14 takes the 0 of a defaulted comparison for a null pointer.
  friend auto operator<=>(const linux_version&, const linux_version&) = default; // NOLINT(modernize-use-nullptr)
};

/// The version in the release that uname reports: "6.12.9-amd64". {0, 0} when it does not begin with two numbers.
[[nodiscard]] inline linux_version version_of(std::string_view release) {
  linux_version v;
  const char* const end = release.data() + release.size();
  const auto dot = std::from_chars(release.data(), end, v.major_part);
  if (dot.ec != std::errc() || dot.ptr == end || *dot.ptr != '.') return {};
  return std::from_chars(dot.ptr + 1, end, v.minor_part).ec == std::errc() ? v : linux_version();
}

struct device_row {
  std::string_view name;
  std::uint32_t vendor_id; ///< as ia_attributes reports it
  linux_version seen_on;   ///< the kernel whose driver the tests have run on
  std::size_t padded;      ///< zeros fill the request of a program without dat up to this length; 0: it has its own
  int no_listener;         ///< non_peer_rejected::reason: no service point listens
  int dropped;             ///< the peer's program dropped the request, or its evd was full
  int peer_killed;         ///< the peer's process has ended
  bool immediate_data;
  bool waits_for_receives; ///< a message without a receive waits at its sender; otherwise it ends the connection
  bool reports_breaks;     ///< an ended peer is distinguished from one that has disconnected
  bool attempts_end_at_once;
  std::size_t longest_message; ///< max_message_size; 0: not the same for all
  bool names_local_faults;     ///< a request that the adapter itself refuses fails with its own status; otherwise it is
                               ///< flushed
  bool large_regions;          ///< regions of more than 4 GiB
  bool atomic_writes;
  bool flushes;              ///< memory with the rights of flushes; posts need a library that has them, too
  bool long_datagram_breaks; ///< a datagram longer than its receive breaks the endpoint; otherwise the device drops it
  bool infiniband;           ///< has windows, datagrams, connections by descriptors, and atomics
  bool completes_at_peer;    ///< when a send or write completes, the data is at the peer; otherwise it may still be in
                             ///< transit
  bool resizes_queues;       ///< evds and shared receive queues
  bool flushes_late;         ///< a request that is posted after the end of its connection completes as flushed
  bool pins_unreadable;      ///< memory that the program may not read can be registered for reading
  bool breaks_in_time;       ///< `ack_timeout` and `retry_count` decide when a connection without a peer breaks
  bool flushes_begun;        ///< a shared buffer that is receiving a message when its endpoint disconnects completes as
                             ///< flushed; otherwise the buffer is lost
  bool repeats_binds;        ///< a bind behind a request that is sent again is performed again, and fails
  bool reads_first_message;  ///< the device completes a first message that arrives before the accept of its peer has
                             ///< ended; otherwise the message may wait for the next one
};

/// The most bytes of a request, on any device: dat numbers them with 31 bits.
inline constexpr std::size_t longest_length = 0x7fffffff;

inline constexpr std::uint32_t vendor_of_rxe = 0xffffff;
inline constexpr std::uint32_t vendor_of_siw = 0x626d74;

inline constexpr device_row rxe_of_linux_6_1 = {
    .name = "rxe",
    .vendor_id = vendor_of_rxe,
    .seen_on = {6, 1},
    .padded = 56,
    .no_listener = 8,
    .dropped = 35,
    .peer_killed = 28,
    .immediate_data = true,
    .waits_for_receives = true,
    .reports_breaks = true,
    .attempts_end_at_once = true,
    .longest_message = std::size_t{8} << 20,
    .names_local_faults = true,
    .large_regions = true,
    .atomic_writes = false,
    .flushes = false,
    .long_datagram_breaks = true,
    .infiniband = true,
    .completes_at_peer = true,
    .resizes_queues = true,
    .flushes_late = true,
    .pins_unreadable = true,
    .breaks_in_time = true,
    .flushes_begun = true,
    .repeats_binds = false,
    .reads_first_message = true,
};
inline constexpr device_row rxe_of_linux_6_12 = [] {
  device_row row = rxe_of_linux_6_1;
  row.seen_on = {6, 12};
  row.longest_message = longest_length;
  row.names_local_faults = false;
  row.large_regions = false;
  row.atomic_writes = true;
  row.flushes = true;
  row.long_datagram_breaks = false;
  row.pins_unreadable = false;
  row.flushes_begun = false;
  row.repeats_binds = true;
  return row;
}();
inline constexpr device_row siw_of_linux_6_1 = {
    .name = "siw",
    .vendor_id = vendor_of_siw,
    .seen_on = {6, 1},
    .padded = 0,
    .no_listener = ECONNREFUSED,
    .dropped = ECONNRESET,
    .peer_killed = ECONNRESET,
    .immediate_data = false,
    .waits_for_receives = false,
    .reports_breaks = false,
    .attempts_end_at_once = false,
    .longest_message = 0,
    .names_local_faults = true,
    .large_regions = true,
    .atomic_writes = false,
    .flushes = false,
    .long_datagram_breaks = true,
    .infiniband = false,
    .completes_at_peer = false,
    .resizes_queues = false,
    .flushes_late = false,
    .pins_unreadable = true,
    .breaks_in_time = false,
    .flushes_begun = true,
    .repeats_binds = false,
    .reads_first_message = false,
};

/// The rows of a device are in the order of its kernels.
inline constexpr device_row device_table[] = {rxe_of_linux_6_1, rxe_of_linux_6_12, siw_of_linux_6_1};

/// The row of a device on a kernel: the last one that the kernel is not older than, or the first one of the device.
/// Null for a device that the tests have not run on.
[[nodiscard]] constexpr const device_row* find_device(std::uint32_t vendor_id, linux_version kernel) {
  const device_row* found = nullptr;
  for (const device_row& row : device_table)
    if (row.vendor_id == vendor_id && (!found || row.seen_on <= kernel)) found = &row;
  return found;
}

/// Calls `visit(key, subject, value)` for each difference of a row: `key` for programs, `subject` for readers.
template <class Visit>
void for_each_difference(const device_row& row, Visit visit) {
  visit("padded_private_data", "bytes to which a request of a program without dat is filled up (0: none)", row.padded);
  visit("reason_no_listener", "reason of non_peer_rejected when no service point listens", row.no_listener);
  visit("reason_dropped", "reason when the peer's program drops the request", row.dropped);
  visit("reason_peer_killed", "reason when the peer's process has ended", row.peer_killed);
  visit("immediate_data", "has immediate data", row.immediate_data);
  visit("infiniband", "has windows, datagrams, descriptors and atomics", row.infiniband);
  visit("atomic_writes", "has atomic writes", row.atomic_writes);
  visit("flushes", "has memory that peers may flush", row.flushes);
  visit("large_regions", "has regions of more than 4 GiB", row.large_regions);
  visit("pins_unreadable", "registers memory that the program may not read", row.pins_unreadable);
  visit("resizes_queues", "resizes evds and shared queues", row.resizes_queues);
  visit("longest_message", "bytes of the longest message (0: not the same for all)", row.longest_message);
  visit("waits_for_receives", "a message without a receive waits at its sender", row.waits_for_receives);
  visit("completes_at_peer", "data is at the peer when its request completes", row.completes_at_peer);
  visit("reports_breaks", "distinguishes an ended peer from one that disconnected", row.reports_breaks);
  visit("attempts_end_at_once", "an attempt to connect ends at once when it is cancelled", row.attempts_end_at_once);
  visit("breaks_in_time", "ack_timeout and retry_count decide when a connection breaks", row.breaks_in_time);
  visit("names_local_faults", "a request that the adapter refuses has its own status", row.names_local_faults);
  visit("flushes_late", "flushes what is posted after the end of a connection", row.flushes_late);
  visit("flushes_begun", "flushes a shared buffer into which a message is arriving", row.flushes_begun);
  visit("repeats_binds", "performs a bind again behind a send that is repeated", row.repeats_binds);
  visit("reads_first_message", "reads a message that arrives before the peer's accept has ended",
        row.reads_first_message);
  visit("long_datagram_breaks", "a datagram longer than its receive breaks the endpoint", row.long_datagram_breaks);
}

} // namespace dat_info
