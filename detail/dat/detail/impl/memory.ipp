// Definitions of memory.hpp: registration of memory of the other kinds, and synchronisation.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/memory.hpp>

#include <dat/detail/base/inside_dat.hpp>
#include <dat/detail/endpoint/core.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <unistd.h>

namespace dat { inline namespace v0 { namespace detail {

/// Whether all of [first, first + bytes) is mapped as shared, according to the mappings of the process.
[[nodiscard]] DAT_DECL bool is_shared_mapping(const void* first, std::size_t bytes) noexcept {
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  if (!maps) return true; // the mappings are unknown, so the consumer's choice counts
  auto at = reinterpret_cast<std::uintptr_t>(first);
  const std::uintptr_t end = at + bytes;
  char line[512];
  bool starts = true; // long names of files come in pieces
  while (at < end && std::fgets(line, sizeof line, maps)) {
    unsigned long long low = 0;
    unsigned long long high = 0;
    char rights[5] = {};
    const bool entry = starts && std::sscanf(line, "%llx-%llx %4s", &low, &high, rights) == 3;
    starts = std::strchr(line, '\n') != nullptr;
    if (entry && low <= at && at < high && rights[3] == 's') at = high;
  }
  std::fclose(maps);
  return at >= end;
}

[[nodiscard]] DAT_DECL result<ref<lmr_core>> register_over(const ref<pz_core>& pz, lmr_core* original,
                                                           int access) noexcept {
  static constexpr const char* call = "register_over";
  if (!pz) return empty_handle(call, return_subtype::handle_pz);
  if (!original || !original->mr()) return empty_handle(call, return_subtype::handle_lmr);
  if (!original->of_process)
    return error(return_type::model_not_supported)
        .at(call, object_kind::lmr)
        .hint("The memory of a dmabuf has no address in this process: register the dmabuf once more.");
  const ibv_mr& from = *original->mr();
  const inside_dat section;
  return lmr_core::create_by(
      call, pz, from.length, access, "ibv_reg_mr",
      [&](int all) noexcept { return ibv_reg_mr(pz->pd(), from.addr, from.length, all); },
      [&](lmr_core& made) noexcept {
        made.kind = 1; // mem_type::lmr
        made.origin = ref(original);
      });
}

[[nodiscard]] DAT_DECL result<ref<lmr_core>> register_shared(const ref<pz_core>& pz, void* first, std::size_t bytes,
                                                             int access,
                                                             const std::array<std::byte, 40>& cookie) noexcept {
  static constexpr const char* call = "register_shared";
  constexpr std::uint8_t kind = 2; // mem_type::shared_virtual
  if (!pz) return empty_handle(call, return_subtype::handle_pz);
  if (bytes != 0 && !is_shared_mapping(first, bytes))
    return error(return_type::invalid_state)
        .at(call, object_kind::lmr)
        .hint("The memory is not mapped as shared: map it with MAP_SHARED from a memfd, a file or shm_open.");
  const auto unlike = [&](const ia_child& c) {
    const auto& other = static_cast<const lmr_core&>(c);
    return other.kind == kind && other.cookie == cookie && other.length() != bytes;
  };
  if (bytes != 0 && pz->ia().find(child_kind::memory, unlike))
    return error(return_type::invalid_parameter, return_subtype::arg4)
        .at(call, object_kind::lmr)
        .hint("A region of the same cookie has another size.");
  const inside_dat section;
  return lmr_core::create_by(
      call, pz, bytes, access, "ibv_reg_mr", [&](int all) noexcept { return ibv_reg_mr(pz->pd(), first, bytes, all); },
      [&](lmr_core& made) noexcept {
        made.kind = kind;
        made.cookie = cookie;
      });
}

[[nodiscard]] DAT_DECL result<ref<lmr_core>> register_on_demand(const ref<pz_core>& pz, void* first, std::size_t bytes,
                                                                int access) noexcept {
  static constexpr const char* call = "register_on_demand";
  if (!pz) return empty_handle(call, return_subtype::handle_pz);
  ibv_device_attr_ex device{};
  const int err = pz->dead() ? 0 : ibv_query_device_ex(pz->ia().context(), nullptr, &device);
  if (!pz->dead() && (err != 0 || (device.odp_caps.general_caps & IBV_ODP_SUPPORT) == 0))
    return error(return_type::model_not_supported)
        .at(call, object_kind::lmr)
        .hint("This adapter has no on-demand paging: use pz::register_memory.");
  const inside_dat section;
  return lmr_core::create_by(
      call, pz, bytes, access, "ibv_reg_mr",
      [&](int) noexcept { return ibv_reg_mr(pz->pd(), first, bytes, access | IBV_ACCESS_ON_DEMAND); },
      [](lmr_core& made) noexcept { made.forbid_windows(); });
}

[[nodiscard]] DAT_DECL result<ref<lmr_core>> register_relaxed_ordering(const ref<pz_core>& pz, void* first,
                                                                       std::size_t bytes, int access) noexcept {
  static constexpr const char* call = "register_relaxed_ordering";
  if (!pz) return empty_handle(call, return_subtype::handle_pz);
  // The flag is one of those that verbs ignores if the kernel does not support them.
  return lmr_core::create(call, pz, first, bytes, access | IBV_ACCESS_RELAXED_ORDERING);
}

[[nodiscard]] DAT_DECL result<ref<lmr_core>> register_zero_based(const ref<pz_core>& pz, void* first, std::size_t bytes,
                                                                 int access) noexcept {
  static constexpr const char* call = "register_zero_based";
  if (!pz) return empty_handle(call, return_subtype::handle_pz);
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  if (bytes != 0 && reinterpret_cast<std::uintptr_t>(first) % page != 0)
    return error(return_type::model_not_supported)
        .at(call, object_kind::lmr)
        .hint("Memory that is addressed from 0 must begin at a page: align it to the system's page size.");
  if (!pz->dead() && pz->ia().siw())
    return error(return_type::model_not_supported)
        .at(call, object_kind::lmr)
        .hint("Soft-iWARP has no regions that are addressed from 0.");
  const inside_dat section;
  return lmr_core::create_by(
      call, pz, bytes, access, "ibv_reg_mr_iova",
      [&](int all) noexcept { return ibv_reg_mr_iova(pz->pd(), first, bytes, 0, all); },
      [](lmr_core& made) noexcept {
        made.zero_based = true;
        made.iova = 0;
      });
}

[[nodiscard]] DAT_DECL result<ref<lmr_core>> register_dmabuf(const ref<pz_core>& pz, int descriptor,
                                                             std::uint64_t offset, std::size_t bytes, int access,
                                                             std::uint64_t iova) noexcept {
  static constexpr const char* call = "register_dmabuf";
  if (!pz) return empty_handle(call, return_subtype::handle_pz);
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto invalid = [](const char* hint) {
    return error(return_type::invalid_parameter, return_subtype::arg6).at(call, object_kind::lmr).hint(hint);
  };
  if (iova % page != offset % page)
    return invalid("`iova` and `offset` must have the same place within a page of the system.");
  if (bytes > ~iova) return invalid("The region would not end below the address 2^64: `iova` is too large.");
  const inside_dat section;
  return lmr_core::create_by(
      call, pz, bytes, access, "ibv_reg_dmabuf_mr",
      [&](int) noexcept { return ibv_reg_dmabuf_mr(pz->pd(), offset, bytes, iova, descriptor, access); },
      [&](lmr_core& made) noexcept {
        made.zero_based = iova == 0;
        made.iova = iova;
        made.of_process = false;
        made.forbid_windows(); // the kernel refuses IBV_ACCESS_MW_BIND here
      });
}

[[nodiscard]] DAT_DECL bool is_registered(ia_core& ia, std::uint64_t address, std::uint64_t length,
                                          std::uint32_t key) noexcept {
  if (length == 0) return true;
  return static_cast<bool>(ia.find(child_kind::memory, [&](const ia_child& c) {
    const auto& m = static_cast<const lmr_core&>(c);
    if (m.local_key() != key || address < m.address()) return false;
    const std::uint64_t from = address - m.address();
    return from <= m.length() && length <= m.length() - from;
  }));
}
[[nodiscard]] DAT_DECL expected<void> sync_checked(const char* call, const ref<ia_core>& ia, bool all) noexcept {
  if (!ia || ia->closed()) return empty_handle(call, return_subtype::handle_ia);
  if (!all)
    return error(return_type::invalid_parameter, return_subtype::arg2)
        .at(call, object_kind::lmr)
        .hint("Every segment must be of an lmr of this ia that is not closed.");
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return success();
}
[[nodiscard]] DAT_DECL expected<lmr_params> query_region(lmr_core* region, mem_priv rights,
                                                         bool remotely_accessible) noexcept {
  if (!region || region->dead() || !region->mr()) return empty_handle("lmr.query", return_subtype::handle_lmr);
  lmr_params p;
  p.ia = &region->ia();
  p.pz = region->pz();
  p.type = static_cast<mem_type>(region->kind);
  if (region->origin && !region->origin->dead()) p.origin = region->origin.get();
  if (region->kind == static_cast<std::uint8_t>(mem_type::shared_virtual)) p.cookie = region->cookie;
  p.rights = rights;
  p.zero_based = region->zero_based;
  p.lmr_key = region->mr()->lkey;
  if (remotely_accessible) p.remote_key = region->mr()->rkey;
  p.registered_address = region->address();
  p.registered_size = region->mr()->length;
  return p;
}

}}} // namespace dat::v0::detail
