// The protection zone behind dat::pz, and the memory region behind dat::lmr.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/ia_core.hpp>
#include <dat/detail/segment_access.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

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

  std::atomic<std::uint32_t> users{0}; ///< endpoints, regions, windows

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
  /// Memory of this process, at its own addresses.
  [[nodiscard]] static result<ref<lmr_core>> create(const ref<pz_core>& pz, void* address, std::size_t length,
                                                    int access) noexcept {
    return create_by("pz.register_memory", pz, length, access, "ibv_reg_mr",
                     [&](int all) noexcept { return ibv_reg_mr(pz->pd(), address, length, all); });
  }
  /// By what `make(access)` gives: a verbs region, or null and errno.
  template <class Make>
  [[nodiscard]] static result<ref<lmr_core>> create_by(const char* call, const ref<pz_core>& pz, std::size_t length,
                                                       int access, const char* verb, Make make) noexcept {
    if (pz->dead()) return error(return_type::invalid_handle, return_subtype::handle_pz).at(call, object_kind::pz);
    if (length == 0)
      return error(return_type::invalid_parameter, return_subtype::arg3)
          .at(call, object_kind::lmr)
          .hint("an empty range cannot be registered");
    ref<lmr_core> lmr(new (std::nothrow) lmr_core(pz), adopt);
    if (!lmr)
      return error(return_type::insufficient_resources, return_subtype::resource_memory).at(call, object_kind::lmr);
    // Windows may be bound to it, where the device has any. For that the system wants to write to the memory: where it
    // may not, the region goes without.
    const bool windows = (pz->ia().device().device_cap_flags & any_window) != 0;
    lmr->mr_ = make(windows ? access | IBV_ACCESS_MW_BIND : access);
    lmr->bindable_ = windows && lmr->mr_;
    if (!lmr->mr_ && windows && errno == EFAULT && (access & IBV_ACCESS_LOCAL_WRITE) == 0) lmr->mr_ = make(access);
    if (!lmr->mr_)
      return map_errno(errno, return_subtype::resource_memory_region, true)
          .at(call, object_kind::lmr)
          .from(verb, errno);
    return lmr;
  }

  explicit lmr_core(ref<pz_core> pz) noexcept : ia_child(ref(&pz->ia()), table), pz_(std::move(pz)), zone_(pz_.get()) {
    pz_->users.fetch_add(1, std::memory_order_relaxed);
  }

  [[nodiscard]] ibv_mr* mr() const noexcept { return mr_; }
  /// The zone as a segment of `bytes` bytes keeps it.
  [[nodiscard]] common_zone zone_of(std::size_t bytes) const noexcept {
    if (bytes == 0) return common_zone::no_bytes();
    return bytes <= ia().max_message() / message_parts ? zone_ : zone_.marked_long();
  }
  /// Of its first byte, as segments name it.
  [[nodiscard]] std::uint64_t address() const noexcept {
    return zero_based ? 0 : reinterpret_cast<std::uintptr_t>(mr_->addr);
  }
  [[nodiscard]] const pz_core* pz() const noexcept { return pz_.get(); }
  [[nodiscard]] bool bindable() const noexcept { return bindable_; }
  void forbid_windows() noexcept { bindable_ = false; }

  std::atomic<std::uint32_t> users{0}; ///< windows that are bound to it, or about to be
  static constexpr bool ends_with_handle = true;

  // How it came to be, for queries (memory.hpp). Written once, before anybody else has it.
  std::uint8_t kind = 0; ///< mem_type
  bool zero_based = false;
  ref<lmr_core> origin;               ///< the region that this one is another view of
  std::array<std::byte, 40> cookie{}; ///< of shared memory

private:
  friend class ia_child;
  ~lmr_core() = default;
  void teardown() noexcept {
    if (users.load(std::memory_order_acquire) != 0) ia().let_windows_go(*this);
    if (mr_) (void)ia().region_ends(*mr_, true);
    if (mr_) ibv_dereg_mr(mr_);
    mr_ = nullptr;
    pz_->users.fetch_sub(1, std::memory_order_release);
  }

  ref<pz_core> pz_;  // kept until the region object goes, so that zones of segments stay distinct
  common_zone zone_; // its word
  static constexpr unsigned any_window =
      IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  static constexpr child_kind kind_of_child = child_kind::memory;
  static const child_type table;
  ibv_mr* mr_ = nullptr;
  bool bindable_ = false;
};

inline constexpr child_type lmr_core::table = type_for<lmr_core>();

} // namespace dat::inline v0::detail
