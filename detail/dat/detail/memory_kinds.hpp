// How memory of the other kinds is registered; see memory.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ia.hpp>
#include <dat/lmr.hpp>
#include <dat/pz.hpp>

#include <dat/detail/core.hpp>
#include <dat/detail/fd.hpp>
#include <dat/detail/registration.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <type_traits>
#include <unistd.h>
#include <utility>

namespace dat::inline v0 {
template <class T, mem_priv P>
class zero_based_lmr;
} // namespace dat::inline v0

namespace dat::inline v0::detail {

/// Whether [first, first + bytes) is mapped, all of it as shared: what the system says of the process's mappings.
[[nodiscard]] inline bool is_shared_mapping(const void* first, std::size_t bytes) noexcept {
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  if (!maps) return true; // it cannot be known here: then the consumer's word counts
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

[[nodiscard]] inline result<ref<lmr_core>> register_shared(const ref<pz_core>& pz, void* first, std::size_t bytes,
                                                           int access,
                                                           const std::array<std::byte, 40>& cookie) noexcept {
  static constexpr const char* call = "register_shared";
  constexpr std::uint8_t kind = 2; // mem_type::shared_virtual
  if (!pz) return empty_handle(call, return_subtype::handle_pz);
  if (bytes != 0 && !is_shared_mapping(first, bytes))
    return error(return_type::invalid_state)
        .at(call, object_kind::lmr)
        .hint("the memory is not mapped as shared: map it with MAP_SHARED from a memfd, a file or shm_open");
  const auto unlike = [&](const ia_child& c) {
    const auto& other = static_cast<const lmr_core&>(c);
    return other.kind == kind && other.cookie == cookie && other.mr() && other.mr()->length != bytes;
  };
  if (bytes != 0 && pz->ia().find(child_kind::memory, unlike))
    return error(return_type::invalid_parameter, return_subtype::arg4)
        .at(call, object_kind::lmr)
        .hint("a region of the same cookie has another size");
  auto made = lmr_core::create_by(call, pz, bytes, access, "ibv_reg_mr",
                                  [&](int all) noexcept { return ibv_reg_mr(pz->pd(), first, bytes, all); });
  if (made) {
    made.assume_value()->kind = kind;
    made.assume_value()->cookie = cookie;
  }
  return made;
}

[[nodiscard]] inline result<ref<lmr_core>> register_on_demand(const ref<pz_core>& pz, void* first, std::size_t bytes,
                                                              int access) noexcept {
  static constexpr const char* call = "register_on_demand";
  if (!pz) return empty_handle(call, return_subtype::handle_pz);
  ibv_device_attr_ex device{};
  const int err = pz->dead() ? 0 : ibv_query_device_ex(pz->ia().context(), nullptr, &device);
  if (!pz->dead() && (err != 0 || (device.odp_caps.general_caps & IBV_ODP_SUPPORT) == 0))
    return error(return_type::model_not_supported)
        .at(call, object_kind::lmr)
        .hint("this adapter has no on-demand paging: use pz::register_memory");
  auto made = lmr_core::create_by(call, pz, bytes, access, "ibv_reg_mr", [&](int) noexcept {
    return ibv_reg_mr(pz->pd(), first, bytes, access | IBV_ACCESS_ON_DEMAND);
  });
  if (made) made.assume_value()->forbid_windows();
  return made;
}

[[nodiscard]] inline result<ref<lmr_core>> register_zero_based(const ref<pz_core>& pz, void* first, std::size_t bytes,
                                                               int access) noexcept {
  static constexpr const char* call = "register_zero_based";
  if (!pz) return empty_handle(call, return_subtype::handle_pz);
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  if (bytes != 0 && reinterpret_cast<std::uintptr_t>(first) % page != 0)
    return error(return_type::model_not_supported)
        .at(call, object_kind::lmr)
        .hint("memory that is addressed from 0 has to begin at a page: align it to the system's page size");
  auto made = lmr_core::create_by(call, pz, bytes, access, "ibv_reg_mr_iova",
                                  [&](int all) noexcept { return ibv_reg_mr_iova(pz->pd(), first, bytes, 0, all); });
  if (made) made.assume_value()->zero_based = true;
  return made;
}

[[nodiscard]] inline result<ref<lmr_core>> register_dmabuf(const ref<pz_core>& pz, int descriptor, std::uint64_t offset,
                                                           std::size_t bytes, int access) noexcept {
  static constexpr const char* call = "register_dmabuf";
  if (!pz) return empty_handle(call, return_subtype::handle_pz);
  auto made = lmr_core::create_by(call, pz, bytes, access, "ibv_reg_dmabuf_mr", [&](int) noexcept {
    return ibv_reg_dmabuf_mr(pz->pd(), offset, bytes, 0, descriptor, access);
  });
  if (made) {
    made.assume_value()->zero_based = true;
    made.assume_value()->forbid_windows();
  }
  return made;
}

/// Looks a segment's region up: a pointer to it would have to be kept alive by every segment.
[[nodiscard]] inline bool is_registered(ia_core& ia, std::uint64_t address, std::uint64_t length,
                                        std::uint32_t key) noexcept {
  if (length == 0) return true;
  return static_cast<bool>(ia.find(child_kind::memory, [&](const ia_child& c) {
    const auto& m = static_cast<const lmr_core&>(c);
    if (!m.mr() || m.mr()->lkey != key || address < m.address()) return false;
    const std::uint64_t from = address - m.address();
    return from <= m.mr()->length && length <= m.mr()->length - from;
  }));
}
[[nodiscard]] inline expected<void> sync_checked(const char* call, const ref<ia_core>& ia, bool all) noexcept {
  if (!ia || ia->closed()) return empty_handle(call, return_subtype::handle_ia);
  if (!all)
    return error(return_type::invalid_parameter, return_subtype::arg2)
        .at(call, object_kind::lmr)
        .hint("every segment must be of an lmr of this ia that is not closed");
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return success();
}
template <class... S>
[[nodiscard]] expected<void> sync(const char* call, const ref<ia_core>& ia, const S&... segments) noexcept {
  [[maybe_unused]] const auto known = [&](const raw_segment& s) {
    return is_registered(*ia, s.address, s.length, s.key);
  };
  return sync_checked(call, ia, !ia || ia->closed() || (known(raw_of(segments)) && ...));
}
template <class G>
[[nodiscard]] expected<void> sync_list(const char* call, const ref<ia_core>& ia, const G& list) noexcept {
  bool all = true;
  for (std::uint32_t i = 0; ia && !ia->closed() && i < list.count(); ++i)
    all = all && is_registered(*ia, list[i].addr, list[i].length, list[i].lkey);
  return sync_checked(call, ia, all);
}

/// The door to what handles keep to themselves.
struct memory_access {
  [[nodiscard]] static const ref<pz_core>& of(const pz& zone) noexcept { return zone.core_.shared(); }
  [[nodiscard]] static const ref<ia_core>& of(const ia& adapter) noexcept { return adapter.core_.shared(); }
  template <class T, mem_priv P>
  [[nodiscard]] static lmr_core* core(const lmr<T, P>& region) noexcept {
    return region.core_.get();
  }
  template <class T, mem_priv P>
  [[nodiscard]] static expected<lmr<T, P>> wrap(result<ref<lmr_core>>&& made) noexcept {
    if (!made) return made.assume_error();
    return lmr<T, P>(std::move(made).assume_value());
  }

  /// The checks of pz::register_memory, then `make(pointer, bytes)`.
  template <class Range, mem_priv P, class Make>
  [[nodiscard]] static auto with(Make make, Range& range) noexcept {
    static_assert(contiguous<Range>, "dat: memory is a contiguous range: a std::span, std::vector, std::array or a C "
                                     "array");
    using element = element_of<Range>;
    static_assert(elements_live_on<Range>, "dat: the adapter uses this memory after the call: pass a container "
                                           "that lives on (an lvalue), not a temporary");
    static_assert(std::is_trivially_copyable_v<element>,
                  "dat: only trivially copyable elements can be transferred as bytes");
    static_assert(!std::is_const_v<element> || !writes(P),
                  "dat: const memory can be registered for local_read and remote_read only");
    const std::span all(range);
    auto* first = const_cast<std::remove_const_t<element>*>(all.data());
    return wrap<element, P>(make(static_cast<void*>(first), all.size_bytes()));
  }
  template <class T, mem_priv P, mem_priv Q>
  [[nodiscard]] static expected<lmr<T, P>> again(pz& zone, const lmr<T, Q>& original) noexcept {
    static constexpr const char* call = "register_again";
    if (!of(zone)) return empty_handle(call, return_subtype::handle_pz);
    lmr_core* const from = core(original);
    if (!from || !from->mr()) return empty_handle(call, return_subtype::handle_lmr);
    auto made =
        lmr_core::create_by(call, of(zone), from->mr()->length, verbs_access(P), "ibv_reg_mr", [&](int all) noexcept {
          return ibv_reg_mr(of(zone)->pd(), from->mr()->addr, from->mr()->length, all);
        });
    if (made) {
      made.assume_value()->kind = 1; // mem_type::lmr
      made.assume_value()->origin = ref(from);
    }
    return wrap<T, P>(std::move(made));
  }
  template <class T, mem_priv P>
  [[nodiscard]] static expected<zero_based_lmr<T, P>> zero_based(expected<lmr<T, P>>&& made) noexcept {
    if (!made) return made.assume_error();
    return zero_based_lmr<T, P>(std::move(made).assume_value());
  }
  template <class T, mem_priv P>
  [[nodiscard]] static expected<zero_based_lmr<T, P>> dmabuf(pz& zone, int descriptor, std::uint64_t offset,
                                                             std::size_t count) noexcept {
    return zero_based(wrap<T, P>(register_dmabuf(of(zone), descriptor, offset, count * sizeof(T), verbs_access(P))));
  }

  template <class Params, class T, mem_priv P>
  [[nodiscard]] static expected<Params> query(const lmr<T, P>& region, mem_priv rights, bool reachable) noexcept {
    lmr_core* const c = core(region);
    if (!c || !c->mr()) return empty_handle("lmr.query", return_subtype::handle_lmr);
    Params p;
    p.ia = &c->ia();
    p.pz = c->pz();
    p.type = static_cast<decltype(p.type)>(c->kind);
    if (c->origin && !c->origin->dead()) p.origin = c->origin.get();
    if (c->kind == 2) p.cookie = c->cookie;
    p.rights = rights;
    p.zero_based = c->zero_based;
    p.lmr_key = c->mr()->lkey;
    if (reachable) p.remote_key = c->mr()->rkey;
    p.registered_address = c->address();
    p.registered_size = c->mr()->length;
    return p;
  }
};

} // namespace dat::inline v0::detail
