// Programs on other hosts, by ssh, Slurm, MPI or a command of the user.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "options.hpp"

#include <sys/types.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace perf {

/// The command that runs dat-perf with `arguments` on `host`.
[[nodiscard]] std::vector<std::string> command_on(const options& o, const std::string& host,
                                                  const std::vector<std::string>& arguments);
/// Throws when the launcher is not installed.
void need_launcher(const options& o);

/// A process. It ends, at the latest, with its object.
class child {
public:
  /// With `serves`, its standard input stays open until `end_input`, and first_line reads its output.
  child(const std::vector<std::string>& command, bool serves);
  child(const child&) = delete;
  child& operator=(const child&) = delete;
  ~child();

  /// Returns the first line of output. Empty when the process ends first, or prints no line before `until`.
  [[nodiscard]] std::optional<std::string> first_line(clock::time_point until);
  void end_input();
  /// Waits until the process has ended, and returns whether it has.
  bool wait(clock::time_point until);
  /// A descriptor that becomes readable when the process ends.
  [[nodiscard]] int descriptor() const { return ended_; }
  [[nodiscard]] std::string output() const; ///< for a process that does not serve
  /// The cause of a failure of the process: the last line of its errors, or its exit code.
  [[nodiscard]] std::string problem() const;
  [[nodiscard]] int exit_code() const { return code_; }

private:
  struct closer {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  using file = std::unique_ptr<std::FILE, closer>;
  [[nodiscard]] static std::string content(const file& of);

  std::string program_;
  file output_, errors_;
  pid_t pid_ = -1;
  int ended_ = -1, input_ = -1, lines_ = -1;
  int code_ = -1;
};

} // namespace perf
