// A shared object that hides all symbols it can; built twice and loaded privately by shared_objects_test.cpp.
// SPDX-License-Identifier: BSL-1.0
#include <dat/expected.hpp>

#include <dat/detail/posting/ep_posting.hpp>
#include <dat/detail/posting/shared_queue.hpp>

#define EXPORT extern "C" [[gnu::visibility("default")]]

EXPORT const std::error_category* the_category() noexcept { return &dat::category(); }

EXPORT void make_code(std::error_code& into) noexcept { into = dat::error(dat::return_type::timeout_expired).code(); }

EXPORT void throw_failure() {
  const dat::expected<int> none = dat::error(dat::return_type::queue_full);
  static_cast<void>(none.value());
}

EXPORT const void* the_null_ep() noexcept { return &dat::detail::null_ep; }
EXPORT const void* the_null_srq() noexcept { return &dat::detail::null_srq; }
EXPORT const void* the_null_qp() noexcept { return dat::detail::null_device_instance.qp(); }
