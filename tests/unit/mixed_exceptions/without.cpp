// A source file without exceptions that takes the value of a result.
// SPDX-License-Identifier: BSL-1.0
#include <dat/expected.hpp>

int value_without_exceptions(const dat::expected<int>& e) { return e.value(); }
