// A shared object that hides all symbols it can; built twice and loaded privately by shared_objects_test.cpp.
// SPDX-License-Identifier: BSL-1.0
#include <dat/expected.hpp>

#define EXPORT extern "C" [[gnu::visibility("default")]]

EXPORT const std::error_category* the_category() noexcept { return &dat::category(); }

EXPORT void make_code(std::error_code& into) noexcept { into = dat::error(dat::return_type::timeout_expired).code(); }

EXPORT void throw_failure() {
  const dat::expected<int> none = dat::error(dat::return_type::queue_full);
  static_cast<void>(none.value());
}
