// Collects the records of trace points, and the entries of the log.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

#include <dat/log.hpp>
#include <dat/trace.hpp>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

namespace trace_tests {

using namespace unit;
using dat::trace::point;
using dat::trace::record;

/// Collects the records while the object exists.
class records : public dat::trace::sink {
public:
  records() : sink(&take_one) { dat::trace::set_sink(this); }
  ~records() { dat::trace::set_sink(nullptr); }

  /// Takes the records of some points, or of all; the list is empty afterwards.
  std::vector<record> take(std::initializer_list<point> wanted = {}) {
    const std::lock_guard lock(mutex_);
    auto all = std::exchange(all_, {});
    if (wanted.size() != 0)
      std::erase_if(all,
                    [&](const record& r) { return std::find(wanted.begin(), wanted.end(), r.what) == wanted.end(); });
    return all;
  }
  /// Waits until a record of that point has arrived.
  void await(point wanted) {
    const auto has = [&] {
      const std::lock_guard lock(mutex_);
      return std::any_of(all_.begin(), all_.end(), [&](const record& r) { return r.what == wanted; });
    };
    while (!has()) std::this_thread::yield();
  }

private:
  static void take_one(sink& self, const record& r) noexcept {
    auto& to = static_cast<records&>(self);
    const std::lock_guard lock(to.mutex_);
    to.all_.push_back(r);
  }
  std::mutex mutex_;
  std::vector<record> all_;
};

/// A record as text, without its number and time.
inline std::string text_of(const record& r) {
  std::string text(to_string(r.what));
  const auto add = [&](const auto& more) { text.append(" ").append(more); };
  switch (r.what) {
  case point::post:
  case point::completion:
    add(to_string(r.operation));
    add(std::to_string(r.bytes));
    add(std::to_string(r.cookie));
    break;
  case point::refused:
    add(std::to_string(r.bytes));
    break;
  case point::state:
    add(r.from == dat::trace::no_state ? "none" : std::string(to_string(r.from)));
    add("->");
    add(r.to == dat::trace::no_state ? "none" : std::string(to_string(r.to)));
    break;
  case point::connection:
    add(r.event);
    break;
  default:
    break;
  }
  if (r.code != 0) text.append(" code ").append(std::to_string(r.code));
  return text;
}
inline std::vector<std::string> texts_of(const std::vector<record>& all) {
  std::vector<std::string> texts;
  for (const record& r : all) texts.push_back(text_of(r));
  return texts;
}
using texts = std::vector<std::string>;

} // namespace trace_tests
