// Definitions of lmr_core.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/adapter/ia_core.hpp>
#include <dat/detail/base/inside_dat.hpp>
#include <dat/detail/memory/lmr_core.hpp>
#include <dat/detail/memory/pz_core.hpp>
#include <dat/detail/text/errno.hpp>
#include <dat/detail/verbs/extended_post.hpp>
#include <dat/detail/work/work_watch.hpp>

#include <new>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL constexpr child_type lmr_core::table = [] {
  child_type t = type_for<lmr_core>();
  t.may_close = [](ia_child& c) noexcept {
    const ibv_mr* const mr = static_cast<lmr_core&>(c).mr();
    return mr ? c.ia().region_ends(*mr, false) : success();
  };
  return t;
}();

DAT_DECL lmr_core::lmr_core(ref<pz_core> pz) noexcept
    : ia_child(ref<ia_core>(&pz->ia()), table), pz_(pz.detach()), zone_(pz_) {
  constexpr unsigned any_window = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  bindable_ = (ia().device().device_cap_flags & any_window) != 0;
  pz_->users.fetch_add(1, std::memory_order_relaxed);
}
DAT_DECL lmr_core::~lmr_core() { pz_->release(); }

DAT_DECL result<ref<lmr_core>> lmr_core::allocate(const char* call, const ref<pz_core>& pz,
                                                  std::size_t length) noexcept {
  if (pz->dead()) return error(return_type::invalid_handle, return_subtype::handle_pz).at(call, object_kind::pz);
  if (length == 0)
    return error(return_type::invalid_parameter, return_subtype::arg3)
        .at(call, object_kind::lmr)
        .hint("An empty range cannot be registered.");
  if (length > pz->ia().device().max_mr_size)
    return error(return_type::invalid_parameter, return_subtype::arg3)
        .at(call, object_kind::lmr)
        .hint("A region has at most ia_attributes::max_lmr_block_size bytes.");
  ref<lmr_core> lmr(new (std::nothrow) lmr_core(pz), adopt);
  if (!lmr)
    return error(return_type::insufficient_resources, return_subtype::resource_memory).at(call, object_kind::lmr);
  if (auto ok = lmr->take_place(return_subtype::resource_memory_region); !ok)
    return ok.assume_error().at(call, object_kind::lmr);
  return lmr;
}

DAT_DECL bool lmr_core::has_rights(const ref<pz_core>& pz, int access) noexcept {
  constexpr int flushes = access_flush_global | access_flush_persistent;
  return (access & flushes & ~pz->ia().flush_access()) == 0;
}
DAT_DECL error lmr_core::no_such_rights(const char* call) noexcept {
  return error(return_type::model_not_supported)
      .at(call, object_kind::lmr)
      .hint("This adapter has no flushes: register without flush_global and flush_persistent.");
}

DAT_DECL error lmr_core::not_registered(const char* call, const char* verb, int err) noexcept {
  return map_errno(err, return_subtype::resource_memory_region, true).at(call, object_kind::lmr).from(verb, err);
}

DAT_DECL void lmr_core::complete() noexcept {
  address_ = iova.value_or(reinterpret_cast<std::uintptr_t>(mr_->addr));
  length_ = mr_->length;
  local_key_ = mr_->lkey;
  publish();
}

DAT_DECL result<ref<lmr_core>> lmr_core::create(const char* call, const ref<pz_core>& pz, void* address,
                                                std::size_t length, int access) noexcept {
  const inside_dat section;
  return create_by(
      call, pz, length, access, "ibv_reg_mr",
      [&](int all) noexcept { return ibv_reg_mr(pz->pd(), address, length, all); },
      [](const lmr_core& lmr) noexcept {
        work_watch<checked_build>::registered(&lmr, lmr.mr()->addr, lmr.mr()->length, lmr.mr()->lkey);
      });
}

DAT_DECL void lmr_core::teardown() noexcept {
  work_watch<checked_build>::unregistered(this);
  if (users.load(std::memory_order_acquire) != 0) ia().release_windows(*this);
  if (mr_) (void)ia().region_ends(*mr_, true);
  if (mr_) ibv_dereg_mr(mr_);
  mr_ = nullptr;
  pz_->users.fetch_sub(1, std::memory_order_release);
}

}}} // namespace dat::v0::detail
