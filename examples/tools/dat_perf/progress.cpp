// The line that shows the progress of a run.
// SPDX-License-Identifier: BSL-1.0
#include "progress.hpp"
#include "units.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <cstdio>

namespace perf {

namespace {
constexpr auto sample = std::chrono::milliseconds(100);
constexpr auto refresh = std::chrono::milliseconds(500);
constexpr std::size_t most_samples = 10'000;
} // namespace

progress::progress(const options& o) : o_(o), terminal_(isatty(STDERR_FILENO) == 1) {}

observer progress::begin(std::uint32_t size) {
  size_ = size;
  start_ = last_ = shown_ = clock::now();
  before_ = 0;
  course_.clear();
  return [this](clock::time_point now, std::uint64_t operations) { update(now, operations); };
}

void progress::update(clock::time_point now, std::uint64_t operations) {
  if (now - last_ < sample) return;
  const double rate = static_cast<double>(operations - before_) / std::chrono::duration<double>(now - last_).count();
  const double seconds = std::chrono::duration<double>(now - start_).count();
  if (course_.size() < most_samples) course_.emplace_back(seconds, rate);
  last_ = now;
  before_ = operations;
  if ((terminal_ || o_.progress) && (now - shown_ >= refresh || course_.size() == 1)) {
    shown_ = now;
    show(seconds, operations, rate);
  }
}

void progress::show(double seconds, std::uint64_t operations, double rate) {
  std::string line = fmt::format("{} s", static_cast<int>(seconds));
  if (o_.run.iterations == 0) line += fmt::format(" of {:.1f} s", o_.run.seconds);
  line += fmt::format(", {} done, {}", operations, as_rate(rate));
  if (o_.run.test != test::connections)
    line = fmt::format("{} bytes: {}, {}", as_size(size_), line, as_bandwidth(8. * size_ * rate));
  fmt::print(stderr, "{}{}{}", terminal_ ? "\r\x1b[K" : "", line, terminal_ ? "" : "\n");
  std::fflush(stderr);
}

void progress::end() {
  if (terminal_) fmt::print(stderr, "\r\x1b[K");
}

} // namespace perf
