// A source file with exceptions: value() on an error throws here, even if other source files are compiled without
// exceptions.
// SPDX-License-Identifier: BSL-1.0
#include <dat/expected.hpp>

#include <cstdio>

int value_without_exceptions(const dat::expected<int>& e);

int main() {
  const dat::expected<int> good = 3;
  const dat::expected<int> bad = dat::error(dat::return_type::invalid_state);
  if (value_without_exceptions(good) != 3) return 1;
  try {
    (void)bad.value();
  } catch (const dat::failure& f) {
    std::printf("caught: %s\n", f.what());
    return 0;
  }
  return 2;
}
