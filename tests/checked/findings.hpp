// Collects the findings of a checked build.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

#include <dat/checked.hpp>

#include <array>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace checked_tests {

using namespace unit;
using dat::checked::finding;

inline std::vector<dat::checked::misuse> found; // written by one thread at a time

/// Collects the findings of a test.
struct findings {
  findings() {
    found.clear();
    dat::checked::on_misuse([](const dat::checked::misuse& m) noexcept { found.push_back(m); });
  }
  findings(const findings&) = delete;
  findings& operator=(const findings&) = delete;
  ~findings() { dat::checked::on_misuse(nullptr); }
};

} // namespace checked_tests
