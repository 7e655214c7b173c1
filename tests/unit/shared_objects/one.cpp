// A shared object that hides all symbols it can; built twice and loaded privately by shared_objects_test.cpp.
// SPDX-License-Identifier: BSL-1.0
#include <dat/expected.hpp>
#include <dat/ia.hpp>
#include <dat/registry.hpp>

#include <dat/detail/posting/ep_posting.hpp>
#include <dat/detail/posting/shared_queue.hpp>

#define EXPORT extern "C" [[gnu::visibility("default")]]

EXPORT const std::error_category* the_category() noexcept { return &dat::category(); }

EXPORT void make_code(std::error_code& into) noexcept { into = dat::error(dat::return_type::timeout_expired).code(); }

EXPORT void throw_failure() {
  const dat::expected<int> none = dat::error(dat::return_type::queue_full);
  static_cast<void>(none.value());
}

/// Adds a name without a device, or removes it, in the registry of the process.
EXPORT bool adds(const char* name) {
  auto all = dat::registry::system();
  return all && all.value().add({.name = name});
}
EXPORT bool removes(const char* name) {
  auto all = dat::registry::system();
  return all && all.value().remove(name);
}
EXPORT bool lists(const char* name) {
  const auto all = dat::registry::system();
  return all && all.value().find(name);
}
EXPORT dat::return_type opens(const char* name) noexcept {
  const auto opened = dat::ia::open(name);
  return opened ? dat::return_type::success : opened.error().type();
}

EXPORT const void* the_null_ep() noexcept { return &dat::detail::null_ep; }
EXPORT const void* the_null_srq() noexcept { return &dat::detail::null_srq; }
EXPORT const void* the_null_qp() noexcept { return dat::detail::null_device_instance.qp(); }
