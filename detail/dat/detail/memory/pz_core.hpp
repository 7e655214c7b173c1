// The protection zone behind dat::pz.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/adapter/ia_core.hpp>
#include <dat/detail/memory/lmr_core.hpp>

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

namespace dat { inline namespace v0 { namespace detail {

class pz_core final : public ia_child {
public:
  [[nodiscard]] static result<ref<pz_core>> create(const ref<ia_core>& ia) noexcept;
  explicit pz_core(ref<ia_core> ia) noexcept : ia_child(std::move(ia), table) {}

  [[nodiscard]] ibv_pd* pd() const noexcept { return pd_; }

  std::atomic<std::uint32_t> users{0}; ///< number of endpoints, regions and windows

  // Used by the table that ia_child::type_for makes.
  ~pz_core() = default;
  void teardown() noexcept;
  static constexpr child_kind kind_of_child = child_kind::zone;

private:
  static const child_type table;
  ibv_pd* pd_ = nullptr;
};

inline constexpr child_type pz_core::table = type_for<pz_core>();

}}} // namespace dat::v0::detail

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/memory/lmr_core.ipp>
#include <dat/detail/memory/pz_core.ipp>
#endif
