// The main function of every Catch2 program, and with Catch2 version 2 the framework itself. It also records data that
// the ledger needs beside the report: which assertion showed which rule, and on which devices the program ran.
// SPDX-License-Identifier: BSL-1.0
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_case_info.hpp>
#include <catch2/interfaces/catch_interfaces_config.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
using listener_base = Catch::EventListenerBase;
using assertion_ended_result = void;
#else
#define CATCH_CONFIG_RUNNER
#include <support/catch.hpp>
using listener_base = Catch::TestEventListenerBase;
using assertion_ended_result = bool;
#endif

#include <support/record.hpp>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <sys/utsname.h>
#include <vector>

namespace {

using rules_by_case = std::map<std::string, std::set<std::string>>;

/// The state of the case that runs.
struct {
  std::set<std::string> rules[2]; ///< indexed by record_kind
  bool fresh = false;             ///< an assertion has run since the last record
  int line = 0;                   ///< the line of the last record
  bool at_run_time = false;       ///< an assertion other than SUCCEED, which STATIC_REQUIRE becomes
} current;

/// The state of the program.
struct {
  std::size_t cases = 0;
  rules_by_case rules[2];
  std::set<std::string> types_only;
  std::map<std::string, std::string> left_behind;
} all;

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}
template <class Range>
std::string listed(const Range& texts) {
  std::string out;
  for (const auto& text : texts) out += (out.empty() ? "" : ", ") + quoted(text);
  return '[' + out + ']';
}
std::string by_case(const rules_by_case& rules) {
  std::string out;
  for (const auto& [name, ids] : rules) out += (out.empty() ? "\n  " : ",\n  ") + quoted(name) + ": " + listed(ids);
  return '{' + out + '}';
}

std::string date() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now))};
}

/// Writes the record to the file that DAT_TESTS_RECORD names.
void write(bool filtered) {
  const char* path = std::getenv("DAT_TESTS_RECORD");
  if (!path) return;
  const char* tree = std::getenv("DAT_TESTS_TREE");
  utsname system{};
  ::uname(&system);
  std::string left;
  for (const auto& [name, what] : all.left_behind)
    left += (left.empty() ? "\n  " : ",\n  ") + quoted(name) + ": " + quoted(what);
  std::ofstream(path) << "{\"tree\": " << quoted(tree ? tree : "") << ",\n\"date\": " << quoted(date())
                      << ",\n\"kernel\": "
                      << quoted(std::string(system.sysname) + ' ' + system.release + ' ' + system.machine)
                      << ",\n\"devices\": " << quoted(support::world().describe ? support::world().describe() : "")
                      << ",\n\"filtered\": " << (filtered ? "true" : "false") << ",\n\"cases\": " << all.cases
                      << ",\n\"types_only\": " << listed(all.types_only) << ",\n\"left_behind\": {" << left
                      << "},\n\"shows\": " << by_case(all.rules[0]) << ",\n\"deviates\": " << by_case(all.rules[1])
                      << "}\n";
}

// Version 3 has a pointer where version 2 has the value.
[[maybe_unused]] const Catch::TestCaseInfo& info_of(const Catch::TestCaseInfo& info) { return info; }
[[maybe_unused]] const Catch::TestCaseInfo& info_of(const Catch::TestCaseInfo* info) { return *info; }

class recorder : public listener_base {
public:
  using listener_base::listener_base;

  void testCaseStarting(const Catch::TestCaseInfo&) override {
    current = {};
    if (support::world().begin_case) support::world().begin_case();
  }
  void sectionStarting(const Catch::SectionInfo&) override { ++sections_; }
  void sectionEnded(const Catch::SectionStats&) override {
    // The case itself is the outermost section.
    if (--sections_ == 0 && support::world().end_run) support::world().end_run();
  }
  void assertionStarting(const Catch::AssertionInfo& info) override {
    if (info.macroName == "WARN") return;
    current.fresh = true;
    if (info.macroName != "SUCCEED") current.at_run_time = true;
  }
  assertion_ended_result assertionEnded(const Catch::AssertionStats&) override { return assertion_ended_result(); }
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    const std::string& name = info_of(stats.testInfo).name;
    ++all.cases;
    if (stats.totals.assertions.allOk() && stats.totals.testCases.failed == 0) {
      for (int kind = 0; kind < 2; ++kind)
        if (!current.rules[kind].empty())
          all.rules[kind][name].insert(current.rules[kind].begin(), current.rules[kind].end());
      if (!current.at_run_time) all.types_only.insert(name);
    }
    if (!support::world().left_behind) return;
    if (const auto what = support::world().left_behind(); !what.empty()) {
      all.left_behind[name] = what;
      std::fprintf(stderr, "'%s' leaves behind: %s\n", name.c_str(), what.c_str());
    }
  }
  void testRunEnded(const Catch::TestRunStats&) override { write(m_config->hasTestFilters()); }

private:
  int sections_ = 0;
};
CATCH_REGISTER_LISTENER(recorder)

} // namespace

namespace support {
#if DAT_TESTS_CATCH2 == 2
void assertion(assertion_kind kind, const char* file, unsigned line, const char* text,
               const Catch::ITransientExpression& expression) {
  using namespace Catch;
  struct {
    const char* name;
    ResultDisposition::Flags flags;
  } const kinds[] = {
      {"CHECK", ResultDisposition::ContinueOnFailure},
      {"CHECK_FALSE", ResultDisposition::ContinueOnFailure | ResultDisposition::FalseTest},
      {"REQUIRE", ResultDisposition::Normal},
      {"REQUIRE_FALSE", ResultDisposition::Normal | ResultDisposition::FalseTest},
  };
  const auto& [name, flags] = kinds[static_cast<int>(kind)];
  AssertionHandler handler(name, {file, line}, text, flags);
  handler.handleExpr(expression);
  handler.complete();
}
#endif
bool recorded(record_kind kind, int line, std::initializer_list<const char*> rules) {
  // Records in successive lines belong to one assertion.
  if (!current.fresh && (line < current.line || line > current.line + 8)) return false;
  current.fresh = false;
  current.line = line;
  for (const char* rule : rules) current.rules[static_cast<int>(kind)].insert(rule);
  return true;
}
world_of_tests& world() {
  static world_of_tests one;
  return one;
}
} // namespace support

int main(int argc, char** argv) {
  // A test program may be killed from outside: its output must not be lost in a buffer.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const int failed = Catch::Session().run(argc, argv);
  return failed == 0 && !all.left_behind.empty() ? 1 : failed;
}
