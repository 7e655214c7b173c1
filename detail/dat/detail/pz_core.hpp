// The protection zone behind dat::pz, and the memory region behind dat::lmr.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/ia_core.hpp>
#include <dat/detail/segment_access.hpp>

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

namespace dat::inline v0::detail {

class pz_core final : public ia_child {
public:
  [[nodiscard]] static result<ref<pz_core>> create(const ref<ia_core>& ia) noexcept {
    static constexpr const char* call = "ia.create_pz";
    if (ia->closed()) return error(return_type::invalid_handle, return_subtype::handle_ia).at(call, object_kind::ia);
    constexpr auto resource = return_subtype::resource_protection_domain;
    ref<pz_core> pz(new (std::nothrow) pz_core(ia), adopt);
    if (!pz) return error(return_type::insufficient_resources, resource).at(call, object_kind::pz);
    pz->pd_ = ibv_alloc_pd(ia->context());
    if (!pz->pd_) return map_errno(errno, resource).at(call, object_kind::pz).from("ibv_alloc_pd", errno);
    return pz;
  }

  explicit pz_core(ref<ia_core> ia) noexcept : ia_child(std::move(ia), table) {}

  [[nodiscard]] ibv_pd* pd() const noexcept { return pd_; }

  std::atomic<std::uint32_t> users{0}; ///< endpoints and regions

private:
  friend class ia_child;
  ~pz_core() = default;
  void teardown() noexcept {
    if (pd_) ibv_dealloc_pd(pd_);
    pd_ = nullptr;
  }

  static constexpr child_kind kind_of_child = child_kind::zone;
  static const child_type table;
  ibv_pd* pd_ = nullptr;
};

inline constexpr child_type pz_core::table = type_for<pz_core>();

class lmr_core final : public ia_child {
public:
  [[nodiscard]] static result<ref<lmr_core>> create(const ref<pz_core>& pz, void* address, std::size_t length,
                                                    int access) noexcept {
    static constexpr const char* call = "pz.register_memory";
    if (pz->dead()) return error(return_type::invalid_handle, return_subtype::handle_pz).at(call, object_kind::pz);
    if (length == 0)
      return error(return_type::invalid_parameter, return_subtype::arg3)
          .at(call, object_kind::lmr)
          .hint("an empty range cannot be registered");
    ref<lmr_core> lmr(new (std::nothrow) lmr_core(pz), adopt);
    if (!lmr)
      return error(return_type::insufficient_resources, return_subtype::resource_memory).at(call, object_kind::lmr);
    lmr->mr_ = ibv_reg_mr(pz->pd(), address, length, access);
    if (!lmr->mr_)
      return map_errno(errno, return_subtype::resource_memory_region, true)
          .at(call, object_kind::lmr)
          .from("ibv_reg_mr", errno);
    return lmr;
  }

  explicit lmr_core(ref<pz_core> pz) noexcept : ia_child(ref(&pz->ia()), table), pz_(std::move(pz)) {
    pz_->users.fetch_add(1, std::memory_order_relaxed);
  }

  [[nodiscard]] ibv_mr* mr() const noexcept { return mr_; }
  /// The zone as a segment of `bytes` bytes keeps it.
  [[nodiscard]] const pz_core* zone_of(std::size_t bytes) const noexcept {
    return bytes <= ia().max_message() / message_parts ? pz_.get() : marked_long(pz_.get());
  }
  [[nodiscard]] std::uint64_t address() const noexcept { return reinterpret_cast<std::uintptr_t>(mr_->addr); }

private:
  friend class ia_child;
  ~lmr_core() = default;
  void teardown() noexcept {
    if (mr_) ibv_dereg_mr(mr_);
    mr_ = nullptr;
    pz_->users.fetch_sub(1, std::memory_order_release);
  }

  ref<pz_core> pz_; // kept until the region object goes, so that zone pointers in segments stay distinct
  static constexpr child_kind kind_of_child = child_kind::memory;
  static const child_type table;
  ibv_mr* mr_ = nullptr;
};

inline constexpr child_type lmr_core::table = type_for<lmr_core>();

} // namespace dat::inline v0::detail
