// Progress bar, summary and JSON.
// SPDX-License-Identifier: BSL-1.0
#include "report.hpp"

#include "checksum.hpp"
#include "stop.hpp"
#include "text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <sys/ioctl.h>
#include <thread>

namespace datcp {

using namespace std::chrono_literals;

/// The name as the user would write it: replaces the first part of an entry's path by the source.
std::string report::full_name(const std::string& path) const {
  const auto slash = path.find('/');
  if (source_.empty()) return path;
  if (slash == std::string::npos) return source_;
  return source_ + (source_.ends_with('/') ? "" : "/") + path.substr(slash + 1);
}

double report::seconds() const { return std::chrono::duration<double>(clock::now() - begin_).count(); }

void report::expect(std::uint64_t bytes) { expected_ += bytes; }

void report::moved(const std::string& path, std::uint64_t bytes, bool resumed) {
  (resumed ? resumed_ : moved_) += bytes;
  if (limit_ > 0) keep_limit();
  if (!bar_ || clock::now() - last_drawn_ < 100ms) return;
  last_drawn_ = clock::now();
  draw(path);
}

void report::keep_limit() const {
  const std::chrono::duration<double> due(static_cast<double>(moved_) / static_cast<double>(limit_));
  while (clock::now() - begin_ < due && !stop_requested)
    std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(due - (clock::now() - begin_), 100ms));
}

void report::copied(const entry& what, const checksum& sum) {
  if (what.what == entry::kind::directory)
    ++directories_;
  else if (what.what == entry::kind::symlink)
    ++symlinks_;
  else
    files_.push_back({full_name(what.path), what.size, sum});
}

void report::skipped(const entry& what) {
  ++skipped_;
  skipped_bytes_ += what.size;
}

void report::problem(const std::string& path, const std::string& why) {
  clear_bar();
  problems_.emplace_back(full_name(path), why);
  fmt::print(stderr, "datcp: {}: {}\n", printable(problems_.back().first), printable(why));
}

void report::fatal(const std::string& why) {
  clear_bar();
  fatal_ = why;
  fmt::print(stderr, "datcp: {}\n", printable(why));
}

void report::clear_bar() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
  drawn_ = false;
}

void report::draw(const std::string& path) {
  ::winsize window{};
  const bool known = ::ioctl(::fileno(stderr), TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  const std::size_t columns = known ? window.ws_col : 80;

  const auto total = static_cast<double>(std::max(expected_, std::uint64_t{1}));
  const auto there = static_cast<double>(moved_ + resumed_ + skipped_bytes_);
  const double share = std::min(there / total, 1.0);
  const double rate = static_cast<double>(moved_) / std::max(seconds(), 1e-3);
  const auto left = rate > 0 ? as_time(std::max(total - there, 0.0) / rate) : std::string("?");
  constexpr std::size_t cells = 20;
  const auto full = static_cast<std::size_t>(share * cells);
  auto line = fmt::format("{:3.0f}% [{:#<{}}{:-<{}}] {} of {}, {}/s, {} left  ", share * 100, "", full, "",
                          cells - full, as_size(there), as_size(total), as_size(rate), left);
  const auto name = printable(full_name(path));
  if (line.size() + 10 < columns) line += name.substr(0, columns - line.size() - 1);
  fmt::print(stderr, "\r\033[K{}", line.substr(0, columns - 1));
  std::fflush(stderr);
  drawn_ = true;
}

std::string report::summary() const {
  if (!ok() && files_.empty() && directories_ + symlinks_ + skipped_ == 0) return {};
  auto text = counted(files_.size(), "file", "files");
  if (directories_ > 0) text += ", " + counted(directories_, "directory", "directories");
  if (symlinks_ > 0) text += ", " + counted(symlinks_, "link", "links");
  text += fmt::format(": {} moved in {:.2f} s ({}/s)", as_size(static_cast<double>(moved_)), seconds(),
                      as_size(static_cast<double>(moved_) / std::max(seconds(), 1e-3)));
  if (resumed_ > 0) text += fmt::format(", {} were there already", as_size(static_cast<double>(resumed_)));
  if (skipped_ > 0) text += fmt::format(", {} left alone", counted(skipped_, "complete file", "complete files"));
  if (!problems_.empty()) text += fmt::format(", {} NOT copied", problems_.size());
  if (!ok()) return text;
  if (files_.size() == 1) return text + fmt::format(", checksums agree: {}", to_hex(files_.front().sum));
  return files_.empty() ? text : text + ", all checksums agree";
}

std::string report::json() const {
  nlohmann::ordered_json j;
  j["ok"] = ok();
  if (!fatal_.empty()) j["error"] = fatal_;
  j["files"] = files_.size();
  j["directories"] = directories_;
  j["symlinks"] = symlinks_;
  j["skipped"] = skipped_;
  j["bytes"] = moved_;
  j["resumed_bytes"] = resumed_;
  j["seconds"] = seconds();
  j["bytes_per_second"] = static_cast<double>(moved_) / std::max(seconds(), 1e-9);
  j["checksum"] = "XXH3-128";
  j["copied"] = nlohmann::ordered_json::array();
  for (const auto& f : files_)
    j["copied"].push_back({{"path", f.path}, {"bytes", f.bytes}, {"checksum", to_hex(f.sum)}});
  j["problems"] = nlohmann::ordered_json::array();
  for (const auto& [path, why] : problems_) j["problems"].push_back({{"path", path}, {"reason", why}});
  // File names need not be UTF-8, but JSON must be.
  return j.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

} // namespace datcp
