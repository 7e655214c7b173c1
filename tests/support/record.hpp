// Records the rules of the catalogue that a test case shows, at the assertion. docs/conformance/README.md describes how
// the ledger uses the record.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <functional>
#include <initializer_list>
#include <string>

namespace support {

/// Records that the assertion before this line shows the rules, if the test case passes: `SHOWS("EP-028", "EP-030");`.
/// Only the thread that runs the case may call it. A SHOWS without an assertion before it, since the last SHOWS or the
/// start of the case, fails the case.
#define SHOWS(...)                                                                                                     \
  do {                                                                                                                 \
    if (!::support::recorded(::support::record_kind::shows, __LINE__, {__VA_ARGS__}))                                  \
      FAIL_CHECK("SHOWS without an assertion before it");                                                              \
  } while (false)

/// Records that the assertion before this line shows how dat deviates from the rules.
#define DEVIATES(...)                                                                                                  \
  do {                                                                                                                 \
    if (!::support::recorded(::support::record_kind::deviates, __LINE__, {__VA_ARGS__}))                               \
      FAIL_CHECK("DEVIATES without an assertion before it");                                                           \
  } while (false)

enum class record_kind { shows, deviates };
/// False when no assertion has run since the last record of another line. Defined in main.cpp.
[[nodiscard]] bool recorded(record_kind kind, int line, std::initializer_list<const char*> rules);

/// The parts that a test program adds to its record; they are set before main.
struct world_of_tests {
  std::function<std::string()> describe;    ///< the devices, for instance "rx1 (rxe)"
  std::function<void()> begin_case;         ///< before each case
  std::function<void()> end_run;            ///< after each run of a case, which runs once for each section
  std::function<std::string()> left_behind; ///< after each case: the objects that are left; empty when none are
};
world_of_tests& world();

} // namespace support
