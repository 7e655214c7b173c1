// A reactor that a test runs itself, and timers that record their numbers.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/progress/reactor.hpp>

#include <support/catch.hpp>

#include <poll.h>
#include <vector>

namespace reactors {

using dat::detail::reactor;
using dat::detail::task;

struct opened : reactor {
  opened() { REQUIRE(open() == 0); }
  bool ready() const {
    pollfd p{fd(), POLLIN, 0};
    return ::poll(&p, 1, 0) == 1;
  }
};

struct noting : task {
  std::vector<int>* fired_numbers = nullptr;
  int number = 0;
  explicit noting(std::vector<int>& into, int n) : fired_numbers(&into), number(n) {
    run = [](task& t) noexcept {
      auto& self = static_cast<noting&>(t);
      self.fired_numbers->push_back(self.number);
    };
  }
};

inline const auto now = [] { return dat::detail::clock::now(); };

} // namespace reactors
