// The results of a copy for a person or a program: progress bar, summary, JSON.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "observer.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace datcp {

class report final : public observer {
public:
  /// `bar`: draw the progress on standard error. `limit`: bytes per second, 0 for no limit.
  report(bool bar, std::uint64_t limit) : bar_(bar), limit_(limit) {}

  /// The following entries belong to this source, as the user wrote it.
  void source(std::string name) { source_ = std::move(name); }

  void expect(std::uint64_t bytes) override;
  void moved(const std::string& path, std::uint64_t bytes, bool resumed = false) override;
  void copied(const entry& what, const checksum& sum) override;
  void skipped(const entry& what) override;
  void problem(const std::string& path, const std::string& why) override;
  /// Reports a failure that ended the whole copy: one line.
  void fatal(const std::string& why);
  /// Removes the progress bar.
  void clear_bar();

  [[nodiscard]] bool ok() const noexcept { return problems_.empty() && fatal_.empty(); }
  /// The summary in one line; empty when nothing was copied and the reason was reported.
  [[nodiscard]] std::string summary() const;
  [[nodiscard]] std::string json() const;

private:
  using clock = std::chrono::steady_clock;
  struct file {
    std::string path;
    std::uint64_t bytes;
    checksum sum;
  };
  [[nodiscard]] std::string full_name(const std::string& path) const;
  [[nodiscard]] double seconds() const;
  void draw(const std::string& path);

  /// Waits until the moved bytes are within the limit. Limiting one side suffices: a receiver that waits returns no
  /// credits meanwhile.
  void keep_limit() const;

  bool bar_;
  std::uint64_t limit_;
  bool drawn_ = false;
  clock::time_point begin_ = clock::now(), last_drawn_{};
  std::string source_;
  std::uint64_t expected_ = 0, moved_ = 0, resumed_ = 0, skipped_bytes_ = 0;
  std::uint64_t directories_ = 0, symlinks_ = 0, skipped_ = 0;
  std::vector<file> files_;
  std::vector<std::pair<std::string, std::string>> problems_;
  std::string fatal_;
};

} // namespace datcp
