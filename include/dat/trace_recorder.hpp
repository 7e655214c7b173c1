// A recorder of trace points, which writes a file for Perfetto and Chrome.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/expected.hpp>
#include <dat/trace.hpp>

#include <atomic>
#include <cstddef>
#include <string>
#include <sys/types.h>
#include <vector>

namespace dat { inline namespace v0 { namespace trace {

/// Keeps the records of the program in memory from its construction on, and writes them in the JSON format of Chrome's
/// traces. https://ui.perfetto.dev and chrome://tracing show such a file. Each endpoint has its operations from the
/// post to the completion, its states, and the events of its connections. Each thread has the times when it sleeps on
/// an evd.
///
///     dat::trace::recorder recorder;             // a program that is built with DAT_TRACE
///     ...
///     recorder.write("trace.json");
///
/// Only one recorder may exist at a time, because it is the sink of the program. Not movable.
/// Thread safety: records are taken from any number of threads; the members are for one thread at a time.
class recorder : public sink {
public:
  /// Begins to record. `capacity` is the number of records that it has room for, of about 80 bytes each. It keeps the
  /// first records, and counts those without room. std::bad_alloc passes through.
  template <bool On = enabled>
  explicit recorder(std::size_t capacity = std::size_t{1} << 18) : sink(&take_one), kept_(capacity) {
    static_assert(On, "dat: a recorder needs a program whose source files all define DAT_TRACE (Meson: -Dtrace=true)");
    set_sink(this);
  }
  ~recorder() { stop(); }

  /// Ends the recording.
  /// Errors: none.
  /// Allocates: never.
  /// Blocks: as set_sink.
  void stop() noexcept;
  /// The number of records.
  [[nodiscard]] std::size_t size() const noexcept;
  /// The number of records that had no room.
  [[nodiscard]] std::size_t dropped() const noexcept;
  /// Ends the recording, and returns the trace as JSON. std::bad_alloc passes through.
  [[nodiscard]] std::string to_json();
  /// Ends the recording, and writes the trace to a file, which it creates or replaces.
  /// Errors: the errno of the file: `privileges_violation`, `invalid_parameter`, ...
  /// Allocates: yes; std::bad_alloc passes through.
  /// Blocks: while the file is written.
  /// Thread safety: as the class.
  [[nodiscard]] expected<void> write(const std::string& path);

private:
  struct kept {
    record what;
    ::pid_t thread = 0;
  };
  static void take_one(sink& self, const record& r) noexcept;

  std::vector<kept> kept_;
  std::atomic<std::size_t> next_{0}; // counts the records without room, too
  bool recording_ = true;
};

}}} // namespace dat::v0::trace

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/impl/trace_recorder.ipp>
#endif
