// Definitions of pz_core.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/inside_dat.hpp>
#include <dat/detail/memory/pz_core.hpp>
#include <dat/detail/text/errno.hpp>

#include <cerrno>
#include <new>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL result<ref<pz_core>> pz_core::create(const ref<ia_core>& ia) noexcept {
  const inside_dat section;
  static constexpr const char* call = "ia.create_pz";
  if (ia->closed()) return error(return_type::invalid_handle, return_subtype::handle_ia).at(call, object_kind::ia);
  constexpr auto resource = return_subtype::resource_protection_domain;
  ref<pz_core> pz(new (std::nothrow) pz_core(ia), adopt);
  if (!pz) return error(return_type::insufficient_resources, resource).at(call, object_kind::pz);
  if (auto ok = pz->take_place(resource); !ok) return ok.assume_error().at(call, object_kind::pz);
  pz->pd_ = ibv_alloc_pd(ia->context());
  if (!pz->pd_) return map_errno(errno, resource).at(call, object_kind::pz).from("ibv_alloc_pd", errno);
  pz->publish();
  return pz;
}

DAT_DECL void pz_core::teardown() noexcept {
  if (pd_) ibv_dealloc_pd(pd_);
  pd_ = nullptr;
}

}}} // namespace dat::v0::detail
