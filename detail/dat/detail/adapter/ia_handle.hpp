// The owner of an ia_core in the handle of an ia.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/expected.hpp>

#include <dat/detail/adapter/ia_core.hpp>
#include <dat/detail/base/config.hpp>
#include <dat/detail/handle/handle.hpp>

#include <utility>

namespace dat { inline namespace v0 { namespace detail {

void release_adapter(ref<ia_core>& owner) noexcept;

/// Owns the ia_core in the handle of an ia, and keeps the adapter open.
class ia_handle : public unique_ref<ia_core, &release_adapter> {
public:
  ia_handle() noexcept = default;
  explicit ia_handle(ref<ia_core> core) noexcept : unique_ref(std::move(core)) {
    if (*this) get()->retain_adapter();
  }

  [[nodiscard]] expected<void> close(bool graceful) noexcept;
};

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/adapter/ia_handle.ipp>
#endif
