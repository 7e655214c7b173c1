// Definitions of search.
// SPDX-License-Identifier: BSL-1.0
#include "search.hpp"

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace schedule::impl {

std::size_t search::choose(std::size_t options) noexcept {
  if (options == 1) return 0;
  if (at_ == path_.size()) path_.emplace_back();
  choice& c = path_[at_++];
  if (c.options == 0) c.options = options;
  if (c.options != options || c.taken >= options) {
    std::fprintf(stderr,
                 "choice %zu has %zu options in one run and %zu in another: the test depends on more than the order\n",
                 at_ - 1, c.options, options);
    std::_Exit(3);
  }
  return c.taken;
}

std::size_t search::choose_with_preemption(std::size_t options) noexcept {
  if (preemptions_ == most_) return 0;
  const std::size_t taken = choose(options);
  if (taken != 0) ++preemptions_;
  return taken;
}

bool search::advance() {
  while (!path_.empty() && path_.back().taken + 1 == path_.back().options) path_.pop_back();
  at_ = 0;
  preemptions_ = 0;
  if (path_.empty()) return false;
  ++path_.back().taken;
  return true;
}

std::string search::text() const {
  std::string all;
  for (std::size_t i = 0; i < path_.size(); ++i)
    if (path_[i].taken != 0) all += (all.empty() ? "" : ",") + std::to_string(i) + ':' + std::to_string(path_[i].taken);
  return all.empty() ? "none" : all;
}

void search::replay(const std::string& text) {
  std::istringstream in(text);
  for (std::string one; std::getline(in, one, ',');) {
    const std::size_t colon = one.find(':');
    if (colon == std::string::npos) continue; // `none`
    path_.resize(std::stoul(one.substr(0, colon)) + 1);
    path_.back().taken = std::stoul(one.substr(colon + 1));
  }
}

} // namespace schedule::impl
