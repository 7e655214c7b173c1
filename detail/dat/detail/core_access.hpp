// The way from a handle to what is behind it, for the headers that join dat to something else.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/cno.hpp>
#include <dat/ep.hpp>
#include <dat/evd.hpp>
#include <dat/ia.hpp>

#include <dat/detail/core.hpp>

namespace dat::inline v0::detail {

struct core_access {
  template <streams S>
  [[nodiscard]] static const ref<evd_core>& of(const evd<S>& e) noexcept {
    return e.core_.shared();
  }
  template <streams S>
  [[nodiscard]] static const ref<evd_core>& of(const evd_ref<S>& e) noexcept {
    return e.shared();
  }
  [[nodiscard]] static const ref<cno_core>& of(const cno& c) noexcept { return c.core_.shared(); }
  [[nodiscard]] static const ref<ia_core>& of(const ia& i) noexcept { return i.core_.shared(); }
  [[nodiscard]] static ep_core* of(ep_ref e) noexcept { return e.entity(); }
};

} // namespace dat::inline v0::detail
